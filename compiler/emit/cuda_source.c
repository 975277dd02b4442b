/* cuda_source.c - the whole CUDA source of a model: preludes, one kernel per distinct stage. */
#include "compiler/emit/cuda_priv.h"

#include <stdlib.h>

static bool put_preludes(const plan *p, text *out) {
  static const char *const names[] = {"runtime/abi/cuda_abi.h",  "templates/cuda/prelude.cuh",
                                      "templates/cuda/math.cuh", "templates/cuda/dot.cuh",
                                      "templates/cuda/axis.cuh", "templates/cuda/team.cuh"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *t = emit_template(names[i]);
    if (!t) return false;
    text_puts(out, "\n");
    emit_header(t, out);
  }
  if (plan_dtype(p) != IR_F32)
    text_printf(out, "\ntypedef %s half; /* numbers of matrices */\n", ir_dtype_name(plan_dtype(p)));
  return true;
}

static void put_kernel(const emit_functions *f, size_t i, text *out) {
  text_puts(out, "\n");
  emit_fields_struct(&f->list[i].shape, &cuda_dialect, arena_printf((arena *)&f->mem, "%s_args", f->list[i].name), out);
  emit_function_put(f, i, out);
}

bool emit_cuda(const plan *p, text *out, text *out_launch, diag_sink *sink) {
  emit_functions f = {.p = p, .stage = cuda_stage};
  bool ok = emit_functions_make(&f, sink);
  if (ok) {
    text_puts(out, "/* Kernels of model '");
    emit_in_comment(out, ir_module_name(p->m));
    text_printf(out, "', written by taperc for target %s. */\n", p->target);
    ok = put_preludes(p, out);
    for (size_t i = 0; i < f.count && ok; i++) put_kernel(&f, i, out);
    cuda_put_launch(p, &f, out_launch);
    if (!ok)
      diag_report(sink, DC_EMIT_TEMPLATE, (diag_loc){0},
                  "a template header is missing from this program; build it anew");
  }
  arena_free(&f.mem);
  return ok && !out->failed && !out_launch->failed;
}

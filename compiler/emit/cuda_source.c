/* cuda_source.c - the whole CUDA source of a model: preludes, one kernel per distinct stage. */
#include "compiler/emit/cuda_priv.h"

#include <stdlib.h>

static bool put_preludes(const plan *p, text *out) {
  static const char *const names[] = {
      "runtime/abi/cuda_abi.h",  "templates/cuda/prelude.cuh", "templates/cuda/math.cuh", "templates/cuda/dot.cuh",
      "templates/cuda/axis.cuh", "templates/cuda/team.cuh",    "templates/cuda/gemm.cuh", "templates/cuda/sample.cuh"};
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

static void put_kernels(const emit_functions *f, text *out) {
  for (size_t i = 0; i < f->count; i++) {
    if (!*f->list[i].body) continue;
    text_puts(out, "\n");
    emit_fields_struct(&f->list[i].shape, &cuda_dialect, arena_printf((arena *)&f->mem, "%s_args", f->list[i].name),
                       out);
    emit_function_put(f, i, out);
  }
}

static bool put_source(const plan *p, const cuda_functions *f, text *out, const char **out_problem) {
  text_puts(out, "/* Kernels of model '");
  emit_in_comment(out, ir_module_name(p->m));
  text_printf(out, "', written by taperc for target %s. */\n", p->target);
  *out_problem = "a header";
  if (!put_preludes(p, out)) return false;
  put_kernels(&f->stages, out);
  put_kernels(&f->before, out);
  put_kernels(&f->after, out);
  text_puts(out, "\n");
  if (!cuda_gemm(p, out, out_problem)) return false;
  text_puts(out, "\n");
  return cuda_sample(p, out, out_problem);
}

bool emit_cuda(const plan *p, text *out, text *out_launch, diag_sink *sink) {
  cuda_functions f = {.stages = {.p = p, .stage = cuda_stage, .dialect = &cuda_dialect},
                      .before = {.p = p, .stage = cuda_before, .dialect = &cuda_dialect, .stem = "before"},
                      .after = {.p = p, .stage = cuda_after, .dialect = &cuda_dialect, .stem = "after"}};
  const char *problem = "";
  bool ok = emit_functions_make(&f.stages, sink) && emit_functions_make(&f.before, sink) &&
            emit_functions_make(&f.after, sink);
  if (ok && !put_source(p, &f, out, &problem)) {
    diag_report(sink, DC_EMIT_TEMPLATE, (diag_loc){0}, "a template is missing from this program (%s); build it anew",
                problem);
    ok = false;
  }
  if (ok) cuda_put_launch(p, &f, out_launch);
  arena_free(&f.stages.mem);
  arena_free(&f.before.mem);
  arena_free(&f.after.mem);
  return ok && !out->failed && !out_launch->failed;
}

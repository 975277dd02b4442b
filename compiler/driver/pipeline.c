#include "compiler/driver/pipeline.h"
#include "compiler/driver/words.h"
#include <stdlib.h>
#include <string.h>

static bool unknown_pass(diag_sink *sink, const char *name) {
  const char *names[128];
  size_t n = 0;
  for (; n < pass_count() && n < 127; n++) names[n] = pass_at(n)->name;
  names[n++] = "default";
  const char *nearest = words_nearest(name, names, n);
  diag_loc loc = {.file = "taperc"};
  if (nearest)
    diag_report(sink, DC_COMMAND_LINE, loc, "option '--passes': there is no pass '%s'; did you mean '%s'?", name,
                nearest);
  else
    diag_report(sink, DC_COMMAND_LINE, loc, "option '--passes': there is no pass '%s'; taperc opt --help lists them",
                name);
  return false;
}

bool pipeline_parse(const char *list, const pass_options *options, diag_sink *sink, const pass_info **out, size_t cap,
                    size_t *out_n) {
  size_t n = 0;
  for (const char *p = list; *p;) {
    char name[64];
    size_t length = strcspn(p, ",");
    if (length == 0 || length >= sizeof name) return unknown_pass(sink, length ? "..." : "");
    memcpy(name, p, length);
    name[length] = 0;
    const pass_info *info = pass_find(name);
    bool all = strcmp(name, "default") == 0;
    if (!info && !all) return unknown_pass(sink, name);
    if (cap - n < pass_count()) {
      diag_report(sink, DC_COMMAND_LINE, (diag_loc){.file = "taperc"},
                  "option '--passes': more than %zu passes; give fewer", cap - pass_count());
      return false;
    }
    if (all)
      n += pass_pipeline(options, options->use ? options->use : PASS_INFER, out + n, cap - n);
    else
      out[n++] = info;
    p += length;
    if (*p == ',' && !*++p) return unknown_pass(sink, "");
  }
  *out_n = n;
  return true;
}

/* Folds touch constants, never parameters: a pass for inference has no business in a training module. */
static bool suits(const ir_module *m, const pass_info *const *passes, size_t n, diag_sink *sink) {
  ir_value v = ir_first(m, IR_GLOBALS);
  while (v.id && !ir_is(m, v, IR_PARAM)) v = ir_next(m, v);
  for (size_t i = 0; v.id && i < n; i++) {
    if (passes[i]->use != PASS_INFER) continue;
    diag_report(sink, DC_MODEL_FILE, ir_loc_of(m, v),
                "pass '%s' is for inference, and the module has parameters to train ('%s'); make them const, or leave "
                "out the pass",
                passes[i]->name, ir_name_of(m, v) ? ir_name_of(m, v) : "?");
    return false;
  }
  return true;
}

bool pipeline_run(ir_module *m, const char *list, const pass_options *options, const pass_run_options *run,
                  diag_sink *sink, bool *out_bug) {
  const pass_info *passes[PIPELINE_MAX];
  size_t n = 0;
  *out_bug = false;
  if (!list)
    n = pass_pipeline(options, options->use ? options->use : PASS_INFER, passes, PIPELINE_MAX);
  else if (!pipeline_parse(list, options, sink, passes, PIPELINE_MAX, &n))
    return false;
  if (!suits(m, passes, n, sink)) return false;
  pass_run_options with_bug = *run;
  with_bug.out_bug = out_bug;
  return pass_run(m, sink, options, passes, n, &with_bug);
}

void pipeline_print_options(const pass_options *o, text *out) {
  static const char *const folds[] = {[FOLD_FULL] = "full", [FOLD_EXPLICIT] = "explicit", [FOLD_NONE] = "none"};
  text_printf(out, "-O%d --norms=%s --fold=%s%s%s", o->level, o->norms == NORMS_KERNEL ? "kernel" : "deferred",
              folds[o->fold], o->untie ? " --untie" : "", o->split_scale ? " --split-scale" : "");
  if (o->dtype != IR_F32) text_printf(out, " --dtype=%s", ir_dtype_name(o->dtype));
  if (o->clamp_rows <= 0) return;
  text_puts(out, " --clamp-rows=");
  words_put_number(out, o->clamp_rows);
}

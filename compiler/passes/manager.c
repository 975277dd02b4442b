/* manager.c - the registry of passes, the default pipeline, and running a list of them. */
#include "compiler/passes/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const pass_info passes[] = {
#define PASS(function, name, use, level, title) {name, pass_##function, use, level, title},
#include "compiler/passes/passes.def"
#undef PASS
};

size_t pass_count(void) { return sizeof passes / sizeof *passes; }
const pass_info *pass_at(size_t i) { return i < pass_count() ? &passes[i] : NULL; }

const pass_info *pass_find(const char *name) {
  for (size_t i = 0; i < pass_count(); i++)
    if (strcmp(passes[i].name, name) == 0) return &passes[i];
  return NULL;
}

/* The one place where options choose passes. */
static bool is_wanted(const pass_info *p, const pass_options *o) {
  bool folds = p->fn == pass_fold_scale || p->fn == pass_fuse_final_scale || p->fn == pass_split_scale;
  if (folds && o->fold != FOLD_FULL) return false;
  if ((p->fn == pass_detect_taper || p->fn == pass_detect_disabled) && o->fold == FOLD_NONE) return false;
  if ((p->fn == pass_defer_norm || p->fn == pass_center_writers) && o->norms == NORMS_KERNEL) return false;
  if (p->fn == pass_split_scale) return o->split_scale && o->level >= 1;
  if (p->fn == pass_clamp_rows) return o->clamp_rows > 0;
  if (p->fn == pass_cast_operands) return o->dtype != IR_F32;
  return p->level >= 0 && p->level <= o->level;
}

size_t pass_pipeline(const pass_options *options, pass_for use, const pass_info **out, size_t cap) {
  size_t n = 0;
  for (size_t i = 0; i < pass_count(); i++) {
    if (!(passes[i].use & use) || !is_wanted(&passes[i], options)) continue;
    if (n < cap) out[n] = &passes[i];
    n++;
  }
  return n < cap ? n : cap;
}

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static size_t op_count(const ir_module *m) {
  size_t n = 0;
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) n++;
  for (size_t e = 0; e < ir_entry_count(m); e++)
    for (ir_value v = ir_first(m, ir_entry_at(m, e)); v.id; v = ir_next(m, v)) n++;
  return n;
}

static void report_time(text *report, const char *name, uint64_t us, size_t ops) {
  text_printf(report, "%8llu.%03llu ms  %8zu ops  %s\n", (unsigned long long)(us / 1000),
              (unsigned long long)(us % 1000), ops, name);
}

static bool selects(const char *choice, const char *name) {
  return choice && (strcmp(choice, "all") == 0 || strcmp(choice, name) == 0);
}

static void print_to(const ir_module *m, text *report, const char *when, const char *name) {
  text_printf(report, "// IR %s %s\n", when, name);
  ir_print(m, report);
}

/* The text of the module before a pass that broke it, in the working folder. */
static void save_before(diag_sink *sink, const char *pass, const text *before) {
  char path[128];
  snprintf(path, sizeof path, "taperc-%s-%ld.tir", pass, (long)getpid());
  FILE *f = fopen(path, "wb");
  bool written = f && before->data && fwrite(before->data, 1, before->size, f) == before->size;
  if (f && fclose(f) != 0) written = false;
  diag_report(sink, DC_BUG, (diag_loc){0}, "pass '%s' broke the module: a defect of taperc, please report it; %s%s",
              pass, written ? "the IR before the pass is in " : "the IR before the pass could not be written to ",
              path);
}

/* print(parse(print(m))) == print(m)? The difference is reported by its first line. */
static bool round_trips(const char *printed, size_t size, diag_sink *sink) {
  text again = {0};
  ir_module *copy = ir_parse(printed, size, "<printed>", sink);
  if (!copy) return false;
  ir_print(copy, &again);
  bool same = !again.failed && again.size == size && memcmp(again.data, printed, size) == 0;
  if (!same) {
    size_t line = 1, i = 0;
    for (; i < size && i < again.size && again.data[i] == printed[i]; i++) line += printed[i] == '\n';
    diag_report(sink, DC_BUG, (diag_loc){0}, "the printed IR does not read back as itself: line %zu differs", line);
  }
  ir_module_free(copy);
  text_free(&again);
  return same;
}

typedef struct run_state {
  ir_module *m;
  diag_sink *sink;
  const pass_run_options *run;
  text before, after; /* verify_each: the text around the current pass */
  text times;         /* the table, put behind the printed IR */
} run_state;

static bool check_after(run_state *s, const char *pass) {
  text_free(&s->after);
  s->after = (text){0};
  bool fine = ir_verify(s->m, s->sink);
  if (fine) {
    ir_print(s->m, &s->after);
    fine = !s->after.failed && round_trips(s->after.data, s->after.size, s->sink);
  }
  if (!fine) {
    if (s->run->out_bug) *s->run->out_bug = true;
    save_before(s->sink, pass, &s->before);
    return false;
  }
  text swap = s->before;
  s->before = s->after;
  s->after = swap;
  return true;
}

static bool run_one(run_state *s, const pass_options *options, const pass_info *p) {
  pass_context c = {.m = s->m, .sink = s->sink, .options = options};
  text *report = s->run->report;
  if (report && selects(s->run->print_before, p->name)) print_to(s->m, report, "before", p->name);
  uint64_t start = now_us();
  bool fine = p->fn(&c);
  uint64_t took = now_us() - start;
  arena_free(&c.scratch);
  if (s->run->time_passes) report_time(&s->times, p->name, took, op_count(s->m));
  if (!fine) return false;
  if (report && selects(s->run->print_after, p->name)) print_to(s->m, report, "after", p->name);
  return !s->run->verify_each || check_after(s, p->name);
}

bool pass_run(ir_module *m, diag_sink *sink, const pass_options *options, const pass_info *const *list, size_t n,
              const pass_run_options *run) {
  static const pass_run_options plain = {0};
  run_state s = {.m = m, .sink = sink, .run = run ? run : &plain};
  bool fine = true;
  uint64_t start = now_us();
  if (s.run->verify_each) {
    fine = ir_verify(m, sink); /* a broken input is the input's fault */
    if (fine) ir_print(m, &s.before);
  }
  for (size_t i = 0; fine && i < n; i++) fine = run_one(&s, options, list[i]);
  /* without verify_each the verifier runs once, at the end: the name of the culprit is found by running again with it
   */
  if (fine && !s.run->verify_each && n > 0 && !ir_verify(m, sink)) {
    if (s.run->out_bug) *s.run->out_bug = true;
    diag_report(sink, DC_BUG, (diag_loc){0},
                "the passes broke the module: a defect of taperc; run again with --verify-each to see which one");
    fine = false;
  }
  if (s.run->report && s.run->time_passes) {
    report_time(&s.times, "all passes", now_us() - start, op_count(m));
    text_put(s.run->report, s.times.data, s.times.size);
  }
  text_free(&s.times);
  text_free(&s.before);
  text_free(&s.after);
  return fine;
}

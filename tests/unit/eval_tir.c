/* eval_tir - evaluates an entry of a .tir with the reference evaluation: what tests/numerics/ops.py drives.
   eval_tir FILE.tir IN.safetensors OUT.safetensors [--entry NAME] [--batch N] [--time N] [--global] [--round]
   IN: constants by the name in their attribute `tensor`, params by that or their name, and tokens, targets [batch, time], pos, len [batch],
   state.<i>. OUT: out.<i> (what the entry returns), state.<i> after the call, probe.<name>,
   result.<name>, gradient.<param>; all F64. */
#include "compiler/ir/eval.h"
#include "runtime/base/file.h"
#include "runtime/base/safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 256 };

typedef struct result {
  st_source source[MOST];
  size_t count;
} result;

static void die(const char *what, const char *message) {
  fprintf(stderr, "eval_tir: %s: %s\n", what, message);
  exit(1);
}

static char *label(const char *prefix, const char *name, size_t i) {
  char *s = malloc(strlen(prefix) + (name ? strlen(name) : 24) + 1);
  if (!s) die(prefix, "no memory");
  if (name)
    sprintf(s, "%s%s", prefix, name);
  else
    sprintf(s, "%s%zu", prefix, i);
  return s;
}

static void add(result *r, char *name, const ir_tensor *t) {
  size_t n = 1;
  if (r->count == MOST) die(name, "too many results");
  st_source *s = &r->source[r->count++];
  *s = (st_source){.name = name, .dtype = ST_F64, .rank = t->rank};
  for (uint32_t i = 0; i < t->rank; i++) n *= s->shape[i] = (uint64_t)t->dim[i];
  double *copy = malloc(n * sizeof(double));
  if (!copy) die(name, "no memory");
  memcpy(copy, t->data, n * sizeof(double));
  s->data = copy;
}

static void on_probe(void *user, const char *name, const ir_tensor *value) {
  add(user, label("probe.", name, 0), value);
}

static void on_result(void *user, const char *name, const ir_tensor *value) {
  add(user, label("result.", name, 0), value);
}

static const ir_module *running;
static void on_gradient(void *user, ir_value param, const ir_tensor *value) {
  add(user, label("gradient.", ir_name_of(running, param), 0), value);
}

static int32_t *ints(const st_file *in, const char *name) {
  const st_tensor *t = st_find(in, name);
  if (!t) return NULL;
  int32_t *out = malloc(t->elements * sizeof *out);
  if (!out) die(name, "no memory");
  for (uint64_t i = 0; i < t->elements; i++) {
    double v;
    st_read_f64(t, i, 1, &v);
    out[i] = (int32_t)v;
  }
  return out;
}

static void bind_constants(ir_module *m, const st_file *in) {
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    const char *name = ir_attr_string(m, v, IR_ATTR_TENSOR, ir_is(m, v, IR_PARAM) ? ir_name_of(m, v) : NULL);
    const st_tensor *t = name ? st_find(in, name) : NULL;
    if (!t) continue;
    if ((int64_t)t->elements != ir_elements(ir_type_of(m, v)) ||
        st_dtype_size(t->dtype) != ir_dtype_size(ir_type_of(m, v).dtype))
      die(name, "another size than the constant's");
    ir_bind(m, v, t->data);
  }
}

static size_t load_states(const ir_module *m, ir_region entry, const st_file *in, ir_tensor *states) {
  size_t n = 0;
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_ARG) || !ir_type_of(m, v).state) continue;
    char *name = label("state.", NULL, n);
    const st_tensor *t = st_find(in, name);
    free(name);
    ir_tensor *s = &states[n++];
    if (!t) continue;
    s->rank = t->rank;
    for (uint32_t i = 0; i < t->rank && i < IR_MAX_RANK; i++) s->dim[i] = (int64_t)t->shape[i];
    s->data = malloc(t->elements * sizeof(double));
    if (!s->data) die("states", "no memory");
    st_read_f64(t, 0, t->elements, s->data);
  }
  return n;
}

static ir_module *read_module(const char *path, diag_sink *sink) {
  char *source;
  size_t size;
  taper_error error = {0};
  if (file_read(path, (size_t)1 << 30, &source, &size, &error) != TAPER_OK) die(path, error.message);
  ir_module *m = ir_parse(source, size, path, sink);
  diag_render(sink, stderr, &(diag_render_options){0});
  free(source);
  if (!m) exit(1);
  return m;
}

static void run(const ir_module *m, ir_region entry, ir_eval_args *args, bool global, result *r) {
  taper_error error = {0};
  ir_value ret = ir_last(m, entry);
  size_t n = ir_operand_count(m, ret);
  ir_tensor *out = calloc(n + 1, sizeof *out);
  if (!out) die("results", "no memory");
  if (!global && ir_eval_entry(m, entry, args, out, n, &error) != TAPER_OK) die("evaluation", error.message);
  for (size_t i = 0; i < n; i++) {
    if (global && ir_eval_global(m, ir_operand(m, ret, i), &out[i], &error) != TAPER_OK)
      die("evaluation", error.message);
    add(r, label("out.", NULL, i), &out[i]);
    ir_tensor_free(&out[i]);
  }
  free(out);
}

int main(int argc, char **argv) {
  const char *entry_name = "main";
  ir_eval_args args = {.on_probe = on_probe, .on_result = on_result, .on_gradient = on_gradient};
  ir_tensor states[MOST] = {{0}};
  static result r;
  bool global = false;
  st_file in = {0};
  taper_error error = {0};
  if (argc < 4)
    die("usage",
        "eval_tir FILE.tir IN.safetensors OUT.safetensors [--entry NAME] [--batch N] [--time N] [--global] [--round]");
  for (int i = 4; i < argc; i++) {
    if (strcmp(argv[i], "--global") == 0)
      global = true;
    else if (strcmp(argv[i], "--round") == 0)
      args.round_f32 = true;
    else if (i + 1 == argc)
      die(argv[i], "no such option, or its value is missing");
    else if (strcmp(argv[i], "--entry") == 0)
      entry_name = argv[++i];
    else if (strcmp(argv[i], "--batch") == 0)
      args.batch = atoll(argv[++i]);
    else if (strcmp(argv[i], "--time") == 0)
      args.time = atoll(argv[++i]);
    else
      die(argv[i], "no such option");
  }
  diag_sink *sink = diag_sink_new();
  ir_module *m = read_module(argv[1], sink);
  if (st_open(argv[2], &in, &error) != TAPER_OK) die(argv[2], error.message);
  ir_region entry = ir_entry_find(m, entry_name);
  if (!entry.id) die(entry_name, "no such entry");
  bind_constants(m, &in);
  int32_t *tokens = ints(&in, "tokens"), *targets = ints(&in, "targets"), *pos = ints(&in, "pos"),
          *len = ints(&in, "len");
  args.tokens = tokens, args.targets = targets, args.pos = pos, args.len = len;
  args.user = &r;
  args.states = states;
  args.state_count = load_states(m, entry, &in, states);
  running = m;
  run(m, entry, &args, global, &r);
  for (size_t i = 0; i < args.state_count; i++) {
    if (states[i].data) add(&r, label("state.", NULL, i), &states[i]);
    ir_tensor_free(&states[i]);
  }
  if (st_write(argv[3], r.source, r.count, NULL, 0, 1, &error) != TAPER_OK) die(argv[3], error.message);
  for (size_t i = 0; i < r.count; i++)
    free((void *)(uintptr_t)r.source[i].name), free((void *)(uintptr_t)r.source[i].data);
  free(tokens), free(targets), free(pos), free(len);
  st_close(&in);
  ir_module_free(m);
  diag_sink_free(sink);
  return 0;
}

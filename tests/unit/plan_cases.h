/* plan_cases.h - models of every kind on nasty shapes, with what the reference evaluation makes of them; for the tests of each target. */
#ifndef TESTS_UNIT_PLAN_CASES_H
#define TESTS_UNIT_PLAN_CASES_H

#include "tests/unit/plan_run.h"

enum { MAX_DEFINES = 10, TOKENS = 21 };

typedef struct model_case {
  const char *label, *file, *source; /* one of them */
  front_define defines[MAX_DEFINES];
  double gate; /* of every gate */
  uint32_t tokens;
} model_case;

/* Ops that the examples lack: window, softcap, DyT, sandwich norms, interleaved rope, products head by head, slices,
 * concatenations, sums of products. */
static const char exotic[] =
    "model exotic(vocab = 37, d = 20, heads = 4, kv = 2, hd = 12, ff = 30, context = 40, w = 7) {\n"
    "  gate g;\n"
    "  param wte: [vocab, d];\n"
    "  param wpe: [context, d];\n"
    "  block attend(x) {\n"
    "    let h = taper_layer_norm(x, name = \"n1\", gate = g);\n"
    "    let q = rope(rms_norm(split_heads(linear(h, heads * hd, name = \"q\"), heads), name = \"qn\"), dims = 10, "
    "style = \"interleaved\");\n"
    "    let k = rope(scale(split_heads(linear(h, kv * hd, name = \"k\", bias = true), kv), name = \"kn\"), dims = 10, "
    "style = \"interleaved\");\n"
    "    let v = linear(split_heads(linear(h, kv * hd, name = \"v\"), kv), 9, name = \"vh\", bias = true);\n"
    "    let y = merge_heads(attention(q, k, v, window = w, softcap = 3.0));\n"
    "    return x + rms_norm(linear(y, d, name = \"o\"), name = \"post\");\n"
    "  }\n"
    "  block mlp(x) {\n"
    "    let h = dyt(x, name = \"dyt\");\n"
    "    let u = linear(h, ff, name = \"up\", bias = true);\n"
    "    let a = relu(slice(u, start = 0, size = 11)) * tanh(slice(u, start = 11, size = 11));\n"
    "    let b = concat(a, softcap(slice(u, start = 22, size = 8), cap = 2.0), sigmoid(slice(u, start = 3, size = "
    "5)));\n"
    "    let c = gelu(linear(h, 24, name = \"side\"));\n"
    "    return center(x + linear(b, d, name = \"down\") + linear(c, d, name = \"down2\") - linear(h, d, name = "
    "\"third\"));\n"
    "  }\n"
    "  forward(tokens) {\n"
    "    let x = embed(tokens, wte) * 3.0 + embed(positions(tokens), wpe);\n"
    "    repeat 2 as \"layers\" { x = attend(x); x = mlp(x); }\n"
    "    return softcap(linear(layer_norm(x, name = \"norm\"), vocab, name = \"head\", bias = true), cap = 20.0);\n"
    "  }\n"
    "}\n";
static const char one_number[] = /* every dimension 1 */
    "model one(vocab = 2, context = 1) {\n  param wte: [vocab, 1];\n  forward(tokens) {\n"
    "    let x = embed(tokens, wte);\n    let s = split_heads(linear(x, 2, name = \"a\"), 1);\n"
    "    x = x + linear(merge_heads(attention(s, s, s)), 1, name = \"o\");\n    return linear(x, weight = wte);\n  "
    "}\n}\n";

#define TIR_HEAD                                                                                                       \
  "tir 1\nmodule \"m\" {\n  param context = 24\n  param vocab = 19\n  %wte = const {tensor = \"wte\"} : f32[19,12]\n"  \
  "  %w = const {tensor = \"w\"} : f32[12,12]\n  %v = const {tensor = \"v\"} : f32[12]\n  %u = const {tensor = "       \
  "\"u\"} : f32[19,4]\n"                                                                                               \
  "  entry @forward {\n    %tokens = arg {name = \"tokens\"} : i32[B,T]\n    %pos = arg {name = \"pos\"} : i32[B]\n"   \
  "    %len = arg {name = \"len\"} : i32[B]\n    %x = embed %tokens, %wte : f32[B,T,12]\n    %p = positions %tokens, " \
  "%pos : i32[B,T]\n"
/* What is returned is a probe; a probe looks at a part; rows that no product made go to the cache; one value is stored,
 * sliced and rotated. */
static const char odd_probe[] = TIR_HEAD "    %l = linear %x, %w : f32[B,T,12]\n    %a = slice %l {start = 5, size = "
                                         "4} : f32[B,T,4]\n    %b = probe %a {name = \"part\"} : f32[B,T,4]\n"
                                         "    %r = relu %b : f32[B,T,4]\n    %h = linear %r, %u : f32[B,T,19]\n    %y "
                                         "= probe %h {name = \"all\"} : f32[B,T,19]\n    return %y\n  }\n}\n";
static const char odd_cache[] =
    TIR_HEAD "    %q = split_heads %x {heads = 3} : f32[B,T,3,4]\n    %s = inv_rms %q : f32[B,T,3,1]\n    %n = "
             "row_scale %q, %s : f32[B,T,3,4]\n    %k = rope %n, %p {dims = 2} : f32[B,T,3,4]\n"
             "    %y = attention %q, %k, %n {scale = 0x1.8p-1} : f32[B,T,3,4]\n    %z = merge_heads %y : f32[B,T,12]\n "
             "   %d = sub %z, %x : f32[B,T,12]\n"
             "    %e = mul %d, %d : f32[B,T,12]\n    %f = linear %e, %wte : f32[B,T,19]\n    return %f\n  }\n}\n";
static const char odd_heads[] =
    TIR_HEAD "    %l = linear %x, %w, %v : f32[B,T,12]\n    %h = split_heads %l {heads = 3} : f32[B,T,3,4]\n    %s = "
             "slice %h {start = 1, size = 2} : f32[B,T,3,2]\n"
             "    %c = concat %s, %h {axis = 3} : f32[B,T,3,6]\n    %k = concat %c, %c {axis = 2} : f32[B,T,6,6]\n    "
             "%m = merge_heads %k : f32[B,T,36]\n"
             "    %t = slice %m {start = 17, size = 19} : f32[B,T,19]\n    return %t\n  }\n}\n";
static const char odd_sums[] =
    TIR_HEAD "    %a = linear %x, %w : f32[B,T,12]\n    %i = inv_std %a : f32[B,T,1]\n    %b = row_scale %a, %i : "
             "f32[B,T,12]\n    %c = linear %b, %w : f32[B,T,12]\n"
             "    %j = inv_std %x : f32[B,T,1]\n    %d = row_scale %c, %j : f32[B,T,12]\n    %e = scale %d, %v : "
             "f32[B,T,12]\n    %f = add %e, %a : f32[B,T,12]\n"
             "    %g = center %f : f32[B,T,12]\n    %k = layer_norm %g, %v, %v : f32[B,T,12]\n    %m = add %k, %f : "
             "f32[B,T,12]\n    %o = linear %m, %wte : f32[B,T,19]\n"
             "    %r = linear %k, %wte : f32[B,T,19]\n    %q = exp %r : f32[B,T,19]\n    %t = div %o, %q : "
             "f32[B,T,19]\n    return %t\n  }\n}\n";

static const char odd_late[] = TIR_HEAD /* a summand that a later stage reads too */
    "    %i = linear %x, %w : f32[B,T,12]\n    %a = linear %i, %w : f32[B,T,12]\n    %b = add %x, %a : f32[B,T,12]\n   "
    " %c = linear %b, %w : f32[B,T,12]\n    %d = add %c, %x : f32[B,T,12]\n"
    "    %o = linear %d, %wte : f32[B,T,19]\n    return %o\n  }\n}\n";

/* A centred stream whose projection reads a norm, which its product's stage computes in passing; a probe beside a
 * scaled one. */
static const char odd_mean[] = TIR_HEAD
    "    %e = probe %x {name = \"m0\"} : f32[B,T,12]\n    %h = layer_norm %e, %v, %v : f32[B,T,12]\n    %a = linear "
    "%h, "
    "%w, %v : f32[B,T,12]\n    %b = add %e, %a : f32[B,T,12]\n    %q = probe %b, %v {name = \"m1\"} : f32[B,T,12]\n"
    "    %k = probe %b {name = \"m2\"} : f32[B,T,12]\n    %n = layer_norm %k, %v, %v : f32[B,T,12]\n"
    "    %o = linear %n, %wte : f32[B,T,19]\n    return %o\n  }\n}\n";

static const char odd_scale[] =
    TIR_HEAD "    %a = scale %x, %v : f32[B,T,12]\n    %o = linear %a, %wte : f32[B,T,19]\n    return %o\n  }\n}\n";

static const char odd_ops[] = TIR_HEAD /* what no example has */
    "    %a = linear %x, %w : f32[B,T,12]\n    %e = exp %a : f32[B,T,12]\n    %s = sqrt %e : f32[B,T,12]\n    %n = neg "
    "%s : f32[B,T,12]\n"
    "    %m = row_mean %n : f32[B,T,1]\n    %r = row_shift %n, %m : f32[B,T,12]\n    %h = shift %r, %v : f32[B,T,12]\n"
    "    %o = linear %h, %wte : f32[B,T,19]\n    return %o\n  }\n}\n";

static const model_case cases[] = {
    {"llama, live",
     "examples/tinystories.tmodel",
     NULL,
     {{"vocab", 50}, {"d", 40}, {"layers", 2}, {"heads", 2}, {"ff", 172}, {"context", 33}},
     1,
     TOKENS},
    {"llama, tapered",
     "examples/tinystories.tmodel",
     NULL,
     {{"vocab", 257}, {"d", 64}, {"layers", 2}, {"heads", 8}, {"ff", 176}, {"context", 128}},
     0,
     70},
    {"llama, between",
     "examples/tinystories.tmodel",
     NULL,
     {{"vocab", 17}, {"d", 12}, {"layers", 2}, {"heads", 1}, {"ff", 15}, {"context", 21}},
     0.25,
     TOKENS},
    {"gpt2, live",
     "examples/gpt2.tmodel",
     NULL,
     {{"vocab", 65}, {"d", 36}, {"layers", 2}, {"heads", 3}, {"context", 40}},
     1,
     TOKENS},
    {"gpt2, tapered",
     "examples/gpt2.tmodel",
     NULL,
     {{"vocab", 65}, {"d", 80}, {"layers", 2}, {"heads", 4}, {"context", 40}},
     0,
     TOKENS},
    {"neox",
     "examples/neox.tmodel",
     NULL,
     {{"vocab", 33}, {"d", 96}, {"layers", 2}, {"heads", 3}, {"context", 24}},
     1,
     TOKENS},
    {"neox, tapered",
     "examples/neox.tmodel",
     NULL,
     {{"vocab", 33}, {"d", 80}, {"layers", 2}, {"heads", 5}, {"context", 24}},
     0,
     TOKENS},
    {"qwen3",
     "examples/qwen3.tmodel",
     NULL,
     {{"vocab", 31},
      {"d", 24},
      {"layers", 2},
      {"heads", 14},
      {"kv_heads", 2},
      {"head_dim", 20},
      {"ff", 50},
      {"context", 48}},
     1,
     TOKENS},
    {"mlp", "examples/mlp.tmodel", NULL, {{"vocab", 29}, {"context", 32}}, 1, TOKENS},
    {"exotic", NULL, exotic, {{NULL, 0}}, 1, TOKENS},
    {"exotic, tapered", NULL, exotic, {{"hd", 16}}, 0, TOKENS},
    {"odd probe", NULL, odd_probe, {{NULL, 0}}, 1, TOKENS},
    {"odd cache", NULL, odd_cache, {{NULL, 0}}, 1, TOKENS},
    {"odd heads", NULL, odd_heads, {{NULL, 0}}, 1, TOKENS},
    {"odd sums", NULL, odd_sums, {{NULL, 0}}, 1, TOKENS},
    {"odd late", NULL, odd_late, {{NULL, 0}}, 1, TOKENS},
    {"odd mean", NULL, odd_mean, {{NULL, 0}}, 1, TOKENS},
    {"odd scale", NULL, odd_scale, {{NULL, 0}}, 1, TOKENS},
    {"odd ops", NULL, odd_ops, {{NULL, 0}}, 1, TOKENS},
    {"gpt2, between",
     "examples/gpt2.tmodel",
     NULL,
     {{"vocab", 41}, {"d", 20}, {"layers", 1}, {"heads", 1}, {"context", 22}},
     0.3,
     TOKENS},
    {"one number", NULL, one_number, {{NULL, 0}}, 1, 1},
};

typedef struct check {
  const model_case *k;
  ir_module *m;
  diag_sink *sink;
  ir_tensor reference, rounded; /* logits [1, T, vocab]: exact, and of a plain f32 program */
  ir_tensor probes[16];
  const char *probe_names[16];
  size_t probe_count;
  int32_t tokens[128];
} check;

static inline void keep_probe(void *user, const char *name, const ir_tensor *value) {
  check *c = user;
  size_t n = (size_t)(value->dim[1] * value->dim[2]);
  if (c->probe_count == 16) return;
  ir_tensor *t = &c->probes[c->probe_count];
  *t = *value;
  t->data = memcpy(malloc(n * sizeof(double)), value->data, n * sizeof(double));
  c->probe_names[c->probe_count++] = strdup(name);
}

static inline void evaluate(check *c, bool round, ir_tensor *out) {
  const int32_t pos = 0, len = (int32_t)c->k->tokens;
  ir_eval_args a = {
      .batch = 1, .time = len, .tokens = c->tokens, .pos = &pos, .len = &len, .round_f32 = round, .user = c};
  if (!round) a.on_probe = keep_probe;
  taper_error error = {0};
  if (ir_eval_entry(c->m, ir_entry_find(c->m, "forward"), &a, out, 1, &error) != TAPER_OK)
    fail_msg("%s: %s", c->k->label, error.message);
}

static inline void open_case(check *c, const model_case *k, uint64_t seed) {
  char *file = NULL;
  size_t size = 0, defines = 0;
  front_gate gates[2] = {{"internal", &k->gate, 1, NULL}, {"final", &k->gate, 1, NULL}};
  front_gate only = {"g", &k->gate, 1, NULL};
  *c = (check){.k = k, .sink = diag_sink_new()};
  if (k->file) assert_int_equal(file_read(k->file, 1 << 20, &file, &size, NULL), TAPER_OK);
  char *train = file ? strstr(file, "\ntrain {") : NULL;
  if (train) train[1] = 0; /* its sizes do not fit ours */
  while (defines < MAX_DEFINES && k->defines[defines].name) defines++;
  const char *source = file ? file : k->source;
  size_t gate_count = k->source ? (k->source == exotic) : strcmp(k->label, "mlp") == 0 ? 0 : 2;
  c->m = run_model(source, k->defines, defines, k->source ? &only : gates, gate_count, seed, c->sink);
  free(file);
  double vocab = 0;
  assert_true(ir_module_param(c->m, "vocab", &vocab));
  for (uint32_t i = 0; i < k->tokens; i++)
    c->tokens[i] = (int32_t)((i * 7 + 3 * (i / 5) + (uint32_t)seed) % (uint32_t)vocab);
  evaluate(c, false, &c->reference);
  evaluate(c, true, &c->rounded);
}

static inline void close_case(check *c) {
  for (size_t i = 0; i < c->probe_count; i++) free(c->probes[i].data), free((void *)(uintptr_t)c->probe_names[i]);
  ir_tensor_free(&c->reference), ir_tensor_free(&c->rounded);
  ir_module_free(c->m);
  diag_sink_free(c->sink);
}

/* Contract 9: max |a - b| / max |b| <= max(2e-5, 4 x what a plain f32 evaluation has). */
static inline void compare(const check *c, const char *what, const float *got) {
  size_t n = (size_t)(c->reference.dim[1] * c->reference.dim[2]);
  double most = 0, worst = 0, plain = 0;
  for (size_t i = 0; i < n; i++) {
    most = fmax(most, fabs(c->reference.data[i]));
    plain = fmax(plain, fabs(c->rounded.data[i] - c->reference.data[i]));
    if (!isfinite(got[i])) fail_msg("%s, %s: logit %zu is %g", c->k->label, what, i, (double)got[i]);
    worst = fmax(worst, fabs((double)got[i] - c->reference.data[i]));
  }
  double limit = fmax(2e-5, 4 * plain / most);
  if (!(worst / most <= limit)) fail_msg("%s, %s: error %g of at most %g", c->k->label, what, worst / most, limit);
}

#endif

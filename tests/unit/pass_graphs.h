/* pass_graphs.h - small random models for the tests of the passes: every dimension differs, weights are far from 1,
 * structure varies with the seed. */
#ifndef TESTS_UNIT_PASS_GRAPHS_H
#define TESTS_UNIT_PASS_GRAPHS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "compiler/ir/eval.h"
#include "compiler/passes/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  GRAPH_VOCAB = 11,
  GRAPH_D = 6,
  GRAPH_HEADS = 2,
  GRAPH_HEAD_DIM = 4,
  GRAPH_FF = 9,
  GRAPH_CONTEXT = 7,
  GRAPH_BATCH = 2,
  GRAPH_TIME = 5
};

typedef struct graph_options {
  uint64_t seed;
  bool layer_form, tied, probes, positive, live_inside, no_open, no_blockers; /* no_open: no gate between 0 and 1 */
  bool train; /* weights are params, multiples of 2^-8 */
} graph_options;

typedef struct graph {
  ir_module *m;
  ir_builder b;
  graph_options o;
  uint64_t state;
  ir_value gates[3]; /* 0, 1, 0.25 */
  ir_value tokens, pos, table;
  ir_value shared; /* a weight that several linears of one shape read */
} graph;

static inline uint64_t graph_random(graph *g) { /* splitmix64 */
  uint64_t z = g->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
static inline double graph_uniform(graph *g) { return (double)(graph_random(g) >> 11) * 0x1p-53; }
static inline bool graph_chance(graph *g, double p) { return graph_uniform(g) < p; }

/* A const of random f32 values in [low, high], either sign where `both`. Large ones get a payload, as weights from
 * files do. */
static inline ir_value graph_const(graph *g, const char *name, ir_type type, double low, double high, bool both) {
  size_t n = (size_t)ir_elements(type);
  float *data = ir_payload_new(g->m, n * sizeof *data);
  for (size_t i = 0; i < n; i++) {
    double v = low + (high - low) * graph_uniform(g);
    data[i] = (float)(both && graph_chance(g, 0.5) ? -v : v);
    if (g->o.train) data[i] = roundf(data[i] * 256) / 256;
  }
  ir_builder b = {g->m, IR_GLOBALS, IR_NONE, {"model.tmodel", 1, 1, 1}, NULL};
  ir_attr attr = {g->o.train ? IR_ATTR_NAME : IR_ATTR_TENSOR, {.s = name}};
  ir_value v = ir_build_typed(&b, g->o.train ? IR_PARAM : IR_CONST, type, &attr, 1);
  ir_bind(g->m, v, data);
  return v;
}

static inline ir_value graph_vector(graph *g, const char *name, const char *role, int64_t n, double low, double high,
                                    bool both) {
  return graph_const(g, arena_printf(ir_arena(g->m), "%s.%s", name, role), ir_type_make(IR_F32, 1, &n), low, high,
                     both);
}

static inline ir_value graph_matrix(graph *g, const char *name, int64_t rows, int64_t cols) {
  return graph_const(g, arena_printf(ir_arena(g->m), "%s.weight", name),
                     ir_type_make(IR_F32, 2, (int64_t[]){rows, cols}), 0, 0.8, true);
}

static inline void graph_at(graph *g, const char *name) {
  g->b.name = name;
  g->b.loc.line++;
}

static inline ir_value graph_linear(graph *g, const char *name, ir_value x, int64_t out) {
  int64_t in = ir_type_of(g->m, x).dim[2];
  ir_value w = graph_matrix(g, name, out, in), bias = IR_NONE;
  if (out == GRAPH_FF && in == GRAPH_D && graph_chance(g, 0.3)) { /* a second reader of one weight */
    if (!g->shared.id) g->shared = w;
    w = g->shared;
  }
  if (graph_chance(g, 0.5)) bias = graph_vector(g, name, "bias", out, 0, 1, true);
  graph_at(g, name);
  return IR_BUILD(&g->b, IR_LINEAR, x, w, bias);
}

static inline ir_value graph_attr_op(graph *g, ir_opcode op, ir_value x, ir_attr_key key, int64_t value) {
  ir_attr a = {key, {.i = value}};
  return ir_build(&g->b, op, &x, 1, &a, 1);
}

/* A taper norm of the chosen form; which gate: 0, 1, 2 (open). */
static inline ir_value graph_norm(graph *g, const char *name, ir_value x, int gate) {
  int64_t d = ir_type_of(g->m, x).dim[2];
  ir_value weight = graph_vector(g, name, "weight", d, 0.3, 3, !g->o.positive);
  ir_value taper = graph_vector(g, name, "taper_weight", d, 0.3, 1.5, !g->o.positive);
  ir_value c = graph_vector(g, name, "taper_c", 1, 0.2, 1.4, false);
  graph_at(g, name);
  if (!g->o.layer_form) return IR_BUILD(&g->b, IR_TAPER_RMS_NORM, x, weight, taper, c, g->gates[gate]);
  ir_value bias = graph_vector(g, name, "bias", d, 0, 1, true);
  return IR_BUILD(&g->b, IR_TAPER_LAYER_NORM, x, weight, bias, taper, c, g->gates[gate]);
}

static inline int graph_pick_gate(graph *g) {
  if (!g->o.live_inside && graph_chance(g, 0.6)) return 0;
  return !g->o.no_open && graph_chance(g, 0.15) ? 2 : 1;
}

static inline ir_value graph_heads(graph *g, const char *name, ir_value h, bool rotate) {
  ir_value q = graph_attr_op(g, IR_SPLIT_HEADS, graph_linear(g, name, h, GRAPH_HEADS * GRAPH_HEAD_DIM), IR_ATTR_HEADS,
                             GRAPH_HEADS);
  if (rotate && graph_chance(g, 0.3)) { /* q/k norm: rope follows, nothing moves */
    ir_value w = graph_vector(g, name, "norm", GRAPH_HEAD_DIM, 0.5, 2, true);
    q = IR_BUILD(&g->b, IR_RMS_NORM, q, w);
  }
  return rotate ? IR_BUILD(&g->b, IR_ROPE, q, g->pos) : q;
}

static inline const char *graph_name(graph *g, int layer, const char *what) {
  return layer < 0 ? what : arena_printf(ir_arena(g->m), "layers.%d.%s", layer, what);
}

static inline ir_value graph_attention(graph *g, int layer, ir_value h) {
  ir_value q = graph_heads(g, graph_name(g, layer, "attn.q"), h, true),
           k = graph_heads(g, graph_name(g, layer, "attn.k"), h, true);
  ir_value v = graph_heads(g, graph_name(g, layer, "attn.v"), h, false);
  ir_value y = IR_BUILD(&g->b, IR_MERGE_HEADS, IR_BUILD(&g->b, IR_ATTENTION, q, k, v));
  return graph_linear(g, graph_name(g, layer, "attn.o"), y, GRAPH_D);
}

static inline ir_value graph_mlp(graph *g, int layer, ir_value h) {
  ir_value a = IR_BUILD(&g->b, IR_TANH, graph_linear(g, graph_name(g, layer, "mlp.gate"), h, GRAPH_FF));
  ir_value y = IR_BUILD(&g->b, IR_MUL, a, graph_linear(g, graph_name(g, layer, "mlp.up"), h, GRAPH_FF));
  ir_value out = graph_linear(g, graph_name(g, layer, "mlp.down"), y, GRAPH_D);
  if (!g->o.no_blockers && graph_chance(g, 0.25)) /* a reader of the norm that is not linear */
    out = IR_BUILD(&g->b, IR_ADD, out,
                   graph_linear(g, graph_name(g, layer, "mlp.side"), IR_BUILD(&g->b, IR_TANH, h), GRAPH_D));
  return out;
}

static inline ir_value graph_probe(graph *g, int layer, ir_value x) {
  if (!g->o.probes) return x;
  ir_attr a = {IR_ATTR_NAME, {.s = graph_name(g, layer, "stream")}};
  ir_value p = ir_build(&g->b, IR_PROBE, &x, 1, &a, 1);
  return graph_chance(g, 0.5) ? p : x; /* on the way, or beside it */
}

static inline ir_value graph_layer(graph *g, int layer, ir_value x) {
  ir_value h = graph_norm(g, graph_name(g, layer, "attn_norm"), x, graph_pick_gate(g));
  ir_value a = graph_attention(g, layer, h);
  if (graph_chance(g, 0.3)) { /* parallel residual */
    ir_value n = graph_norm(g, graph_name(g, layer, "mlp_norm"), x, graph_pick_gate(g));
    return IR_BUILD(&g->b, IR_ADD, IR_BUILD(&g->b, IR_ADD, x, a), graph_mlp(g, layer, n));
  }
  x = IR_BUILD(&g->b, IR_ADD, x, a);
  return IR_BUILD(&g->b, IR_ADD, x,
                  graph_mlp(g, layer, graph_norm(g, graph_name(g, layer, "mlp_norm"), x, graph_pick_gate(g))));
}

static inline ir_value graph_arg(graph *g, const char *name, ir_type type) {
  ir_attr a = {IR_ATTR_NAME, {.s = name}};
  return ir_build_typed(&g->b, IR_ARG, type, &a, 1);
}

static inline void graph_begin(graph *g, graph_options o) {
  *g = (graph){.o = o, .state = o.seed};
  g->m = ir_module_new("random");
  static const double values[] = {0, 1, 0.25};
  static const char *const names[] = {"removed", "live", "open"};
  int64_t one = 1;
  ir_builder globals = {g->m, IR_GLOBALS, IR_NONE, {0}, NULL};
  for (int i = 0; i < 3; i++) {
    ir_attr a[] = {{IR_ATTR_NAME, {.s = names[i]}}, {IR_ATTR_VALUE, {.floats = {&values[i], 1}}}};
    g->gates[i] = ir_build_typed(&globals, IR_GATE, ir_type_make(IR_F32, 1, &one), a, 2);
  }
  g->b = (ir_builder){g->m, ir_entry_add(g->m, "forward"), IR_NONE, {"model.tmodel", 1, 1, 1}, NULL};
  int64_t bt[] = {IR_DIM_B, IR_DIM_T};
  g->tokens = graph_arg(g, "tokens", ir_type_make(IR_I32, 2, bt));
  g->pos = graph_arg(g, "pos", ir_type_make(IR_I32, 1, bt));
  graph_arg(g, "len", ir_type_make(IR_I32, 1, bt));
  g->pos = IR_BUILD(&g->b, IR_POSITIONS, g->tokens, g->pos);
  g->table = graph_matrix(g, "wte", GRAPH_VOCAB, GRAPH_D);
}

static inline ir_module *graph_make(graph_options o) {
  graph g;
  graph_begin(&g, o);
  graph_at(&g, "wte");
  ir_value x = IR_BUILD(&g.b, IR_EMBED, g.tokens, g.table);
  if (graph_chance(&g, 0.4))
    x = IR_BUILD(&g.b, IR_ADD, x, IR_BUILD(&g.b, IR_EMBED, g.pos, graph_matrix(&g, "wpe", GRAPH_CONTEXT, GRAPH_D)));
  int layers = 1 + (int)(graph_random(&g) % 2);
  for (int i = 0; i < layers; i++) x = graph_layer(&g, i, graph_probe(&g, i, x));
  x = graph_norm(&g, "norm", graph_probe(&g, layers, x), o.positive ? 0 : graph_pick_gate(&g));
  graph_at(&g, "head");
  ir_value logits = o.tied ? IR_BUILD(&g.b, IR_LINEAR, x, g.table) : graph_linear(&g, "head", x, GRAPH_VOCAB);
  IR_BUILD(&g.b, IR_RETURN, logits);
  return g.m;
}

/* ---- evaluation ---- */
typedef struct outcome {
  ir_tensor logits;
  ir_tensor probes[16];
  char names[16][64];
  size_t probe_count;
} outcome;

static inline void graph_on_probe(void *user, const char *name, const ir_tensor *value) {
  outcome *o = user;
  assert_true(o->probe_count < 16);
  size_t n = 1;
  for (uint32_t i = 0; i < value->rank; i++) n *= (size_t)value->dim[i];
  snprintf(o->names[o->probe_count], sizeof o->names[0], "%s", name);
  ir_tensor *copy = &o->probes[o->probe_count++];
  *copy = *value;
  copy->data = malloc(n * sizeof(double));
  memcpy(copy->data, value->data, n * sizeof(double));
}

static inline outcome graph_run(const ir_module *m) {
  static const int32_t tokens[GRAPH_BATCH * GRAPH_TIME] = {3, 0, 7, 10, 2, 5, 5, 1, 9, 4}, pos[GRAPH_BATCH] = {0, 2},
                                            len[GRAPH_BATCH] = {5, 5};
  outcome o = {0};
  ir_eval_args args = {.batch = GRAPH_BATCH,
                       .time = GRAPH_TIME,
                       .tokens = tokens,
                       .pos = pos,
                       .len = len,
                       .on_probe = graph_on_probe,
                       .user = &o};
  taper_error error = {0};
  if (ir_eval_entry(m, ir_entry_at(m, 0), &args, &o.logits, 1, &error) != TAPER_OK) fail_msg("%s", error.message);
  return o;
}

static inline void graph_free(outcome *o) {
  ir_tensor_free(&o->logits);
  for (size_t i = 0; i < o->probe_count; i++) ir_tensor_free(&o->probes[i]);
}

/* max |a - b| / max |b|; infinite where the shapes differ or a value is no number */
static inline double graph_distance(const ir_tensor *a, const ir_tensor *b) {
  double worst = 0, scale = 0;
  size_t n = 1;
  if (a->rank != b->rank) return INFINITY;
  for (uint32_t i = 0; i < a->rank; i++) {
    if (a->dim[i] != b->dim[i]) return INFINITY;
    n *= (size_t)a->dim[i];
  }
  for (size_t i = 0; i < n; i++) {
    double d = fabs(a->data[i] - b->data[i]);
    if (!isfinite(d)) return INFINITY;
    worst = d > worst ? d : worst;
    scale = fabs(b->data[i]) > scale ? fabs(b->data[i]) : scale;
  }
  return scale > 0 ? worst / scale : worst;
}

/* Of logits and probes (by name, all must be there). */
static inline double graph_difference(const outcome *a, const outcome *b) {
  double worst = graph_distance(&a->logits, &b->logits);
  if (a->probe_count != b->probe_count) return INFINITY;
  for (size_t i = 0; i < a->probe_count; i++) {
    size_t k = 0;
    while (k < b->probe_count && strcmp(a->names[i], b->names[k]) != 0) k++;
    if (k == b->probe_count) return INFINITY;
    double d = graph_distance(&a->probes[i], &b->probes[k]);
    worst = d > worst ? d : worst;
  }
  return worst;
}

static inline bool graph_pass(ir_module *m, diag_sink *sink, const char *name, const pass_options *options) {
  const pass_info *p = pass_find(name);
  assert_non_null(p);
  bool bug = false;
  pass_run_options run = {.verify_each = true, .out_bug = &bug};
  bool fine = pass_run(m, sink, options, &p, 1, &run);
  if (bug) {
    diag_render(sink, stderr, &(diag_render_options){0});
    fail_msg("pass %s broke the module", name);
  }
  return fine;
}

static inline size_t graph_count(const ir_module *m, ir_opcode op) { /* in the entries */
  size_t n = 0;
  for (size_t e = 0; e < ir_entry_count(m); e++)
    for (ir_value v = ir_first(m, ir_entry_at(m, e)); v.id; v = ir_next(m, v)) n += ir_is(m, v, op);
  return n;
}

#endif

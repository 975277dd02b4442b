/* center_writers.c - a live LayerNorm becomes an RMSNorm by centring everything that writes the residual stream it
   reads (tapernorm.md 5): output projections and their biases lose their mean over the outputs, tables that only this
   stream looks up the mean of each row; a row looked up in a shared (tied) table is centred after the look-up. Legal
   only if every reader of the stream ignores its mean. Probes report the stream as it was, so a stream with probes is
   left alone (docs/adr/0002-probes-and-centring.md). */
#include "compiler/analysis/stream.h"
#include "compiler/passes/passes_priv.h"

static const char name[] = "center-writers";

static bool is_live_layer(const ir_module *m, ir_value v) {
  return ir_is(m, v, IR_LAYER_NORM) || ir_is(m, v, IR_INV_STD);
}

/* The first op that makes the rewrite unlawful, with the reason; none where it is lawful. */
static ir_value find_blocker(pass_context *c, analysis_constants *known, const analysis_stream *s,
                             const char **out_reason) {
  for (size_t i = 0; i < s->reader_count; i++) {
    analysis_reader r = s->readers[i];
    *out_reason = "reads the mean of the stream";
    if (r.operand != 0 || r.again || !ir_op_has(ir_opcode_of(c->m, r.op), OPF_MEAN_BLIND)) return r.op;
  }
  *out_reason = "reports the stream with its mean";
  if (s->probe_count) return s->probes[0];
  for (size_t i = 0; i < s->writer_count; i++) {
    analysis_writer w = s->writers[i];
    *out_reason = "writes the stream and cannot be centred beforehand";
    if (w.user.id) return w.user; /* a number that is added to every element */
    if (ir_is(c->m, w.value, IR_LINEAR)) {
      ir_value bias = ir_operand(c->m, w.value, 2);
      if (!analysis_is_constant(known, ir_operand(c->m, w.value, 1)) || (bias.id && !analysis_is_constant(known, bias)))
        return w.value;
    } else if (!ir_is(c->m, w.value, IR_EMBED))
      return w.value;
  }
  return IR_NONE;
}

/* Streams that will be centred, as a set of their writers: a weight may be centred where all its readers are in the
 * set. */
typedef struct centring {
  analysis_constants known;
  uint8_t *is_writer; /* by value id */
} centring;

static bool only_writers_read(pass_context *c, const centring *t, ir_value weight) {
  ir_value *users;
  size_t n = ir_users(c->m, weight, &c->scratch, &users);
  for (size_t i = 0; i < n; i++)
    if (ir_region_of(c->m, users[i]).id != IR_GLOBALS.id && !t->is_writer[users[i].id]) return false;
  return true;
}

static void center_after(pass_context *c, ir_value v) {
  ir_builder b = pass_builder(c, v);
  b.before = ir_next(c->m, v);
  ir_value centered = IR_BUILD(&b, IR_CENTER, v);
  ir_replace_uses_except(c->m, v, centered, centered);
}

static void center_writer(pass_context *c, centring *t, ir_value v) {
  ir_module *m = c->m;
  ir_value weight = ir_operand(m, v, 1);
  bool is_linear = ir_is(m, v, IR_LINEAR);
  if (!analysis_is_constant(&t->known, weight) || !only_writers_read(c, t, weight)) {
    center_after(c, v);
    return;
  }
  ir_set_operand(m, v, 1, pass_expr_center(c, v, weight, is_linear ? 0 : -1));
  ir_value bias = is_linear ? ir_operand(m, v, 2) : IR_NONE;
  if (bias.id) ir_set_operand(m, v, 2, pass_expr_center(c, v, bias, -1));
}

/* What a reader of a centred stream becomes. */
static void relax_reader(pass_context *c, ir_value v) {
  ir_module *m = c->m;
  ir_builder b = pass_builder(c, v);
  ir_value x = ir_operand(m, v, 0), fresh;
  ir_attr eps = {IR_ATTR_EPS, {.f = 0}};
  if (ir_op_accepts(ir_opcode_of(m, v), IR_ATTR_EPS, NULL)) eps.u.f = ir_eps(m, v);
  if (ir_is(m, v, IR_CENTER))
    fresh = x;
  else if (ir_is(m, v, IR_INV_STD))
    fresh = ir_build(&b, IR_INV_RMS, &x, 1, &eps, 1);
  else if (ir_is(m, v, IR_LAYER_NORM)) {
    ir_value normed = ir_build(&b, IR_RMS_NORM, (ir_value[]){x, ir_operand(m, v, 1)}, 2, &eps, 1);
    fresh = IR_BUILD(&b, IR_SHIFT, normed, ir_operand(m, v, 2));
    diag_remark(c->sink, name, false, ir_loc_of(m, v), "'%s' is an RMS norm: the writers of its stream are centred",
                pass_label(c, v));
  } else
    return;
  ir_replace_uses(m, v, fresh);
  ir_erase(m, v);
}

static void apply(pass_context *c, centring *t, const analysis_stream *s) {
  for (size_t i = 0; i < s->reader_count; i++) relax_reader(c, s->readers[i].op);
  for (size_t i = 0; i < s->writer_count; i++) center_writer(c, t, s->writers[i].value);
  c->changed = true;
}

/* Is there a live layer norm to win, and nothing in the way? */
static bool is_wanted(pass_context *c, centring *t, const analysis_stream *s) {
  ir_value norm = IR_NONE;
  for (size_t i = 0; i < s->reader_count && !norm.id; i++)
    if (is_live_layer(c->m, s->readers[i].op) && s->readers[i].operand == 0) norm = s->readers[i].op;
  if (!norm.id) return false;
  const char *reason = "adds values of different shapes";
  ir_value blocker = s->mixed ? norm : find_blocker(c, &t->known, s, &reason);
  if (!blocker.id) return true;
  diag_remark(c->sink, name, true, ir_loc_of(c->m, norm), "'%s' stays a LayerNorm: %s %s", pass_label(c, norm),
              s->mixed ? "its stream" : pass_place(c, blocker), reason);
  return false;
}

bool pass_center_writers(pass_context *c) {
  size_t entries = ir_entry_count(c->m), chosen = 0, total = 0;
  analysis_stream **lists = ARENA_ARRAY(&c->scratch, analysis_stream *, entries + 1);
  size_t *counts = ARENA_ARRAY(&c->scratch, size_t, entries + 1);
  centring t = {analysis_constants_of(c->m, &c->scratch), ARENA_ARRAY(&c->scratch, uint8_t, ir_value_limit(c->m))};
  for (size_t e = 0; e < entries; e++)
    total += counts[e] = analysis_streams(c->m, ir_entry_at(c->m, e), &c->scratch, &lists[e]);
  const analysis_stream **list = ARENA_ARRAY(&c->scratch, const analysis_stream *, total + 1);
  for (size_t e = 0; e < entries; e++)
    for (size_t i = 0; i < counts[e]; i++) {
      const analysis_stream *s = &lists[e][i];
      if (!is_wanted(c, &t, s)) continue;
      list[chosen++] = s;
      for (size_t w = 0; w < s->writer_count; w++) t.is_writer[s->writers[w].value.id] = 1;
    }
  for (size_t i = 0; i < chosen; i++) apply(c, &t, list[i]);
  return true;
}

/* center_writers.c - a live LayerNorm becomes an RMSNorm by centring everything that writes the residual stream it
   reads (tapernorm.md 5): output projections and their biases lose their mean over the outputs, tables that only this
   stream looks up the mean of each row; a row looked up in a shared (tied) table is centred after the look-up. Legal
   only if every reader of the stream ignores its mean. Probes report the stream as it was: on a branch beside it, which
   nothing else reads, they add up what its rows have lost (docs/adr/0002-probes-and-centring.md). */
#include "compiler/analysis/stream.h"
#include "compiler/passes/passes_priv.h"

static const char name[] = "center-writers";

/* Streams that will be centred, as a set of their writers: a table may be centred where all its readers are in the
 * set. */
typedef struct centring {
  analysis_constants known;
  uint32_t limit;     /* values from here on are this pass's own */
  uint8_t *is_writer; /* by value id */
  uint8_t *probed;    /* by value id: a probe reports it, or a sum that it is a term of */
  ir_value *lost;     /* of what is probed: the mean that its rows have lost, [B,T,1] */
} centring;

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

static ir_builder behind(pass_context *c, ir_value v) {
  ir_builder b = pass_builder(c, v);
  b.before = ir_next(c->m, v);
  return b;
}

/* ---- what the rows lose, where a probe must give it back ---- */
static void mark_probed(const ir_module *m, centring *t, const analysis_stream *s) {
  for (size_t i = 0; i < s->probe_count; i++) t->probed[s->probes[i].id] = 1;
  for (ir_value v = ir_last(m, s->entry); v.id; v = ir_prev(m, v)) {
    if (v.id >= t->limit || !t->probed[v.id] || !analysis_joins(m, v)) continue;
    t->probed[ir_operand(m, v, 0).id] = 1;
    if (!ir_op_has(ir_opcode_of(m, v), OPF_IDENTITY)) t->probed[ir_operand(m, v, 1).id] = 1;
  }
}

static ir_value mean_of(pass_context *c, ir_value at, ir_value x, int64_t axis) {
  ir_attr attr = {IR_ATTR_AXIS, {.i = axis}};
  return pass_expr(c, at, IR_ROW_MEAN, &x, 1, &attr, axis == -1 ? 0 : 1);
}

/* Of a writer: the mean of W y + b is mean(W) y + mean(b), means over the outputs. */
static ir_value lost_by_writer(pass_context *c, centring *t, ir_value v) {
  ir_module *m = c->m;
  ir_builder b = behind(c, v);
  b.name = arena_printf(&c->scratch, "%s.mean", pass_label(c, v));
  ir_value x = ir_operand(m, v, 0), weight = ir_operand(m, v, 1), bias = ir_operand(m, v, 2);
  if (!analysis_is_constant(&t->known, weight)) return IR_BUILD(&b, IR_ROW_MEAN, v); /* of a table */
  if (ir_is(m, v, IR_EMBED)) return IR_BUILD(&b, IR_EMBED, x, mean_of(c, v, weight, -1));
  return IR_BUILD(&b, IR_LINEAR, x, mean_of(c, v, weight, 0), bias.id ? mean_of(c, v, bias, -1) : IR_NONE);
}

static void add_up_lost(pass_context *c, centring *t, const analysis_stream *s) {
  ir_module *m = c->m;
  mark_probed(m, t, s);
  for (size_t i = 0; i < s->writer_count; i++)
    if (t->probed[s->writers[i].value.id]) t->lost[s->writers[i].value.id] = lost_by_writer(c, t, s->writers[i].value);
  for (ir_value v = ir_first(m, s->entry); v.id; v = ir_next(m, v)) {
    if (v.id >= t->limit || !t->probed[v.id] || t->lost[v.id].id || !analysis_joins(m, v)) continue;
    ir_value first = t->lost[ir_operand(m, v, 0).id];
    t->lost[v.id] = first;
    if (ir_op_has(ir_opcode_of(m, v), OPF_IDENTITY)) continue;
    ir_builder b = behind(c, v);
    t->lost[v.id] = IR_BUILD(&b, ir_opcode_of(m, v), first, t->lost[ir_operand(m, v, 1).id]);
  }
}

/* The stream goes past the probe, which reads it with its mean. An inverse scale of the probe is that of the stream as
 * it was, and so of this sum. */
static void move_aside(pass_context *c, const centring *t, ir_value probe) {
  ir_module *m = c->m;
  ir_builder b = pass_builder(c, probe);
  ir_value x = ir_operand(m, probe, 0);
  ir_replace_uses(m, probe, x);
  ir_set_operand(m, probe, 0, IR_BUILD(&b, IR_ROW_SHIFT, x, t->lost[probe.id]));
}

/* ---- the rewrite ---- */
/* An op outside of the set that reads the weight, or none. */
static ir_value other_reader(pass_context *c, const centring *t, ir_value weight) {
  ir_value *users;
  size_t n = ir_users(c->m, weight, &c->scratch, &users);
  for (size_t i = 0; i < n; i++)
    if (ir_region_of(c->m, users[i]).id != IR_GLOBALS.id && (users[i].id >= t->limit || !t->is_writer[users[i].id]))
      return users[i];
  return IR_NONE;
}

static void center_after(pass_context *c, const centring *t, ir_value v) {
  ir_builder b = behind(c, v);
  ir_value centered = IR_BUILD(&b, IR_CENTER, v), lost = t->lost[v.id];
  ir_replace_uses_except(c->m, v, centered, centered);
  if (lost.id && ir_is(c->m, lost, IR_ROW_MEAN)) ir_set_operand(c->m, lost, 0, v);
}

/* A table that an embed reads is never copied. */
static void center_writer(pass_context *c, centring *t, ir_value v) {
  ir_module *m = c->m;
  bool is_linear = ir_is(m, v, IR_LINEAR);
  ir_value weight = ir_operand(m, v, 1), bias = is_linear ? ir_operand(m, v, 2) : IR_NONE;
  ir_value other = other_reader(c, t, weight);
  if (!analysis_is_constant(&t->known, weight) || (other.id && (!is_linear || pass_is_tied(c, weight)))) {
    center_after(c, t, v);
    return;
  }
  if (other.id)
    diag_remark(c->sink, name, false, ir_loc_of(m, v), "'%s' is copied (%lld bytes) to be centred: %s reads it too",
                pass_label(c, analysis_leaf(m, weight)),
                (long long)ir_elements(ir_type_of(m, weight)) * (long long)ir_dtype_size(ir_type_of(m, weight).dtype),
                pass_place(c, other));
  ir_set_operand(m, v, 1, pass_expr_center(c, v, weight, is_linear ? 0 : -1));
  if (bias.id) ir_set_operand(m, v, 2, pass_expr_center(c, v, bias, -1));
}

/* What a reader of a centred stream becomes. */
static void relax_reader(pass_context *c, ir_value v, size_t writers) {
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
    diag_remark(c->sink, name, false, ir_loc_of(m, v), "'%s' is an RMS norm: the %zu writer%s of its stream %s centred",
                pass_label(c, v), writers, writers == 1 ? "" : "s", writers == 1 ? "is" : "are");
  } else
    return;
  ir_replace_uses(m, v, fresh);
  ir_erase(m, v);
}

static void apply(pass_context *c, centring *t, const analysis_stream *s) {
  for (size_t i = 0; i < s->reader_count; i++) relax_reader(c, s->readers[i].op, s->writer_count);
  add_up_lost(c, t, s);
  for (size_t i = 0; i < s->writer_count; i++) center_writer(c, t, s->writers[i].value);
  for (size_t i = 0; i < s->probe_count; i++) move_aside(c, t, s->probes[i]);
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
  centring t = {.known = analysis_constants_of(c->m, &c->scratch), .limit = ir_value_limit(c->m)};
  t.is_writer = ARENA_ARRAY(&c->scratch, uint8_t, t.limit), t.probed = ARENA_ARRAY(&c->scratch, uint8_t, t.limit);
  t.lost = ARENA_ARRAY(&c->scratch, ir_value, t.limit);
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

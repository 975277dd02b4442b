/* split_scale.c - with s = sqrt(c gammat) of the last norm, the tied table carries s and the final scale is gone
   (tapernorm.md 5c, RMS form only): the stream becomes h D_s, so every writer is multiplied by s and every reader's
   input by 1/s. Legal only when no nonlinear op reads the stream, the final norm is one scale that only tied heads
   read, and every c gammat is above 0. */
#include "compiler/analysis/stream.h"
#include "compiler/ir/eval.h"
#include "compiler/passes/passes_priv.h"

#include <math.h>

static const char name[] = "split-scale";

typedef struct split {
  analysis_constants known;
  ir_value final, gain, table; /* the last scale, its weight, the tied table */
  uint8_t *is_writer;          /* of the stream, by value id */
  const char *reason;          /* why not */
  ir_value culprit;
} split;

static bool refuse(split *s, ir_value culprit, const char *reason) {
  s->culprit = culprit;
  s->reason = reason;
  return false;
}

static bool is_tied_head(pass_context *c, const split *s, analysis_reader r) {
  return ir_is(c->m, r.op, IR_LINEAR) && r.operand == 0 && !r.again && ir_same(ir_operand(c->m, r.op, 1), s->table);
}

/* The scale before a linear whose weight an embed reads too. */
static bool find_final(pass_context *c, split *s, ir_region entry) {
  for (ir_value v = ir_last(c->m, entry); v.id; v = ir_prev(c->m, v)) {
    if (!ir_is(c->m, v, IR_LINEAR) || !pass_is_tied(c, ir_operand(c->m, v, 1))) continue;
    ir_value x = analysis_behind(c->m, ir_operand(c->m, v, 0));
    s->table = ir_operand(c->m, v, 1);
    if (!pass_is_link(c, &s->known, x))
      return refuse(s, x, "is what the tied head reads, and no scale that is left of a norm");
    if (!ir_is(c->m, x, IR_SCALE))
      return refuse(s, x, "stands before the tied head: only a norm of the RMS form can be split");
    ir_value before = analysis_behind(c->m, ir_operand(c->m, x, 0));
    if (pass_is_link(c, &s->known, before))
      return refuse(s, before, "stands before the final scale: only a norm of the RMS form can be split");
    s->final = x;
    s->gain = ir_operand(c->m, x, 1);
    return true;
  }
  return refuse(s, IR_NONE, "no head shares its weight with the embedding");
}

static bool check_gain(pass_context *c, split *s) {
  ir_tensor t = {0};
  taper_error error = {0};
  if (ir_eval_global(c->m, s->gain, &t, &error) != TAPER_OK)
    return refuse(s, s->final, "has no known gain: weights are needed to see that it is above 0");
  bool fine = true;
  for (int64_t i = 0; i < ir_elements(ir_type_of(c->m, s->gain)); i++)
    fine = fine && t.data[i] > 0 && isfinite(t.data[i]);
  ir_tensor_free(&t);
  return fine || refuse(s, s->final, "has a gain c * taper_weight that is not above 0 everywhere");
}

/* The table's other readers look rows up for this stream, or are this head. */
static bool check_table(pass_context *c, split *s, const analysis_stream *stream) {
  ir_value *users;
  size_t n = ir_users(c->m, s->table, &c->scratch, &users);
  if (!analysis_is_constant(&s->known, s->table)) return refuse(s, s->table, "is no constant");
  for (size_t i = 0; i < n; i++) {
    bool fine =
        ir_is(c->m, users[i], IR_LINEAR) && ir_same(analysis_behind(c->m, ir_operand(c->m, users[i], 0)), s->final);
    for (size_t w = 0; w < stream->writer_count && !fine; w++)
      fine = ir_same(stream->writers[w].value, users[i]) && ir_is(c->m, users[i], IR_EMBED);
    if (!fine) return refuse(s, users[i], "reads the tied table for something else");
  }
  return true;
}

/* A weight that something else reads too would have to be copied. The table is looked at apart. */
static bool check_writer_weight(pass_context *c, split *s, ir_value weight) {
  ir_value *users;
  size_t n = ir_same(weight, s->table) ? 0 : ir_users(c->m, weight, &c->scratch, &users);
  for (size_t i = 0; i < n; i++)
    if (ir_region_of(c->m, users[i]).id != IR_GLOBALS.id && !s->is_writer[users[i].id])
      return refuse(s, users[i], "shares a weight with what writes the stream");
  return true;
}

static bool check_stream(pass_context *c, split *s, const analysis_stream *stream) {
  ir_module *m = c->m;
  if (stream->mixed) return refuse(s, s->final, "reads a sum of values of different shapes");
  for (size_t i = 0; i < stream->reader_count; i++) {
    analysis_reader r = stream->readers[i];
    if (r.operand != 0 || r.again || !(ir_is(m, r.op, IR_LINEAR) || pass_is_link(c, &s->known, r.op)) ||
        ir_is(m, r.op, IR_SHIFT))
      return refuse(s, r.op, "reads the residual stream and is not linear");
    if (is_tied_head(c, s, r)) return refuse(s, r.op, "is the tied head and reads the stream without the final scale");
  }
  s->is_writer = ARENA_ARRAY(&c->scratch, uint8_t, ir_value_limit(m));
  for (size_t i = 0; i < stream->writer_count; i++) s->is_writer[stream->writers[i].value.id] = 1;
  for (size_t i = 0; i < stream->writer_count; i++) {
    analysis_writer w = stream->writers[i];
    if (w.user.id) return refuse(s, w.user, "adds a number to the stream");
    bool is_linear = ir_is(m, w.value, IR_LINEAR);
    ir_value bias = is_linear ? ir_operand(m, w.value, 2) : IR_NONE;
    if (!is_linear && !ir_is(m, w.value, IR_EMBED))
      return refuse(s, w.value, "writes the stream and cannot carry the scale");
    if (!analysis_is_constant(&s->known, ir_operand(m, w.value, 1)) ||
        (bias.id && !analysis_is_constant(&s->known, bias)))
      return refuse(s, w.value, "has weights that are no constants");
    if (!check_writer_weight(c, s, ir_operand(m, w.value, 1))) return false;
  }
  return true;
}

static bool check_final_readers(pass_context *c, split *s) {
  analysis_reader *readers;
  size_t probes, n = analysis_readers(c->m, s->final, &c->scratch, &readers, &probes);
  if (probes) return refuse(s, s->final, "is looked at by a probe");
  for (size_t i = 0; i < n; i++)
    if (!is_tied_head(c, s, readers[i]))
      return refuse(s, readers[i].op, "reads the final scale too and is no tied head");
  return true;
}

/* ---- the rewrite ---- */
static void scale_writer(pass_context *c, ir_value v, ir_value root) {
  ir_module *m = c->m;
  bool is_linear = ir_is(m, v, IR_LINEAR);
  ir_value bias = is_linear ? ir_operand(m, v, 2) : IR_NONE;
  ir_set_operand(m, v, 1, pass_expr_scale(c, v, ir_operand(m, v, 1), root, is_linear ? 0 : -1));
  if (bias.id) ir_set_operand(m, v, 2, pass_expr_scale(c, v, bias, root, -1));
}

/* A scale takes 1/s into its weight; before others a scale is put, which fold-scale takes into them. */
static void unscale_reader(pass_context *c, ir_value v, ir_value inverse) {
  ir_module *m = c->m;
  if (ir_is(m, v, IR_SCALE)) {
    ir_set_operand(m, v, 1, pass_expr_binary(c, v, IR_MUL, ir_operand(m, v, 1), inverse));
    return;
  }
  ir_builder b = pass_builder(c, v);
  ir_set_operand(m, v, 0, IR_BUILD(&b, IR_SCALE, ir_operand(m, v, 0), inverse));
}

static void unscale_probe(pass_context *c, ir_value probe, ir_value inverse) {
  ir_value before = ir_operand(c->m, probe, 1);
  ir_set_operand(c->m, probe, 1, before.id ? pass_expr_binary(c, probe, IR_MUL, before, inverse) : inverse);
}

static void apply(pass_context *c, split *s, const analysis_stream *stream) {
  ir_module *m = c->m;
  ir_value root = pass_expr(c, s->final, IR_SQRT, &s->gain, 1, NULL, 0);
  ir_value inverse = pass_expr_binary(c, s->final, IR_DIV, pass_splat(c, s->final, ir_type_of(m, root), 1), root);
  ir_value table = pass_expr_scale(c, s->final, s->table, root, -1), *users;
  diag_remark(c->sink, name, false, ir_loc_of(m, s->final),
              "'%s' into '%s', half as the table is looked up and half as it is the head", pass_label(c, s->final),
              pass_label(c, s->table));
  for (size_t i = 0; i < stream->reader_count; i++)
    if (!ir_same(stream->readers[i].op, s->final)) unscale_reader(c, stream->readers[i].op, inverse);
  for (size_t i = 0; i < stream->writer_count; i++) scale_writer(c, stream->writers[i].value, root);
  for (size_t i = 0; i < stream->probe_count; i++) unscale_probe(c, stream->probes[i], inverse);
  size_t n = ir_users(m, s->final, &c->scratch, &users);
  for (size_t i = 0; i < n; i++) ir_set_operand(m, users[i], 1, table);
  ir_replace_uses(m, s->final, ir_operand(m, s->final, 0));
  ir_erase(m, s->final);
  c->changed = true;
}

static void split_entry(pass_context *c, ir_region entry) {
  split s = {.known = analysis_constants_of(c->m, &c->scratch)};
  const analysis_stream *stream = NULL;
  analysis_stream *all;
  bool fine = find_final(c, &s, entry) && check_final_readers(c, &s);
  size_t n = fine ? analysis_streams(c->m, entry, &c->scratch, &all) : 0;
  for (size_t i = 0; i < n && !stream; i++)
    for (size_t r = 0; r < all[i].reader_count; r++)
      if (ir_same(all[i].readers[r].op, s.final)) stream = &all[i];
  if (fine && stream && check_stream(c, &s, stream) && check_table(c, &s, stream) && check_gain(c, &s)) {
    apply(c, &s, stream);
    return;
  }
  diag_report(c->sink, DC_PASS_OPTION_UNUSED, s.culprit.id ? ir_loc_of(c->m, s.culprit) : (diag_loc){0},
              "--split-scale is not done: %s%s%s", s.culprit.id ? pass_place(c, s.culprit) : "",
              s.culprit.id ? " " : "", s.reason);
}

bool pass_split_scale(pass_context *c) {
  for (size_t e = 0; e < ir_entry_count(c->m); e++) split_entry(c, ir_entry_at(c->m, e));
  return true;
}

/* fold.c - folding chains of scale, center and shift into the linears that read them, and the remarks about it. */
#include "compiler/passes/passes_priv.h"

bool pass_is_tied(pass_context *c, ir_value weight) { return analysis_read_by(c->m, weight, IR_EMBED, &c->scratch); }

const char *pass_why_not_foldable(pass_context *c, analysis_constants *known, analysis_reader r, bool untie) {
  if (!ir_is(c->m, r.op, IR_LINEAR) || r.operand != 0 || r.again) return "is not linear";
  ir_value weight = ir_operand(c->m, r.op, 1), bias = ir_operand(c->m, r.op, 2);
  if (!analysis_is_constant(known, weight) || (bias.id && !analysis_is_constant(known, bias)))
    return "has weights that are no constants";
  if (untie || !pass_is_tied(c, weight)) return NULL;
  return arena_printf(&c->scratch, "has the table '%s' as its weight, which an embed reads too", pass_label(c, weight));
}

bool pass_is_link(pass_context *c, analysis_constants *known, ir_value v) {
  ir_opcode op = ir_opcode_of(c->m, v);
  if (op != IR_SCALE && op != IR_CENTER && op != IR_SHIFT) return false;
  if (ir_region_of(c->m, v).id == IR_GLOBALS.id || ir_attr_int(c->m, v, IR_ATTR_AXIS, -1) != -1) return false;
  return op == IR_CENTER || analysis_is_constant(known, ir_operand(c->m, v, 1));
}

void pass_fold_begin(pass_folds *f, const char *pass, const char *suffix) {
  *f = (pass_folds){.pass = pass, .suffix = suffix};
  f->last = &f->first;
}

pass_fold_record *pass_fold_new(pass_context *c, pass_folds *f, ir_value norm, size_t readers) {
  pass_fold_record *r = ARENA_NEW(&c->scratch, pass_fold_record);
  r->name = arena_strdup(&c->scratch, pass_label(c, norm));
  r->loc = ir_loc_of(c->m, norm);
  r->readers = ARENA_ARRAY(&c->scratch, pass_fold_reader, readers + 1);
  *f->last = r;
  f->last = &r->next;
  return r;
}

/* y = link(...(x)) in W y + b: the links are taken into W and b from the last to the first. */
static void fold_reader(pass_context *c, analysis_constants *known, ir_value link, ir_value linear,
                        pass_fold_reader *out) {
  ir_module *m = c->m;
  ir_value w = ir_operand(m, linear, 1), b = ir_operand(m, linear, 2), x = link;
  out->op = linear;
  out->old_weight = w;
  for (ir_value v = link; pass_is_link(c, known, v); v = analysis_behind(m, x)) {
    if (ir_is(m, v, IR_SHIFT))
      b = pass_expr_bias(c, linear, b, w, ir_operand(m, v, 1));
    else if (ir_is(m, v, IR_SCALE))
      w = pass_expr_scale(c, linear, w, ir_operand(m, v, 1), -1);
    else
      w = pass_expr_center(c, linear, w, -1);
    x = ir_operand(m, v, 0);
  }
  ir_set_operand(m, linear, 0, x);
  ir_set_operand(m, linear, 1, w);
  if (b.id) ir_set_operand(m, linear, 2, b);
  out->new_weight = w;
  c->changed = true;
}

void pass_fold_chain(pass_context *c, analysis_constants *known, pass_folds *f, ir_value link,
                     const analysis_reader *readers, size_t n) {
  pass_fold_record *record = pass_fold_new(c, f, link, n);
  for (size_t i = 0; i < n; i++) fold_reader(c, known, link, readers[i].op, &record->readers[record->count++]);
}

/* An op of an entry that still reads the weight, or none. */
static ir_value entry_reader(pass_context *c, ir_value weight) {
  ir_value *users;
  size_t n = ir_users(c->m, weight, &c->scratch, &users);
  for (size_t i = 0; i < n; i++)
    if (ir_region_of(c->m, users[i]).id != IR_GLOBALS.id) return users[i];
  return IR_NONE;
}

/* The words for a weight that now exists twice; *first_new: by old weight, what it first became. */
static void put_copy(pass_context *c, const pass_fold_reader *r, ir_value *first_new, text *out) {
  if (ir_same(r->old_weight, r->new_weight)) return;
  ir_value *first = &first_new[r->old_weight.id], other = entry_reader(c, r->old_weight);
  bool seen = first->id && ir_same(*first, r->new_weight);
  bool another = first->id && !seen;
  if (!first->id) *first = r->new_weight;
  if (seen || (!other.id && !another)) return;
  long long bytes = (long long)ir_elements(ir_type_of(c->m, r->new_weight)) *
                    (long long)ir_dtype_size(ir_type_of(c->m, r->new_weight).dtype);
  text_printf(out, "; '%s' is copied (%lld bytes): %s reads it too", pass_label(c, analysis_leaf(c->m, r->old_weight)),
              bytes, other.id ? pass_place(c, other) : "another linear");
}

void pass_fold_report(pass_context *c, pass_folds *f) {
  ir_value *first_new = ARENA_ARRAY(&c->scratch, ir_value, ir_value_limit(c->m));
  for (pass_fold_record *r = f->first; r; r = r->next) {
    text readers = {0}, copies = {0};
    for (size_t i = 0; i < r->count; i++) {
      text_printf(&readers, "%s%s", i ? ", " : "", pass_short_label(c, r->readers[i].op, r->name));
      put_copy(c, &r->readers[i], first_new, &copies);
    }
    diag_remark(c->sink, f->pass, false, r->loc, "'%s' into %s%s%s", r->name, readers.data ? readers.data : "nothing",
                f->suffix, copies.data ? copies.data : "");
    text_free(&readers);
    text_free(&copies);
  }
}

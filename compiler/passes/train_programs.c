/* train_programs.c - from @forward the programs of training: warm (scheduled gates 1: live norms), taper (gates read from the
   step), zero (scheduled gates 0: scales), eval, observe; for a scan: eval and scan. A gate that is not scheduled keeps its
   value in all of them. @forward stays. */
#include "compiler/analysis/token_rows.h"
#include "compiler/passes/train_priv.h"

#include <string.h>

static const struct {
  const char *name;
  train_norms norms;
  unsigned flags;
  bool scan;
} programs[] = {
    {"train_warm", NORMS_LIVE, TRAIN_LEARNS | TRAIN_CALIBRATES, false},
    {"train_taper", NORMS_BLENDED, TRAIN_LEARNS | TRAIN_CALIBRATES | TRAIN_ANCHORS, false},
    {"train_zero", NORMS_REMOVED, TRAIN_LEARNS | TRAIN_ANCHORS, false},
    {"eval", NORMS_BLENDED, TRAIN_ROWS, false},
    {"observe", NORMS_BLENDED, TRAIN_ROWS | TRAIN_OBSERVES, false},
    {"eval", NORMS_BLENDED, TRAIN_ROWS, true},
    {"scan", NORMS_LIVE, TRAIN_SCANS, true},
};

static ir_value add_arg(train_program *p, const char *name, uint32_t rank) {
  ir_attr attr = {IR_ATTR_NAME, {.s = name}};
  p->b.name = NULL;
  return ir_build_typed(&p->b, IR_ARG, ir_type_make(IR_I32, rank, (int64_t[]){IR_DIM_B, IR_DIM_T}), &attr, 1);
}

/* tokens, targets, and pos where somebody reads it. */
static void copy_args(train_program *p) {
  const ir_module *m = p->c->m;
  ir_value pos = IR_NONE;
  for (ir_value v = ir_first(m, p->forward); ir_is(m, v, IR_ARG); v = ir_next(m, v)) {
    const char *name = ir_attr_string(m, v, IR_ATTR_NAME, "");
    p->b.loc = ir_loc_of(m, v);
    if (strcmp(name, "tokens") == 0) p->to[v.id] = p->tokens = add_arg(p, name, 2);
    if (strcmp(name, "pos") == 0 && ir_use_count(m, v) > 0) pos = v;
  }
  p->targets = add_arg(p, "targets", 2);
  if (pos.id) p->to[pos.id] = add_arg(p, "pos", 1);
}

static ir_value copy_op(train_program *p, ir_value v);

/* An operand of the forward graph here: constants, parameters and gates are shared, an expression over parameters is
   evaluated in every program. */
static ir_value copy_operand(train_program *p, ir_value x) {
  const ir_module *m = p->c->m;
  if (!x.id || p->to[x.id].id || ir_region_of(m, x).id != IR_GLOBALS.id || ir_operand_count(m, x) == 0)
    return train_here(p, x);
  bool trained = false;
  for (size_t i = 0; i < ir_operand_count(m, x); i++) {
    ir_value before = ir_operand(m, x, i);
    trained |= ir_is(m, before, IR_PARAM) || !ir_same(copy_operand(p, before), before);
  }
  return p->to[x.id] = trained ? copy_op(p, x) : x;
}

/* A looked-up row times its factor; a table that is computed has none. */
static ir_value clamp(train_program *p, ir_value embed) {
  ir_module *m = p->c->m;
  ir_value table = ir_operand(m, embed, 1);
  if (!ir_is(m, table, IR_PARAM)) return embed;
  const char *name = arena_printf(&p->c->scratch, "%s.clamp", ir_name_of(m, table));
  ir_value factor =
      train_set_param(p, name, "ones", ir_type_make(IR_F32, 2, (int64_t[]){ir_type_of(m, table).dim[0], 1}));
  p->b.name = NULL;
  return IR_BUILD(&p->b, IR_ROW_SCALE, embed, IR_BUILD(&p->b, IR_EMBED, ir_operand(m, embed, 0), factor));
}

static ir_value copy_op(train_program *p, ir_value v) {
  const ir_module *m = p->c->m;
  size_t n = ir_operand_count(m, v), attr_count = ir_attr_count(m, v);
  ir_value *operands = ARENA_ARRAY(&p->c->scratch, ir_value, n + 1);
  ir_attr *attrs = ARENA_ARRAY(&p->c->scratch, ir_attr, attr_count + 1);
  for (size_t i = 0; i < n; i++) operands[i] = copy_operand(p, ir_operand(m, v, i));
  for (size_t i = 0; i < attr_count; i++) attrs[i] = ir_attr_at(m, v, i);
  p->b.loc = ir_loc_of(m, v);
  p->b.name = ir_name_of(m, v);
  ir_value copy = ir_build(&p->b, ir_opcode_of(m, v), operands, n, attrs, attr_count);
  return p->o->clamp && p->flags == TRAIN_ROWS && analysis_looks_tokens_up(m, v) ? clamp(p, copy) : copy;
}

static void copy_probe(train_program *p, ir_value v) {
  ir_value x = train_here(p, ir_operand(p->c->m, v, 0));
  p->to[v.id] = x;
  if (!(p->flags & TRAIN_OBSERVES) || ir_type_of(p->c->m, x).rank != 3) return;
  p->b.loc = ir_loc_of(p->c->m, v);
  const char *name = train_name(p, ir_name_of(p->c->m, v), "scale");
  train_mean(p, name, train_scale_of(p, x, p->final.centred, p->final.eps));
}

/* The graph once; returns its logits. */
static ir_value copy_graph(train_program *p) {
  const ir_module *m = p->c->m;
  p->seen_count = 0;
  for (ir_value v = ir_first(m, p->forward); v.id; v = ir_next(m, v)) {
    if (ir_is(m, v, IR_ARG) || ir_is(m, v, IR_RETURN)) continue;
    if (ir_is(m, v, IR_PROBE))
      copy_probe(p, v);
    else if (ir_op_has(ir_opcode_of(m, v), OPF_NORM))
      p->to[v.id] = train_copy_norm(p, v);
    else
      p->to[v.id] = copy_op(p, v);
  }
  return train_here(p, ir_operand(m, ir_last(m, p->forward), 0));
}

/* A second copy of the graph beside the first: arguments are shared, the rest is forgotten. */
static void forget_copy(train_program *p) {
  const ir_module *m = p->c->m;
  for (ir_value v = ir_first(m, p->forward); v.id; v = ir_next(m, v))
    if (!ir_is(m, v, IR_ARG)) p->to[v.id] = IR_NONE;
}

static void build_program(train_program *p) {
  ir_module *m = p->c->m;
  p->to = ARENA_ARRAY(&p->c->scratch, ir_value, p->limit);
  p->b = (ir_builder){.m = m, .region = ir_entry_add(m, p->name)};
  copy_args(p);
  if (p->flags & TRAIN_SCANS) {
    ir_value base = copy_graph(p);
    train_norm_results(p);
    ir_value stream = train_here(p, p->final.stream);
    train_mean(p, "scale", train_scale_of(p, stream, p->final.centred, p->final.eps));
    forget_copy(p);
    p->norms = NORMS_BLENDED;
    train_scan_losses(p, base, copy_graph(p));
  } else {
    ir_value logits = copy_graph(p);
    train_norm_results(p);
    train_losses(p, logits);
  }
  p->b.loc = (diag_loc){0}, p->b.name = NULL;
  ir_build(&p->b, IR_RETURN, NULL, 0, NULL, 0);
}

/* ---- before the copies ---- */
/* Results are named after norms: each gets a name of its own. */
static void name_norms(pass_context *c, ir_region forward) {
  ir_module *m = c->m;
  size_t n = 0;
  for (ir_value v = ir_first(m, forward); v.id; v = ir_next(m, v)) {
    if (!ir_op_has(ir_opcode_of(m, v), OPF_NORM)) continue;
    const char *name = ir_name_of(m, v);
    n++;
    bool taken = !name;
    for (ir_value u = ir_first(m, forward); !taken && !ir_same(u, v); u = ir_next(m, u))
      taken = ir_op_has(ir_opcode_of(m, u), OPF_NORM) && strcmp(ir_name_of(m, u), name) == 0;
    if (taken) ir_set_name(m, v, arena_printf(&c->scratch, "%s.%zu", name ? name : "norm", n));
  }
}

/* What training sets and takes no gradient of. */
static void mark_untrained(ir_module *m, ir_region forward) {
  for (ir_value v = ir_first(m, forward); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_TAPER_RMS_NORM) && !ir_is(m, v, IR_TAPER_LAYER_NORM)) continue;
    ir_value factor = pass_taper_of(m, v).taper_c;
    if (ir_is(m, factor, IR_PARAM)) ir_set_attr(m, factor, (ir_attr){IR_ATTR_TRAINED, {.i = 0}});
  }
}

static bool check_forward(pass_context *c, ir_region forward) {
  const ir_module *m = c->m;
  ir_value logits = forward.id ? ir_operand(m, ir_last(m, forward), 0) : IR_NONE, tokens = IR_NONE;
  ir_type t = logits.id ? ir_type_of(m, logits) : (ir_type){0};
  for (ir_value v = forward.id ? ir_first(m, forward) : IR_NONE; v.id; v = ir_next(m, v))
    if (ir_is(m, v, IR_ARG) && strcmp(ir_name_of(m, v), "tokens") == 0) tokens = v;
  if (tokens.id && t.rank == 3 && t.dim[0] == IR_DIM_B && t.dim[1] == IR_DIM_T) return true;
  diag_report(c->sink, DC_PASS_FORWARD, logits.id ? ir_loc_of(m, logits) : (diag_loc){0},
              "module '%s' has no entry 'forward' that can be trained: tokens i32[B,T] -> logits f32[B,T,vocab]",
              ir_module_name(m));
  return false;
}

bool pass_train_programs(pass_context *c) {
  static const pass_train_options usual = {.anchor = 0.1};
  ir_region forward = ir_entry_find(c->m, "forward");
  const pass_train_options *o = c->options->train ? c->options->train : &usual;
  if (!check_forward(c, forward)) return false;
  name_norms(c, forward);
  mark_untrained(c->m, forward);
  size_t norms = 0;
  for (ir_value v = ir_first(c->m, forward); v.id; v = ir_next(c->m, v))
    norms += ir_op_has(ir_opcode_of(c->m, v), OPF_NORM);
  analysis_final final = analysis_final_norm(c->m, forward);
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    if (programs[i].scan != o->scan || ir_entry_find(c->m, programs[i].name).id) continue;
    train_program p = {.c = c,
                       .o = o,
                       .name = programs[i].name,
                       .flags = programs[i].flags,
                       .norms = programs[i].norms,
                       .forward = forward,
                       .final = final,
                       .limit = ir_value_limit(c->m),
                       .seen = ARENA_ARRAY(&c->scratch, train_norm, norms + 1)};
    build_program(&p);
    c->changed = true;
  }
  return true;
}

/* plan.c - from groups of ops to stages in order. */
#include "compiler/schedule/plan_priv.h"

#include <stdlib.h>
#include <string.h>

#define KEY_STEP ((int64_t)1 << 24) /* room for the ops of a group that is taken apart */

typedef struct group {
  int64_t key;
  ir_value *ops;
  size_t count;
} group;

static bool refuse(planner *k, ir_value v, const char *why) {
  text t = {0};
  ir_print_op(k->m, v, &t);
  diag_report(k->sink, DC_PLAN_OP, ir_loc_of(k->m, v), "target '%s' cannot execute `%s`: %s", k->target->name,
              t.data ? t.data : "?", why);
  text_free(&t);
  return false;
}

static bool check_op(planner *k, ir_value v) {
  const ir_module *m = k->m;
  execution_class c = execution_class_of(m, v);
  if (c == EXEC_REFUSED)
    return refuse(k, v,
                  ir_is(m, v, IR_ATTENTION) ? "run cache-attention first"
                                            : "it is no op of an inference entry over f32[B,T,...]");
  if (ir_is(m, v, IR_ROPE) && !ir_is(m, ir_operand(m, v, 1), IR_POSITIONS))
    return refuse(k, v, "its positions must come from `positions`");
  if (c == EXEC_NONE || c == EXEC_ALIAS) return true;
  if (!execution_width(m, v) && c != EXEC_APPEND) return refuse(k, v, "a row of it is too large");
  for (size_t i = 0; i < ir_operand_count(m, v); i++) {
    ir_value x = ir_operand(m, v, i);
    if (!x.id) continue;
    ir_type t = ir_type_of(m, x);
    bool global = ir_region_of(m, x).id == IR_GLOBALS.id, fine = t.state || t.dtype == IR_I32 || execution_is_row(m, x);
    bool half = t.dtype == IR_BF16 || t.dtype == IR_F16;
    if (global && half && t.rank == 2 && !k->target->halves)
      return refuse(k, v, "it has no products of 16-bit numbers");
    if (global && (t.rank > 2 || (t.dtype != IR_F32 && !(half && t.rank == 2))))
      return refuse(k, v, "a global operand must be an f32 vector or a matrix");
    if (ir_is(m, x, IR_ARG) && !t.state && t.dtype != IR_I32)
      return refuse(k, v, "the arguments of decode are tokens, pos, len and states");
    if (!global && !fine) return refuse(k, v, "an operand is neither a row f32[B,T,...] nor global");
    if (t.dtype == IR_I32 && t.rank == 2 && !ir_is(m, x, IR_ARG) && !ir_is(m, x, IR_POSITIONS))
      return refuse(k, v, "ids must be an argument or positions");
  }
  return true;
}

static bool check_entry(planner *k, ir_region entry) {
  bool ok = true;
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v)) ok &= check_op(k, v);
  ir_value ret = ir_last(k->m, entry), logits = ir_operand(k->m, ret, 0);
  if (ok && !logits.id) return refuse(k, ret, "the entry returns nothing; the first result must be f32[B,T,vocab]");
  if (ok && (ir_region_of(k->m, logits).id == IR_GLOBALS.id || !execution_is_row(k->m, logits) ||
             ir_type_of(k->m, logits).rank != 3))
    return refuse(k, ret, "the first result must be f32[B,T,vocab]");
  return ok;
}

/* ---- states ---- */
static void add_states(planner *k, ir_region entry) {
  plan *p = k->p;
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v)) {
    ir_type t = ir_type_of(k->m, v);
    if (!ir_is(k->m, v, IR_ARG) || !t.state) continue;
    p->states[p->state_count++] = (plan_state){.arg = v, .heads = (uint32_t)t.dim[1], .head_dim = (uint32_t)t.dim[3]};
  }
}

static bool settle_states(planner *k, ir_region entry) {
  plan *p = k->p;
  bool *values = ARENA_ARRAY(&k->scratch, bool, p->state_count + 1);
  uint32_t tile = k->target->tile;
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v)) {
    if (!ir_is(k->m, v, IR_CACHE_ATTENTION)) continue;
    p->states[plan_state_of(k, ir_operand(k->m, v, 1))].keys = true;
    values[plan_state_of(k, ir_operand(k->m, v, 2))] = true;
  }
  for (size_t i = 0; i < p->state_count; i++) {
    plan_state *s = &p->states[i];
    if (s->keys && values[i]) return refuse(k, s->arg, "one state is read as keys and as values");
    uint64_t n = (uint64_t)s->heads * (s->keys ? s->head_dim : (s->head_dim + tile - 1) / tile * tile);
    if (n > UINT32_MAX) return refuse(k, s->arg, "a position of it is too large");
    s->floats_per_pos = (uint32_t)n;
  }
  return true;
}

/* ---- groups ---- */
static int64_t operand_key(const planner *k, ir_value v) {
  int64_t key = PLAN_NO_KEY;
  for (size_t i = 0; i < ir_operand_count(k->m, v); i++) {
    ir_value x = ir_operand(k->m, v, i);
    if (x.id && k->key[x.id] > key) key = k->key[x.id];
  }
  return key;
}

/* Takes the groups as given if they ascend; else every op is a group. */
static void assign_keys(planner *k, ir_region entry) {
  bool given = true;
  for (ir_value v = ir_first(k->m, entry); v.id && given; v = ir_next(k->m, v)) {
    execution_class c = execution_class_of(k->m, v);
    if (c == EXEC_NONE) continue;
    int64_t number = ir_attr_int(k->m, v, IR_ATTR_GROUP, PLAN_NO_KEY);
    k->key[v.id] = c == EXEC_ALIAS || c == EXEC_SLICE ? operand_key(k, v) : number * KEY_STEP;
    given = k->key[v.id] >= 0 && operand_key(k, v) <= k->key[v.id];
  }
  int64_t next = 0;
  for (ir_value v = ir_first(k->m, entry); v.id && !given; v = ir_next(k->m, v)) {
    execution_class c = execution_class_of(k->m, v);
    k->key[v.id] = c == EXEC_NONE                       ? PLAN_NO_KEY
                   : c == EXEC_ALIAS || c == EXEC_SLICE ? operand_key(k, v)
                                                        : next++ * KEY_STEP;
  }
  k->key[ir_last(k->m, entry).id] = PLAN_LAST_KEY;
}

static int by_key(const void *a, const void *b) {
  const group *x = a, *y = b;
  return x->key < y->key ? -1 : x->key > y->key;
}

typedef struct keyed {
  int64_t key;
  uint32_t order;
  ir_value v;
} keyed;
static int by_key_then_order(const void *a, const void *b) {
  const keyed *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->order < y->order ? -1 : x->order > y->order;
}

static size_t collect_groups(planner *k, ir_region entry, group **out) {
  size_t n = 0, count = 0;
  keyed *all = ARENA_ARRAY(&k->scratch, keyed, ir_value_limit(k->m));
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v))
    if (k->key[v.id] != PLAN_NO_KEY && k->key[v.id] != PLAN_LAST_KEY)
      all[n] = (keyed){k->key[v.id], (uint32_t)n, v}, n++;
  qsort(all, n, sizeof *all, by_key_then_order);
  group *groups = ARENA_ARRAY(&k->scratch, group, n + 1);
  ir_value *ops = ARENA_ARRAY(&k->scratch, ir_value, n + 1);
  for (size_t i = 0; i < n; i++) {
    ops[i] = all[i].v;
    if (!count || groups[count - 1].key != all[i].key) groups[count++] = (group){.key = all[i].key, .ops = ops + i};
    groups[count - 1].count++;
  }
  qsort(groups, count, sizeof *groups, by_key);
  *out = groups;
  return count;
}

static void add_stage(planner *k, const plan_stage *s) {
  if (s->step_count || s->segment_count) k->p->stages[k->p->stage_count++] = *s;
}

/* Every op of the group a stage of its own; aliases and slices stay with what they look at. */
static bool build_singly(planner *k, const group *g) {
  ir_value *few = ARENA_ARRAY(&k->scratch, ir_value, g->count);
  for (size_t i = 0; i < g->count; i++) {
    execution_class c = execution_class_of(k->m, g->ops[i]);
    bool follows = (c == EXEC_ALIAS && !k->copied[g->ops[i].id]) || c == EXEC_SLICE;
    k->key[g->ops[i].id] = follows ? operand_key(k, g->ops[i]) : g->key + 1 + (int64_t)i;
  }
  for (size_t i = 0; i < g->count; i++) {
    if (k->key[g->ops[i].id] != g->key + 1 + (int64_t)i) continue;
    few[0] = g->ops[i];
    plan_stage s;
    if (!plan_build_stage(k, few, 1, &s)) return refuse(k, g->ops[i], "it cannot be a stage of its own");
    add_stage(k, &s);
  }
  return true;
}

static bool build_groups(planner *k, const group *groups, size_t n) {
  for (size_t i = 0; i < n; i++) {
    plan_stage s;
    if (plan_build_stage(k, groups[i].ops, groups[i].count, &s)) {
      add_stage(k, &s);
      continue;
    }
    if (groups[i].count > 1)
      diag_remark(k->sink, "fuse-epilogue", true, ir_loc_of(k->m, groups[i].ops[0]),
                  "%zu ops of group %lld cannot share a stage; each gets its own", groups[i].count,
                  (long long)(groups[i].key / KEY_STEP));
    if (!build_singly(k, &groups[i])) return false;
  }
  return true;
}

/* The logits are compact rows of their own buffer: a last stage copies them where the value is more than that. */
static void finish_logits(planner *k, ir_value ret) {
  plan *p = k->p;
  plan_view w = plan_view_of(k, ir_operand(k->m, ret, 0));
  if (k->out[w.owner.id] && !w.start && w.width == plan_width_of(k, w.owner)) {
    p->logits = plan_buffer_for(k, w.owner);
    return;
  }
  plan_stage s = {.kind = PLAN_ROWS, .out_rows = true, .name = "logits", .steps = ARENA_ARRAY(&p->mem, plan_step, 1)};
  plan_add_row_step(k, &s, ret);
  p->logits = s.steps[0].buffer = plan_buffer_for(k, ret);
  p->stages[p->stage_count++] = s;
}

static void add_probes(planner *k, ir_region entry) {
  plan *p = k->p;
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v)) {
    if (!ir_op_has(ir_opcode_of(k->m, v), OPF_IDENTITY) || !ir_has_attr(k->m, v, IR_ATTR_NAME)) continue;
    uint32_t buffer = k->buffer[plan_view_of(k, v).owner.id];
    ir_value inverse = ir_operand(k->m, v, 1);
    uint32_t scale = inverse.id ? plan_weight_for(k, inverse, false, 0, 1) : PLAN_NONE;
    p->probes[p->probe_count++] =
        (plan_probe){.op = v, .stage = p->buffers[buffer].first, .buffer = buffer, .inv_scale = scale};
  }
}

static bool read_params(planner *k, ir_region entry) {
  plan *p = k->p;
  double context = 0;
  ir_value ret = ir_last(k->m, entry);
  if (!ir_module_param(k->m, "context", &context) ||
      !(context >= 1 && context <= 1 << 30 && context == (uint32_t)context)) {
    diag_report(k->sink, DC_PLAN_PARAM, ir_loc_of(k->m, ret),
                "module '%s' has no parameter 'context', a whole number from 1 to 2^30; add it", ir_module_name(k->m));
    return false;
  }
  p->context = (uint32_t)context;
  p->vocab = execution_width(k->m, ir_operand(k->m, ret, 0));
  for (ir_value v = ir_first(k->m, entry); v.id && !p->width; v = ir_next(k->m, v))
    if (execution_is_row(k->m, v)) p->width = execution_width(k->m, v);
  return true;
}

/* Ids are below the width of the logits and positions below the context: every one must have a row. */
static bool check_tables(planner *k, ir_region entry) {
  bool ok = true;
  for (ir_value v = ir_first(k->m, entry); v.id; v = ir_next(k->m, v)) {
    if (!ir_is(k->m, v, IR_EMBED)) continue;
    bool positions = ir_is(k->m, ir_operand(k->m, v, 0), IR_POSITIONS);
    int64_t rows = ir_type_of(k->m, ir_operand(k->m, v, 1)).dim[0], needed = positions ? k->p->context : k->p->vocab;
    if (rows >= needed) continue;
    diag_report(k->sink, DC_PLAN_SIZE, ir_loc_of(k->m, v),
                "the table has %lld rows, but %s go up to %lld; make the table larger or '%s' smaller", (long long)rows,
                positions ? "positions" : "ids", (long long)needed - 1, positions ? "context" : "vocab");
    ok = false;
  }
  return ok;
}

static void allocate(planner *k) {
  plan *p = k->p;
  uint32_t n = ir_value_limit(k->m);
  k->copied = ARENA_ARRAY(&k->scratch, bool, n), k->follows = ARENA_ARRAY(&k->scratch, bool, n);
  k->key = ARENA_ARRAY(&k->scratch, int64_t, n), k->uses = ARENA_ARRAY(&k->scratch, plan_use *, n);
  k->buffer = ARENA_ARRAY(&k->scratch, uint32_t, n), k->step = ARENA_ARRAY(&k->scratch, uint32_t, n);
  for (uint32_t i = 0; i < n; i++) k->key[i] = PLAN_NO_KEY, k->buffer[i] = k->step[i] = PLAN_NONE;
  p->stages = ARENA_ARRAY(&p->mem, plan_stage, n + 1), p->tensors = ARENA_ARRAY(&p->mem, plan_tensor, n + 1);
  p->buffers = ARENA_ARRAY(&p->mem, plan_buffer, n + 1), p->states = ARENA_ARRAY(&p->mem, plan_state, n + 1);
  p->rotary = ARENA_ARRAY(&p->mem, plan_rotary, n + 1), p->probes = ARENA_ARRAY(&p->mem, plan_probe, n + 1);
}

static bool run(planner *k) {
  plan *p = k->p;
  group *groups;
  allocate(k);
  if (!check_entry(k, p->entry) || !read_params(k, p->entry) || !check_tables(k, p->entry)) return false;
  k->out = execution_out_rows(k->m, p->entry, &k->scratch);
  k->out[ir_last(k->m, p->entry).id] = true;
  k->probe_only = execution_probe_only(k->m, p->entry, &k->scratch);
  add_states(k, p->entry);
  if (!settle_states(k, p->entry)) return false;
  plan_collect_uses(k, p->entry);
  assign_keys(k, p->entry);
  size_t n = collect_groups(k, p->entry, &groups);
  if (!build_groups(k, groups, n)) return false;
  finish_logits(k, ir_last(k->m, p->entry));
  plan_settle_tables(k);
  if (!plan_lay_out(k)) {
    diag_report(k->sink, DC_PLAN_SIZE, ir_loc_of(k->m, ir_last(k->m, p->entry)),
                "a row of all buffers exceeds 2^32 floats; use a smaller model");
    return false;
  }
  add_probes(k, p->entry);
  plan_settle_reads(k);
  return true;
}

plan *plan_make(const ir_module *m, const char *target, diag_sink *sink) {
  planner k = {.m = m, .sink = sink, .target = plan_target_find(target)};
  ir_region entry = ir_entry_find(m, "decode");
  if (!k.target) {
    diag_report(sink, DC_PLAN_TARGET, (diag_loc){0}, "unknown target '%s'; use 'cpu' or 'cuda'", target);
    return NULL;
  }
  if (!entry.id) {
    diag_report(sink, DC_PLAN_ENTRY, (diag_loc){0},
                "module '%s' has no entry 'decode'; run the pass cache-attention on one with an entry 'forward'",
                ir_module_name(m));
    return NULL;
  }
  k.p = calloc(1, sizeof *k.p);
  if (!k.p) return NULL;
  k.p->m = m, k.p->entry = entry, k.p->target = k.target->name;
  bool ok = run(&k);
  arena_free(&k.scratch);
  if (ok) return k.p;
  plan_free(k.p);
  return NULL;
}

void plan_free(plan *p) {
  if (!p) return;
  arena_free(&p->mem);
  free(p);
}

size_t plan_tensors(const plan *p, const plan_tensor **out) {
  *out = p->tensors;
  return p->tensor_count;
}

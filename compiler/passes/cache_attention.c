/* cache_attention.c - from entry `forward`, which sees whole sequences, makes entry `decode`, which sees the next
   tokens of sequences whose keys and values are states: one graph for a step (T = 1) and for a chunk of a prompt
   (docs/adr/0003-one-inference-entry.md). */
#include "compiler/passes/pass.h"

#include <math.h>
#include <string.h>

typedef struct copier {
  pass_context *c;
  ir_builder b;
  ir_value *to; /* [value limit of the start] */
  ir_value tokens, pos, len;
  ir_value *states; /* what the states are now, keys and values of each attention in turn */
  size_t state_count, done;
  int64_t context;
} copier;

static ir_value copied(const copier *k, ir_value v) {
  return v.id && ir_region_of(k->c->m, v).id != IR_GLOBALS.id ? k->to[v.id] : v;
}

static ir_attr *attrs_of(copier *k, ir_value v, size_t *out_n) {
  *out_n = ir_attr_count(k->c->m, v);
  ir_attr *attrs = ARENA_ARRAY(&k->c->scratch, ir_attr, *out_n + 1);
  for (size_t i = 0; i < *out_n; i++) attrs[i] = ir_attr_at(k->c->m, v, i);
  return attrs;
}

static ir_value add_arg(copier *k, const char *name, ir_type type) {
  ir_attr attr = {.key = IR_ATTR_NAME, .u.s = name};
  return ir_build_typed(&k->b, IR_ARG, type, &attr, 1);
}

/* tokens, pos, len come first in every entry; an entry written by hand may lack the latter two. */
static void copy_args(copier *k, ir_region forward) {
  ir_module *m = k->c->m;
  for (ir_value v = ir_first(m, forward); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_ARG)) continue;
    const char *name = ir_attr_string(m, v, IR_ATTR_NAME, "");
    k->b.loc = ir_loc_of(m, v), k->b.name = ir_name_of(m, v);
    k->to[v.id] = add_arg(k, name, ir_type_of(m, v));
    if (strcmp(name, "tokens") == 0) k->tokens = k->to[v.id];
    if (strcmp(name, "pos") == 0) k->pos = k->to[v.id];
    if (strcmp(name, "len") == 0) k->len = k->to[v.id];
  }
  const int64_t batch = IR_DIM_B;
  ir_type one = ir_type_make(IR_I32, 1, &batch);
  k->b.name = NULL;
  if (!k->pos.id) k->pos = add_arg(k, "pos", one);
  if (!k->len.id) k->len = add_arg(k, "len", one);
}

static ir_value add_state(copier *k, ir_value like, const char *kind, size_t number) {
  ir_type x = ir_type_of(k->c->m, like);
  ir_type t = ir_type_make(IR_F32, 4, (int64_t[]){IR_DIM_B, x.dim[2], k->context, x.dim[3]});
  t.state = true;
  return add_arg(k, arena_printf(&k->c->scratch, "%s.%zu", kind, number), t);
}

static void add_states(copier *k, ir_region forward) {
  ir_module *m = k->c->m;
  size_t n = 0;
  for (ir_value v = ir_first(m, forward); v.id; v = ir_next(m, v)) n += ir_is(m, v, IR_ATTENTION);
  k->states = ARENA_ARRAY(&k->c->scratch, ir_value, 2 * n + 1);
  k->b.name = NULL;
  for (ir_value v = ir_first(m, forward); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_ATTENTION)) continue;
    k->b.loc = ir_loc_of(m, v);
    k->states[k->state_count] = add_state(k, ir_operand(m, v, 1), "keys", k->state_count / 2);
    k->states[k->state_count + 1] = add_state(k, ir_operand(m, v, 2), "values", k->state_count / 2);
    k->state_count += 2;
  }
}

static void copy_attention(copier *k, ir_value v) {
  ir_module *m = k->c->m;
  ir_value *state = k->states + k->done;
  for (size_t i = 0; i < 2; i++)
    state[i] = IR_BUILD(&k->b, IR_CACHE_APPEND, state[i], copied(k, ir_operand(m, v, 1 + i)), k->pos, k->len);
  size_t n;
  const ir_attr *attrs = attrs_of(k, v, &n);
  k->to[v.id] = ir_build(&k->b, IR_CACHE_ATTENTION,
                         (ir_value[]){copied(k, ir_operand(m, v, 0)), state[0], state[1], k->pos, k->len}, 5, attrs, n);
  k->done += 2;
}

static void copy_op(copier *k, ir_value v) {
  ir_module *m = k->c->m;
  size_t n = ir_operand_count(m, v), extra = ir_is(m, v, IR_RETURN) ? k->state_count : 0, attr_count;
  ir_value *operands = ARENA_ARRAY(&k->c->scratch, ir_value, n + extra + 1);
  for (size_t i = 0; i < n; i++) operands[i] = copied(k, ir_operand(m, v, i));
  for (size_t i = 0; i < extra; i++) operands[n + i] = k->states[i];
  const ir_attr *attrs = attrs_of(k, v, &attr_count);
  k->to[v.id] = ir_build(&k->b, ir_opcode_of(m, v), operands, n + extra, attrs, attr_count);
}

static void copy_ops(copier *k, ir_region forward) {
  ir_module *m = k->c->m;
  for (ir_value v = ir_first(m, forward); v.id; v = ir_next(m, v)) {
    if (ir_is(m, v, IR_ARG)) continue;
    k->b.loc = ir_loc_of(m, v), k->b.name = ir_name_of(m, v);
    if (ir_is(m, v, IR_ATTENTION))
      copy_attention(k, v);
    else
      copy_op(k, v);
  }
}

static diag_loc place_of(const ir_module *m, ir_region forward) { return ir_loc_of(m, ir_first(m, forward)); }

bool pass_cache_attention(pass_context *c) {
  ir_region forward = ir_entry_find(c->m, "forward");
  if (!forward.id || ir_entry_find(c->m, "decode").id) return true;
  double context = 0;
  if (!ir_module_param(c->m, "context", &context) ||
      !(context >= 1 && context <= INT32_MAX && context == floor(context))) {
    diag_report(
        c->sink, DC_PLAN_PARAM, place_of(c->m, forward),
        "module '%s' has no parameter 'context' (a whole number from 1); the cache needs it: add `param context = N`",
        ir_module_name(c->m));
    return false;
  }
  copier k = {.c = c, .context = (int64_t)context, .to = ARENA_ARRAY(&c->scratch, ir_value, ir_value_limit(c->m))};
  k.b = (ir_builder){.m = c->m, .region = ir_entry_add(c->m, "decode")};
  copy_args(&k, forward);
  add_states(&k, forward);
  copy_ops(&k, forward);
  c->changed = true;
  return true;
}

/* eval.c - the oracle: which values are needed, in which order, and until when. */
#include "compiler/ir/eval_priv.h"
#include "runtime/base/checked.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_MEMORY ((size_t)8 << 30)

static const eval_fn eval_table[IR_OP_COUNT] = {
#define OP(id, text, operands, attrs, flags, infer, eval, grad) [IR_##id] = eval,
#include "compiler/ir/op.def"
#undef OP
};

typedef struct evaluator {
  const ir_module *m;
  ir_eval_args args;
  arena mem;
  ir_tensor *values;   /* [value] */
  bool *done, *needed; /* [value] */
  bool *borrowed;      /* [value] data belongs to a state */
  uint32_t *readers;   /* [value] reads still to come */
  ir_value *stack;     /* [stack_cap] */
  size_t stack_size, stack_cap;
  ir_tensor *states, *own_states;
  size_t state_count;
  size_t used, limit;
  taper_error *error;
} evaluator;

void ir_tensor_free(ir_tensor *t) {
  if (!t) return;
  free(t->data);
  *t = (ir_tensor){0};
}

int64_t eval_elements(const ir_tensor *t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t->rank; i++) n *= t->dim[i];
  return n;
}

bool eval_row_is_valid(const eval_ctx *c, int64_t b, int64_t t) {
  return !c->args->len || b >= c->args->batch || t < c->args->len[b];
}

/* A taper norm whose gate is exactly 0 or 1 does not look at its other branch, be it NaN or absent. */
static bool switched_off(const ir_module *m, ir_value v, size_t i) {
  const ir_operand_spec *specs;
  size_t n = ir_op_operands(ir_opcode_of(m, v), &specs);
  size_t at = 0;
  while (at < n && !specs[at].is_gate) at++;
  if (i >= n || at == n || !specs[i].is_param) return false;
  bool tapered = strncmp(specs[i].name, "taper_", 6) == 0, live = strcmp(specs[i].name, "weight") == 0;
  double g;
  ir_value gate = ir_operand(m, v, at);
  if (ir_elements(ir_type_of(m, gate)) != 1 || !ir_read_const(m, gate, &g)) return false;
  return (tapered && g == 1.0) || (live && g == 0.0);
}

static void push(evaluator *e, ir_value v) {
  if (e->stack_size == e->stack_cap) {
    ir_value *larger = ARENA_ARRAY(&e->mem, ir_value, e->stack_cap * 2 + 64);
    if (e->stack_size) memcpy(larger, e->stack, e->stack_size * sizeof *larger);
    e->stack = larger;
    e->stack_cap = e->stack_cap * 2 + 64;
  }
  e->stack[e->stack_size++] = v;
}

/* Marks what `root` depends on and counts the reads. */
static void need(evaluator *e, ir_value root) {
  if (e->needed[root.id]) return;
  e->needed[root.id] = true;
  push(e, root);
  while (e->stack_size) {
    ir_value v = e->stack[--e->stack_size];
    for (size_t i = 0; i < ir_operand_count(e->m, v); i++) {
      ir_value x = ir_operand(e->m, v, i);
      if (!x.id || switched_off(e->m, v, i)) continue;
      e->readers[x.id]++;
      if (e->needed[x.id]) continue;
      e->needed[x.id] = true;
      push(e, x);
    }
  }
}

static void release(evaluator *e, ir_value v) {
  if (!e->values[v.id].data) return;
  if (!e->borrowed[v.id]) {
    e->used -= (size_t)eval_elements(&e->values[v.id]) * sizeof(double);
    free(e->values[v.id].data);
  }
  e->values[v.id].data = NULL;
}

static taper_status concrete_shape(evaluator *e, ir_type type, ir_tensor *out) {
  int64_t n = 1;
  *out = (ir_tensor){.rank = type.rank};
  for (uint32_t i = 0; i < type.rank; i++) {
    int64_t d = type.dim[i] == IR_DIM_B ? e->args.batch : type.dim[i] == IR_DIM_T ? e->args.time : type.dim[i];
    if (d < 1)
      return TAPER_FAIL(e->error, TAPER_INVALID, "batch is %lld and time %lld; both must be at least 1",
                        (long long)e->args.batch, (long long)e->args.time);
    out->dim[i] = d;
    if (!checked_mul_i64(n, d, &n) || n > IR_MAX_ELEMENTS)
      return TAPER_FAIL(e->error, TAPER_NOMEM, "a tensor of more than 2^40 elements");
  }
  return TAPER_OK;
}

static taper_status allocate(evaluator *e, ir_tensor *t) {
  size_t bytes = (size_t)eval_elements(t) * sizeof(double);
  if (bytes > e->limit - e->used)
    return TAPER_FAIL(e->error, TAPER_NOMEM, "%zu more bytes beside %zu are over the limit of %zu", bytes, e->used,
                      e->limit);
  t->data = calloc(bytes / sizeof(double), sizeof(double));
  if (!t->data) return TAPER_FAIL(e->error, TAPER_NOMEM, "no memory for %zu bytes", bytes);
  e->used += bytes;
  return TAPER_OK;
}

static bool entry_reads(const ir_module *m, ir_value v) {
  for (const ir_use *use = ir_node_at(m, v)->uses; use; use = use->next)
    if (m->nodes[use->user]->region != IR_GLOBALS.id) return true;
  return false;
}

static void round_result(evaluator *e, ir_value v) {
  ir_tensor *t = &e->values[v.id];
  const ir_node *node = ir_node_at(e->m, v);
  if (!e->args.round_f32 || node->type.dtype != IR_F32 || !t->data) return;
  if (node->region == IR_GLOBALS.id && !entry_reads(e->m, v))
    return; /* constants are rounded once, where they are stored */
  int64_t n = node->type.state ? 0 : eval_elements(t);
  for (int64_t i = 0; i < n; i++) t->data[i] = (double)(float)t->data[i];
}

/* All operands are there. */
static taper_status run_op(evaluator *e, ir_value v) {
  const ir_node *node = ir_node_at(e->m, v);
  const ir_tensor *few[8], **in = few;
  if (node->operand_count > 8) in = ARENA_ARRAY(&e->mem, const ir_tensor *, node->operand_count);
  for (uint32_t i = 0; i < node->operand_count; i++) {
    ir_value x = node->operands[i].value;
    in[i] = x.id && !switched_off(e->m, v, i) ? &e->values[x.id] : NULL;
  }
  ir_tensor *out = &e->values[v.id];
  if (node->op != IR_RETURN) TAPER_TRY(concrete_shape(e, node->type, out));
  e->borrowed[v.id] = node->type.state && node->op != IR_RETURN;
  if (node->op != IR_RETURN && !e->borrowed[v.id]) TAPER_TRY(allocate(e, out));
  eval_ctx c = {e->m, &e->args, v, in, node->operand_count, out, e->states, e->error};
  taper_status status = eval_table[node->op](&c);
  if (status != TAPER_OK) {
    const char *name = ir_name_of(e->m, v);
    return taper_add_context(e->error, status, "%s%s%s%s", ir_op_name(node->op), name ? " '" : "", name ? name : "",
                             name ? "'" : "");
  }
  e->done[v.id] = true;
  round_result(e, v);
  for (uint32_t i = 0; i < node->operand_count && node->op != IR_RETURN; i++)
    if (in[i] && --e->readers[node->operands[i].value.id] == 0) release(e, node->operands[i].value);
  return TAPER_OK;
}

/* Computes a global with everything below it; no recursion. */
static taper_status run_global(evaluator *e, ir_value root) {
  if (e->done[root.id]) return TAPER_OK;
  push(e, root);
  while (e->stack_size) {
    ir_value v = e->stack[e->stack_size - 1];
    size_t before = e->stack_size;
    for (size_t i = 0; i < ir_operand_count(e->m, v); i++) {
      ir_value x = ir_operand(e->m, v, i);
      if (x.id && !e->done[x.id] && !switched_off(e->m, v, i)) push(e, x);
    }
    if (e->stack_size > before) continue;
    e->stack_size--;
    if (!e->done[v.id]) TAPER_TRY(run_op(e, v));
  }
  return TAPER_OK;
}

static void evaluator_init(evaluator *e, const ir_module *m, size_t limit, taper_error *error) {
  uint32_t n = ir_value_limit(m);
  e->m = m;
  e->error = error;
  e->limit = limit ? limit : DEFAULT_MEMORY;
  e->values = ARENA_ARRAY(&e->mem, ir_tensor, n);
  e->done = ARENA_ARRAY(&e->mem, bool, n);
  e->needed = ARENA_ARRAY(&e->mem, bool, n);
  e->borrowed = ARENA_ARRAY(&e->mem, bool, n);
  e->readers = ARENA_ARRAY(&e->mem, uint32_t, n);
}

static void evaluator_free(evaluator *e) {
  for (uint32_t id = 1; id < ir_value_limit(e->m); id++) release(e, (ir_value){id});
  for (size_t i = 0; e->own_states && i < e->state_count; i++) free(e->own_states[i].data);
  arena_free(&e->mem);
}

/* ---- entries ---- */
static taper_status check_inputs(const ir_eval_args *a, taper_error *error) {
  for (int64_t b = 0; b < a->batch; b++) {
    if (a->pos && a->pos[b] < 0)
      return TAPER_FAIL(error, TAPER_INVALID, "pos[%lld] is %d, below 0", (long long)b, a->pos[b]);
    if (a->len && (a->len[b] < 0 || a->len[b] > a->time))
      return TAPER_FAIL(error, TAPER_INVALID, "len[%lld] is %d; it must be 0 to time, %lld", (long long)b, a->len[b],
                        (long long)a->time);
  }
  return TAPER_OK;
}

/* States of the caller, or our own; those without data start as zeros. */
static taper_status prepare_states(evaluator *e, ir_region entry) {
  size_t i = 0;
  for (ir_value v = ir_first(e->m, entry); v.id; v = ir_next(e->m, v))
    e->state_count += ir_is(e->m, v, IR_ARG) && ir_type_of(e->m, v).state;
  if (e->args.states && e->args.state_count != e->state_count)
    return TAPER_FAIL(e->error, TAPER_INVALID, "%zu states given, the entry has %zu", e->args.state_count,
                      e->state_count);
  if (!e->args.states) e->own_states = ARENA_ARRAY(&e->mem, ir_tensor, e->state_count + 1);
  e->states = e->args.states ? e->args.states : e->own_states;
  for (ir_value v = ir_first(e->m, entry); v.id; v = ir_next(e->m, v)) {
    ir_tensor shape;
    if (!ir_is(e->m, v, IR_ARG) || !ir_type_of(e->m, v).state) continue;
    TAPER_TRY(concrete_shape(e, ir_type_of(e->m, v), &shape));
    ir_tensor *s = &e->states[i++];
    if (s->data && (s->rank != shape.rank || memcmp(s->dim, shape.dim, shape.rank * sizeof *s->dim) != 0))
      return TAPER_FAIL(e->error, TAPER_INVALID, "state %zu has another shape than the entry's", i - 1);
    if (s->data) continue;
    TAPER_TRY(allocate(e, &shape));
    *s = shape;
  }
  return TAPER_OK;
}

static taper_status hand_out(evaluator *e, ir_value ret, ir_tensor *out, size_t out_count) {
  for (size_t i = 0; i < out_count; i++) {
    ir_value v = ir_operand(e->m, ret, i);
    size_t bytes = (size_t)eval_elements(&e->values[v.id]) * sizeof(double);
    out[i] = e->values[v.id];
    out[i].data = malloc(bytes);
    if (!out[i].data) return TAPER_FAIL(e->error, TAPER_NOMEM, "no memory for %zu bytes", bytes);
    memcpy(out[i].data, e->values[v.id].data, bytes);
  }
  return TAPER_OK;
}

static taper_status run_entry(evaluator *e, ir_region entry, ir_tensor *out, size_t out_count) {
  const ir_module *m = e->m;
  ir_value ret = ir_last(m, entry);
  if (!ir_is(m, ret, IR_RETURN))
    return TAPER_FAIL(e->error, TAPER_INVALID, "entry '%s' does not end with return", ir_region_name(m, entry));
  if (out_count > ir_operand_count(m, ret))
    return TAPER_FAIL(e->error, TAPER_INVALID, "%zu results asked for, entry '%s' returns %zu", out_count,
                      ir_region_name(m, entry), ir_operand_count(m, ret));
  TAPER_TRY(check_inputs(&e->args, e->error));
  TAPER_TRY(prepare_states(e, entry));
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v))
    if (ir_is(m, v, IR_RETURN) || ir_is(m, v, IR_PROBE) || ir_op_has(ir_opcode_of(m, v), OPF_STATE) ||
        ir_op_has(ir_opcode_of(m, v), OPF_EFFECT))
      need(e, v);
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) {
    if (!e->needed[v.id]) continue;
    for (size_t i = 0; i < ir_operand_count(m, v); i++) {
      ir_value x = ir_operand(m, v, i);
      if (x.id && ir_region_of(m, x).id == IR_GLOBALS.id && !switched_off(m, v, i)) TAPER_TRY(run_global(e, x));
    }
    TAPER_TRY(run_op(e, v));
    if (e->readers[v.id] == 0) release(e, v);
  }
  return hand_out(e, ret, out, out_count);
}

taper_status ir_eval_entry(const ir_module *m, ir_region entry, const ir_eval_args *args, ir_tensor *out,
                           size_t out_count, taper_error *error) {
  evaluator e = {.args = *args};
  for (size_t i = 0; i < out_count; i++) out[i] = (ir_tensor){0};
  evaluator_init(&e, m, args->memory_limit, error);
  taper_status status = run_entry(&e, entry, out, out_count);
  evaluator_free(&e);
  for (size_t i = 0; status != TAPER_OK && i < out_count; i++) ir_tensor_free(&out[i]);
  return status;
}

taper_status ir_eval_global(const ir_module *m, ir_value v, ir_tensor *out, taper_error *error) {
  evaluator e = {0};
  *out = (ir_tensor){0};
  if (ir_region_of(m, v).id != IR_GLOBALS.id) return TAPER_FAIL(error, TAPER_INVALID, "the value is not global");
  evaluator_init(&e, m, 0, error);
  need(&e, v);
  taper_status status = run_global(&e, v);
  if (status == TAPER_OK) {
    *out = e.values[v.id];
    e.values[v.id].data = NULL;
  }
  evaluator_free(&e);
  return status;
}

/* ---- what the machine itself supplies ---- */
taper_status eval_const(eval_ctx *c) {
  if (ir_read_const(c->m, c->v, c->out->data)) return TAPER_OK;
  const char *name = ir_attr_string(c->m, c->v, IR_ATTR_TENSOR, ir_name_of(c->m, c->v));
  return TAPER_FAIL(c->error, TAPER_INVALID, "tensor '%s' has no data; give the model its weights", name ? name : "?");
}

static void copy_ints(double *to, const int32_t *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = (double)from[i];
}

static size_t state_index(const eval_ctx *c) {
  size_t i = 0;
  for (ir_value v = ir_prev(c->m, c->v); v.id; v = ir_prev(c->m, v))
    i += ir_is(c->m, v, IR_ARG) && ir_type_of(c->m, v).state;
  return i;
}

taper_status eval_arg(eval_ctx *c) {
  const char *name = ir_name_of(c->m, c->v);
  int64_t n = eval_elements(c->out);
  if (ir_type_of(c->m, c->v).state) {
    c->out->data = c->states[state_index(c)].data;
    return TAPER_OK;
  }
  const int32_t *given = strcmp(name, "tokens") == 0    ? c->args->tokens
                         : strcmp(name, "targets") == 0 ? c->args->targets
                         : strcmp(name, "pos") == 0     ? c->args->pos
                         : strcmp(name, "len") == 0     ? c->args->len
                                                        : NULL;
  if (given)
    copy_ints(c->out->data, given, n);
  else if (strcmp(name, "len") == 0)
    for (int64_t i = 0; i < n; i++) c->out->data[i] = (double)c->args->time;
  else if (strcmp(name, "pos") != 0) /* which starts as zeros */
    return TAPER_FAIL(c->error, TAPER_INVALID, "no value is given for argument '%s'", name);
  return TAPER_OK;
}

taper_status eval_return(eval_ctx *c) {
  (void)c;
  return TAPER_OK;
}

/* The result is a copy; who listens gets the value with its inverse scale applied. */
taper_status eval_probe(eval_ctx *c) {
  int64_t n = eval_elements(c->out), d = eval_last(c->out);
  memcpy(c->out->data, c->in[0]->data, (size_t)n * sizeof(double));
  if (!c->args->on_probe) return TAPER_OK;
  if (c->n > 1)
    for (int64_t i = 0; i < n; i++) c->out->data[i] *= c->in[1]->data[i % d];
  c->args->on_probe(c->args->user, ir_name_of(c->m, c->v), c->out);
  memcpy(c->out->data, c->in[0]->data, (size_t)n * sizeof(double));
  return TAPER_OK;
}

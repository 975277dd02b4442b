/* lower_globals.c - weights, gates and constants of the module. */
#include "compiler/front/lower_priv.h"
#include "runtime/base/checked.h"

#include <math.h>
#include <string.h>

enum { MAX_GATE = 65536 };

ir_value lower_build(lowering *l, ir_opcode op, const char *name, const ir_value *operands, size_t n,
                     const ir_attr *attrs, size_t attr_count, ast_span span) {
  l->body.loc = source_loc(l->c->source, span);
  l->body.name = name;
  return ir_build(&l->body, op, operands, n, attrs, attr_count);
}

/* ---- gates ---- */

static const ast_symbol *find_gate(const ast_model *model, const char *name) {
  for (const ast_symbol *s = model->symbols; s; s = s->next)
    if (s->kind == SYM_GATE && strcmp(s->id.text, name) == 0) return s;
  return NULL;
}

static const char *origin(const front_gate *g) { return g->file ? "metadata key 'taper.gates'" : "--gate"; }
static diag_loc place(const lowering *l, const front_gate *g) {
  return (diag_loc){.file = diag_intern(l->c->sink, g->file)};
}

static bool unknown_gate(lowering *l, const front_gate *g) {
  suggestion near = suggest(g->name);
  text all = {0};
  for (const ast_symbol *s = l->c->model->symbols; s; s = s->next) {
    if (s->kind != SYM_GATE) continue;
    if (front_suggests(l->c)) suggest_try(&near, s->id.text);
    text_printf(&all, "%s%s", all.size ? ", " : "", s->id.text);
  }
  diag_report(l->c->sink, DC_FRONT_UNKNOWN_GATE, place(l, g), "%s: model '%s' has no gate '%s'%s%s", origin(g),
              l->c->model->id.text, g->name,
              near.best  ? suggest_text(&near, l->c->memory)
              : all.size ? "; its gates are "
                         : "; it has none",
              near.best || !all.size ? "" : all.data);
  text_free(&all);
  return false;
}

static bool take_values(lowering *l, const front_gate *g) {
  const ast_symbol *s = find_gate(l->c->model, g->name);
  if (!s) return unknown_gate(l, g);
  lower_gate *to = &l->gates[s->slot];
  if (g->count == 0 || (g->count != 1 && (int64_t)g->count != to->count)) {
    diag_report(l->c->sink, DC_FRONT_GATE_VALUE, place(l, g),
                "%s: gate '%s' has %lld element%s, %zu values are given; give one value, or one for each", origin(g),
                g->name, (long long)to->count, to->count == 1 ? "" : "s", g->count);
    diag_note(l->c->sink, source_loc(l->c->source, s->id.span), "'%s' is declared here", g->name);
    return false;
  }
  for (size_t i = 0; i < g->count; i++) {
    if (g->values[i] >= 0 && g->values[i] <= 1) continue;
    text t = {0};
    text_put_double(&t, g->values[i]);
    diag_report(l->c->sink, DC_FRONT_GATE_VALUE, place(l, g), "%s: gate '%s' is %s; a gate is 0 to 1", origin(g),
                g->name, t.data ? t.data : "?");
    text_free(&t);
    return false;
  }
  to->values = g->values;
  to->value_count = g->count;
  return true;
}

bool lower_gates(lowering *l) {
  static const double open = 1;
  front_env e = l->env;
  bool good = true;
  e.lower = NULL; /* a constant */
  l->gates = ARENA_ARRAY(l->c->memory, lower_gate, l->c->model->gate_count + 1);
  for (const ast_symbol *s = l->c->model->symbols; s; s = s->next) {
    if (s->kind != SYM_GATE) continue;
    lower_gate *g = &l->gates[s->slot];
    *g = (lower_gate){.array = s->value != NULL, .count = 1, .values = &open, .value_count = 1};
    if (s->value && !front_eval_int(&e, s->value, "the length of an array of gates", 1, MAX_GATE, &g->count))
      good = false;
    else
      g->elements = ARENA_ARRAY(l->c->memory, ir_value, g->count);
  }
  for (size_t i = 0; good && i < l->options->gate_count; i++) good &= take_values(l, &l->options->gates[i]);
  return good;
}

ir_value lower_gate_element(lowering *l, front_value gate, ast_span span) {
  const ast_symbol *s = gate.u.gate.symbol;
  lower_gate *g = &l->gates[s->slot];
  int64_t index = gate.u.gate.index;
  bool wrong = g->array ? index < 0 || index >= g->count : index >= 0;
  if (wrong) {
    if (g->array && index < 0)
      lower_error(l, DC_FRONT_KIND, span, "'%s' is an array of %lld gates; choose one: %s[i]", s->id.text,
                  (long long)g->count, s->id.text);
    else if (!g->array)
      lower_error(l, DC_FRONT_KIND, span, "'%s' is one gate, it has no index", s->id.text);
    else
      lower_error(l, DC_FRONT_RANGE, span, "index %lld; '%s' has the elements 0 to %lld", (long long)index, s->id.text,
                  (long long)g->count - 1);
    front_note(l->c, s->id.span, "'%s' is declared here", s->id.text);
    return IR_NONE;
  }
  size_t element = index < 0 ? 0 : (size_t)index;
  if (g->elements[element].id) return g->elements[element];
  const double *value = &g->values[g->value_count == 1 ? 0 : element];
  ir_attr attrs[] = {{IR_ATTR_NAME, {.s = s->id.text}},
                     {IR_ATTR_VALUE, {.floats = {value, 1}}},
                     {IR_ATTR_INDEX, {.i = (int64_t)element}},
                     {IR_ATTR_LENGTH, {.i = g->count}}};
  l->globals.loc = source_loc(l->c->source, s->id.span);
  return g->elements[element] =
             ir_build_typed(&l->globals, IR_GATE, ir_type_make(IR_F32, 1, (int64_t[]){1}), attrs, g->array ? 4 : 2);
}

/* ---- weights ---- */

static bool claim_name(lowering *l, const char *name, ast_span span) {
  if (strlen(name) > AST_MAX_NAME) {
    lower_error(l, DC_FRONT_WEIGHT_NAME, span, "the weight's name has %zu bytes, at most %d: '%.60s...'", strlen(name),
                AST_MAX_NAME, name);
    return false;
  }
  const ast_symbol *old = names_find(&l->weights, name, NULL);
  if (old) {
    lower_error(l, DC_FRONT_SAME_WEIGHT, span, "a second weight '%s'; give it a name of its own%s", name,
                old->id.span.begin == span.begin ? ", or the call of the block" : ", or share one: weight = ...");
    front_note(l->c, old->id.span, "the first is made here");
    return false;
  }
  ast_symbol *s = ARENA_NEW(l->c->memory, ast_symbol);
  s->id = (ast_id){name, span};
  names_add(&l->weights, s);
  return true;
}

ir_value lower_weight(lowering *l, const char *name, uint32_t rank, const int64_t *dims, const char *init,
                      ast_span span) {
  int64_t elements = 1;
  for (uint32_t i = 0; i < rank; i++)
    if (!checked_mul_i64(elements, dims[i], &elements) || elements > FRONT_MAX_ELEMENTS) {
      lower_error(l, DC_FRONT_TOO_LARGE, span, "weight '%s' has more than 2^40 elements", name);
      return IR_NONE;
    }
  if (!claim_name(l, name, span) || !lower_tick(l, true, span)) return IR_NONE;
  bool train = l->options->train;
  ir_attr attrs[] = {{IR_ATTR_NAME, {.s = name}}, {.key = IR_ATTR_TENSOR, .u.s = name}};
  if (train) attrs[1] = (ir_attr){IR_ATTR_INIT, {.s = init}};
  l->globals.loc = source_loc(l->c->source, span);
  return ir_build_typed(&l->globals, train ? IR_PARAM : IR_CONST, ir_type_make(IR_F32, rank, dims), attrs, 2);
}

static bool tensor_dims(lowering *l, const ast_symbol *s, int64_t dims[IR_MAX_RANK]) {
  front_env e = {.ctx = l->c, .params = l->params};
  if (s->dims->count < 1 || s->dims->count > IR_MAX_RANK) {
    lower_error(l, DC_FRONT_RANGE, s->id.span, "param '%s' has %u dimensions; 1 to %d are possible", s->id.text,
                s->dims->count, IR_MAX_RANK);
    return false;
  }
  uint32_t n = 0;
  for (const ast_arg *a = s->dims->first; a; a = a->next) {
    if (a->name.text) {
      lower_error(l, DC_FRONT_KIND, a->name.span, "a dimension has no name");
      return false;
    }
    if (!front_eval_int(&e, a->value, "a dimension", 1, FRONT_MAX_DIM, &dims[n++])) return false;
  }
  return true;
}

front_value lower_tensor(lowering *l, ast_symbol *s, ast_span span) {
  (void)span;
  front_value nothing = {0};
  if (l->tensor_failed[s->slot]) return nothing;
  if (!l->tensors[s->slot].id) {
    int64_t dims[IR_MAX_RANK];
    front_env e = {.ctx = l->c, .params = l->params};
    const char *init = s->value ? front_eval_init(&e, s->value) : "normal(0.02)";
    l->tensor_failed[s->slot] = true;
    if (!init || !tensor_dims(l, s, dims)) return nothing;
    ir_value v = lower_weight(l, s->id.text, s->dims->count, dims, init, s->id.span);
    if (!v.id) return nothing;
    l->tensor_failed[s->slot] = false;
    l->tensors[s->slot] = v;
  }
  return (front_value){FV_TENSOR, {.tensor = l->tensors[s->slot]}};
}

ir_value lower_splat(lowering *l, int64_t n, double value) {
  for (uint32_t i = 0; n == 1 && i < l->number_count; i++)
    if (l->numbers[i].value == value && signbit(l->numbers[i].value) == signbit(value)) return l->numbers[i].v;
  l->ops++;
  l->globals.loc = l->body.loc;
  l->globals.name = NULL;
  ir_value v = ir_build_const(&l->globals, ir_type_make(IR_F32, 1, &n), &value, 1);
  if (n == 1 && l->number_count < sizeof l->numbers / sizeof l->numbers[0])
    l->numbers[l->number_count++] = (lower_number){value, v};
  return v;
}

ir_value lower_positions(lowering *l) {
  if (!l->positions.id)
    l->positions = lower_build(l, IR_POSITIONS, "positions", (ir_value[]){l->tokens, l->pos}, 2, NULL, 0,
                               l->c->model->forward->id.span);
  return l->positions;
}

/* Gate values: the weights' metadata, then --gate. */
#include "compiler/driver/model_priv.h"
#include "compiler/driver/words.h"
#include <string.h>

static const weight_gate *stored_gate(const model_loaded *m, const char *name) {
  for (size_t i = 0; m->priv->has_weights && i < m->priv->weights.gate_count; i++)
    if (strcmp(m->priv->weights.gates[i].name, name) == 0) return &m->priv->weights.gates[i];
  return NULL;
}

static void put_values(text *out, const double *values, size_t n) {
  if (n != 1) text_puts(out, "[");
  for (size_t i = 0; i < n; i++) {
    if (i) text_puts(out, ", ");
    words_put_number(out, values[i]);
  }
  if (n != 1) text_puts(out, "]");
}

static void say_override(model_loaded *m, const model_define *gate) {
  const weight_gate *stored = stored_gate(m, gate->name);
  text t = {0};
  text_puts(&t, "gate '");
  text_puts(&t, gate->name);
  text_puts(&t, "': ");
  words_put_number(&t, gate->value);
  text_puts(&t, " by --gate");
  if (stored) {
    text_puts(&t, ", in place of ");
    put_values(&t, stored->values, stored->count);
  }
  diag_report(m->priv->sink, DC_SAID, (diag_loc){.file = diag_intern(m->priv->sink, m->place.path)}, "%s",
              t.data ? t.data : "");
  text_free(&t);
}

const front_gate *gates_collect(model_loaded *m, const model_options *options, size_t *out_count) {
  const weight_set *w = &m->priv->weights;
  size_t stored = m->priv->has_weights ? w->gate_count : 0, n = 0;
  front_gate *gates = ARENA_ARRAY(&m->priv->memory, front_gate, stored + options->gate_count + 1);
  for (size_t i = 0; i < stored; i++)
    gates[n++] = (front_gate){w->gates[i].name, w->gates[i].values, w->gates[i].count, w->path};
  for (size_t i = 0; i < options->gate_count; i++)
    gates[n++] = (front_gate){options->gates[i].name, &options->gates[i].value, 1, NULL};
  *out_count = n;
  return gates;
}

static const char *gate_name(const ir_module *m, ir_value v) { return ir_attr_string(m, v, IR_ATTR_NAME, ""); }

bool gates_apply(model_loaded *m, const model_options *options) {
  for (size_t i = 0; i < options->gate_count; i++) {
    const model_define *g = &options->gates[i];
    bool found = false;
    for (ir_value v = ir_first(m->module, IR_GLOBALS); v.id; v = ir_next(m->module, v)) {
      if (!ir_is(m->module, v, IR_GATE) || strcmp(gate_name(m->module, v), g->name) != 0) continue;
      ir_set_attr(m->module, v, (ir_attr){.key = IR_ATTR_VALUE, .u.floats = {&g->value, 1}});
      found = true;
    }
    if (found) continue;
    diag_report(m->priv->sink, DC_MODEL_FILE, (diag_loc){.file = diag_intern(m->priv->sink, m->place.source)},
                "there is no gate '%s'; give one of its gates", g->name);
    return false;
  }
  return true;
}

typedef struct gate_list {
  const char *name;
  double *values;
  size_t count;
} gate_list;

/* GATE ops by name, elements of an array by index. */
static size_t list_gates(const ir_module *m, arena *a, gate_list **out) {
  size_t n = 0, ops = 0;
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) ops += ir_is(m, v, IR_GATE);
  gate_list *list = ARENA_ARRAY(a, gate_list, ops + 1);
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_GATE)) continue;
    size_t g = 0, index = (size_t)ir_attr_int(m, v, IR_ATTR_INDEX, 0);
    double value;
    if (!ir_read_const(m, v, &value) || index >= ops) continue;
    while (g < n && strcmp(list[g].name, gate_name(m, v)) != 0) g++;
    if (g == n) list[n++] = (gate_list){gate_name(m, v), ARENA_ARRAY(a, double, ops), 0};
    list[g].values[index] = value;
    if (index + 1 > list[g].count) list[g].count = index + 1;
    if (ir_has_attr(m, v, IR_ATTR_INDEX) && list[g].count < 2) list[g].count = index + 1;
  }
  *out = list;
  return n;
}

static bool given_by_option(const model_options *options, const char *name) {
  for (size_t i = 0; i < options->gate_count; i++)
    if (strcmp(options->gates[i].name, name) == 0) return true;
  return false;
}

void gates_describe(model_loaded *m, const model_options *options) {
  arena *a = &m->priv->memory;
  gate_list *gates;
  size_t n = list_gates(m->module, a, &gates);
  text t = {0}, p = {0};
  for (size_t i = 0; i < options->gate_count; i++) say_override(m, &options->gates[i]);
  text_puts(&t, "{");
  for (size_t i = 0; i < n; i++) {
    text_puts(&t, i ? ", " : "");
    text_put_quoted(&t, gates[i].name, strlen(gates[i].name), true);
    text_puts(&t, ": ");
    put_values(&t, gates[i].values, gates[i].count);
    if (!options->train && m->priv->has_weights && m->place.kind != MODEL_TIR && !stored_gate(m, gates[i].name) &&
        !given_by_option(options, gates[i].name))
      diag_report(m->priv->sink, DC_GATE_OPEN, (diag_loc){.file = diag_intern(m->priv->sink, m->priv->weights.path)},
                  "the metadata key 'taper.gates' has no value for gate '%s': taken as 1; give --gate %s=V or store it",
                  gates[i].name, gates[i].name);
  }
  text_puts(&t, "}");
  text_puts(&p, "{");
  for (size_t i = 0; i < ir_module_param_count(m->module); i++) {
    double value;
    const char *name = ir_module_param_at(m->module, i, &value);
    text_puts(&p, i ? ", " : "");
    text_put_quoted(&p, name, strlen(name), true);
    text_puts(&p, ": ");
    words_put_number(&p, value);
  }
  text_puts(&p, "}");
  m->gates = arena_strdup(a, t.data ? t.data : "{}");
  m->params = arena_strdup(a, p.data ? p.data : "{}");
  text_free(&t), text_free(&p);
}

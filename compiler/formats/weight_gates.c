#include "compiler/formats/weights_priv.h"
#include "runtime/base/json_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct gate_reader {
  const char *file;
  json_scan scan;
  weight_set *set;
  weight_gate *gates;
  double *values; /* all gates' numbers, one after another */
  size_t value_count;
  taper_error *error;
} gate_reader;

#define GATES "%s: metadata key 'taper.gates': "

static taper_status wrong(const gate_reader *r, json_event e, const char *cause) {
  return TAPER_FAIL(r->error, TAPER_INVALID, GATES "byte %zu: %s; write an object of gate names and numbers", r->file,
                    e.start, e.kind == JS_ERROR ? r->scan.error : cause);
}

static taper_status read_value(gate_reader *r, const char *name, json_event e) {
  double value;
  if (e.kind != JS_NUMBER) return wrong(r, e, "a gate must be a number or an array of numbers");
  if (!json_double(&r->scan, e, &value) || value < 0 || value > 1)
    return TAPER_FAIL(r->error, TAPER_INVALID,
                      GATES "gate '%s': %.*s is outside [0, 1]; correct it or override it with --gate %s=V", r->file,
                      name, (int)(e.length < 40 ? e.length : 40), r->scan.s + e.start, name);
  r->values[r->value_count++] = value;
  return TAPER_OK;
}

static taper_status read_gate(gate_reader *r, weight_gate *gate) {
  size_t first = r->value_count;
  gate->values = r->values + first;
  json_event e = json_scan_next(&r->scan);
  if (e.kind != JS_ARRAY) {
    gate->count = 1;
    return read_value(r, gate->name, e);
  }
  while ((e = json_scan_next(&r->scan)).kind != JS_ARRAY_END) TAPER_TRY(read_value(r, gate->name, e));
  gate->count = r->value_count - first;
  if (gate->count == 0)
    return TAPER_FAIL(r->error, TAPER_INVALID, GATES "gate '%s': an empty array; write its values", r->file,
                      gate->name);
  return TAPER_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static taper_status check_twice(const gate_reader *r) {
  const weight_set *set = r->set;
  const char **names = ARENA_ARRAY(&set->priv->memory, const char *, set->gate_count + 1);
  for (size_t i = 0; i < set->gate_count; i++) names[i] = r->gates[i].name;
  if (set->gate_count > 1) qsort(names, set->gate_count, sizeof *names, by_text);
  for (size_t i = 1; i < set->gate_count; i++)
    if (strcmp(names[i - 1], names[i]) == 0)
      return TAPER_FAIL(r->error, TAPER_INVALID, GATES "gate '%s' stands twice; leave one", r->file, names[i]);
  return TAPER_OK;
}

taper_status weight_gates_read(const char *file, const char *json, weight_set *set, taper_error *error) {
  size_t n = strlen(json), most = n / 2 + 1; /* each gate and each number takes two bytes at least */
  arena *memory = &set->priv->memory;
  gate_reader r = {.file = file, .set = set, .error = error};
  r.gates = ARENA_ARRAY(memory, weight_gate, most);
  r.values = ARENA_ARRAY(memory, double, most);
  json_scan_init(&r.scan, json, n);
  set->has_gates = true;
  set->gates = r.gates;
  json_event e = json_scan_next(&r.scan);
  if (e.kind != JS_OBJECT) return wrong(&r, e, "it must be an object");
  while ((e = json_scan_next(&r.scan)).kind == JS_KEY) {
    char *name = arena_alloc(memory, e.length + 1);
    bool nul;
    json_decode(&r.scan, e, name, &nul);
    if (nul || !*name) return wrong(&r, e, "a gate's name is empty or holds a NUL character");
    weight_gate *gate = &r.gates[set->gate_count++];
    gate->name = name;
    TAPER_TRY(read_gate(&r, gate));
  }
  if (e.kind != JS_OBJECT_END) return wrong(&r, e, "");
  e = json_scan_next(&r.scan);
  if (e.kind != JS_END) return wrong(&r, e, "");
  return check_twice(&r);
}

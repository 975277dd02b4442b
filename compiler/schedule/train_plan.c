/* train_plan.c - the plan of training: tables of what the programs share, and the programs. */
#include "compiler/schedule/train_priv.h"

#include "compiler/analysis/train.h"
#include "compiler/schedule/plan_priv.h"
#include "runtime/abi/train_abi.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  uint32_t id;
  const char *entry;
} programs[] = {
    {TAPER_TRAIN_WARM, "train_warm"}, {TAPER_TRAIN_TAPER, "train_taper"}, {TAPER_TRAIN_ZERO, "train_zero"},
    {TAPER_TRAIN_EVAL, "eval"},       {TAPER_TRAIN_OBSERVE, "observe"},   {TAPER_TRAIN_SCAN, "scan"},
};

bool train_refuse(train_planner *k, ir_value v, const char *why) {
  text t = {0};
  ir_print_op(k->m, v, &t);
  diag_report(k->sink, DC_PLAN_OP, ir_loc_of(k->m, v), "training cannot execute `%s`: %s", t.data ? t.data : "?", why);
  text_free(&t);
  return false;
}

/* ---- lookups ---- */
uint32_t train_param_of(const train_plan *p, ir_value v) {
  for (uint32_t i = 0; i < p->param_count; i++)
    if (ir_same(p->params[i], v)) return i;
  return TRAIN_NOT;
}

uint32_t train_pack_of(const train_plan *p, ir_value weight, bool back) {
  uint32_t param = train_param_of(p, weight);
  for (uint32_t i = 0; i < p->pack_count; i++)
    if (p->packs[i].param == param && p->packs[i].back == back) return i;
  return TRAIN_NOT;
}

uint32_t train_gate_of(const train_plan *p, ir_value gate) {
  for (uint32_t i = 0; i < p->gate_count; i++)
    if (ir_same(p->gates[i].gate, gate)) return i;
  return TRAIN_NOT;
}

static uint32_t pairs_of(const ir_module *m, ir_value rope) {
  return (uint32_t)ir_attr_int(m, rope, IR_ATTR_DIMS, execution_last(m, rope)) / 2;
}

uint32_t train_rotary_of(const train_plan *p, ir_value rope) {
  for (uint32_t i = 0; i < p->rotary_count; i++)
    if (p->rotary[i].pairs == pairs_of(p->m, rope) && plan_same_rotation(p->m, p->rotary[i].op, rope)) return i;
  return TRAIN_NOT;
}

uint32_t train_result_of(const train_plan *p, ir_value op) {
  for (uint32_t i = 0; i < p->result_count; i++)
    if (ir_same(p->results[i].op, op)) return i;
  return TRAIN_NOT;
}

/* ---- tables ---- */
static const char *gate_name(const ir_module *m, ir_value v) { return ir_attr_string(m, v, IR_ATTR_NAME, ""); }

/* Elements of the array of `first`, if it is the first gate of that name; else 0. */
static uint32_t array_length(const ir_module *m, ir_value first) {
  const char *name = gate_name(m, first);
  uint32_t count = 0;
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_GATE) || strcmp(gate_name(m, v), name) != 0) continue;
    if (!count && !ir_same(v, first)) return 0;
    uint32_t index = (uint32_t)ir_attr_int(m, v, IR_ATTR_INDEX, 0);
    uint32_t length = (uint32_t)ir_attr_int(m, v, IR_ATTR_LENGTH, index + 1);
    if (length > count) count = length;
  }
  return count;
}

/* Gates: the elements of an array side by side, in order; those that nothing reads are there too. */
static void collect_gates(train_planner *k) {
  train_plan *p = k->p;
  size_t room = 0;
  for (ir_value v = ir_first(k->m, IR_GLOBALS); v.id; v = ir_next(k->m, v))
    if (ir_is(k->m, v, IR_GATE)) room += array_length(k->m, v);
  p->gates = ARENA_ARRAY(&p->mem, train_gate, room + 1);
  for (ir_value first = ir_first(k->m, IR_GLOBALS); first.id; first = ir_next(k->m, first)) {
    uint32_t count = ir_is(k->m, first, IR_GATE) ? array_length(k->m, first) : 0;
    train_gate *array = p->gates + p->gate_count;
    for (uint32_t i = 0; i < count; i++)
      array[i] = (train_gate){.name = gate_name(k->m, first), .index = i, .count = count};
    for (ir_value v = first; count && v.id; v = ir_next(k->m, v))
      if (ir_is(k->m, v, IR_GATE) && strcmp(gate_name(k->m, v), array->name) == 0)
        array[ir_attr_int(k->m, v, IR_ATTR_INDEX, 0)].gate = v;
    p->gate_count += count;
  }
}

static void collect_globals(train_planner *k) {
  train_plan *p = k->p;
  for (ir_value v = ir_first(k->m, IR_GLOBALS); v.id; v = ir_next(k->m, v))
    if (ir_is(k->m, v, IR_PARAM)) p->params[p->param_count++] = v;
  collect_gates(k);
}

static void note_product(train_planner *k, ir_value v) {
  train_plan *p = k->p;
  bool back = ir_is(k->m, v, IR_LINEAR_BACK);
  ir_value weight = ir_operand(k->m, v, 1);
  if (train_pack_of(p, weight, back) != TRAIN_NOT) return;
  p->packs[p->pack_count++] = (train_pack){.param = train_param_of(p, weight), .back = back};
}

static void note_op(train_planner *k, const train_program *g, ir_value v) {
  train_plan *p = k->p;
  ir_opcode op = ir_opcode_of(k->m, v);
  if (k->class[v.id] == TRAIN_OP_PRODUCT) note_product(k, v);
  if ((op == IR_ROPE || op == IR_ROPE_BACK) && train_rotary_of(p, v) == TRAIN_NOT)
    p->rotary[p->rotary_count++] = (train_rotary){.op = v, .pairs = pairs_of(k->m, v)};
  if (op == IR_RESULT)
    p->results[p->result_count++] =
        (train_result){.op = v, .program = g->id, .rows = train_is_row(k->m, ir_operand(k->m, v, 0))};
  if (op == IR_EMBED && ir_is(k->m, ir_operand(k->m, v, 0), IR_ARG) && p->table == TRAIN_NOT)
    p->table = train_param_of(p, ir_operand(k->m, v, 1));
  if (!p->width && train_is_row(k->m, v)) p->width = train_width(k->m, v);
  if (op == IR_CROSS_ENTROPY && !p->vocab) p->vocab = train_width(k->m, ir_operand(k->m, v, 0));
}

static void schedule_array(train_plan *p, uint32_t gate) {
  train_gate *array = &p->gates[gate - p->gates[gate].index];
  for (uint32_t i = 0; i < array->count; i++) array[i].scheduled = true;
}

/* The taper norms of the program in which gates are dynamic. */
static void collect_norms(train_planner *k, const train_program *g) {
  train_plan *p = k->p;
  analysis_train_norm *norms;
  if (g->id != TAPER_TRAIN_TAPER && g->id != TAPER_TRAIN_SCAN) return;
  size_t n = analysis_train_norms(k->m, g->entry, &k->scratch, &norms);
  for (size_t i = 0; i < n; i++) {
    if (norms[i].final) p->final_norm = (uint32_t)p->norm_count;
    p->norms[p->norm_count++] = (train_norm){.norm = norms[i].norm,
                                             .name = arena_strdup(&p->mem, norms[i].name),
                                             .gate = train_gate_of(p, norms[i].gate),
                                             .weight = train_param_of(p, norms[i].weight),
                                             .taper_weight = train_param_of(p, norms[i].taper_weight),
                                             .taper_c = train_param_of(p, norms[i].taper_c),
                                             .layer_norm = norms[i].layer_norm};
    schedule_array(p, p->norms[p->norm_count - 1].gate);
  }
}

static void find_kinds(train_planner *k) {
  ir_region entry = ir_entry_find(k->m, "forward");
  if (!entry.id) entry = ir_entry_find(k->m, "eval");
  const char **kinds = entry.id ? analysis_param_kinds(k->m, entry, &k->scratch) : NULL;
  for (size_t i = 0; i < k->p->param_count; i++) {
    const char *kind = kinds ? kinds[k->p->params[i].id] : NULL;
    k->p->param_kinds[i] = kind ? arena_strdup(&k->p->mem, kind) : "other";
  }
}

static bool read_context(train_planner *k) {
  double context = 0;
  if (!ir_module_param(k->m, "context", &context) ||
      !(context >= 1 && context <= 1 << 30 && context == (uint32_t)context)) {
    diag_report(k->sink, DC_PLAN_PARAM, (diag_loc){0},
                "module '%s' has no parameter 'context', a whole number from 1 to 2^30; add it", ir_module_name(k->m));
    return false;
  }
  k->p->context = (uint32_t)context;
  return true;
}

static void allocate(train_planner *k) {
  train_plan *p = k->p;
  uint32_t n = ir_value_limit(k->m);
  k->class = ARENA_ARRAY(&k->scratch, train_class, n), k->chunk = ARENA_ARRAY(&k->scratch, bool, n);
  k->stage = ARENA_ARRAY(&k->scratch, uint32_t, n), k->group = ARENA_ARRAY(&k->scratch, uint32_t, n);
  for (uint32_t i = 0; i < n; i++) k->stage[i] = k->group[i] = TRAIN_NOT;
  p->slots = ARENA_ARRAY(&p->mem, train_slot, n), p->params = ARENA_ARRAY(&p->mem, ir_value, n);
  p->param_kinds = ARENA_ARRAY(&p->mem, const char *, n);
  p->param_programs = ARENA_ARRAY(&p->mem, uint32_t, n), p->packs = ARENA_ARRAY(&p->mem, train_pack, n);
  p->norms = ARENA_ARRAY(&p->mem, train_norm, n);
  p->results = ARENA_ARRAY(&p->mem, train_result, n), p->rotary = ARENA_ARRAY(&p->mem, train_rotary, n);
  p->programs = ARENA_ARRAY(&p->mem, train_program, TAPER_TRAIN_PROGRAMS);
  p->final_norm = p->anchor_target = p->table = TRAIN_NOT;
}

/* Ids are below the width of the logits and positions below the context: every one must have a row. */
static bool check_tables(train_planner *k, const train_program *g) {
  bool ok = true;
  for (ir_value v = ir_first(k->m, g->entry); v.id; v = ir_next(k->m, v)) {
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

static bool plan_program(train_planner *k, train_program *g) {
  k->program = g->id;
  if (!train_classify(k, g->entry)) return false;
  for (ir_value v = ir_first(k->m, g->entry); v.id; v = ir_next(k->m, v)) note_op(k, g, v);
  collect_norms(k, g);
  return check_tables(k, g) && train_make_stages(k, g) && train_lay_out(k, g);
}

static bool run(train_planner *k) {
  train_plan *p = k->p;
  allocate(k);
  collect_globals(k);
  find_kinds(k);
  if (!read_context(k)) return false;
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    ir_region entry = ir_entry_find(k->m, programs[i].entry);
    if (!entry.id) continue;
    train_program *g = &p->programs[p->program_count++];
    g->id = programs[i].id, g->entry = entry;
    if (!plan_program(k, g)) return false;
  }
  for (uint32_t i = 0; i < p->param_count; i++)
    if (strcmp(ir_attr_string(k->m, p->params[i], IR_ATTR_NAME, ""), "anchor.target") == 0) p->anchor_target = i;
  if (p->program_count) return true;
  diag_report(k->sink, DC_PLAN_ENTRY, (diag_loc){0},
              "module '%s' has no entry for training; run the passes train-programs and autodiff on one with an entry "
              "'forward'",
              ir_module_name(k->m));
  return false;
}

train_plan *train_plan_make(const ir_module *m, diag_sink *sink) {
  train_planner k = {.m = m, .sink = sink, .p = calloc(1, sizeof *k.p)};
  if (!k.p) return NULL;
  k.p->m = m;
  bool ok = run(&k);
  arena_free(&k.scratch);
  if (ok) return k.p;
  train_plan_free(k.p);
  return NULL;
}

void train_plan_free(train_plan *p) {
  if (!p) return;
  arena_free(&p->mem);
  free(p);
}

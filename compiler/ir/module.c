/* module.c - modules, regions, payloads, and reading of ops. */
#include "compiler/ir/ir_priv.h"

#include <stdlib.h>
#include <string.h>

void ir_bug(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("taperc: internal error: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  abort();
}

/* Room for one more element of `size` bytes in an arena array. */
static void *grown(arena *a, void *data, size_t count, size_t *cap, size_t size) {
  if (count < *cap) return data;
  size_t larger = *cap ? *cap * 2 : 16;
  void *copy = arena_alloc(a, larger * size);
  if (count) memcpy(copy, data, count * size);
  *cap = larger;
  return copy;
}

static uint32_t region_new(ir_module *m, const char *name) {
  size_t cap = m->region_cap;
  m->regions = grown(&m->mem, m->regions, m->region_count, &cap, sizeof *m->regions);
  m->region_cap = (uint32_t)cap;
  m->regions[m->region_count] = (ir_region_data){.name = arena_strdup(&m->mem, name)};
  return m->region_count++;
}

ir_module *ir_module_new(const char *name) {
  ir_module *m = calloc(1, sizeof *m);
  if (!m) ir_bug("out of memory");
  m->name = arena_strdup(&m->mem, name);
  m->node_cap = 64;
  m->nodes = ARENA_ARRAY(&m->mem, ir_node *, m->node_cap);
  m->nodes[m->node_count++] = ARENA_NEW(&m->mem, ir_node);
  region_new(m, "");
  region_new(m, "globals");
  return m;
}

void ir_module_free(ir_module *m) {
  if (!m) return;
  for (ir_memory_list *p = m->payloads; p; p = p->next) free(p->data);
  arena_free(&m->mem);
  free(m);
}

arena *ir_arena(ir_module *m) { return &m->mem; }
const char *ir_module_name(const ir_module *m) { return m->name; }

void ir_module_set_param(ir_module *m, const char *name, double value) {
  for (size_t i = 0; i < m->param_count; i++) {
    if (strcmp(m->params[i].name, name) != 0) continue;
    m->params[i].value = value;
    return;
  }
  m->params = grown(&m->mem, m->params, m->param_count, &m->param_cap, sizeof *m->params);
  m->params[m->param_count++] = (ir_param_data){arena_strdup(&m->mem, name), value};
}

bool ir_module_param(const ir_module *m, const char *name, double *out) {
  for (size_t i = 0; i < m->param_count; i++) {
    if (strcmp(m->params[i].name, name) != 0) continue;
    if (out) *out = m->params[i].value;
    return true;
  }
  return false;
}

size_t ir_module_param_count(const ir_module *m) { return m->param_count; }
const char *ir_module_param_at(const ir_module *m, size_t i, double *out_value) {
  if (out_value) *out_value = m->params[i].value;
  return m->params[i].name;
}

ir_region ir_entry_add(ir_module *m, const char *name) { return (ir_region){region_new(m, name)}; }

ir_region ir_entry_find(const ir_module *m, const char *name) {
  for (uint32_t r = IR_GLOBALS.id + 1; r < m->region_count; r++)
    if (strcmp(m->regions[r].name, name) == 0) return (ir_region){r};
  return (ir_region){0};
}

size_t ir_entry_count(const ir_module *m) { return m->region_count - 2; }
ir_region ir_entry_at(const ir_module *m, size_t i) {
  uint32_t id = (uint32_t)i + IR_GLOBALS.id + 1;
  return (ir_region){id < m->region_count ? id : 0};
}
const char *ir_region_name(const ir_module *m, ir_region r) { return m->regions[r.id].name; }

/* The next node that is not erased: itself, or what follows. */
static ir_value live_from(const ir_module *m, uint32_t id) {
  while (id && m->nodes[id]->op == IR_OP_NONE) id = m->nodes[id]->next;
  return (ir_value){id};
}

ir_value ir_first(const ir_module *m, ir_region r) { return (ir_value){m->regions[r.id].first}; }
ir_value ir_last(const ir_module *m, ir_region r) { return (ir_value){m->regions[r.id].last}; }
ir_value ir_next(const ir_module *m, ir_value v) { return live_from(m, ir_node_at(m, v)->next); }
ir_value ir_prev(const ir_module *m, ir_value v) { return (ir_value){ir_node_at(m, v)->prev}; }

ir_opcode ir_opcode_of(const ir_module *m, ir_value v) { return ir_node_at(m, v)->op; }
ir_region ir_region_of(const ir_module *m, ir_value v) { return (ir_region){ir_node_at(m, v)->region}; }
ir_type ir_type_of(const ir_module *m, ir_value v) { return ir_node_at(m, v)->type; }
diag_loc ir_loc_of(const ir_module *m, ir_value v) { return ir_node_at(m, v)->loc; }
size_t ir_operand_count(const ir_module *m, ir_value v) { return ir_node_at(m, v)->operand_count; }
ir_value ir_operand(const ir_module *m, ir_value v, size_t i) {
  const ir_node *node = ir_node_at(m, v);
  return i < node->operand_count ? node->operands[i].value : IR_NONE;
}
bool ir_is(const ir_module *m, ir_value v, ir_opcode op) { return v.id && ir_node_at(m, v)->op == op; }
uint32_t ir_value_limit(const ir_module *m) { return m->node_count; }

const char *ir_name_of(const ir_module *m, ir_value v) {
  const char *name = ir_attr_string(m, v, IR_ATTR_NAME, ir_node_at(m, v)->name);
  return name ? name : ir_attr_string(m, v, IR_ATTR_TENSOR, NULL);
}

void ir_set_name(ir_module *m, ir_value v, const char *name) {
  if (name && ir_has_attr(m, v, IR_ATTR_NAME))
    ir_set_attr(m, v, (ir_attr){IR_ATTR_NAME, {.s = name}});
  else
    ir_node_at(m, v)->name = name ? arena_strdup(&m->mem, name) : NULL;
}

static const char **file_slot(const ir_module *m, const char *file) {
  uint64_t h = 14695981039346656037u;
  for (const char *s = file; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
  size_t i = (size_t)(h ^ h >> 32) & (m->file_cap - 1);
  while (m->files[i] && strcmp(m->files[i], file) != 0) i = (i + 1) & (m->file_cap - 1);
  return &m->files[i];
}

const char *ir_intern_file(ir_module *m, const char *file) {
  if (!file) return NULL;
  if (m->file_count * 2 >= m->file_cap) {
    const char **old = m->files;
    size_t cap = m->file_cap;
    m->file_cap = cap ? cap * 2 : 8;
    m->files = ARENA_ARRAY(&m->mem, const char *, m->file_cap);
    for (size_t i = 0; i < cap; i++)
      if (old[i]) *file_slot(m, old[i]) = old[i];
  }
  const char **slot = file_slot(m, file);
  if (!*slot) {
    m->file_count++;
    *slot = arena_strdup(&m->mem, file);
  }
  return *slot;
}

void ir_set_loc(ir_module *m, ir_value v, diag_loc loc) {
  loc.file = ir_intern_file(m, loc.file);
  ir_node_at(m, v)->loc = loc;
  ir_node_at(m, v)->loc_hidden = false;
}

void ir_set_hidden_loc(ir_module *m, ir_value v, diag_loc loc) {
  ir_set_loc(m, v, loc);
  ir_node_at(m, v)->loc_hidden = true;
}

void ir_set_type(ir_module *m, ir_value v, ir_type type) { ir_node_at(m, v)->type = type; }

void ir_bind(ir_module *m, ir_value v, const void *data) { ir_node_at(m, v)->payload = data; }
const void *ir_payload(const ir_module *m, ir_value v) { return ir_node_at(m, v)->payload; }

void *ir_payload_new(ir_module *m, size_t bytes) {
  void *data = malloc(bytes ? bytes : 1);
  if (!data) return NULL;
  ir_memory_list *p = ARENA_NEW(&m->mem, ir_memory_list);
  *p = (ir_memory_list){data, m->payloads};
  m->payloads = p;
  return data;
}

bool ir_is_symbolic(const ir_module *m, ir_value v) {
  return (ir_is(m, v, IR_CONST) || ir_is(m, v, IR_PARAM)) && !ir_payload(m, v) && !ir_has_attr(m, v, IR_ATTR_VALUE);
}

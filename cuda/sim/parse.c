/* parse.c - the outermost level of a module: directives, functions, kernels. */
#include "cuda/sim/parse.h"
#include <stdlib.h>
#include <string.h>

static bool starts(const token *t, const char *text) {
  return t->length >= strlen(text) && memcmp(t->at, text, strlen(text)) == 0;
}

/* ".version 9.0" and ".target sm_90": the number times ten, and the number. */
static taper_status version(decoder *d) {
  const token *t = parse_next(d), *minor = NULL;
  uint64_t major, low = 0;
  uint32_t is_float;
  bool ok = parse_number(t, &major, &is_float);
  if (starts(parse_peek(d), ".")) {
    minor = parse_next(d);
    ok = ok && minor->length == 2 && minor->at[1] >= '0' && minor->at[1] <= '9';
    if (ok) low = (uint64_t)(minor->at[1] - '0');
  }
  if (!ok || major > 20) return parse_fail(d, t, "a version of PTX expected, not '%.*s'", (int)t->length, t->at);
  d->module->version = (uint32_t)(10 * major + low);
  return TAPER_OK;
}

/* The version of PTX, times ten, since which a target exists; 0: there is none of this number. */
static uint32_t version_of_target(uint32_t target) {
  static const struct {
    uint32_t target, version;
  } known[] = {{50, 40}, {52, 41},  {53, 42},  {60, 50},  {61, 50},  {62, 50},  {70, 60},
               {72, 61}, {75, 63},  {80, 70},  {86, 71},  {87, 74},  {88, 90},  {89, 78},
               {90, 78}, {100, 86}, {101, 86}, {103, 88}, {110, 90}, {120, 87}, {121, 88}};
  for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
    if (known[k].target == target) return known[k].version;
  return target > 121 ? 90 : 0;
}

static taper_status target(decoder *d) {
  const token *t = parse_next(d);
  char *end = NULL;
  if (starts(t, "sm_")) d->module->target = (uint32_t)strtoul(t->at + 3, &end, 10);
  if (end && *end == 'a' && end < t->at + t->length) end++;
  if (!end || end != t->at + t->length)
    return parse_fail(d, t, "a target 'sm_NN' expected, not '%.*s'", (int)t->length, t->at);
  const uint32_t since = version_of_target(d->module->target), version = d->module->version;
  if (!since || version < since)
    return parse_fail(d, t, "there is no target sm_%u in PTX %u.%u", d->module->target, version / 10, version % 10);
  while (parse_accept(d, ",")) {
    const token *more = parse_next(d);
    if (!parse_is(more, "debug"))
      return parse_fail(d, more, "the target '%.*s' is not known", (int)more->length, more->at);
  }
  return TAPER_OK;
}

/* .file NUMBER "NAME" [, time, size] */
static taper_status source_file(decoder *d) {
  sim_module *m = d->module;
  uint32_t index, ignored;
  TAPER_TRY(parse_unsigned(d, &index));
  const token *t = parse_next(d);
  if (t->kind != TOKEN_STRING || index > 4096) return parse_fail(d, t, "the name of a file expected");
  while (parse_accept(d, ",")) TAPER_TRY(parse_unsigned(d, &ignored));
  if (index >= m->file_count) {
    char **grown = (char **)realloc((void *)m->files, (index + 1) * sizeof(*grown));
    if (!grown) return TAPER_FAIL(d->error, TAPER_NOMEM, "%s: no memory for names of files", d->file);
    m->files = grown;
    while (m->file_count <= index) m->files[m->file_count++] = NULL;
  }
  free(m->files[index]);
  m->files[index] = strndup(t->at + 1, t->length - 2);
  return TAPER_OK;
}

/* Debug information: `.section NAME { ... }`. */
static taper_status section(decoder *d) {
  parse_next(d);
  TAPER_TRY(parse_expect(d, "{"));
  while (!parse_is(parse_peek(d), "}")) {
    if (parse_peek(d)->kind == TOKEN_END) return parse_fail(d, parse_peek(d), "a section does not end");
    d->at++;
  }
  return parse_expect(d, "}");
}

/* `.param .align 8 .b8 NAME[40]` at *top; arguments of kernels and of functions. */
static taper_status parameter(decoder *d, name_kind kind, uint32_t *top, uint32_t *out_at, uint32_t *out_size) {
  bool predicate;
  uint32_t align = 0, count = 1;
  TAPER_TRY(parse_expect(d, ".param"));
  if (parse_accept(d, ".align")) TAPER_TRY(parse_unsigned(d, &align));
  const token *type = parse_next(d);
  const uint32_t bytes = parse_type_bytes(type, &predicate);
  if (!bytes)
    return parse_fail(d, type, "'%.*s' is not a type of a parameter that is known", (int)type->length, type->at);
  if (parse_accept(d, ".ptr")) {
    const token *t = parse_peek(d);
    if (parse_is(t, ".global") || parse_is(t, ".shared") || parse_is(t, ".const") || parse_is(t, ".local")) d->at++;
    uint32_t pointee;
    if (parse_accept(d, ".align")) TAPER_TRY(parse_unsigned(d, &pointee));
  }
  const token *t = parse_next(d);
  if (t->kind != TOKEN_WORD) return parse_fail(d, t, "the name of a parameter expected");
  if (parse_accept(d, "[")) {
    TAPER_TRY(parse_unsigned(d, &count));
    TAPER_TRY(parse_expect(d, "]"));
  }
  if (align == 0) align = bytes;
  if (align > 128 || (align & (align - 1)) || count > 32768)
    return parse_fail(d, t, "a parameter of this size or alignment");
  *out_at = *top = (*top + align - 1) / align * align;
  *out_size = bytes * count;
  *top += *out_size;
  return parse_add_name(d, t, (name){.kind = kind, .value = *out_at, .size = *out_size});
}

static taper_status parameters(decoder *d, name_kind kind, uint32_t *top, uint32_t *at, uint32_t *sizes,
                               uint32_t *count) {
  if (!parse_accept(d, "(") || parse_accept(d, ")")) return TAPER_OK;
  do {
    if (*count == SIM_MAX_PARAMETERS)
      return parse_fail(d, parse_peek(d), "more than %u parameters", SIM_MAX_PARAMETERS);
    TAPER_TRY(parameter(d, kind, top, &at[*count], &sizes[*count]));
    ++*count;
  } while (parse_accept(d, ","));
  return parse_expect(d, ")");
}

static taper_status function_name(decoder *d, const token **out) {
  *out = parse_next(d);
  if ((*out)->kind == TOKEN_WORD && (*out)->at[0] != '.') return TAPER_OK;
  return parse_fail(d, *out, "the name of a function expected");
}

static void begin_function(const decoder *d, function *f) {
  f->begin = d->module->count;
  f->first_register = d->register_top;
  f->first_call = d->call_top;
  f->first_local = d->local_top;
}

static void end_function(decoder *d, function *f) {
  f->end = d->module->count;
  f->end_register = d->register_top;
  f->end_call = d->call_top = (d->call_top + 15) / 16 * 16;
  f->end_local = d->local_top = (d->local_top + 15) / 16 * 16;
}

/* The index of the function of that name; one is made where none is. */
static taper_status function_of(decoder *d, const token *t, uint32_t *out) {
  sim_module *m = d->module;
  for (*out = 0; *out < m->function_count; ++*out)
    if (strlen(m->functions[*out].name) == t->length && memcmp(m->functions[*out].name, t->at, t->length) == 0)
      return TAPER_OK;
  function *grown = realloc(m->functions, (m->function_count + 1) * sizeof(*grown));
  if (grown) m->functions = grown;
  char *text = strndup(t->at, t->length);
  if (!grown || !text) {
    free(text);
    return TAPER_FAIL(d->error, TAPER_NOMEM, "%s: no memory for functions", d->file);
  }
  m->functions[m->function_count++] = (function){.name = text};
  return parse_add_name(d, t, (name){.kind = NAME_FUNCTION, .value = *out});
}

/* .func (results) NAME (parameters) [.noreturn] ; or { ... } */
static taper_status device_function(decoder *d) {
  function f = {0};
  const token *t;
  uint32_t index;
  const size_t start = d->at;
  begin_function(d, &f);
  const uint32_t call_top = d->call_top;
  if (parse_is(parse_peek(d), "(")) {
    const uint32_t names = d->name_count;
    TAPER_TRY(parameters(d, NAME_CALL_AREA, &d->call_top, f.parameters, f.sizes, &f.results));
    parse_pop_names(d, names);
  }
  TAPER_TRY(function_name(d, &t));
  TAPER_TRY(function_of(d, t, &index));
  const uint32_t outer = d->name_count;
  const size_t behind_name = d->at;
  d->at = start;
  d->call_top = call_top;
  f.results = 0;
  TAPER_TRY(parameters(d, NAME_CALL_AREA, &d->call_top, f.parameters, f.sizes, &f.results));
  d->at = behind_name;
  f.parameter_count = f.results;
  TAPER_TRY(parameters(d, NAME_CALL_AREA, &d->call_top, f.parameters, f.sizes, &f.parameter_count));
  parse_accept(d, ".noreturn");
  function *to = &d->module->functions[index];
  if (parse_accept(d, ";")) {
    d->call_top = call_top;
  } else {
    if (to->end) return parse_fail(d, t, "a second body of '%.*s'", (int)t->length, t->at);
    f.name = to->name;
    *to = f; /* a function may call itself */
    d->inside = true;
    TAPER_TRY(parse_body(d));
    d->inside = false;
    end_function(d, &f);
    d->module->functions[index] = f;
  }
  parse_pop_names(d, outer);
  return TAPER_OK;
}

static taper_status kernel_limits(decoder *d, sim_kernel *k) {
  for (;;) {
    const token *t = parse_peek(d);
    uint32_t n[3] = {1, 1, 1};
    const bool threads = parse_is(t, ".maxntid") || parse_is(t, ".reqntid");
    if (!threads && !parse_is(t, ".minnctapersm") && !parse_is(t, ".maxnreg")) return TAPER_OK;
    d->at++;
    for (int j = 0; j < 3; j++) {
      TAPER_TRY(parse_unsigned(d, &n[j]));
      if (!threads || !parse_accept(d, ",")) break;
    }
    if (threads) k->facts.max_threads = n[0] * n[1] * n[2];
  }
}

/* Does the body use shared variables of the module, itself or in what it calls? */
static bool reaches_module_shared(const decoder *d) {
  uint32_t depth = 0, member;
  for (size_t at = d->at; d->tokens[at].kind != TOKEN_END; at++) {
    const token *t = &d->tokens[at];
    depth += parse_is(t, "{");
    if (parse_is(t, "}") && --depth == 0) return false;
    if (t->kind != TOKEN_WORD) continue;
    const name *n = parse_find(d, t->at, t->length, &member);
    if (starts(t, "call") || (n && n->kind == NAME_SHARED)) return true;
  }
  return false;
}

/* What the instructions of a kernel say about it; those of functions count for each kernel. */
static void summarise(const sim_module *m, sim_kernel *k, uint32_t begin, uint32_t end) {
  for (uint32_t pc = begin; pc < end; pc++) {
    const inst *i = &m->code[pc];
    uint32_t granule = 2;
    if (i->kind == INST_GRID_WAIT) k->facts.waits = true;
    k->parts |= sim_part_barrier(m, i);
    if (i->bytes == 0) {
      k->facts.ordered |= i->fence != 0;
      continue;
    }
    if (i->bytes < 4) granule = i->bytes / 2;
    const bool generic = i->space == SPACE_GENERIC;
    if ((generic || i->space == SPACE_SHARED) && granule < k->shared_granule) k->shared_granule = granule;
    if ((generic || i->space == SPACE_GLOBAL) && granule < k->global_granule) k->global_granule = granule;
    if (i->fence || (i->strong && i->space != SPACE_SHARED)) k->facts.ordered = true;
  }
}

static void finish_kernel(decoder *d, sim_kernel *k) {
  const sim_module *m = d->module;
  k->facts.offsets = k->offsets;
  k->facts.sizes = k->sizes;
  k->facts.shared_bytes = d->shared_top - SIM_SHARED_BASE;
  k->register_bytes = k->code.end_register;
  k->call_bytes = k->code.end_call;
  k->local_bytes = k->code.end_local;
  k->facts.registers = (k->code.end_register - k->code.first_register) / (4 * SIM_LANES);
  k->shared_granule = k->global_granule = 2;
  summarise(m, k, k->code.begin, k->code.end);
  bool calls = false;
  for (uint32_t pc = k->code.begin; pc < k->code.end; pc++) calls |= m->code[pc].kind == INST_CALL;
  for (size_t f = 0; calls && f < m->function_count; f++) {
    summarise(m, k, m->functions[f].begin, m->functions[f].end);
    k->recursive |= m->functions[f].recursive;
  }
  if (k->recursive) k->local_bytes += 65536;
  k->facts.local_bytes = k->local_bytes;
}

static taper_status kernel(decoder *d) {
  sim_module *m = d->module;
  const token *t;
  const uint32_t outer = d->name_count, registers = d->register_top, call_top = d->call_top, local_top = d->local_top;
  TAPER_TRY(function_name(d, &t));
  for (size_t n = 0; n < m->kernel_count; n++)
    if (strlen(m->kernels[n]->code.name) == t->length && memcmp(m->kernels[n]->code.name, t->at, t->length) == 0)
      return parse_fail(d, t, "a second kernel '%.*s'", (int)t->length, t->at);
  sim_kernel **grown = (sim_kernel **)realloc((void *)m->kernels, (m->kernel_count + 1) * sizeof(*grown));
  if (grown) m->kernels = grown;
  sim_kernel *k = calloc(1, sizeof(*k));
  if (!grown || !k || !(k->code.name = strndup(t->at, t->length))) {
    free(k);
    return TAPER_FAIL(d->error, TAPER_NOMEM, "%s: no memory for kernels", d->file);
  }
  m->kernels[m->kernel_count++] = k;
  k->module = m;
  k->facts = (sim_kernel_facts){.name = k->code.name, .max_threads = 1024};
  d->scope = outer;
  TAPER_TRY(parameters(d, NAME_PARAMETER, &k->facts.parameter_bytes, k->offsets, k->sizes, &k->facts.parameter_count));
  TAPER_TRY(kernel_limits(d, k));
  begin_function(d, &k->code);
  d->shared_top = reaches_module_shared(d) ? d->module_shared : SIM_SHARED_BASE;
  d->inside = true;
  d->kernel = k;
  TAPER_TRY(parse_body(d));
  d->scope = UINT32_MAX;
  end_function(d, &k->code);
  finish_kernel(d, k);
  if (k->facts.shared_bytes > 48u * 1024u)
    return parse_fail(d, t, "%u bytes of static shared memory, of 49152", k->facts.shared_bytes);
  d->inside = false;
  d->kernel = NULL;
  parse_pop_names(d, outer);
  d->register_top = registers;
  d->call_top = call_top;
  d->local_top = local_top;
  return TAPER_OK;
}

/* Past the body or the `;` of a function that is read in another pass. */
static taper_status skip_function(decoder *d) {
  uint32_t depth = 0;
  for (; parse_peek(d)->kind != TOKEN_END; d->at++) {
    depth += parse_is(parse_peek(d), "{");
    const bool end = (depth == 1 && parse_is(parse_peek(d), "}")) || (depth == 0 && parse_is(parse_peek(d), ";"));
    if (depth && parse_is(parse_peek(d), "}")) depth--;
    if (!end) continue;
    d->at++;
    return TAPER_OK;
  }
  return parse_fail(d, parse_peek(d), "a function does not end");
}

typedef enum pass { PASS_VARIABLES, PASS_FUNCTIONS, PASS_KERNELS } pass;

static taper_status variable(decoder *d, pass p, space where, bool is_extern) {
  if (p == PASS_VARIABLES) return parse_variable(d, where, is_extern);
  while (parse_peek(d)->kind != TOKEN_END && !parse_accept(d, ";")) d->at++;
  return TAPER_OK;
}

static taper_status item(decoder *d, pass p) {
  bool is_extern = false;
  const token *t = parse_next(d);
  while (parse_is(t, ".visible") || parse_is(t, ".weak") || parse_is(t, ".extern")) {
    is_extern |= parse_is(t, ".extern");
    t = parse_next(d);
  }
  const bool again = p == PASS_VARIABLES && (parse_is(t, ".version") ? d->module->version : d->module->target) != 0;
  if (again && (parse_is(t, ".version") || parse_is(t, ".target")))
    return parse_fail(d, t, "a second %.*s", (int)t->length, t->at);
  if (parse_is(t, ".version")) return version(d);
  if (parse_is(t, ".target")) return target(d);
  if (parse_is(t, ".address_size")) return parse_expect(d, "64");
  if (parse_is(t, ".file")) return source_file(d);
  if (parse_is(t, ".section")) return section(d);
  if (parse_is(t, ".global")) return variable(d, p, SPACE_GLOBAL, is_extern);
  if (parse_is(t, ".const")) return variable(d, p, SPACE_CONSTANT, is_extern);
  if (parse_is(t, ".shared")) return variable(d, p, SPACE_SHARED, is_extern);
  if (parse_is(t, ".func")) return p == PASS_FUNCTIONS ? device_function(d) : skip_function(d);
  if (parse_is(t, ".entry")) return p == PASS_KERNELS ? kernel(d) : skip_function(d);
  return parse_fail(d, t, "'%.*s' is not known to the simulator at the outermost level", (int)t->length, t->at);
}

static void free_decoder(decoder *d) {
  free(d->tokens);
  free(d->names);
  free(d->labels);
  free(d->uses);
  free(d->lists);
}

/* Which functions may come to call themselves: reachable from their own calls. */
static taper_status mark_recursion(decoder *d) {
  sim_module *m = d->module;
  const size_t n = m->function_count;
  if (n == 0) return TAPER_OK;
  bool *reach = calloc(n * n, sizeof(*reach));
  if (!reach) return TAPER_FAIL(d->error, TAPER_NOMEM, "%s: no memory for functions", d->file);
  for (size_t f = 0; f < n; f++)
    for (uint32_t pc = m->functions[f].begin; pc < m->functions[f].end; pc++)
      if (m->code[pc].kind == INST_CALL) reach[f * n + m->calls[m->code[pc].target].callee] = true;
  for (size_t k = 0; k < n; k++)
    for (size_t a = 0; a < n; a++)
      for (size_t b = 0; b < n; b++) reach[a * n + b] |= reach[a * n + k] && reach[k * n + b];
  for (size_t f = 0; f < n; f++) m->functions[f].recursive = reach[f * n + f];
  free(reach);
  return TAPER_OK;
}

static taper_status load(decoder *d, const char *ptx, size_t size) {
  TAPER_TRY(parse_tokens(d, ptx, size));
  d->register_top = SPECIAL_BYTES;
  d->scope = UINT32_MAX;
  d->module_shared = SIM_SHARED_BASE;
  for (pass p = PASS_VARIABLES; p <= PASS_KERNELS; p++) {
    d->at = 0;
    while (parse_peek(d)->kind != TOKEN_END) TAPER_TRY(item(d, p));
    if (p == PASS_FUNCTIONS) TAPER_TRY(mark_recursion(d));
  }
  sim_module *m = d->module;
  if (!m->version || !m->target) return parse_fail(d, &d->tokens[0], "no .version or no .target: this is not PTX");
  TAPER_TRY(decode_finish_calls(d));
  for (size_t k = 0; k < m->function_count; k++) TAPER_TRY(sim_flow(m, &m->functions[k], d->error));
  for (size_t k = 0; k < m->kernel_count; k++) {
    TAPER_TRY(sim_flow(m, &m->kernels[k]->code, d->error));
    m->kernels[k]->register_bytes = m->kernels[k]->code.end_register;
  }
  return TAPER_OK;
}

taper_status sim_module_load(const char *ptx, size_t size, const char *file, sim_memory *memory, sim_module **out,
                             taper_error *error) {
  sim_module *m = calloc(1, sizeof(*m));
  decoder *d = calloc(1, sizeof(*d));
  taper_status status = TAPER_OK;
  *out = NULL;
  if (!m || !d || !(m->name = strdup(file))) {
    status = TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory for a module", file);
  } else {
    m->memory = memory;
    *d = (decoder){.module = m, .file = m->name, .error = error};
    status = load(d, ptx, size);
    free_decoder(d);
  }
  free(d);
  if (status == TAPER_OK)
    *out = m;
  else
    sim_module_unload(m);
  return status;
}

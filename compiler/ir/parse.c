/* parse.c - .tir text: modules, entries, names. Strict, bounded, several errors a run. */
#include "compiler/ir/parse_priv.h"

#include <math.h>
#include <string.h>

void tir_next(tir_parser *p) { p->token = tir_lex(&p->lexer); }
bool tir_is_mark(const tir_parser *p, char mark) { return p->token.kind == TIR_MARK && p->token.mark == mark; }

bool tir_is_word(const tir_parser *p, const char *word) {
  return p->token.kind == TIR_WORD && p->token.size == strlen(word) && memcmp(p->token.text, word, p->token.size) == 0;
}

bool tir_accept(tir_parser *p, char mark) {
  if (!tir_is_mark(p, mark)) return false;
  tir_next(p);
  return true;
}

diag_loc tir_loc(const tir_parser *p, const tir_token *t) {
  return (diag_loc){p->file, t->line, t->col, (uint32_t)(t->size < 200 ? t->size : 200)};
}

bool tir_error(tir_parser *p, diag_code code, const tir_token *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *message = arena_vprintf(&p->mem, format, args);
  va_end(args);
  p->errors++;
  diag_report(p->sink, code, tir_loc(p, t), "%s", message);
  return false;
}

bool tir_expected(tir_parser *p, const char *what) {
  const tir_token *t = &p->token;
  if (t->kind == TIR_BAD) return tir_error(p, DC_IR_SYNTAX, t, "expected %s: %s", what, t->problem);
  if (t->kind == TIR_END) return tir_error(p, DC_IR_SYNTAX, t, "expected %s, found the end of the file", what);
  return tir_error(p, DC_IR_SYNTAX, t, "expected %s, found '%.*s'", what, (int)(t->size < 40 ? t->size : 40), t->text);
}

bool tir_expect(tir_parser *p, char mark) {
  char what[] = {'\'', mark, '\'', 0};
  return tir_accept(p, mark) || tir_expected(p, what);
}

bool tir_string(tir_parser *p, const char **out) {
  const char *problem = NULL;
  if (p->token.kind != TIR_STRING) return tir_expected(p, "a string");
  *out = tir_unquote(&p->mem, &p->token, &problem);
  if (!*out) return tir_error(p, DC_IR_SYNTAX, &p->token, "%s", problem);
  tir_next(p);
  return true;
}

bool tir_integer(tir_parser *p, int64_t *out) {
  if (p->token.kind != TIR_NUMBER) return tir_expected(p, "an integer");
  if (!number_parse_i64(p->token.text, p->token.size, out))
    return tir_error(p, DC_IR_SYNTAX, &p->token, "'%.*s' is no integer of 64 bits",
                     (int)(p->token.size < 40 ? p->token.size : 40), p->token.text);
  tir_next(p);
  return true;
}

bool tir_double(tir_parser *p, double *out) {
  bool word = tir_is_word(p, "inf") || tir_is_word(p, "nan");
  if (p->token.kind != TIR_NUMBER && !word) return tir_expected(p, "a number");
  if (!number_parse_double(p->token.text, p->token.size, out))
    return tir_error(p, DC_IR_SYNTAX, &p->token, "'%.*s' is no number", (int)(p->token.size < 40 ? p->token.size : 40),
                     p->token.text);
  tir_next(p);
  return true;
}

/* ---- names ---- */
static size_t hash_name(const char *s, size_t n) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 1099511628211u;
  return (size_t)(h ^ h >> 32);
}

static tir_name *name_slot(const tir_parser *p, const char *s, size_t n) {
  size_t i = hash_name(s, n) & (p->name_cap - 1);
  while (p->names[i].text && (p->names[i].size != n || memcmp(p->names[i].text, s, n) != 0))
    i = (i + 1) & (p->name_cap - 1);
  return &p->names[i];
}

static bool in_scope(const tir_parser *p, const tir_name *name) {
  return name->text && (name->region == p->region.id || name->region == IR_GLOBALS.id);
}

const tir_name *tir_find_name(tir_parser *p, const tir_token *t) {
  const tir_name *slot = name_slot(p, t->text, t->size);
  return in_scope(p, slot) ? slot : NULL;
}

void tir_define(tir_parser *p, const tir_token *t, ir_value v) {
  tir_name *slot = name_slot(p, t->text, t->size);
  if (!slot->text) p->name_count++;
  *slot = (tir_name){t->text, t->size, v, p->region.id, t->line, t->col};
  if (p->name_count * 2 < p->name_cap) return;
  tir_name *old = p->names;
  size_t cap = p->name_cap;
  p->names = ARENA_ARRAY(&p->mem, tir_name, cap * 2);
  p->name_cap = cap * 2;
  for (size_t i = 0; i < cap; i++)
    if (old[i].text) *name_slot(p, old[i].text, old[i].size) = old[i];
}

static size_t distance(const char *a, const char *b) {
  size_t row[40], n = strlen(b);
  if (strlen(a) >= 40 || n >= 40) return 40;
  for (size_t j = 0; j <= n; j++) row[j] = j;
  for (size_t i = 1; a[i - 1]; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= n; j++) {
      size_t best = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      row[j] = best;
    }
  }
  return row[n];
}

const char *tir_nearest(const char *word, const char *const *words, size_t n) {
  size_t best = 1 + strlen(word) / 3;
  const char *found = NULL;
  for (size_t i = 0; i < n; i++) {
    size_t d = distance(word, words[i]);
    if (d > best || (d == best && found)) continue;
    best = d;
    found = words[i];
  }
  return found;
}

/* ---- the module ---- */
static bool begins_item(const tir_parser *p) {
  if (p->token.kind == TIR_END) return true;
  return p->token.first_on_line && (p->token.kind == TIR_VALUE || p->token.kind == TIR_WORD || tir_is_mark(p, '}'));
}

/* From somewhere in the item that began at `start` to the next thing that a line can begin with. */
static void recover(tir_parser *p, const char *start) {
  if (p->token.text == start) tir_next(p);
  while (!begins_item(p)) tir_next(p);
}

static bool too_many_errors(const tir_parser *p) { return p->errors >= TIR_MAX_ERRORS; }

/* A word, or a string where the name is no word. */
static bool parse_label(tir_parser *p, const char *what, const char **out) {
  if (p->token.kind == TIR_STRING) {
    tir_token t = p->token;
    return tir_string(p, out) && (**out || tir_error(p, DC_IR_SYNTAX, &t, "%s is empty", what));
  }
  if (p->token.kind != TIR_WORD) return tir_expected(p, what);
  *out = arena_strndup(&p->mem, p->token.text, p->token.size);
  tir_next(p);
  return true;
}

static bool parse_param(tir_parser *p) {
  tir_next(p);
  tir_token at = p->token;
  const char *name = "";
  double value = 0;
  if (!parse_label(p, "the parameter's name", &name) || !tir_expect(p, '=') || !tir_double(p, &value)) return false;
  if (ir_module_param(p->m, name, NULL)) return tir_error(p, DC_IR_SYNTAX, &at, "parameter '%s' is given twice", name);
  if (ir_module_param_count(p->m) >= TIR_MAX_PARAMS)
    return tir_error(p, DC_IR_LIMIT, &at, "more than %d parameters", TIR_MAX_PARAMS);
  ir_module_set_param(p->m, name, value);
  return true;
}

static bool parse_entry(tir_parser *p) {
  tir_next(p);
  if (!tir_expect(p, '@')) return false;
  tir_token at = p->token;
  const char *name = "";
  if (!parse_label(p, "the entry's name", &name) || !tir_expect(p, '{')) return false;
  if (ir_entry_find(p->m, name).id) return tir_error(p, DC_IR_SYNTAX, &at, "entry '%s' is given twice", name);
  if (ir_entry_count(p->m) >= TIR_MAX_ENTRIES)
    return tir_error(p, DC_IR_LIMIT, &at, "more than %d entries", TIR_MAX_ENTRIES);
  p->region = ir_entry_add(p->m, name);
  while (p->token.kind != TIR_END && !tir_is_mark(p, '}') && !too_many_errors(p)) {
    const char *start = p->token.text;
    if (!tir_parse_op(p)) recover(p, start);
  }
  p->region = IR_GLOBALS;
  if (too_many_errors(p)) return false;
  return tir_expect(p, '}');
}

static bool parse_item(tir_parser *p) {
  if (tir_is_word(p, "param")) return parse_param(p);
  if (tir_is_word(p, "entry")) return parse_entry(p);
  if (p->token.kind == TIR_VALUE) return tir_parse_op(p);
  return tir_expected(p, "'param', 'entry' or an op");
}

static bool parse_head(tir_parser *p) {
  int64_t version = 0;
  tir_token at;
  if (!tir_is_word(p, "tir")) return tir_expected(p, "'tir 1', the first words of a .tir file");
  tir_next(p);
  at = p->token;
  if (!tir_integer(p, &version)) return false;
  if (version != 1)
    return tir_error(p, DC_IR_SYNTAX, &at, "version %lld of .tir text; this compiler reads version 1",
                     (long long)version);
  if (!tir_is_word(p, "module")) return tir_expected(p, "'module'");
  tir_next(p);
  at = p->token;
  const char *name = "";
  if (!tir_string(p, &name)) return false;
  if (!*name) return tir_error(p, DC_IR_SYNTAX, &at, "the module's name is empty");
  p->m = ir_module_new(name);
  return tir_expect(p, '{');
}

static bool parse_module(tir_parser *p) {
  if (!parse_head(p)) return false;
  p->region = IR_GLOBALS;
  while (p->token.kind != TIR_END && !tir_is_mark(p, '}') && !too_many_errors(p)) {
    const char *start = p->token.text;
    if (!parse_item(p)) recover(p, start);
  }
  if (too_many_errors(p) || !tir_expect(p, '}')) return false;
  if (p->token.kind != TIR_END) return tir_expected(p, "the end of the file");
  return true;
}

ir_module *ir_parse(const char *source, size_t size, const char *file, diag_sink *sink) {
  enum { CARETS_UP_TO = 8 << 20 };
  tir_parser p = {.sink = sink, .file = diag_intern(sink, file)};
  if (size > TIR_MAX_SOURCE) {
    diag_report(sink, DC_IR_LIMIT, (diag_loc){p.file, 0, 0, 0}, "%zu bytes of .tir text, at most %zu are read", size,
                TIR_MAX_SOURCE);
    return NULL;
  }
  if (size <= CARETS_UP_TO) diag_add_source(sink, file, source, size);
  p.name_cap = 256;
  p.names = ARENA_ARRAY(&p.mem, tir_name, p.name_cap);
  p.operands = ARENA_ARRAY(&p.mem, ir_value, TIR_MAX_OPERANDS);
  tir_lex_start(&p.lexer, source ? source : "", size);
  tir_next(&p);
  bool ok = parse_module(&p) && p.errors == 0 && ir_verify(p.m, sink);
  arena_free(&p.mem);
  if (ok) return p.m;
  ir_module_free(p.m);
  return NULL;
}

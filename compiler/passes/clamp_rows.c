/* clamp_rows.c - rows of a token table that are longer than K times the median row are looked up shorter (tapernorm.md
   9): factor_v = min(1, K median / |row_v|), the median over the rows that training read. A head that shares the table
   keeps its rows, so there V factors are looked up beside the row; else the factors go into the table. The factors come
   from the table as it was trained; what other passes made of it (centred, scaled) is linear in the row and carries
   them. Changes what the model computes, so it acts only when asked for, and never where the first reader of the stream
   is a live norm: that would see other directions' weight, and only lose. */
#include "compiler/analysis/token_rows.h"
#include "compiler/passes/passes_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char name[] = "clamp-rows";
#define FACTOR_NAME ".clamp" /* behind the table's name: its factors */

typedef struct clamping {
  ir_value table;  /* the const */
  ir_value vector; /* its factors f32[V]; none: not made yet */
  ir_value column; /* the same, f32[V,1] */
  float *factor;   /* [rows] */
  size_t rows, clamped;
  struct clamping *next;
} clamping;

static bool refuse(pass_context *c, ir_value at, const char *what, const char *remedy) {
  diag_report(c->sink, DC_PASS_CLAMP, at.id ? ir_loc_of(c->m, at) : (diag_loc){0}, "--clamp-rows: %s%s%s; %s",
              at.id ? pass_place(c, at) : "", at.id ? " " : "", what, remedy);
  return false;
}

/* ---- the factors ---- */
static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The lower of the two middle ones of an even number. */
static bool median_used(pass_context *c, ir_value table, const double *norms, size_t rows, double *out) {
  double *used = ARENA_ARRAY(&c->scratch, double, rows);
  size_t n = 0;
  for (size_t i = 0; i < rows; i++)
    if (c->options->used_rows[i] && isfinite(norms[i])) used[n++] = norms[i];
  if (n == 0) return refuse(c, table, "has no row that was used in training", "give other weights, or other data");
  qsort(used, n, sizeof *used, by_value);
  *out = used[(n - 1) / 2];
  return *out > 0 || refuse(c, table, "has used rows of zeros only", "leave the option out");
}

static bool find_factors(pass_context *c, clamping *k) {
  ir_type type = ir_type_of(c->m, k->table);
  size_t rows = (size_t)type.dim[0], width = (size_t)type.dim[1];
  double *values = malloc(rows * width * sizeof *values), median = 0;
  double *norms = ARENA_ARRAY(&c->scratch, double, rows);
  bool read = values && ir_read_const(c->m, k->table, values);
  for (size_t r = 0; read && r < rows; r++) {
    double square = 0;
    for (size_t i = 0; i < width; i++) square += values[r * width + i] * values[r * width + i];
    norms[r] = sqrt(square);
  }
  free(values);
  if (!read) return refuse(c, k->table, "has no values that fit into memory", "free some");
  if (!median_used(c, k->table, norms, rows, &median)) return false;
  k->rows = rows;
  k->factor = ARENA_ARRAY(&c->scratch, float, rows);
  for (size_t r = 0; r < rows; r++) {
    double limit = c->options->clamp_rows * median;
    k->factor[r] = norms[r] > limit ? (float)(limit / norms[r]) : 1;
    k->clamped += norms[r] > limit;
  }
  return true;
}

static bool check_table(pass_context *c, ir_value table) {
  const char *label = pass_label(c, table);
  size_t rows = (size_t)ir_type_of(c->m, table).dim[0];
  if (!ir_is(c->m, table, IR_CONST))
    return refuse(c, table, "is no table of constants", "compile the trained model, or leave the option out");
  if (ir_is_symbolic(c->m, table)) return refuse(c, table, "has no values", "give the weights");
  if (!c->options->used_rows) {
    const char *what = arena_printf(
        &c->scratch, "is not said to have been read in training: the weights have no tensor '%s.seen'", label);
    return refuse(c, table, what,
                  "let taperc scan MODEL --data TEXT -o DIR/ count it from the training text, and give DIR/");
  }
  if (rows == c->options->used_count) return true;
  return refuse(c, table, arena_printf(&c->scratch, "has %zu rows, and %zu are counted", rows, c->options->used_count),
                "give the counts of this model");
}

static ir_value make_const(pass_context *c, clamping *k, bool column) {
  ir_value *made = column ? &k->column : &k->vector;
  if (made->id) return *made;
  ir_type type = ir_type_make(IR_F32, column ? 2 : 1, (const int64_t[]){(int64_t)k->rows, 1});
  ir_builder b = {c->m, IR_GLOBALS, IR_NONE, ir_loc_of(c->m, k->table), NULL};
  size_t bytes = k->rows * sizeof *k->factor;
  float *data = ir_payload_new(c->m, bytes);
  if (!data) return IR_NONE;
  memcpy(data, k->factor, bytes);
  *made = ir_build_typed(&b, IR_CONST, type, NULL, 0);
  ir_bind(c->m, *made, data);
  ir_set_name(c->m, *made, arena_printf(&c->scratch, "%s" FACTOR_NAME, pass_label(c, k->table)));
  return *made;
}

/* NULL: refused. */
static clamping *clamping_of(pass_context *c, clamping **list, ir_value table) {
  for (clamping *k = *list; k; k = k->next)
    if (ir_same(k->table, table)) return k;
  clamping *k = ARENA_NEW(&c->scratch, clamping);
  *k = (clamping){.table = table, .next = *list};
  if (!check_table(c, table) || !find_factors(c, k)) return NULL;
  *list = k;
  diag_remark(c->sink, name, false, ir_loc_of(c->m, table),
              "%zu of the %zu rows of '%s' are looked up shortened to %g times the median norm of the used ones",
              k->clamped, k->rows, pass_label(c, table), c->options->clamp_rows);
  return k;
}

/* ---- the rewrite ---- */
static bool only_looked_up(pass_context *c, ir_value table) {
  ir_value *users;
  size_t n = ir_users(c->m, table, &c->scratch, &users);
  for (size_t i = 0; i < n; i++)
    if (ir_region_of(c->m, users[i]).id != IR_GLOBALS.id && !analysis_looks_tokens_up(c->m, users[i])) return false;
  return true;
}

static bool clamp(pass_context *c, clamping *k, ir_value embed) {
  ir_module *m = c->m;
  ir_value table = ir_operand(m, embed, 1);
  bool apart = !only_looked_up(c, table);
  ir_value factor = make_const(c, k, apart);
  if (!factor.id) return refuse(c, embed, "needs memory for its factors", "free some");
  c->changed = true;
  if (!apart) {
    ir_set_operand(m, embed, 1, pass_expr_scale(c, embed, table, factor, 0));
    return true;
  }
  ir_builder b = pass_builder(c, ir_next(m, embed));
  b.loc = ir_loc_of(m, embed), b.name = NULL;
  ir_value s = IR_BUILD(&b, IR_EMBED, ir_operand(m, embed, 0), factor);
  ir_value scaled = IR_BUILD(&b, IR_ROW_SCALE, embed, s);
  ir_replace_uses_except(m, embed, scaled, scaled);
  return true;
}

static bool is_factor(const ir_module *m, ir_value v) {
  const char *label = ir_is(m, v, IR_CONST) ? ir_name_of(m, v) : NULL;
  size_t n = label ? strlen(label) : 0, end = sizeof FACTOR_NAME - 1;
  return n > end && strcmp(label + n - end, FACTOR_NAME) == 0;
}

/* By this pass, now or before: the factors themselves, a table that carries them, a row that they follow. */
static bool is_clamped(pass_context *c, ir_value embed) {
  const ir_module *m = c->m;
  ir_value table = ir_operand(m, embed, 1), *users;
  if (is_factor(m, table) || (ir_is(m, table, IR_SCALE) && is_factor(m, ir_operand(m, table, 1)))) return true;
  size_t n = ir_users(m, embed, &c->scratch, &users);
  if (n != 1 || !ir_is(m, users[0], IR_ROW_SCALE)) return false;
  ir_value s = ir_operand(m, users[0], 1);
  return ir_is(m, s, IR_EMBED) && is_factor(m, ir_operand(m, s, 1));
}

static bool visit(pass_context *c, clamping **list, ir_value embed) {
  ir_value norm = analysis_first_live_norm(c->m, embed, &c->scratch);
  if (norm.id)
    return refuse(c, norm, "is a live norm and reads the embedding first: shorter rows would only harm it",
                  "leave the option out");
  clamping *k = clamping_of(c, list, analysis_leaf(c->m, ir_operand(c->m, embed, 1)));
  return k && clamp(c, k, embed);
}

bool pass_clamp_rows(pass_context *c) {
  clamping *list = NULL;
  if (c->options->clamp_rows <= 0) return true;
  size_t found = 0;
  for (size_t e = 0; e < ir_entry_count(c->m); e++)
    for (ir_value v = ir_first(c->m, ir_entry_at(c->m, e)); v.id; v = ir_next(c->m, v)) {
      if (!analysis_looks_tokens_up(c->m, v)) continue;
      found++;
      if (is_clamped(c, v)) continue;
      if (!visit(c, &list, v)) return false;
    }
  return found || refuse(c, IR_NONE, "no embedding is looked up by the token ids", "leave the option out");
}

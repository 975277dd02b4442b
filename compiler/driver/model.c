#include "compiler/driver/model.h"
#include "compiler/analysis/taper_gates.h"
#include "compiler/driver/model_priv.h"
#include "compiler/ir/eval.h"
#include "runtime/base/file.h"
#include <stdlib.h>
#include <string.h>

enum { SOURCE_LIMIT = 64 << 20 };

static taper_status open_weights(model_loaded *m, const model_options *options, taper_error *error) {
  const char *path = options->weights ? options->weights : m->place.weights;
  if (options->ignore_weights || !path) {
    if (!options->need_weights || m->place.kind == MODEL_TIR) return TAPER_OK;
    return TAPER_FAIL(error, TAPER_INVALID, "%s: the model has no weights; give --weights FILE", m->place.path);
  }
  TAPER_TRY(weights_open(path, &m->priv->weights, error));
  m->priv->has_weights = true;
  return TAPER_OK;
}

static taper_status in_sink(taper_error *error) {
  if (error) error->message[0] = 0;
  return TAPER_INVALID;
}

static taper_status lower_source(model_loaded *m, const char *source, size_t size, const model_options *options,
                                 taper_error *error) {
  arena *a = &m->priv->memory;
  front_define *defines = ARENA_ARRAY(a, front_define, options->define_count + 1);
  for (size_t i = 0; i < options->define_count; i++)
    defines[i] = (front_define){options->defines[i].name, options->defines[i].value};
  front_options front = {.defines = defines, .define_count = options->define_count, .train = options->train};
  front.gates = gates_collect(m, options, &front.gate_count);
  m->priv->front = front_parse(source, size, m->place.source, &front, m->priv->sink);
  if (!m->priv->front) return in_sink(error);
  m->tokenizer = arena_strdup(a, front_tokenizer(m->priv->front));
  m->module = front_lower(m->priv->front, &front, m->priv->sink);
  return m->module ? tokenizer_find_file(m, error) : in_sink(error);
}

static taper_status parse_tir(model_loaded *m, const char *source, size_t size, const model_options *options,
                              taper_error *error) {
  m->tokenizer = "none";
  m->module = ir_parse(source, size, m->place.source, m->priv->sink);
  if (!m->module || !ir_verify(m->module, m->priv->sink)) return in_sink(error);
  if (options->define_count)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: IR text has its sizes written out, so -D %s acts on nothing; give the .tmodel",
                      m->place.source, options->defines[0].name);
  return gates_apply(m, options) ? TAPER_OK : in_sink(error);
}

static size_t count_disabled(const ir_module *m) {
  size_t n = 0;
  for (size_t e = 0; e < ir_entry_count(m); e++)
    for (ir_value v = ir_first(m, ir_entry_at(m, e)); v.id; v = ir_next(m, v))
      n += ir_op_has(ir_opcode_of(m, v), OPF_NORM) && ir_attr_float(m, v, IR_ATTR_EPS, 0) >= MODEL_DISABLED_EPS;
  return n;
}

/* How the stream is held in range: from the norms as written, before any pass. */
static void describe_norms(model_loaded *m) {
  arena scratch = {0};
  taper_norm *norms;
  size_t n = analysis_taper_norms(m->module, &scratch, &norms);
  for (size_t i = 0; i < n; i++) m->norm_removed = m->norm_removed || norms[i].state == TAPER_AT_ZERO;
  for (size_t e = 0; e < ir_entry_count(m->module); e++)
    for (ir_value v = ir_first(m->module, ir_entry_at(m->module, e)); v.id; v = ir_next(m->module, v))
      if (ir_op_has(ir_opcode_of(m->module, v), OPF_NORM)) /* the last one stands before the head */
        m->layer_form = ir_op_has(ir_opcode_of(m->module, v), OPF_MEAN_BLIND);
  arena_free(&scratch);
}

taper_status model_load(const model_place *place, const model_options *options, diag_sink *sink, model_loaded *out,
                        taper_error *error) {
  out->place = *place;
  out->priv = calloc(1, sizeof *out->priv);
  if (!out->priv) return TAPER_FAIL(error, TAPER_NOMEM, "no memory to load a model; free some");
  out->priv->sink = sink;
  TAPER_TRY(open_weights(out, options, error));
  char *source = NULL;
  size_t size = 0;
  bool tir = place->kind == MODEL_TIR;
  if (!options->text) TAPER_TRY(file_read(place->source, SOURCE_LIMIT, &source, &size, error));
  const char *words = options->text ? options->text : source;
  if (options->text) size = options->text_size;
  taper_status status =
      tir ? parse_tir(out, words, size, options, error) : lower_source(out, words, size, options, error);
  free(source);
  TAPER_TRY(status);
  out->name = arena_strdup(&out->priv->memory, ir_module_name(out->module));
  gates_describe(out, options);
  out->disabled_norms = count_disabled(out->module);
  describe_norms(out);
  return bind_weights(out, options, error);
}

const unsigned char *model_used_rows(const model_loaded *m, size_t *out_n) {
  *out_n = 0;
  if (!m->seen) return NULL;
  unsigned char *used = ARENA_ARRAY(&m->priv->memory, unsigned char, m->seen->elements + 1);
  for (uint64_t v = 0; v < m->seen->elements; v++) {
    double times = 0;
    st_read_f64(m->seen, v, 1, &times);
    used[v] = times > 0;
  }
  *out_n = (size_t)m->seen->elements;
  return used;
}

void model_free(model_loaded *m) {
  if (!m->priv) return;
  ir_module_free(m->module);
  tokenizer_close(&m->tokens);
  file_unmap(&m->tokenizer_file);
  front_free(m->priv->front);
  if (m->priv->has_weights) weights_close(&m->priv->weights);
  for (extern_file *f = m->priv->externs; f; f = f->next)
    if (f->present) weights_close(&f->set);
  arena_free(&m->priv->memory);
  free(m->priv);
  *m = (model_loaded){0};
}

const front_model *model_front(const model_loaded *m) { return m->priv ? m->priv->front : NULL; }

bool model_print_ast(const model_loaded *m, text *out) {
  if (!m->priv || !m->priv->front) return false;
  front_print_ast(m->priv->front, out);
  return true;
}

/* ---- norms that are a constant gain ---- */

typedef struct disabled_probe {
  const ir_module *m;
  double worst;
} disabled_probe;

#define DISABLED_PREFIX "disabled:"

/* Probes of the norms' inputs: "disabled:<handle>". */
static void on_disabled(void *user, const char *name, const ir_tensor *x) {
  disabled_probe *p = user;
  uint64_t id;
  size_t skip = sizeof DISABLED_PREFIX - 1;
  if (strncmp(name, DISABLED_PREFIX, skip) != 0 || !number_parse_u64(name + skip, strlen(name + skip), &id)) return;
  ir_value norm = {(uint32_t)id};
  bool centred = ir_op_has(ir_opcode_of(p->m, norm), OPF_MEAN_BLIND);
  double eps = ir_attr_float(p->m, norm, IR_ATTR_EPS, 0);
  int64_t d = x->dim[x->rank - 1], rows = x->dim[0] * x->dim[1];
  for (int64_t r = 0; r < rows; r++) {
    const double *row = x->data + r * d;
    double mean = 0, square = 0;
    for (int64_t i = 0; centred && i < d; i++) mean += row[i] / (double)d;
    for (int64_t i = 0; i < d; i++) square += (row[i] - mean) * (row[i] - mean) / (double)d;
    if (square / (2 * eps) > p->worst) p->worst = square / (2 * eps);
  }
}

taper_status model_disabled_error(const model_loaded *m, const int32_t *tokens, size_t n, double *out,
                                  taper_error *error) {
  ir_module *copy = ir_clone(m->module);
  ir_region entry = ir_entry_find(copy, "forward");
  arena scratch = {0};
  ir_builder b = {.m = copy, .region = entry};
  for (ir_value v = ir_first(copy, entry); v.id; v = ir_next(copy, v)) {
    if (!ir_op_has(ir_opcode_of(copy, v), OPF_NORM) || ir_attr_float(copy, v, IR_ATTR_EPS, 0) < MODEL_DISABLED_EPS)
      continue;
    ir_attr name = {.key = IR_ATTR_NAME, .u.s = arena_printf(&scratch, DISABLED_PREFIX "%u", v.id)};
    ir_value x = ir_operand(copy, v, 0);
    b.before = v;
    ir_set_operand(copy, v, 0, ir_build(&b, IR_PROBE, &x, 1, &name, 1));
  }
  const int32_t zero = 0, all = (int32_t)n;
  disabled_probe probe = {copy, 0};
  ir_eval_args args = {.batch = 1,
                       .time = (int64_t)n,
                       .tokens = tokens,
                       .pos = &zero,
                       .len = &all,
                       .on_probe = on_disabled,
                       .user = &probe};
  ir_tensor logits = {0};
  taper_status status = ir_eval_entry(copy, entry, &args, &logits, 1, error);
  *out = probe.worst;
  ir_tensor_free(&logits);
  ir_module_free(copy);
  arena_free(&scratch);
  return status;
}

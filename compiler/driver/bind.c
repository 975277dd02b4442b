/* Weights -> the module's constants: each tensor once, shapes checked, nothing missing, nothing left over. */
#include "compiler/driver/model_priv.h"
#include "runtime/base/hash.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static diag_loc at_file(model_loaded *m, const char *file) {
  return (diag_loc){.file = diag_intern(m->priv->sink, file)};
}

static void put_shape(text *out, const uint64_t *shape, size_t rank) {
  text_puts(out, "[");
  for (size_t i = 0; i < rank; i++) text_printf(out, "%s%llu", i ? "," : "", (unsigned long long)shape[i]);
  text_puts(out, "]");
}

static bool shape_fits(const st_tensor *t, ir_type type) {
  if (t->rank != type.rank) return false;
  for (uint32_t i = 0; i < type.rank; i++)
    if (type.dim[i] < 0 || t->shape[i] != (uint64_t)type.dim[i]) return false;
  return true;
}

static void wrong_shape(model_loaded *m, const weight *w, ir_value v) {
  ir_type type = ir_type_of(m->module, v);
  uint64_t shape[IR_MAX_RANK] = {0};
  for (uint32_t i = 0; i < type.rank; i++) shape[i] = (uint64_t)type.dim[i];
  text file = {0}, wanted = {0};
  put_shape(&file, w->tensor->shape, w->tensor->rank);
  put_shape(&wanted, shape, type.rank);
  diag_report(m->priv->sink, DC_WEIGHTS, at_file(m, w->file),
              "tensor '%s': shape %s in the file, %s in the model; set the model's parameters by -D, or give the "
              "weights of this model",
              w->tensor->name, file.data, wanted.data);
  text_free(&file), text_free(&wanted);
}

static taper_status check_finite(model_loaded *m, const weight *w, const model_options *options) {
  weight_scan s = weights_scan(w);
  if (s.nan + s.inf == 0) return TAPER_OK;
  if (options->need_weights && !options->allow_nonfinite) {
    diag_report(m->priv->sink, DC_NONFINITE, at_file(m, w->file),
                "tensor '%s': holds %llu NaN and %llu infinite values, the first at element %llu; give sound weights, "
                "or --allow-nonfinite",
                w->tensor->name, (unsigned long long)s.nan, (unsigned long long)s.inf, (unsigned long long)s.first);
    return TAPER_INVALID;
  }
  diag_remark(m->priv->sink, "model", true, at_file(m, w->file), "tensor '%s' holds %llu NaN and %llu infinite values",
              w->tensor->name, (unsigned long long)s.nan, (unsigned long long)s.inf);
  return TAPER_OK;
}

static taper_status bind_one(model_loaded *m, weight_set *set, weight *w, ir_value v, const model_options *options,
                             taper_error *error) {
  if (!shape_fits(w->tensor, ir_type_of(m->module, v))) {
    w->consumed = true;
    wrong_shape(m, w, v);
    return TAPER_OK; /* go on: all of them are told */
  }
  const float *data;
  taper_status status = weights_f32(set, w, &data, error);
  if (status == TAPER_NOMEM) return status;
  if (status != TAPER_OK) {
    w->consumed = true;
    diag_report(m->priv->sink, DC_WEIGHTS, at_file(m, w->file), "%s",
                strstr(error->message, "tensor ") ? strstr(error->message, "tensor ") : error->message);
    return TAPER_OK;
  }
  if (check_finite(m, w, options) == TAPER_OK) ir_bind(m->module, v, data);
  return TAPER_OK;
}

/* ---- the tapered branch of a norm whose gate is exactly 1 is never computed, so its tensors may be absent ---- */

static bool reads_nothing_of(const ir_module *m, ir_value user, ir_value v) {
  const ir_operand_spec *spec;
  size_t n = ir_op_operands(ir_opcode_of(m, user), &spec);
  double gate = 0;
  bool live = false;
  for (size_t i = 0; i < n && i < ir_operand_count(m, user); i++) {
    ir_value x = ir_operand(m, user, i);
    if (spec[i].is_gate) live = ir_read_const(m, x, &gate) && gate == 1.0;
    if (ir_same(x, v) && strncmp(spec[i].name, "taper_", 6) != 0) return false;
  }
  return live;
}

static bool may_be_absent(const ir_module *m, ir_value v) {
  arena scratch = {0};
  ir_value *users;
  size_t n = ir_users(m, v, &scratch, &users);
  bool may = n > 0;
  for (size_t i = 0; may && i < n; i++) may = reads_nothing_of(m, users[i], v);
  arena_free(&scratch);
  return may;
}

static taper_status bind_ones(model_loaded *m, ir_value v, const char *name, taper_error *error) {
  int64_t n = ir_elements(ir_type_of(m->module, v));
  float *ones = n > 0 && n < INT64_MAX / 4 ? ir_payload_new(m->module, (size_t)n * sizeof *ones) : NULL;
  if (!ones) return TAPER_FAIL(error, TAPER_NOMEM, "no memory for tensor '%s'; free some", name);
  for (int64_t i = 0; i < n; i++) ones[i] = 1;
  ir_bind(m->module, v, ones);
  diag_remark(m->priv->sink, "model", false, at_file(m, m->priv->weights.path),
              "tensor '%s' is absent and stays unused: the gate of its norm is 1", name);
  return TAPER_OK;
}

static void missing(model_loaded *m, ir_value v, const char *name) {
  text type = {0};
  ir_print_type(&type, ir_type_of(m->module, v));
  diag_report(m->priv->sink, DC_WEIGHTS, at_file(m, m->priv->weights.path),
              "tensor '%s': is missing, the model reads it as %s; add it, or give the weights of this model", name,
              type.data);
  text_free(&type);
}

/* ---- IR text: const {file, tensor, hash} ---- */

static extern_file *open_extern(model_loaded *m, const char *name, taper_error *error) {
  arena *a = &m->priv->memory;
  for (extern_file *f = m->priv->externs; f; f = f->next)
    if (strcmp(f->name, name) == 0) return f;
  extern_file *f = ARENA_NEW(a, extern_file);
  const char *slash = strrchr(m->place.source, '/');
  const char *folder = slash ? arena_strndup(a, m->place.source, (size_t)(slash - m->place.source) + 1) : "";
  f->name = name;
  f->next = m->priv->externs;
  m->priv->externs = f;
  taper_status status = weights_open(*name == '/' ? name : arena_printf(a, "%s%s", folder, name), &f->set, error);
  f->present = status == TAPER_OK;
  if (status == TAPER_IO) {
    diag_remark(m->priv->sink, "model", true, at_file(m, m->place.source), "the constants of '%s' stay symbolic: %s",
                name, error->message);
    error->message[0] = 0;
  }
  return f;
}

/* The tensor must be the one that the IR text was written with. */
static taper_status bind_hashed(model_loaded *m, weight_set *set, ir_value v, const char *name,
                                const model_options *options, taper_error *error) {
  weight *w = weights_find(set, name);
  if (!w) {
    diag_report(m->priv->sink, DC_WEIGHTS, at_file(m, set->path),
                "tensor '%s': is missing, %s reads it; give the file that belongs to the IR text", name,
                m->place.source);
    return TAPER_OK;
  }
  const char *hash = ir_attr_string(m->module, v, IR_ATTR_HASH, NULL);
  hash128 found = hash_bytes(w->tensor->data, (size_t)w->tensor->bytes);
  if (hash && strcmp(hash, found.hex) != 0) {
    diag_report(m->priv->sink, DC_WEIGHTS, at_file(m, w->file),
                "tensor '%s': its hash is %s, %s says %s; give the file that belongs to the IR text", name, found.hex,
                m->place.source, hash);
    return TAPER_OK;
  }
  return bind_one(m, set, w, v, options, error);
}

/* From the file that the text names; where it is gone, from --weights. */
static taper_status bind_extern(model_loaded *m, ir_value v, const char *file, const char *name,
                                const model_options *options, taper_error *error) {
  error->message[0] = 0;
  extern_file *f = open_extern(m, file, error);
  if (!f->present && *error->message) return TAPER_INVALID;
  if (!f->present) return m->priv->has_weights ? bind_hashed(m, &m->priv->weights, v, name, options, error) : TAPER_OK;
  return bind_hashed(m, &f->set, v, name, options, error);
}

/* ---- all of them ---- */

/* What later commands store beside the weights: how often an id was read in training. */
static bool take_seen(model_loaded *m, const weight_set *set, const weight *w) {
  const st_tensor *t = w->tensor;
  size_t n = strlen(t->name);
  char table[512];
  if (n < 6 || n >= sizeof table || strcmp(t->name + n - 5, ".seen") != 0) return false;
  memcpy(table, t->name, n - 5);
  table[n - 5] = 0;
  const weight *of = weights_find(set, table);
  if (!of || of->tensor->rank != 2) return false;
  bool sound = t->dtype == ST_I64 && t->rank == 1 && t->shape[0] == of->tensor->shape[0];
  double times = 0;
  for (uint64_t i = 0; sound && i < t->elements; i++) {
    st_read_f64(t, i, 1, &times);
    sound = times >= 0;
  }
  if (!sound) {
    diag_report(m->priv->sink, DC_WEIGHTS, at_file(m, w->file),
                "tensor '%s': must be I64 [%" PRIu64 "], how often each id was read, none below 0; remove it, or let "
                "taperc scan -o write it",
                t->name, of->tensor->shape[0]);
    return true;
  }
  if (!m->seen) m->seen = t;
  diag_remark(m->priv->sink, "model", false, at_file(m, w->file),
              "tensor '%s' says how often each id was read in training", t->name);
  return true;
}

/* Median and 99.9 % of the residual scale before the head, as training or a scan measured them. */
static bool take_scale(model_loaded *m, const weight *w) {
  const st_tensor *t = w->tensor;
  double v[2] = {0};
  if (strcmp(t->name, "taper.scale") != 0) return false;
  bool sound = t->dtype == ST_F32 && t->rank == 1 && t->elements == 2;
  if (sound) st_read_f64(t, 0, 2, v);
  if (!sound || !(v[0] > 0 && v[1] >= v[0] && isfinite(v[1]))) {
    diag_report(m->priv->sink, DC_WEIGHTS, at_file(m, w->file),
                "tensor 'taper.scale': must be F32 [2], the median and the 99.9 %% of the residual scale, positive and "
                "rising; remove it, or let taperc scan -o write it");
    return true;
  }
  m->scale_median = v[0], m->scale_high = v[1];
  diag_remark(m->priv->sink, "model", false, at_file(m, w->file),
              "tensor 'taper.scale' says how large the residual stream is before the head");
  return true;
}

static void report_unread(model_loaded *m) {
  weight_set *set = &m->priv->weights;
  size_t cursor = 0;
  for (const weight *w; (w = weights_unconsumed(set, &cursor));) {
    if (take_seen(m, set, w) || take_scale(m, w)) continue;
    diag_report(m->priv->sink, DC_WEIGHTS, at_file(m, w->file),
                "tensor '%s': nothing in the model reads it; remove it, or name it in the model", w->tensor->name);
  }
}

static void tell_unbound(model_loaded *m, ir_value v) {
  const char *name = ir_attr_string(m->module, v, IR_ATTR_TENSOR, "?"),
             *file = ir_attr_string(m->module, v, IR_ATTR_FILE, NULL);
  m->bound = false;
  m->unbound = file ? arena_printf(&m->priv->memory,
                                   "tensor '%s': its file '%s' is not there (seen from the IR text); put it there, or "
                                   "give --weights FILE",
                                   name, file)
                    : arena_printf(&m->priv->memory, "tensor '%s': has no data; give --weights FILE", name);
}

taper_status bind_weights(model_loaded *m, const model_options *options, taper_error *error) {
  size_t before = diag_error_count(m->priv->sink);
  weight_set *set = &m->priv->weights;
  for (ir_value v = ir_first(m->module, IR_GLOBALS); v.id; v = ir_next(m->module, v)) {
    bool param = ir_is(m->module, v, IR_PARAM), weight_op = param || ir_is(m->module, v, IR_CONST);
    const char *named = param ? ir_attr_string(m->module, v, IR_ATTR_NAME, NULL) : NULL,
               *name = ir_attr_string(m->module, v, IR_ATTR_TENSOR, named),
               *file = ir_attr_string(m->module, v, IR_ATTR_FILE, NULL);
    if (!weight_op || !name || !ir_is_symbolic(m->module, v)) continue;
    if (file && !options->ignore_weights) {
      TAPER_TRY(bind_extern(m, v, file, name, options, error));
    } else if (m->priv->has_weights) {
      weight *w = weights_find(set, name);
      if (w)
        TAPER_TRY(bind_one(m, set, w, v, options, error));
      else if (may_be_absent(m->module, v))
        TAPER_TRY(bind_ones(m, v, name, error));
      else
        missing(m, v, name);
    }
  }
  if (m->priv->has_weights) report_unread(m);
  if (diag_error_count(m->priv->sink) != before) {
    error->message[0] = 0;
    return TAPER_INVALID;
  }
  m->bound = true;
  for (ir_value v = ir_first(m->module, IR_GLOBALS); v.id && m->bound; v = ir_next(m->module, v))
    if (ir_is(m->module, v, IR_CONST) && ir_is_symbolic(m->module, v)) tell_unbound(m, v);
  return TAPER_OK;
}

#include "runtime/model.h"
#include "runtime/text/tokenizer.h"
#include <stdio.h>
#include <string.h>

/* How far above 99.9 % of what was measured the residual stream is out of range. */
#define SCALE_LIMIT 3.0

double model_scale_limit(const taper_model *m) {
  const device_facts *f = &m->device->facts;
  return f->scale_median > 0 ? SCALE_LIMIT * f->scale_high / f->scale_median : 0;
}

taper_status model_check_size(size_t given, size_t expected, const char *type, taper_error *error) {
  if (given == expected) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID, "%s has size %zu, not %zu; call %s_init first", type, given, expected, type);
}

void taper_model_options_init(taper_model_options *o) { *o = (taper_model_options){.size = sizeof(*o), .spin_us = 50}; }

static void log_opened(const taper_model *m, const taper_model_options *o) {
  char line[512];
  const device_facts *f = &m->device->facts;
  if (!o->log) return;
  snprintf(line, sizeof(line), "model '%.255s': image %s, %llu bytes of packed weights, %u %s", m->name, f->image,
           (unsigned long long)f->weight_bytes, f->threads, f->threads == 1 ? "worker" : "workers");
  o->log(o->log_user, TAPER_LOG_INFO, line);
}

static taper_status open_package(const package *p, const taper_model_options *o, const taper_allocator *a,
                                 taper_model **out, taper_error *error) {
  taper_model *m = memory_zalloc(a, 1, sizeof(*m));
  if (!m) return memory_exhausted(error, "the model", sizeof(*m));
  m->allocator = *a;
  memcpy(m->name, p->name, strlen(p->name) + 1);
  m->end_token = p->end_token;
  taper_status status = package_open_tokenizer(p, &m->tokenizer, error);
  if (status == TAPER_OK) status = device_open(p, o, a, &m->device, error);
  if (status != TAPER_OK) return tokenizer_close(&m->tokenizer), memory_free(a, m), status;
  *out = m;
  return TAPER_OK;
}

taper_status taper_model_open(const char *path, const taper_model_options *options, taper_model **out,
                              taper_error *error) {
  if (!out) return TAPER_FAIL(error, TAPER_INVALID, "taper_model_open: out is NULL; give a place for the model");
  *out = NULL;
  if (!path) return TAPER_FAIL(error, TAPER_INVALID, "taper_model_open: path is NULL; name a package");
  taper_model_options o;
  taper_model_options_init(&o);
  if (options) {
    TAPER_TRY(model_check_size(options->size, sizeof(o), "taper_model_options", error));
    o = *options;
  }
  taper_allocator a = memory_allocator(o.allocator);
  package p;
  TAPER_TRY(package_open(path, &a, o.log, o.log_user, &p, error));
  taper_status status = open_package(&p, &o, &a, out, error);
  package_close(&p);
  if (status == TAPER_OK) log_opened(*out, &o);
  return status;
}

void taper_model_free(taper_model *m) {
  if (!m) return;
  m->device->ops->close(m->device);
  taper_allocator a = m->allocator;
  tokenizer_close(&m->tokenizer);
  memory_free(&a, m);
}

void taper_model_get_info(const taper_model *m, taper_model_info *out) {
  const device_facts *f = &m->device->facts;
  *out = (taper_model_info){.size = sizeof(*out),
                            .name = m->name,
                            .device = m->device->ops->name,
                            .image = f->image,
                            .tokenizer = tokenizer_name(m->tokenizer.kind),
                            .vocab = f->vocab,
                            .context = f->context,
                            .width = f->width,
                            .probes = f->lost_probe[0] ? 0 : f->probes,
                            .threads = f->threads,
                            .weight_bytes = f->weight_bytes,
                            .bytes_per_token = f->bytes_per_token,
                            .end_token = m->end_token,
                            .scale_limit = model_scale_limit(m)};
}

static taper_status check_text_call(const taper_model *m, const void *in, size_t n, const void *out, size_t cap,
                                    const size_t *out_n, const char *call, taper_error *error) {
  if (!m || !out_n || (n > 0 && !in) || (cap > 0 && !out))
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: an argument is NULL; give the model, the data and a place for the count", call);
  if (m->tokenizer.kind == TOKENIZER_NONE)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "model '%s' has no tokenizer; it takes and gives token ids only",
                      m->name);
  return TAPER_OK;
}

taper_status taper_tokenize(const taper_model *m, const char *text, size_t bytes, int32_t *ids, size_t cap,
                            size_t *out_n, taper_error *error) {
  TAPER_TRY(check_text_call(m, text, bytes, ids, cap, out_n, "taper_tokenize", error));
  return tokenizer_encode(&m->tokenizer, text, bytes, 0, ids, cap, out_n, error);
}

taper_status taper_detokenize(const taper_model *m, const int32_t *ids, size_t n, char *text, size_t cap,
                              size_t *out_bytes, taper_error *error) {
  TAPER_TRY(check_text_call(m, ids, n, text, cap, out_bytes, "taper_detokenize", error));
  for (size_t i = 0; i < n; i++)
    if (ids[i] < 0 || (uint32_t)ids[i] >= m->device->facts.vocab)
      return TAPER_FAIL(error, TAPER_INVALID, "token %zu is %d; ids are 0 to %u", i, ids[i],
                        m->device->facts.vocab - 1);
  return tokenizer_decode(&m->tokenizer, ids, n, text, cap, out_bytes, error);
}

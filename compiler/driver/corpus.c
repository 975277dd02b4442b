#include "compiler/driver/corpus_priv.h"
#include "runtime/base/philox.h"
#include "runtime/base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct corpus {
  corpus_file *files; /* the data files, then the one of --val */
  uint64_t *start;    /* [count + 1] index of a file's first id in the run of all ids */
  size_t count;
  uint64_t cut, first_bytes, text_bytes;
  char key[33];
};

void corpus_close(corpus *c) {
  if (!c) return;
  for (size_t i = 0; i < c->count; i++) corpus_file_close(&c->files[i]);
  free(c->files), free(c->start), free(c);
}

static uint64_t all_ids(const corpus *c) { return c->start[c->count]; }

uint64_t corpus_count(const corpus *c, corpus_part part) { return part == CORPUS_TRAIN ? c->cut : all_ids(c) - c->cut; }

uint64_t corpus_text_bytes(const corpus *c) { return c->text_bytes; }

const char *corpus_key(const corpus *c) { return c->key; }

static taper_status open_files(corpus *c, const corpus_options *o, diag_sink *sink, taper_error *error) {
  size_t n = o->file_count + (o->val != NULL);
  c->files = calloc(n, sizeof *c->files);
  c->start = calloc(n + 1, sizeof *c->start);
  if (!c->files || !c->start) return TAPER_FAIL(error, TAPER_NOMEM, "no memory for %zu data files; free some", n);
  for (size_t i = 0; i < n; i++) {
    TAPER_TRY(corpus_file_open(i < o->file_count ? o->files[i] : o->val, o, sink, &c->files[i], error));
    c->count = i + 1;
    c->start[i + 1] = c->start[i] + c->files[i].ids.count;
  }
  return TAPER_OK;
}

static taper_status make_key(corpus *c, taper_error *error) {
  text t = {0};
  text_printf(&t, "cut %llu", (unsigned long long)c->cut);
  for (size_t i = 0; i < c->count; i++) text_printf(&t, " %s", c->files[i].key.hex);
  if (t.failed) return TAPER_FAIL(error, TAPER_NOMEM, "no memory for a text; free some");
  memcpy(c->key, hash_bytes(t.data, t.size).hex, sizeof c->key);
  text_free(&t);
  return TAPER_OK;
}

/* Bytes that the ids from the second on stand for. */
static uint64_t predicted_bytes(const corpus *c, const corpus_options *o) {
  char piece[TOKENIZER_MAX_PIECE];
  uint64_t bytes = 0;
  for (size_t i = 0; i < o->file_count; i++) {
    if (!c->files[i].text) return 0;
    bytes += c->files[i].bytes;
  }
  uint64_t first =
      c->files[0].ids.count ? tokenizer_piece(o->tokenizer, (int32_t)corpus_id(&c->files[0].ids, 0), piece) : 0;
  return bytes > first ? bytes - first : 0;
}

static taper_status check_parts(const corpus *c, const corpus_options *o, taper_error *error) {
  uint64_t train = corpus_count(c, CORPUS_TRAIN), val = corpus_count(c, CORPUS_VAL), need = (uint64_t)o->window + 1;
  bool split = !o->val && o->val_fraction > 0;
  if (!o->window) return TAPER_OK;
  if (train < need)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "%s: %llu ids%s are too few for a window of %u, which needs %llu; give more data or a shorter "
                      "window",
                      c->files[0].path, (unsigned long long)train, split ? " to train on" : "", o->window,
                      (unsigned long long)need);
  if (val >= need || (!split && !o->val)) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID,
                    "%s: %llu ids to validate on are too few for one window of %u, which needs %llu; %s",
                    c->files[c->count - 1].path, (unsigned long long)val, o->window, (unsigned long long)need,
                    split ? "give more data, a larger --val-fraction, or 0 for none" : "give a longer file");
}

taper_status corpus_open(const corpus_options *o, diag_sink *sink, corpus **out, taper_error *error) {
  *out = NULL;
  if (o->file_count == 0) return TAPER_FAIL(error, TAPER_INVALID, "no data file is named; give one");
  if (!(o->val_fraction >= 0 && o->val_fraction < 1))
    return TAPER_FAIL(error, TAPER_INVALID, "the held-out share must be at least 0 and below 1");
  corpus *c = calloc(1, sizeof *c);
  if (!c) return TAPER_FAIL(error, TAPER_NOMEM, "no memory for the data; free some");
  taper_status status = open_files(c, o, sink, error);
  if (status == TAPER_OK) {
    uint64_t all = all_ids(c);
    c->cut = o->val ? c->start[o->file_count] : (uint64_t)floor((double)all * (1 - o->val_fraction));
    c->text_bytes = predicted_bytes(c, o);
    status = check_parts(c, o, error);
  }
  if (status == TAPER_OK) status = make_key(c, error);
  if (status != TAPER_OK) return corpus_close(c), status;
  *out = c;
  return TAPER_OK;
}

void corpus_read(const corpus *c, corpus_part part, uint64_t first, size_t n, int32_t *out) {
  uint64_t at = first + (part == CORPUS_VAL ? c->cut : 0);
  size_t low = 0, high = c->count; /* start[low] <= at < start[high] */
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (c->start[middle] <= at)
      low = middle;
    else
      high = middle;
  }
  for (size_t file = low, i = 0; i < n; file++) {
    const corpus_ids *ids = &c->files[file].ids;
    for (uint64_t k = at - c->start[file]; k < ids->count && i < n; k++, at++) out[i++] = (int32_t)corpus_id(ids, k);
  }
}

/* ---- windows ---- */

uint64_t corpus_window(uint64_t count, uint32_t length, uint64_t seed, uint64_t step, uint32_t micro, uint32_t index) {
  uint32_t r[4];
  uint64_t places = count - length;
  philox4x32(seed, PHILOX_DATA, micro ^ (uint32_t)(step >> 32) << 20, (uint32_t)step, index, r);
  uint64_t draw = (uint64_t)r[0] << 32 | r[1];
  return (uint64_t)(((unsigned __int128)draw * places) >> 64);
}

static void read_window(const corpus *c, corpus_part part, uint64_t at, uint32_t n, int32_t *tokens, int32_t *targets) {
  corpus_read(c, part, at, n, tokens);
  memcpy(targets, tokens + 1, (n - 1) * sizeof *targets);
  corpus_read(c, part, at + n, 1, targets + n - 1);
}

void corpus_batch(const corpus *c, uint64_t seed, uint64_t step, uint32_t micro, uint32_t windows, uint32_t length,
                  int32_t *tokens, int32_t *targets) {
  for (uint32_t i = 0; i < windows; i++) {
    uint64_t at = corpus_window(corpus_count(c, CORPUS_TRAIN), length, seed, step, micro, i);
    read_window(c, CORPUS_TRAIN, at, length, tokens + (size_t)i * length, targets + (size_t)i * length);
  }
}

static uint64_t all_windows(const corpus *c, uint32_t length) {
  uint64_t ids = corpus_count(c, CORPUS_VAL);
  return ids < 2 ? 0 : (ids - 1 + length - 1) / length;
}

uint64_t corpus_val_windows(const corpus *c, uint32_t length, uint64_t limit) {
  uint64_t all = all_windows(c, length);
  return limit && limit < all ? limit : all;
}

uint32_t corpus_val_window(const corpus *c, uint32_t length, uint64_t j, uint64_t count, int32_t *tokens,
                           int32_t *targets) {
  uint64_t all = all_windows(c, length), place = (uint64_t)((unsigned __int128)j * all / count);
  uint64_t at = place * length, left = corpus_count(c, CORPUS_VAL) - 1 - at;
  uint32_t n = left < length ? (uint32_t)left : length;
  read_window(c, CORPUS_VAL, at, n, tokens, targets);
  for (uint32_t i = n; i < length; i++) tokens[i] = 0, targets[i] = -1;
  return n;
}

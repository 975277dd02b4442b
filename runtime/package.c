#include "runtime/package.h"
#include "runtime/base/json_scan.h"
#include "runtime/base/seal.h"
#include "runtime/base/text.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define WORD_CAP 64u
#define DAMAGED "; the package is damaged, compile it again"

/* The next of comma-separated words in *s: 1 a word, 0 the end, -1 an empty or overlong word or a character that words
 * have not. */
static int next_word(const char **s, char out[WORD_CAP]) {
  if (**s == 0) return 0;
  size_t n = strcspn(*s, ",");
  if (n == 0 || n >= WORD_CAP || strspn(*s, "abcdefghijklmnopqrstuvwxyz0123456789-_.") < n) return -1;
  memcpy(out, *s, n);
  out[n] = 0;
  *s += n;
  if (**s == ',') {
    ++*s;
    if (**s == 0) return -1;
  }
  return 1;
}

bool package_cpu_has(const char *word) {
#if defined(__x86_64__)
#define CPUF(name, macro)                                                                                              \
  if (strcmp(word, name) == 0) return __builtin_cpu_supports(name) != 0;
#include "runtime/abi/cpu_features.def"
#undef CPUF
#endif
  (void)word;
  return false;
}

static bool feature_is_known(const char *word) {
#define CPUF(name, macro)                                                                                              \
  if (strcmp(word, name) == 0) return true;
#include "runtime/abi/cpu_features.def"
#undef CPUF
  return false;
}

static taper_status invalid(const package *p, const char *key, const char *cause, taper_error *error) {
  const char *value = st_metadata(&p->file, key);
  return TAPER_FAIL(error, TAPER_INVALID, "metadata '%s': '%.80s' %s" DAMAGED, key, value ? value : "", cause);
}

static taper_status need(const package *p, const char *key, const char **out, taper_error *error) {
  *out = st_metadata(&p->file, key);
  if (*out) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID, "metadata '%s' is missing" DAMAGED, key);
}

static bool is_hash(const char *s, size_t n) { return n == 32 && strspn(s, "0123456789abcdef") == 32; }

/* What a target is called, and where its images say what they need or what made them. */
static const struct {
  const char *word, *key;
} targets[] = {[PACKAGE_CPU] = {"cpu", "taper.cpu.%s"}, [PACKAGE_CUDA] = {"cuda", "taper.cuda.%s"}};

const char *package_target_name(package_target target) { return targets[target].word; }

static bool find_target(package *p, const char *word) {
  for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
    if (strcmp(word, targets[i].word) == 0) return p->target = (package_target)i, true;
  }
  return false;
}

static taper_status check_version(package *p, taper_error *error) {
  const char *version = st_metadata(&p->file, "taper.package"), *words, *target;
  if (!version)
    return TAPER_FAIL(
        error, TAPER_INVALID,
        "a safetensors file, but no package (no metadata 'taper.package'); make one with 'taperc compile'");
  if (strcmp(version, "1") != 0)
    return TAPER_FAIL(
        error, TAPER_UNSUPPORTED,
        "package version '%.40s', this library reads version 1; compile the model again or update libtaper", version);
  TAPER_TRY(need(p, "taper.features", &words, error));
  if (*words)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "needs the feature '%.80s' that this library has not; update libtaper",
                      words);
  TAPER_TRY(need(p, "taper.target", &target, error));
  if (!find_target(p, target))
    return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                      "compiled for the target '%.40s', this library runs 'cpu' and 'cuda'; compile with one of them",
                      target);
  TAPER_TRY(need(p, "taper.machine", &words, error));
#if defined(__x86_64__)
  const char *machine = "x86_64-le";
#else
  const char *machine = "another one";
#endif
  if (strcmp(words, machine) != 0)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "compiled for the machine '%.40s', this is %s; compile the model here",
                      words, machine);
  return TAPER_OK;
}

/* What a metadata value that is a JSON object holds: called once for each member, value is its first event. */
typedef taper_status (*member_fn)(package *p, json_scan *scan, json_event key, json_event value, taper_error *error);

static taper_status each_member(package *p, const char *metadata, member_fn visit, taper_error *error) {
  const char *json;
  TAPER_TRY(need(p, metadata, &json, error));
  json_scan scan;
  json_scan_init(&scan, json, strlen(json));
  json_event e = json_scan_next(&scan);
  taper_status status = TAPER_OK;
  if (e.kind == JS_OBJECT) {
    while (status == TAPER_OK && (e = json_scan_next(&scan)).kind == JS_KEY)
      status = visit(p, &scan, e, json_scan_next(&scan), error);
    if (e.kind == JS_OBJECT_END) e = json_scan_next(&scan);
  }
  if (status == TAPER_OK && e.kind != JS_END)
    status = TAPER_FAIL(error, TAPER_INVALID, "JSON byte %zu: %s" DAMAGED, scan.at,
                        e.kind == JS_ERROR ? scan.error : "expected one object");
  return status == TAPER_OK ? status : taper_add_context(error, status, "metadata '%s'", metadata);
}

static taper_status visit_param(package *p, json_scan *scan, json_event key, json_event value, taper_error *error) {
  bool is_vocab = json_is(scan, key, "vocab"), is_context = json_is(scan, key, "context");
  double number;
  uint64_t integer;
  if (value.kind == JS_ERROR) return TAPER_OK;
  if (value.kind != JS_NUMBER || !json_double(scan, value, &number))
    return TAPER_FAIL(error, TAPER_INVALID, "JSON byte %zu: a parameter is a finite number" DAMAGED, value.start);
  if (!is_vocab && !is_context) return TAPER_OK;
  uint32_t *field = is_vocab ? &p->vocab : &p->context;
  if (*field || !json_u64(scan, value, &integer) || integer < 1 || integer > INT32_MAX)
    return TAPER_FAIL(error, TAPER_INVALID, "'%s' stands there once, an integer from 1 to %d" DAMAGED,
                      is_vocab ? "vocab" : "context", INT32_MAX);
  *field = (uint32_t)integer;
  return TAPER_OK;
}

static taper_status visit_gate(package *p, json_scan *scan, json_event key, json_event value, taper_error *error) {
  (void)p, (void)key;
  double number;
  bool is_array = value.kind == JS_ARRAY;
  if (is_array) value = json_scan_next(scan);
  for (; value.kind != JS_ARRAY_END; value = json_scan_next(scan)) {
    if (value.kind == JS_ERROR) return TAPER_OK;
    if (value.kind != JS_NUMBER || !json_double(scan, value, &number))
      return TAPER_FAIL(error, TAPER_INVALID, "JSON byte %zu: a gate is a finite number or an array of them" DAMAGED,
                        value.start);
    if (!is_array) break;
  }
  return TAPER_OK;
}

static taper_status read_params(package *p, taper_error *error) {
  TAPER_TRY(each_member(p, "taper.params", visit_param, error));
  if (!p->vocab || !p->context) return invalid(p, "taper.params", "lacks 'vocab' or 'context'", error);
  return each_member(p, "taper.gates", visit_gate, error);
}

static taper_status read_tokenizer(package *p, taper_error *error) {
  const char *word;
  TAPER_TRY(need(p, "taper.tokenizer", &word, error));
  if (!tokenizer_find(word, &p->tokenizer))
    return TAPER_FAIL(error, TAPER_UNSUPPORTED, "tokenizer '%.40s' is not known to this library; update libtaper",
                      word);
  if (p->tokenizer == TOKENIZER_BYTES && p->vocab < 256)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "a byte tokenizer needs a vocabulary of 256 or more, this one has %u" DAMAGED, p->vocab);
  p->end_token = -1;
  uint64_t end;
  word = st_metadata(&p->file, "taper.end_token");
  if (!word) return TAPER_OK;
  if (!number_parse_u64(word, strlen(word), &end) || end >= p->vocab)
    return invalid(p, "taper.end_token", "is no token id", error);
  p->end_token = (int32_t)end;
  return TAPER_OK;
}

/* "rms MEDIAN HIGH" or "std MEDIAN HIGH". */
static taper_status read_scale(package *p, taper_error *error) {
  const char *s = st_metadata(&p->file, "taper.scale"), *high = s ? strrchr(s, ' ') : NULL;
  if (!s) return TAPER_OK;
  p->scale_std = strncmp(s, "std ", 4) == 0;
  if ((!p->scale_std && strncmp(s, "rms ", 4) != 0) || high < s + 4 ||
      !number_parse_double(s + 4, (size_t)(high - s - 4), &p->scale_median) ||
      !number_parse_double(high + 1, strlen(high + 1), &p->scale_high) || !(p->scale_median > 0) ||
      !(p->scale_high >= p->scale_median) || p->scale_high > 1e30)
    return invalid(p, "taper.scale", "is no form and two rising positive numbers", error);
  return TAPER_OK;
}

/* What a use of a package is called, in its metadata and in messages. */
static const struct {
  const char *word, *list, *key, *object, *is_for, *remedy;
} uses[] = {
    [PACKAGE_DECODE] = {"decode", "taper.arch", "taper.cpu.%s", "taper.image.%s", "decoding", "--for decode or both"},
    [PACKAGE_TRAIN] = {"train", "taper.train", "taper.cpu.train.%s", "taper.train_image.%s", "training",
                       "--for train or both"},
};

static taper_status read_image(package *p, package_use use, const char *word, taper_error *error) {
  char key[WORD_CAP + 24], feature[WORD_CAP];
  for (uint32_t i = 0; i < p->image_count; i++) {
    if (p->images[i].use == use && strcmp(p->images[i].name, word) == 0)
      return invalid(p, uses[use].list, "names an image twice", error);
  }
  if (p->image_count == PACKAGE_MAX_IMAGES) return invalid(p, uses[use].list, "names too many images", error);
  package_image *image = &p->images[p->image_count++];
  memcpy(image->name, word, strlen(word) + 1);
  image->use = use;
  const bool cpu = use == PACKAGE_TRAIN || p->target == PACKAGE_CPU;
  snprintf(key, sizeof(key), cpu ? uses[use].key : targets[p->target].key, word); // NOLINT: the formats of the tables
  TAPER_TRY(need(p, key, &image->features, error));
  int more;
  for (const char *s = image->features; cpu && (more = next_word(&s, feature)) != 0;) {
    if (more < 0) return invalid(p, key, "is no list of CPU features", error);
  }
  snprintf(key, sizeof(key), uses[use].object, word); // NOLINT: as above
  image->object = st_find(&p->file, key);
  if (!image->object) return TAPER_FAIL(error, TAPER_INVALID, "tensor '%s' is missing" DAMAGED, key);
  if (image->object->dtype != ST_U8 || image->object->rank != 1 || image->object->bytes == 0)
    return TAPER_FAIL(error, TAPER_INVALID,
                      "tensor '%s': an image is a U8 tensor of one dimension; compile the package again", key);
  return TAPER_OK;
}

static taper_status read_list(package *p, package_use use, taper_error *error) {
  const char *s;
  char word[WORD_CAP];
  int more;
  uint32_t before = p->image_count;
  TAPER_TRY(need(p, uses[use].list, &s, error));
  while ((more = next_word(&s, word)) != 0) {
    if (more < 0) return invalid(p, uses[use].list, "is no list of images", error);
    TAPER_TRY(read_image(p, use, word, error));
  }
  return p->image_count > before ? TAPER_OK : invalid(p, uses[use].list, "names no image", error);
}

static taper_status read_images(package *p, taper_error *error) {
  const char *purpose = st_metadata(&p->file, "taper.for");
  bool both = purpose && strcmp(purpose, "both") == 0;
  if (purpose && !both && strcmp(purpose, "decode") != 0 && strcmp(purpose, "train") != 0)
    return invalid(p, "taper.for", "is none of decode, train, both", error);
  for (uint32_t use = PACKAGE_DECODE; use <= PACKAGE_TRAIN; use++) {
    if (both || strcmp(purpose ? purpose : "decode", uses[use].word) == 0)
      TAPER_TRY(read_list(p, (package_use)use, error));
  }
  p->recipe = st_find(&p->file, "taper.recipe");
  if (p->recipe && (p->recipe->dtype != ST_U8 || p->recipe->rank != 1))
    return TAPER_FAIL(error, TAPER_INVALID, "tensor 'taper.recipe' is no text (U8, one dimension)" DAMAGED);
  return TAPER_OK;
}

static bool is_padding(const char *name) { return strncmp(name, "__pad.", 6) == 0; }

static taper_status visit_hash(package *p, json_scan *scan, json_event key, json_event value, taper_error *error) {
  char name[1024];
  if (value.kind == JS_ERROR) return TAPER_OK;
  if (key.length >= sizeof(name))
    return TAPER_FAIL(error, TAPER_INVALID, "JSON byte %zu: a name of %zu bytes" DAMAGED, key.start, key.length);
  json_decode(scan, key, name, NULL);
  const st_tensor *t = st_find(&p->file, name);
  if (!t) return TAPER_FAIL(error, TAPER_INVALID, "tensor '%.80s' is not in the file" DAMAGED, name);
  if (value.kind != JS_STRING || !is_hash(scan->s + value.start, value.length))
    return TAPER_FAIL(error, TAPER_INVALID, "tensor '%.80s': the hash is not 32 hex digits" DAMAGED, name);
  hash128 *h = &p->hashes[t - p->file.tensors];
  if (h->hex[0]) return TAPER_FAIL(error, TAPER_INVALID, "tensor '%.80s' stands twice" DAMAGED, name);
  memcpy(h->hex, scan->s + value.start, 32);
  return TAPER_OK;
}

static taper_status read_hashes(package *p, taper_error *error) {
  p->hashes = memory_zalloc(&p->allocator, p->file.count, sizeof(hash128));
  if (!p->hashes) return memory_exhausted(error, "the hash table", p->file.count * sizeof(hash128));
  TAPER_TRY(each_member(p, "taper.hashes", visit_hash, error));
  for (size_t i = 0; i < p->file.count; i++) {
    const char *name = p->file.tensors[i].name;
    if (!p->hashes[i].hex[0] && !is_padding(name))
      return TAPER_FAIL(error, TAPER_INVALID, "metadata 'taper.hashes': tensor '%.80s' has none" DAMAGED, name);
  }
  return TAPER_OK;
}

static void log_unknown_keys(const package *p, taper_log_fn log, void *user) {
  static const char *const known[] = {
      "taper.package", "taper.features",  "taper.name",   "taper.model",     "taper.target",  "taper.arch",
      "taper.machine", "taper.gates",     "taper.params", "taper.tokenizer", "taper.options", "taper.versions",
      "taper.hashes",  "taper.end_token", "taper.seal",   "taper.for",       "taper.train",   "taper.scale"};
  for (size_t i = 0; log && i < p->file.metadata_count; i++) {
    const char *key = p->file.metadata[i].key;
    bool found =
        strncmp(key, "taper.", 6) != 0 || strncmp(key, "taper.cpu.", 10) == 0 || strncmp(key, "taper.cuda.", 11) == 0;
    for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) found = found || strcmp(key, known[k]) == 0;
    char line[256];
    if (found) continue;
    snprintf(line, sizeof(line), "%.120s: metadata '%.80s' is unknown to this version and not used", p->path, key);
    log(user, TAPER_LOG_WARNING, line);
  }
}

static taper_status read_fields(package *p, taper_error *error) {
  const char *words;
  TAPER_TRY(check_version(p, error));
  TAPER_TRY(need(p, "taper.name", &p->name, error));
  size_t n = strlen(p->name);
  if (n == 0 || n > 255) return invalid(p, "taper.name", "is no name of 1 to 255 bytes", error);
  TAPER_TRY(need(p, "taper.model", &p->model, error));
  if (!is_hash(p->model, strlen(p->model))) return invalid(p, "taper.model", "is not 32 hex digits", error);
  TAPER_TRY(need(p, "taper.options", &words, error));
  TAPER_TRY(need(p, "taper.versions", &words, error));
  TAPER_TRY(read_params(p, error));
  TAPER_TRY(read_tokenizer(p, error));
  TAPER_TRY(read_scale(p, error));
  TAPER_TRY(read_images(p, error));
  TAPER_TRY(read_hashes(p, error));
  TAPER_TRY(need(p, "taper.seal", &words, error));
  if (strcmp(words, seal_of(p->file.metadata, p->file.metadata_count).hex) == 0) return TAPER_OK;
  return invalid(p, "taper.seal", "does not match the texts beside it", error);
}

taper_status package_open(const char *path, const taper_allocator *allocator, taper_log_fn log, void *log_user,
                          package *out, taper_error *error) {
  memset(out, 0, sizeof(*out));
  TAPER_TRY(st_open(path, &out->file, error));
  out->allocator = *allocator;
  out->path = out->file.path;
  taper_status status = read_fields(out, error);
  if (status == TAPER_OK) return log_unknown_keys(out, log, log_user), TAPER_OK;
  package_close(out);
  return taper_add_context(error, status, "%s", path);
}

void package_close(package *p) {
  memory_free(&p->allocator, p->hashes);
  st_close(&p->file);
  memset(p, 0, sizeof(*p));
}

void package_release_pages(const package *p, uint64_t first, uint64_t bytes) {
  enum { PAGE = 4096 };
  const uint64_t begin = (first + PAGE - 1) & ~(uint64_t)(PAGE - 1), end = (first + bytes) & ~(uint64_t)(PAGE - 1);
  /* a mapping begins at a page */
  if (end > begin) (void)madvise((void *)(p->file.map.data + begin), end - begin, MADV_DONTNEED);
}

typedef struct verify_job {
  const package *p;
  _Atomic size_t next;
  _Atomic size_t bad; /* lowest index whose hash differs; count: none */
} verify_job;

static bool hash_matches(const package *p, size_t i) {
  enum { CHUNK = 8 << 20 };
  const st_tensor *t = &p->file.tensors[i];
  hash_stream *h = hash_begin();
  if (!h)
    return memcmp(hash_bytes(t->data, t->bytes).hex, p->hashes[i].hex, 32) == 0; /* no memory for a stream: in one go */
  for (uint64_t at = 0; at < t->bytes; at += CHUNK) {
    uint64_t n = t->bytes - at < CHUNK ? t->bytes - at : CHUNK;
    hash_update(h, (const char *)t->data + at, n);
    package_release_pages(p, t->offset + at, n);
  }
  hash128 got = hash_end(h);
  return memcmp(got.hex, p->hashes[i].hex, 32) == 0;
}

static void verify_part(void *arg, uint32_t stage, uint32_t part) {
  (void)stage, (void)part;
  verify_job *job = arg;
  for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < job->p->file.count;) {
    if (!job->p->hashes[i].hex[0] || hash_matches(job->p, i)) continue;
    size_t bad = atomic_load(&job->bad);
    while (i < bad && !atomic_compare_exchange_weak(&job->bad, &bad, i)) {}
  }
}

taper_status package_open_tokenizer(const package *p, tokenizer *out, taper_error *error) {
  static const char name[] = "taper.file." TOKENIZER_FILE;
  const st_tensor *t = st_find(&p->file, name);
  *out = (tokenizer){0};
  if (p->tokenizer != TOKENIZER_SENTENCEPIECE) return tokenizer_open(p->tokenizer, NULL, 0, "", NULL, out, error);
  if (!t || t->dtype != ST_U8)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: tensor '%s' is missing" DAMAGED, p->path, name);
  if (memcmp(hash_bytes(t->data, t->bytes).hex, p->hashes[t - p->file.tensors].hex, 32) != 0)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: tensor '%s': its bytes do not match its hash" DAMAGED, p->path, name);
  taper_status status = tokenizer_open(p->tokenizer, t->data, t->bytes, name, &p->allocator, out, error);
  if (status != TAPER_OK) return taper_add_context(error, status, "%s", p->path);
  const uint32_t pieces = tokenizer_vocab(out);
  if (pieces == p->vocab) return TAPER_OK;
  tokenizer_close(out);
  return TAPER_FAIL(error, TAPER_INVALID, "%s: the tokenizer has %u ids, the model %u" DAMAGED, p->path, pieces,
                    p->vocab);
}

taper_status package_verify(const package *p, pool *workers, taper_error *error) {
  verify_job job = {.p = p, .bad = p->file.count};
  pool_run(workers, &(pool_job){.part = verify_part, .arg = &job, .stages = 1});
  size_t bad = atomic_load(&job.bad);
  if (bad == p->file.count) return TAPER_OK;
  return TAPER_FAIL(
      error, TAPER_INVALID,
      "%s: tensor '%.80s': its bytes do not match its hash; the file is damaged, copy or compile it again", p->path,
      p->file.tensors[bad].name);
}

/* Appends the features of `list` that this CPU lacks to out, comma-separated; returns their number. */
static unsigned missing_features(const char *list, char *out, size_t cap) {
  char word[WORD_CAP];
  unsigned n = 0;
  size_t used = 0;
  out[0] = 0;
  while (next_word(&list, word) > 0) {
    if (feature_is_known(word) && package_cpu_has(word)) continue;
    n++;
    int k = snprintf(out + used, cap - used, "%s%s", used ? ", " : "", word);
    used = k < 0 || (size_t)k >= cap - used ? cap - 1 : used + (size_t)k;
  }
  return n;
}

bool package_is_weight(const char *tensor) { return strncmp(tensor, "taper.", 6) != 0 && !is_padding(tensor); }

static taper_status no_such_image(const package *p, package_use use, const char *name, taper_error *error) {
  const char *list = st_metadata(&p->file, uses[use].list);
  if (list)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: there is no image '%.40s'; the package has %s", p->path, name, list);
  return TAPER_FAIL(error, TAPER_UNSUPPORTED, "%s: the package is not for %s; compile the model with %s", p->path,
                    uses[use].is_for, uses[use].remedy);
}

taper_status package_choose_image(const package *p, package_use use, const char *name, const package_image **out,
                                  taper_error *error) {
  char missing[160], all[600] = "";
  if (use == PACKAGE_DECODE && p->target != PACKAGE_CPU)
    return TAPER_FAIL(
        error, TAPER_UNSUPPORTED,
        "%s: compiled for the target '%s', which the device 'cpu' does not run; choose the device cuda or "
        "sim, or compile with --target cpu",
        p->path, package_target_name(p->target));
  size_t used = 0;
  bool named = false;
  for (uint32_t i = 0; i < p->image_count; i++) {
    const package_image *image = &p->images[i];
    if (image->use != use || (name && strcmp(name, image->name) != 0)) continue;
    named = true;
    if (missing_features(image->features, missing, sizeof(missing)) == 0) return *out = image, TAPER_OK;
    int k = snprintf(all + used, sizeof(all) - used, "%s'%s' needs %s", used ? "; " : "", image->name, missing);
    used = k < 0 || (size_t)k >= sizeof(all) - used ? sizeof(all) - 1 : used + (size_t)k;
  }
  if (!named) return no_such_image(p, use, name, error);
  return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                    "%s: this CPU cannot run the package: %s; compile the model here, or with a lower --arch", p->path,
                    all);
}

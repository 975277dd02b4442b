/* Writing checkpoint folders: everything goes to a temporary folder beside, the manifest last, and one rename makes it a
   checkpoint. */
#include "runtime/checkpoint.h"
#include "runtime/abi/abi.h"
#include "runtime/base/file.h"
#include "runtime/base/json_scan.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

hash128 checkpoint_layout(const taper_trainer *t) {
  text s = {0};
  for (uint32_t i = 0; i < t->t->param_count; i++) {
    const taper_train_param *p = &t->t->params[i];
    text_printf(&s, "%s %u %u", p->tensor, p->trained, p->rank);
    for (uint32_t k = 0; k < p->rank; k++) text_printf(&s, " %u", p->dim[k]);
    text_puts(&s, "\n");
  }
  for (uint32_t i = 0; i < t->t->norm_count; i++)
    text_printf(&s, "norm %s %u\n", t->t->norms[i].name, t->t->norms[i].gate);
  for (uint32_t i = 0; i < t->t->gate_count; i++)
    text_printf(&s, "gate %s %u %u\n", t->t->gates[i].name, t->t->gates[i].index, t->t->gates[i].scheduled);
  hash128 h = hash_bytes(s.data ? s.data : "", s.size);
  text_free(&s);
  return h;
}

char *checkpoint_path(const char *folder, const char *name) {
  text s = {0};
  const size_t n = strlen(folder);
  text_printf(&s, "%s%s%s", folder, n && folder[n - 1] != '/' ? "/" : "", name);
  if (!s.failed) return s.data;
  text_free(&s);
  return NULL;
}

/* ---- what is written ---- */

/* Tensors and texts of one safetensors file; texts[] backs names and values. */
typedef struct content {
  st_source *tensors;
  size_t count;
  text *texts;
  size_t text_count;
  st_pair pairs[8];
  size_t pair_count;
  bool failed;
} content;

static bool content_new(content *c, size_t tensors) {
  *c = (content){.tensors = calloc(tensors, sizeof(*c->tensors)), .texts = calloc(tensors + 8, sizeof(*c->texts))};
  c->failed = !c->tensors || !c->texts;
  return !c->failed;
}

static void content_free(content *c) {
  for (size_t i = 0; c->texts && i < c->text_count; i++) text_free(&c->texts[i]);
  free(c->texts);
  free(c->tensors);
}

static const char *keep(content *c, text *t) {
  c->failed = c->failed || t->failed || !t->data;
  c->texts[c->text_count++] = *t;
  return t->data ? t->data : "";
}

static st_source *put_tensor(content *c, const char *prefix, const char *name, st_dtype type, const void *data) {
  text full = {0};
  text_printf(&full, "%s%s", prefix, name);
  st_source *s = &c->tensors[c->count++];
  *s = (st_source){.name = keep(c, &full), .dtype = type, .rank = 1, .data = data};
  return s;
}

static void put_parameter(content *c, const taper_trainer *t, const char *prefix, uint32_t i, const float *data) {
  const taper_train_param *p = &t->t->params[i];
  st_source *s = put_tensor(c, prefix, p->tensor, ST_F32, data);
  s->rank = p->rank;
  for (uint32_t k = 0; k < p->rank; k++) s->shape[k] = p->dim[k];
}

static void put_pair(content *c, const char *key, text *value) {
  c->pairs[c->pair_count++] = (st_pair){key, keep(c, value)};
}

static void put_number(content *c, const char *key, uint64_t value) {
  text t = {0};
  text_printf(&t, "%llu", (unsigned long long)value);
  put_pair(c, key, &t);
}

/* {"internal": 0, "per_layer": [1, 0.5]}: the values for the next step. */
static void put_gates(const taper_trainer *t, text *out) {
  text_puts(out, "{");
  for (uint32_t i = 0; i < t->t->gate_count; i++) {
    const taper_train_gate *g = &t->t->gates[i];
    double value;
    taper_trainer_gate(t, i, NULL, NULL, NULL, &value);
    if (g->index == 0) {
      text_puts(out, i ? ", " : "");
      text_put_quoted(out, g->name, strlen(g->name), true);
      text_puts(out, g->count > 1 ? ": [" : ": ");
    } else {
      text_puts(out, ", ");
    }
    text_put_double(out, (double)(float)value);
    if (g->count > 1 && g->index == g->count - 1) text_puts(out, "]");
  }
  text_puts(out, "}");
}

static int by_value(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Median and 99.9 % of the recent s(h); false: there are none, or no memory to sort them. */
static bool scale_quantiles(const taper_trainer *t, float out[2]) {
  const size_t n = t->state.ring_count < TRAINER_RING ? (size_t)t->state.ring_count : TRAINER_RING;
  float *sorted = n ? malloc(n * sizeof(float)) : NULL;
  if (!sorted) return false;
  memcpy(sorted, t->state.ring, n * sizeof(float));
  qsort(sorted, n, sizeof(float), by_value);
  out[0] = sorted[(n - 1) / 2];
  out[1] = sorted[(size_t)(0.999 * (double)(n - 1) + 0.5)];
  free(sorted);
  return true;
}

static taper_status write_content(const char *folder, const char *name, content *c, taper_error *error) {
  char *path = c->failed ? NULL : checkpoint_path(folder, name);
  taper_status status = path ? st_write(path, c->tensors, c->count, c->pairs, c->pair_count, 64, error)
                             : TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory for its list of tensors", name);
  free(path);
  content_free(c);
  return status;
}

static taper_status write_weights(const taper_trainer *t, const char *folder, taper_error *error) {
  content c;
  text gates = {0};
  float scale[2];
  if (!content_new(&c, t->t->param_count + 2)) return write_content(folder, CHECKPOINT_WEIGHTS, &c, error);
  for (uint32_t i = 0; i < t->t->param_count; i++)
    if (i != t->t->anchor_target && i != t->clamp) put_parameter(&c, t, "", i, t->param[i]);
  if (t->t->table != TAPER_ABI_NONE) {
    text name = {0};
    text_printf(&name, "%s.seen", t->t->params[t->t->table].tensor);
    put_tensor(&c, "", keep(&c, &name), ST_I64, t->state.seen)->shape[0] = t->t->vocab;
  }
  if (scale_quantiles(t, scale)) put_tensor(&c, "", "taper.scale", ST_F32, scale)->shape[0] = 2;
  put_gates(t, &gates);
  put_pair(&c, "taper.gates", &gates);
  return write_content(folder, CHECKPOINT_WEIGHTS, &c, error);
}

static void norm_numbers(const trainer_norm *s, double out[CHECKPOINT_NORM_NUMBERS]) {
  const double all[CHECKPOINT_NORM_NUMBERS] = {s->numerator.value,  s->numerator.bias, s->denominator.value,
                                               s->denominator.bias, s->sigma.value,    s->sigma.bias,
                                               (double)s->count};
  memcpy(out, all, sizeof(all));
}

static void put_state(content *c, const taper_trainer *t, double *norms) {
  const trainer_state *s = &t->state;
  for (uint32_t i = 0; i < t->t->param_count; i++) {
    if (!t->first[i]) continue;
    put_parameter(c, t, "first.", i, t->first[i]);
    put_parameter(c, t, "second.", i, t->second[i]);
  }
  put_tensor(c, "", "updates", ST_U64, s->updates)->shape[0] = t->t->param_count;
  for (uint32_t i = 0; i < t->t->norm_count; i++) norm_numbers(&s->norms[i], norms + i * CHECKPOINT_NORM_NUMBERS);
  st_source *x = put_tensor(c, "", "norms", ST_F64, norms);
  x->rank = 2, x->shape[0] = t->t->norm_count, x->shape[1] = CHECKPOINT_NORM_NUMBERS;
  put_tensor(c, "", "scale", ST_F64, &s->scale)->shape[0] = 2;
  if (t->t->anchor_target != TAPER_ABI_NONE)
    put_tensor(c, "", "target", ST_F32, t->param[t->t->anchor_target])->shape[0] = 1;
  put_tensor(c, "", "ring", ST_F32, s->ring)->shape[0] = s->ring_count < TRAINER_RING ? s->ring_count : TRAINER_RING;
  put_number(c, "taper.step", s->step);
  put_number(c, "taper.tokens", s->tokens);
  put_number(c, "taper.calibrations", s->calibrations);
  put_number(c, "taper.ring_count", s->ring_count);
}

static taper_status write_optimizer(const taper_trainer *t, const char *folder, taper_error *error) {
  content c;
  text recipe = {0}, layout = {0}, gemm = {0};
  double *norms = malloc(((size_t)t->t->norm_count + 1) * CHECKPOINT_NORM_NUMBERS * sizeof(double));
  if (!content_new(&c, 2 * (size_t)t->t->param_count + 8) || !norms) c.failed = true;
  if (!c.failed) {
    put_state(&c, t, norms);
    recipe_print(&t->recipe, &recipe);
    put_pair(&c, "taper.recipe", &recipe);
    text_puts(&layout, checkpoint_layout(t).hex);
    put_pair(&c, "taper.layout", &layout);
    text_puts(&gemm, t->gemm);
    put_pair(&c, "taper.gemm", &gemm);
  }
  taper_status status = write_content(folder, CHECKPOINT_OPTIMIZER, &c, error);
  free(norms);
  return status;
}

static taper_status write_file(const char *folder, const char *name, const void *data, size_t size,
                               taper_error *error) {
  char *path = checkpoint_path(folder, name);
  file_writer w = {0};
  if (!path) return TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory for its path", name);
  taper_status status = file_writer_open(path, &w, error);
  if (status == TAPER_OK) status = file_writer_put(&w, data, size, error);
  if (status == TAPER_OK) status = file_writer_commit(&w, error);
  file_writer_abort(&w);
  free(path);
  return status;
}

static taper_status put_hash(const char *folder, const char *name, bool first, text *out, taper_error *error) {
  mapped_file map = {0};
  char *path = checkpoint_path(folder, name);
  if (!path) return TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory for its path", name);
  taper_status status = file_map(path, &map, error);
  if (status == TAPER_OK) {
    text_puts(out, first ? "" : ", ");
    text_put_quoted(out, name, strlen(name), true);
    text_printf(out, ": \"%s\"", hash_bytes(map.data, map.size).hex);
  }
  file_unmap(&map);
  free(path);
  return status;
}

static taper_status check_extra(const text *manifest, taper_error *error) {
  json_scan s;
  json_scan_init(&s, manifest->data, manifest->size);
  while (json_scan_next(&s).kind > JS_END) {}
  if (!s.error) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID, "taper_trainer_save: 'extra' is no list of JSON members: %s", s.error);
}

static taper_status write_manifest(const taper_trainer *t, const char *folder, const char *extra, taper_error *error) {
  text m = {0};
  text_printf(&m, "{\"step\": %llu, \"tokens\": %llu, \"name\": ", (unsigned long long)t->state.step,
              (unsigned long long)t->state.tokens);
  text_put_quoted(&m, t->name, strlen(t->name), true);
  text_puts(&m, ", \"gates\": ");
  put_gates(t, &m);
  text_printf(&m,
              ", \"rng\": {\"seed\": %llu, \"step\": %llu}, \"versions\": {\"taper\": \"%s\", \"package\": \"%s\", ",
              (unsigned long long)t->recipe.seed, (unsigned long long)t->state.step, taper_version(), t->model);
  text_puts(&m, "\"gemm\": ");
  text_put_quoted(&m, t->gemm, strlen(t->gemm), true);
  text_puts(&m, ", \"image\": ");
  text_put_quoted(&m, t->image, strlen(t->image), true);
  text_printf(&m, ", \"threads\": %u}", t->threads);
  if (extra && *extra) text_printf(&m, ", %s", extra);
  text_puts(&m, ", \"files\": {");
  taper_status status = put_hash(folder, CHECKPOINT_WEIGHTS, true, &m, error);
  if (status == TAPER_OK) status = put_hash(folder, CHECKPOINT_OPTIMIZER, false, &m, error);
  for (size_t i = 0; i < t->file_count && status == TAPER_OK; i++)
    status = put_hash(folder, t->files[i].name, false, &m, error);
  text_puts(&m, "}}\n");
  if (status == TAPER_OK && m.failed) status = TAPER_FAIL(error, TAPER_NOMEM, "no memory for " CHECKPOINT_MANIFEST);
  if (status == TAPER_OK) status = check_extra(&m, error);
  if (status == TAPER_OK) status = write_file(folder, CHECKPOINT_MANIFEST, m.data, m.size, error);
  text_free(&m);
  return status;
}

/* ---- folders ---- */

static taper_status folder_error(const char *path, const char *what, taper_error *error) {
  const int number = errno;
  return TAPER_FAIL(error, TAPER_IO, "%s: cannot %s: %s; check its permissions and the free space", path, what,
                    file_error_text(number));
}

/* Removes a folder of plain files. */
static void remove_folder(const char *path) {
  DIR *d = opendir(path);
  for (struct dirent *e; d && (e = readdir(d));) {
    char *file = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 ? checkpoint_path(path, e->d_name) : NULL;
    if (file) (void)unlink(file);
    free(file);
  }
  if (d) closedir(d);
  (void)rmdir(path);
}

static bool digits(const char **s) {
  const size_t n = strspn(*s, "0123456789");
  *s += n;
  return n > 0;
}

/* "checkpoint-<step>.tmp-<pid>" of a process that is gone, or of an earlier save of this one. */
static bool is_stale(const char *name) {
  if (strncmp(name, "checkpoint-", 11) != 0) return false;
  name += 11;
  if (!digits(&name) || strncmp(name, ".tmp-", 5) != 0) return false;
  name += 5;
  const char *pid = name;
  if (!digits(&name) || *name) return false;
  const long owner = strtol(pid, NULL, 10);
  return owner == (long)getpid() || (owner > 0 && owner < 1L << 31 && kill((pid_t)owner, 0) != 0 && errno == ESRCH);
}

static void remove_stale(const char *run) {
  DIR *d = opendir(run);
  for (struct dirent *e; d && (e = readdir(d));) {
    char *path = is_stale(e->d_name) ? checkpoint_path(run, e->d_name) : NULL;
    if (path) remove_folder(path);
    free(path);
  }
  if (d) closedir(d);
}

static taper_status sync_folder(const char *path, taper_error *error) {
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES ? TAPER_OK : folder_error(path, "open", error);
  const bool failed = fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP;
  taper_status status = failed ? folder_error(path, "sync", error) : TAPER_OK;
  close(fd);
  return status;
}

/* A checkpoint of that step that is there already changes places with the new one, in one step of the file system. */
static taper_status put_in_place(const char *temporary, const char *final, taper_error *error) {
  if (rename(temporary, final) == 0) return TAPER_OK;
  if (errno != EEXIST && errno != ENOTEMPTY) return folder_error(final, "create", error);
  if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) < 0)
    return folder_error(final, "replace", error);
  remove_folder(temporary);
  return TAPER_OK;
}

static taper_status write_all(const taper_trainer *t, const char *folder, const char *extra, taper_error *error) {
  TAPER_TRY(write_weights(t, folder, error));
  TAPER_TRY(write_optimizer(t, folder, error));
  for (size_t i = 0; i < t->file_count; i++)
    TAPER_TRY(write_file(folder, t->files[i].name, t->files[i].data, t->files[i].size, error));
  return write_manifest(t, folder, extra, error);
}

static taper_status save(const taper_trainer *t, const char *run, const char *temporary, const char *final,
                         const char *extra, taper_error *error) {
  if (mkdir(temporary, 0777) < 0) return folder_error(temporary, "create", error);
  taper_status status = write_all(t, temporary, extra, error);
  if (status == TAPER_OK) status = sync_folder(temporary, error);
  if (status == TAPER_OK) status = put_in_place(temporary, final, error);
  if (status != TAPER_OK) remove_folder(temporary);
  return status == TAPER_OK ? sync_folder(run, error) : status;
}

static taper_status check_savable(const taper_trainer *t, taper_error *error) {
  for (int what = 0; what <= 2; what += 2) {
    const uint32_t bad = trainer_first_bad(t, what);
    if (bad == TAPER_ABI_NONE) continue;
    return TAPER_FAIL(
        error, TAPER_NUMERIC,
        "step %llu: %s '%.200s' holds a number that is not finite, so no checkpoint is written; go on from "
        "the last one",
        (unsigned long long)t->state.step, what ? "a moment of" : "the parameter", t->t->params[bad].tensor);
  }
  return TAPER_OK;
}

taper_status taper_trainer_save(taper_trainer *t, const char *run, const char *extra, taper_error *error) {
  if (!t || !run || !*run)
    return TAPER_FAIL(error, TAPER_INVALID, "taper_trainer_save: an argument is NULL; give the trainer and a folder");
  TAPER_TRY(check_savable(t, error));
  if (mkdir(run, 0777) < 0 && errno != EEXIST) return folder_error(run, "create", error);
  remove_stale(run);
  text name = {0}, other = {0};
  text_printf(&name, "checkpoint-%llu", (unsigned long long)t->state.step);
  text_printf(&other, "checkpoint-%llu.tmp-%ld", (unsigned long long)t->state.step, (long)getpid());
  char *final = name.data ? checkpoint_path(run, name.data) : NULL;
  char *temporary = other.data ? checkpoint_path(run, other.data) : NULL;
  taper_status status = final && temporary ? save(t, run, temporary, final, extra, error)
                                           : TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory for a path", run);
  free(final), free(temporary);
  text_free(&name), text_free(&other);
  return status;
}

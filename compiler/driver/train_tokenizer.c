/* A SentencePiece tokenizer learned from the training data, by spm_train as a child. */
#include "compiler/driver/train_tokenizer.h"
#include "runtime/base/hash.h"
#include "runtime/base/leftover.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LOG_LIMIT = 1 << 20, LEAST_PIECES = 300, KEY_DIGITS = 16 };

/* Everything that decides what comes out, but for the texts and the number of pieces. Bytes that no piece has are byte
   pieces, spaces stay as they are: what is encoded decodes to itself. One thread: sums in one order. */
static const char *const settings[] = {"--model_type=bpe",
                                       "--normalization_rule_name=identity",
                                       "--byte_fallback=true",
                                       "--remove_extra_whitespaces=false",
                                       "--allow_whitespace_only_pieces=true",
                                       "--max_sentence_length=16777216",
                                       "--num_threads=1",
                                       "--minloglevel=1"};
enum { SETTINGS = sizeof settings / sizeof *settings };

typedef struct learning {
  const char *const *files;
  size_t count;
  uint32_t vocab;
  const char *folder; /* of its own, temporary */
  unsigned leftover;
  arena memory;
  taper_error *error;
} learning;

static const char *in_folder(learning *l, const char *name) {
  return arena_printf(&l->memory, "%s/%s", l->folder, name);
}

/* Names that spm_train would take apart (it separates files by commas) are never given to it. */
static taper_status link_inputs(learning *l, const char **out_list) {
  *out_list = "--input=";
  for (size_t i = 0; i < l->count; i++) {
    char *whole = realpath(l->files[i], NULL);
    const char *name = arena_printf(&l->memory, "text%zu", i);
    bool ok = whole && symlink(whole, in_folder(l, name)) == 0;
    int number = errno;
    free(whole);
    if (!ok)
      return TAPER_FAIL(l->error, TAPER_DEVICE, "%s: cannot be given to spm_train: %s; check the path and TMPDIR",
                        l->files[i], file_error_text(number));
    *out_list = arena_printf(&l->memory, "%s%s%s", *out_list, i ? "," : "", name);
  }
  return TAPER_OK;
}

static int spawn(const learning *l, char *const *argv, pid_t *out_pid) {
  posix_spawn_file_actions_t files;
  int e = posix_spawn_file_actions_init(&files);
  if (e) return e;
  e = posix_spawn_file_actions_addchdir_np(&files, l->folder);
  if (!e) e = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  if (!e) e = posix_spawn_file_actions_addopen(&files, 1, "log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (!e) e = posix_spawn_file_actions_adddup2(&files, 1, 2);
  if (!e) e = posix_spawnp(out_pid, argv[0], &files, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  return e;
}

/* The last line that spm_train wrote. */
static const char *last_words(learning *l) {
  char *data = NULL;
  size_t size = 0;
  if (file_read(in_folder(l, "log"), LOG_LIMIT, &data, &size, NULL) != TAPER_OK) return "it said nothing";
  while (size && (data[size - 1] == '\n' || data[size - 1] == '\r')) data[--size] = 0;
  const char *line = strrchr(data, '\n');
  line = arena_strdup(&l->memory, size ? (line ? line + 1 : data) : "it said nothing");
  free(data);
  return line;
}

static taper_status run_trainer(learning *l) {
  const char *list, *argv[SETTINGS + 5] = {"spm_train"};
  TAPER_TRY(link_inputs(l, &list));
  size_t n = 1;
  argv[n++] = list;
  argv[n++] = "--model_prefix=made";
  argv[n++] = arena_printf(&l->memory, "--vocab_size=%u", l->vocab);
  for (size_t i = 0; i < SETTINGS; i++) argv[n++] = settings[i];
  pid_t pid;
  int status = 0;
  char *const *args; /* posix_spawn does not write to them */
  const char *const *given = argv;
  memcpy(&args, &given, sizeof args);
  int e = spawn(l, args, &pid);
  if (e == ENOENT || e == EACCES)
    return TAPER_FAIL(l->error, TAPER_DEVICE,
                      "cannot run 'spm_train': %s; install the package sentencepiece (apt install sentencepiece), or "
                      "put a " TOKENIZER_FILE " beside the model's source",
                      file_error_text(e));
  if (e)
    return TAPER_FAIL(l->error, TAPER_DEVICE, "cannot start 'spm_train': %s; free some memory", file_error_text(e));
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return TAPER_FAIL(l->error, TAPER_DEVICE, "lost 'spm_train': %s; try again", file_error_text(errno));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return TAPER_OK;
  return TAPER_FAIL(l->error, TAPER_INVALID,
                    "%s: spm_train made no tokenizer of %u pieces of it: %s; give more text or a smaller vocab",
                    l->files[0], l->vocab, last_words(l));
}

static void remove_folder(learning *l) {
  static const char *const made[] = {"log", "made.model", "made.vocab"};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) unlink(in_folder(l, made[i]));
  for (size_t i = 0; i < l->count; i++) unlink(in_folder(l, arena_printf(&l->memory, "text%zu", i)));
  rmdir(l->folder);
  leftover_drop(&l->leftover);
}

/* Beside the first text, so that the next run need not learn again; no failure where that cannot be. */
static void keep(const model_loaded *m, const char *path, diag_sink *sink) {
  file_writer w = {.fd = -1};
  taper_error why = {0};
  taper_status status = file_writer_open(path, &w, &why);
  if (status == TAPER_OK) status = file_writer_put(&w, m->tokenizer_file.data, m->tokenizer_file.size, &why);
  if (status == TAPER_OK)
    status = file_writer_commit(&w, &why);
  else
    file_writer_abort(&w);
  diag_loc at = {.file = diag_intern(sink, path)};
  if (status == TAPER_OK)
    diag_remark(sink, "model", false, at, "the tokenizer is kept in it");
  else
    diag_remark(sink, "model", true, at, "the tokenizer is not kept: %s", why.message);
}

static taper_status learn(learning *l, model_loaded *m) {
  TAPER_TRY(leftover_folder(&l->memory, &l->folder, &l->leftover, l->error));
  taper_status status = run_trainer(l);
  if (status == TAPER_OK) status = model_set_tokenizer(m, in_folder(l, "made.model"), l->error);
  remove_folder(l); /* what is mapped stays */
  return status;
}

/* The name goes by everything that decides what the tokenizer is. */
static taper_status kept_path(learning *l, const char **out) {
  hash_stream *h = hash_begin();
  taper_status status = h ? TAPER_OK : TAPER_FAIL(l->error, TAPER_NOMEM, "no memory for a hash; free some");
  for (size_t i = 0; i < l->count && status == TAPER_OK; i++) {
    mapped_file map = {0};
    status = file_map(l->files[i], &map, l->error);
    if (status == TAPER_OK) hash_update(h, hash_bytes(map.data, map.size).hex, 32);
    file_unmap(&map);
  }
  for (size_t i = 0; h && i < SETTINGS; i++) hash_update(h, settings[i], strlen(settings[i]));
  if (h) hash_update(h, &l->vocab, sizeof l->vocab);
  hash128 key = h ? hash_end(h) : (hash128){0};
  *out = arena_printf(&l->memory, "%s.%.*s.model", l->files[0], KEY_DIGITS, key.hex);
  return status;
}

static taper_status find_or_learn(learning *l, model_loaded *m, diag_sink *sink) {
  const char *path;
  if (l->vocab < LEAST_PIECES)
    return TAPER_FAIL(l->error, TAPER_INVALID,
                      "a SentencePiece tokenizer of %u pieces cannot be learned: 256 bytes and 3 control pieces are "
                      "among them; give at least %d",
                      l->vocab, LEAST_PIECES);
  TAPER_TRY(kept_path(l, &path));
  if (access(path, F_OK) == 0) {
    taper_error why = {0};
    if (model_set_tokenizer(m, path, &why) == TAPER_OK) {
      diag_remark(sink, "model", false, (diag_loc){.file = diag_intern(sink, path)}, "the kept tokenizer is used");
      return TAPER_OK;
    }
    diag_remark(sink, "model", true, (diag_loc){.file = diag_intern(sink, path)}, "made anew: %s", why.message);
  }
  TAPER_TRY(learn(l, m));
  keep(m, path, sink);
  return TAPER_OK;
}

taper_status train_tokenizer(model_loaded *m, const char *const *files, size_t count, diag_sink *sink,
                             taper_error *error) {
  double vocab = 0;
  ir_module_param(m->module, "vocab", &vocab);
  learning l = {.vocab = (uint32_t)vocab, .error = error};
  const char **texts = ARENA_ARRAY(&l.memory, const char *, count + 1);
  for (size_t i = 0; i < count; i++)
    if (corpus_is_text(files[i])) texts[l.count++] = files[i];
  l.files = texts;
  taper_status status =
      l.count ? find_or_learn(&l, m, sink)
              : TAPER_FAIL(error, TAPER_INVALID,
                           "%s: a SentencePiece tokenizer is learned from text, and the data holds ids only; put the "
                           "one that made them beside the model's source as " TOKENIZER_FILE,
                           count ? files[0] : "no data");
  arena_free(&l.memory);
  return status;
}

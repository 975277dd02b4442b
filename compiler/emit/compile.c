/* compile.c - source to image by the C compiler of the system, in a private folder. */
#include "compiler/emit/emit_priv.h"
#include "runtime/base/file.h"
#include "runtime/base/leftover.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OUTPUT_LIMIT ((size_t)256 << 20)

typedef struct job {
  const emit_options *o;
  arena mem;
  const char *folder;
  unsigned leftover;
  bool temporary; /* the folder is ours */
  bool keep;      /* the source outlives a failure of the compiler */
  const char *cc, *source, *output, *log, *macros;
  char *macro_text;
} job;

static taper_status open_folder(job *j, taper_error *error) {
  if (j->o->save_temps) {
    j->folder = arena_strdup(&j->mem, j->o->save_temps);
    if (mkdir(j->folder, 0777) && errno != EEXIST)
      return TAPER_FAIL(error, TAPER_IO, "%s: cannot create the folder: %s", j->folder, strerror(errno));
  } else {
    TAPER_TRY(leftover_folder(&j->mem, &j->folder, &j->leftover, error));
    j->temporary = true;
  }
  j->source = arena_printf(&j->mem, "%s/image-%s.c", j->folder, j->o->arch);
  j->output = arena_printf(&j->mem, "%s/image-%s.out", j->folder, j->o->arch);
  j->log = arena_printf(&j->mem, "%s/image-%s.log", j->folder, j->o->arch);
  j->macros = arena_printf(&j->mem, "%s/image-%s.macros", j->folder, j->o->arch);
  return TAPER_OK;
}

static void close_folder(job *j) {
  if (j->temporary && j->output) {
    unlink(j->output), unlink(j->log), unlink(j->macros);
    if (!j->keep) unlink(j->source), rmdir(j->folder);
  } else if (j->macros) {
    unlink(j->macros);
  }
  leftover_drop(&j->leftover);
  free(j->macro_text);
  arena_free(&j->mem);
}

static taper_status write_source(const job *j, const char *source, size_t size, taper_error *error) {
  file_writer w = {0};
  TAPER_TRY(file_writer_open(j->source, &w, error));
  taper_status s = file_writer_put(&w, source, size, error);
  if (s == TAPER_OK) return file_writer_commit(&w, error);
  file_writer_abort(&w);
  return s;
}

/* Was it ended from outside, as we may be too? As a shell tells it. */
static bool was_interrupted(int code) { return code == 128 + SIGINT || code == 128 + SIGTERM || code == 128 + SIGHUP; }

/* The first lines of what the compiler said, on one line. */
static taper_status compiler_failed(job *j, int code, taper_error *error) {
  char *log = NULL;
  size_t size = 0;
  if (was_interrupted(code))
    return TAPER_FAIL(error, TAPER_IO, "the C compiler '%s' was ended by signal %d; compile again", j->cc, code - 128);
  if (file_read(j->log, OUTPUT_LIMIT, &log, &size, NULL) != TAPER_OK) size = 0;
  if (size > 500) size = 500;
  for (size_t i = 0; i < size; i++)
    if (log[i] == '\n') log[i] = i + 1 < size ? '|' : ' ';
  taper_fail(error, TAPER_IO, "%s: the C compiler '%s' ended with status %d%s%.*s; the source is kept, give --cc",
             j->source, j->cc, code, size ? ": " : "", (int)size, size ? log : "");
  free(log);
  j->keep = true;
  return TAPER_IO;
}

static bool is_clang(const job *j) { return j->macro_text && strstr(j->macro_text, "#define __clang__ "); }

/* gcc of another machine is another program; clang takes the machine as an option. */
static size_t begin_args(job *j, const char **argv) {
  const char *triple = j->o->target_triple, *base = strrchr(j->cc, '/');
  bool clang = strstr(base ? base : j->cc, "clang") != NULL;
  size_t n = 0;
  argv[n++] = triple && !clang ? arena_printf(&j->mem, "%s-%s", triple, j->cc) : j->cc;
  if (triple && clang) argv[n++] = arena_printf(&j->mem, "--target=%s", triple);
  argv[n++] = arena_printf(&j->mem, "-march=%s", j->o->arch);
  return n;
}

static taper_status read_macros(job *j, taper_error *error) {
  const char *argv[12];
  size_t n = begin_args(j, argv), size;
  int code;
  argv[n++] = "-dM", argv[n++] = "-E", argv[n++] = "-x", argv[n++] = "c", argv[n++] = "/dev/null", argv[n] = NULL;
  TAPER_TRY(emit_run(argv, j->macros, j->log, &code, error));
  if (code) return compiler_failed(j, code, error);
  return file_read(j->macros, OUTPUT_LIMIT, &j->macro_text, &size, error);
}

static char *features_of(const job *j) {
  static const struct {
    const char *word, *macro;
  } features[] = {
#define CPUF(word, macro) {word, macro},
#include "runtime/abi/cpu_features.def"
#undef CPUF
  };
  text out = {0}, line = {0};
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    line.size = 0;
    text_printf(&line, "#define %s ", features[i].macro);
    if (line.data && strstr(j->macro_text, line.data)) text_printf(&out, "%s%s", out.size ? "," : "", features[i].word);
  }
  text_free(&line);
  if (!out.failed && !out.data) return strdup("");
  return out.failed ? NULL : out.data;
}

static taper_status run_compiler(job *j, bool want_asm, taper_error *error) {
  static const char *const common[] = {"-std=gnu11",
                                       "-O3",
                                       "-ffreestanding",
                                       "-fno-builtin",
                                       "-fno-stack-protector",
                                       "-fno-math-errno",
                                       "-fno-trapping-math",
                                       "-ffp-contract=fast",
                                       "-fopenmp-simd",
                                       "-fno-asynchronous-unwind-tables",
                                       "-fvisibility=hidden",
                                       "-fPIC",
                                       "-w"};
  static const char *const link[] = {"-shared", "-nostdlib", "-Wl,-z,defs", "-Wl,--build-id=none", "-s"};
  const char *argv[48];
  size_t n = begin_args(j, argv);
  int code;
  for (size_t i = 0; i < sizeof common / sizeof *common; i++) argv[n++] = common[i];
  if (!is_clang(j)) argv[n++] = "-fno-tree-loop-distribute-patterns"; /* else loops become calls of memset and memcpy */
  for (size_t i = 0; i < sizeof link / sizeof *link && !want_asm; i++) argv[n++] = link[i];
  if (want_asm) argv[n++] = "-S";
  argv[n++] = "-o", argv[n++] = j->output, argv[n++] = j->source, argv[n] = NULL;
  TAPER_TRY(emit_run(argv, "/dev/null", j->log, &code, error));
  return code ? compiler_failed(j, code, error) : TAPER_OK;
}

static taper_status compile(job *j, const char *source, size_t size, bool want_asm, void **out_image, size_t *out_size,
                            char **out_features, taper_error *error) {
  TAPER_TRY(open_folder(j, error));
  TAPER_TRY(write_source(j, source, size, error));
  TAPER_TRY(read_macros(j, error));
  taper_status s = run_compiler(j, want_asm, error);
  if (s != TAPER_OK) return s;
  char *image = NULL;
  TAPER_TRY(file_read(j->output, OUTPUT_LIMIT, &image, out_size, error));
  s = want_asm ? TAPER_OK : emit_check_image(image, *out_size, error);
  char *features = s == TAPER_OK ? features_of(j) : NULL;
  if (s == TAPER_OK && !features) s = TAPER_FAIL(error, TAPER_NOMEM, "no memory for the list of CPU features");
  if (s != TAPER_OK) {
    free(image);
    return s;
  }
  *out_image = image;
  if (out_features)
    *out_features = features;
  else
    free(features);
  return TAPER_OK;
}

taper_status emit_compile(const char *source, size_t size, const emit_options *options, bool want_asm, void **out_image,
                          size_t *out_size, char **out_features, taper_error *error) {
  job j = {.o = options, .cc = options->cc ? options->cc : "gcc"};
  taper_status s = compile(&j, source, size, want_asm, out_image, out_size, out_features, error);
  close_folder(&j);
  return s;
}

/* build.h - module -> plan -> source -> images -> package. */
#ifndef TAPERC_DRIVER_BUILD_H
#define TAPERC_DRIVER_BUILD_H

#include "compiler/driver/model.h"
#include "compiler/driver/pipeline.h"

#define BUILD_MAX_ARCHS 3

typedef struct build_options {
  pass_options pass;
  const char *cc;                     /* NULL: gcc */
  const char *target_triple;          /* NULL: this machine */
  const char *archs[BUILD_MAX_ARCHS]; /* images wanted: words of build_arch_names */
  size_t arch_count;                  /* 0: the one that this machine runs best */
  const char *save_temps;             /* folder, or NULL */
  bool no_cache;
} build_options;

/* "native", "x86-64-v4", "x86-64-v3": best first. */
extern const char *const build_arch_names[BUILD_MAX_ARCHS];
/* Whether this machine's CPU runs images of an arch ("native": always). */
bool build_arch_runs(const char *arch);

typedef struct build_result {
  size_t images, cached; /* how many images there are, how many came from the cache */
  uint64_t bytes;        /* of the package */
  size_t tensors;
  char model_hash[33];
  double seconds_passes, seconds_compiler;
} build_result;

/* Runs the default pipeline over the model's module and plans it. The source text of the image: `out`. */
taper_status build_lower(model *m, const build_options *options, diag_sink *sink, plan **out, taper_error *error);
taper_status build_source(const model *m, const plan *p, text *out, char out_hash[33], diag_sink *sink, taper_error *error);
/* The assembler text of the first arch. */
taper_status build_asm(const model *m, const plan *p, const build_options *options, text *out, diag_sink *sink, taper_error *error);
/* Passes, plan, source, images, and the package at `path`. The model's weights must be bound. */
taper_status build_package(model *m, const build_options *options, const char *path, diag_sink *sink, build_result *out, taper_error *error);

/* What a command that computes works with: a package of the user's, or a private one that is compiled in passing and removed at once. */
typedef struct build_opened {
  taper_model *model;
  model source;          /* kind, name, tokenizer; module NULL for a package */
  build_result built;    /* zeroed for a package */
  char model_hash[33];
  const char *gates, *options; /* metadata of the package; owned by it */
  double load_seconds;
  st_file package;
} build_opened;

taper_status build_open(const char *path, const model_options *model_opts, const build_options *options, const taper_model_options *runtime, diag_sink *sink,
                        build_opened *out, taper_error *error);
void build_close(build_opened *b);
/* Opens the runtime model anew with other options: load time and thread counts for `bench`. */
taper_status build_reopen(build_opened *b, const taper_model_options *runtime, taper_error *error);

/* The compiler that makes the images: `name --version`'s first line, or an error. `out` from the arena. */
taper_status build_compiler_version(const char *cc, arena *a, const char **out, taper_error *error);

#endif

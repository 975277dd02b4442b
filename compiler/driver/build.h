/* build.h - module -> plan -> source -> images -> package. */
#ifndef TAPERC_DRIVER_BUILD_H
#define TAPERC_DRIVER_BUILD_H

#include "compiler/driver/model.h"
#include "compiler/driver/pipeline.h"
#include "compiler/driver/private_file.h"
#include "runtime/text/tokenizer.h"

#define BUILD_CPU_ARCHS 3
#define BUILD_MAX_ARCHS 16 /* of one build */

typedef struct build_options {
  pass_options pass;
  const char *cc;                     /* NULL: gcc */
  const char *target;                 /* "cuda"; NULL: "cpu" */
  const char *target_triple;          /* NULL: this machine */
  const char *archs[BUILD_MAX_ARCHS]; /* images wanted, each once: words of build_arch_names, or sm_NN and compute_NN */
  size_t arch_count;                  /* 0: the one that this machine runs best; of target cuda the usual ones */
  const char *save_temps;             /* folder, or NULL */
  bool no_cache;
} build_options;

/* "native", "x86-64-v4", "x86-64-v3": best first. */
extern const char *const build_arch_names[BUILD_CPU_ARCHS];
/* Whether this machine's CPU runs images of an arch. */
bool build_arch_runs(const char *arch);
/* Is it an image of target cuda: sm_NN (a cubin) or compute_NN (PTX), from 80 on? */
bool build_cuda_arch(const char *word, unsigned *out_number, bool *out_ptx);

typedef struct build_result {
  size_t images, cached; /* how many there are, how many of them came from the cache */
  uint64_t bytes;        /* of the package */
  size_t tensors;
  char model_hash[33];
  char archs[256]; /* of the images that decode: "sm_90,compute_90" */
} build_result;

/* Of --clamp-rows: which rows were used, by the weights where they say so; else what *pass says already (the ids of the
   command's own data) stays. */
void build_used_rows(const model_loaded *m, pass_options *pass);
/* Runs the default pipeline over the model's module. */
taper_status build_passes(model_loaded *m, const build_options *options, diag_sink *sink, taper_error *error);
/* The same, and plans the module. */
taper_status build_lower(model_loaded *m, const build_options *options, diag_sink *sink, plan **out,
                         taper_error *error);
/* The source text of the image, and the hash of module and weights that it carries; of a plan for target cuda the launch
   table too. */
taper_status build_source(const model_loaded *m, const plan *p, text *out, text *out_launch, char out_hash[33],
                          diag_sink *sink, taper_error *error);
/* The assembler text of the first arch, from malloc. */
taper_status build_asm(const text *source, const build_options *options, char **out, size_t *out_size,
                       taper_error *error);
/* Of target cuda: the PTX text for the first arch (compute_90 by default), from malloc. */
taper_status build_ptx(const text *source, const build_options *options, diag_sink *sink, char **out, size_t *out_size,
                       taper_error *error);
/* Passes, plan, source, images, and the package at `path`. The model's weights must be bound. */
taper_status build_package(model_loaded *m, const build_options *options, const char *path, diag_sink *sink,
                           build_result *out, taper_error *error);

/* The image that a GPU of this capability (90: 9.0) runs best of those that NVRTC makes: its own, or PTX. Owned by `a`.
   TAPER_DEVICE: no NVRTC. */
taper_status build_cuda_for(unsigned capability, arena *a, const char **out_arch, taper_error *error);

/* One image, compiled or from the cache (a note with -v where the cache cannot be used). */
typedef struct build_image {
  const char *arch;
  void *data; /* from malloc, as the features are */
  size_t size;
  char *features; /* comma-separated words of runtime/abi/cpu_features.def; of target cuda who made it: "NVRTC 13.0" */
  bool cached;
} build_image;
/* `compiler`: build_compiler_version's. */
taper_status build_images(const text *source, const build_options *options, const char *compiler, diag_sink *sink,
                          build_image out[BUILD_MAX_ARCHS], size_t *out_count, taper_error *error);
void build_images_free(build_image *images, size_t count);

/* What a command that computes works with: a package of the user's, or a private one that is compiled in passing and
 * gone when the process ends. */
typedef struct build_opened {
  taper_model *model;
  model_loaded source; /* module NULL for a package */
  build_result built;  /* zeroed for a package */
  char model_hash[33];
  const char *gates, *options; /* metadata of the package */
  tokenizer tokenizer;         /* the package's */
  const char *path;            /* what the runtime opens */
  st_file package;
  private_file file; /* of a private package */
  bool writing;      /* after a failure: it was in writing the private package */
  arena memory;
} build_opened;

/* build_close is legal after a failure. */
taper_status build_open(const model_place *place, const model_options *model_opts, const build_options *options,
                        const taper_model_options *runtime, diag_sink *sink, build_opened *out, taper_error *error);
/* Opens the runtime model anew: load times, thread counts. */
taper_status build_reopen(build_opened *b, const taper_model_options *runtime, taper_error *error);
void build_close(build_opened *b);

/* First line of `CC --version`, from the arena. TAPER_DEVICE where it cannot be run. */
taper_status build_compiler_version(const char *cc, arena *a, const char **out, taper_error *error);

#endif

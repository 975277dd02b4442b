/* package.h - a .tpack file, opened and checked field by field. docs/package-format.md */
#ifndef TAPER_PACKAGE_H
#define TAPER_PACKAGE_H

#include "runtime/base/hash.h"
#include "runtime/base/safetensors.h"
#include "runtime/memory.h"
#include "runtime/pool.h"
#include "runtime/text/tokenizer.h"

#define PACKAGE_MAX_IMAGES 64u

typedef enum package_use { PACKAGE_DECODE, PACKAGE_TRAIN } package_use;
typedef enum package_target { PACKAGE_CPU, PACKAGE_CUDA } package_target;

typedef struct package_image {
  char name[64];
  const char *features; /* comma-separated, as the package says; of CUDA: what compiled it */
  package_use use;
  const st_tensor *object; /* the ELF shared object; of CUDA: the cubin or PTX */
} package_image;

typedef struct package {
  st_file file;
  taper_allocator allocator;
  const char *path, *name, *model; /* in `file` */
  package_target target;
  tokenizer_kind tokenizer;
  uint32_t vocab, context;
  int32_t end_token;                        /* -1: none */
  double scale_median, scale_high;          /* `taper.scale`: of s(h) before the head; 0: the package does not say */
  bool scale_std;                           /* s(h) is a standard deviation, else a root mean square */
  package_image images[PACKAGE_MAX_IMAGES]; /* best first: those that decode, then those that train */
  uint32_t image_count;                     /* of both */
  const st_tensor *recipe;                  /* the text `taper.recipe`; NULL: none */
  hash128 *hashes;                          /* of file.tensors[i]; empty for padding */
} package;

/* Opens the file and checks its metadata and tensor list; no byte of the tensors is read. Zero *out first; on failure
   nothing is held. Messages begin with the path. Keys that this version does not know are told to `log` (may be NULL).
 */
taper_status package_open(const char *path, const taper_allocator *allocator, taper_log_fn log, void *log_user,
                          package *out, taper_error *error);
void package_close(package *p);
/* The tokenizer of the package, its file read and compared with its hash; it must have the model's vocabulary. */
taper_status package_open_tokenizer(const package *p, tokenizer *out, taper_error *error);
/* Compares every tensor's bytes with its hash, the pool's workers side by side (the caller holds its lock). Read pages
 * are given back. */
taper_status package_verify(const package *p, pool *workers, taper_error *error);
/* "cpu", "cuda". */
const char *package_target_name(package_target target);
/* The image for `use` of that name, or the best this CPU runs (name NULL), of a package for the target cpu. TAPER_UNSUPPORTED names the features that are
   missing, or says that the package was compiled for another use. */
taper_status package_choose_image(const package *p, package_use use, const char *name, const package_image **out,
                                  taper_error *error);
/* Whether a tensor is one of the model that decodes, none of the package's own or of training (`taper.` and `__pad.`). */
bool package_is_weight(const char *tensor);
/* Whether this CPU has a feature named by a word of runtime/abi/cpu_features.def; an unknown word is a feature it has
 * not. */
bool package_cpu_has(const char *word);
/* Gives the pages of bytes [first, first + bytes) of the mapping back; they are read again when touched. */
void package_release_pages(const package *p, uint64_t first, uint64_t bytes);

#endif

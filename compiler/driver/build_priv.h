/* build_priv.h - the decoding part of a package, for those that put packages together. */
#ifndef TAPERC_DRIVER_BUILD_PRIV_H
#define TAPERC_DRIVER_BUILD_PRIV_H

#include "compiler/driver/parts.h"

/* What the parts point to until the package is written. Zeroed: empty. */
typedef struct decode_part {
  plan *plan;
  text source, launch, ir, plan_text, options;
  build_image images[BUILD_MAX_ARCHS];
  size_t image_count;
} decode_part;

/* Passes, plan, source, images of a loaded model with bound weights: its tensors, images and texts go into k; `compiler`
   is build_compiler_version's. Fills out->model_hash, images, cached, tensors. */
taper_status build_decode_part(package_parts *k, model_loaded *m, const build_options *options, const char *compiler,
                               diag_sink *sink, decode_part *part, build_result *out, taper_error *error);
bool build_is_cuda(const plan *p);
void build_decode_free(decode_part *part);

/* Of target cuda: finds NVRTC (TAPER_DEVICE: there is none) and settles which images are made: those of o->archs with the
   PTX that goes with them, or of none the usual ones that it knows. */
taper_status build_cuda_begin(build_options *o, diag_sink *sink, arena *a, const char **out_compiler,
                              taper_error *error);
/* build_images of target cuda, for archs that build_cuda_begin settled. TAPER_INTERNAL: NVRTC refuses the source. */
taper_status build_cuda_images(const text *source, const build_options *o, const char *compiler, diag_sink *sink,
                               build_image out[BUILD_MAX_ARCHS], size_t *out_count, taper_error *error);
/* Warns once. */
void build_not_cached(diag_sink *sink, const char *folder, const char *reason);

/* May images be cached? *out_folder is for cache_get and cache_put (compiler/driver/cache.h); NULL where there is no
   folder to be had, which is warned of once: images stay in memory then. */
bool build_cache(const build_options *o, diag_sink *sink, arena *a, const char **out_folder);

#endif

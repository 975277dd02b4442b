/* seal.h - one hash over a package's texts that nothing else checks: `taper.seal` (docs/package-format.md). */
#ifndef TAPER_BASE_SEAL_H
#define TAPER_BASE_SEAL_H

#include "runtime/base/hash.h"
#include "runtime/base/safetensors.h"

/* Over "KEY=VALUE\n" of the sealed keys that are there, in the order of a fixed list, whatever order the pairs have. */
hash128 seal_of(const st_pair *pairs, size_t count);

#endif

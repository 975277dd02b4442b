/* seal.c - what must be known or matches by itself (versions, features, machine, hashes) is not sealed, so that each keeps an error of its own. */
#include "runtime/base/seal.h"
#include "runtime/base/text.h"
#include <string.h>

hash128 seal_of(const st_pair *pairs, size_t count) {
  static const char *const sealed[] = {"taper.name",      "taper.model",   "taper.gates",    "taper.params",
                                       "taper.tokenizer", "taper.options", "taper.versions", "taper.end_token",
                                       "taper.for",       "taper.train",   "taper.scale"};
  text t = {0};
  for (size_t k = 0; k < sizeof sealed / sizeof *sealed; k++)
    for (size_t i = 0; i < count; i++)
      if (strcmp(pairs[i].key, sealed[k]) == 0) text_printf(&t, "%s=%s\n", sealed[k], pairs[i].value);
  hash128 h = hash_bytes(t.data ? t.data : "", t.size);
  text_free(&t);
  return h;
}

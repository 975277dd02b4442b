/* Any text as the metadata key taper.gates: refused, or numbers in [0, 1]. */
#include "compiler/formats/weights_priv.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct weight_private priv = {0};
  weight_set set = {.priv = &priv};
  char *json = calloc(1, size + 1);
  if (!json) return 0;
  if (size) memcpy(json, data, size);
  if (weight_gates_read("input", json, &set, NULL) == TAPER_OK)
    for (size_t i = 0; i < set.gate_count; i++)
      for (size_t k = 0; k < set.gates[i].count; k++)
        if (!(set.gates[i].values[k] >= 0 && set.gates[i].values[k] <= 1)) abort();
  arena_free(&priv.memory);
  free(json);
  return 0;
}

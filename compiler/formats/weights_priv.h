/* weights_priv.h - what the parts of weights.h share. */
#ifndef TAPERC_FORMATS_WEIGHTS_PRIV_H
#define TAPERC_FORMATS_WEIGHTS_PRIV_H

#include "compiler/formats/weights.h"
#include "runtime/base/arena.h"

struct weight_private {
  arena memory;
};

/* One line of an index: this tensor lies in that file of the same folder. */
typedef struct shard_entry {
  const char *tensor, *shard;
} shard_entry;

typedef struct shard_index {
  shard_entry *entries; /* sorted by tensor */
  size_t count;
  const char **shards; /* each name once, sorted */
  size_t shard_count;
} shard_index;

/* Reads and checks model.safetensors.index.json; every shard exists afterwards. */
taper_status shard_index_read(const char *path, arena *memory, shard_index *out, taper_error *error);
/* The text of `taper.gates` in `file` -> set->gates. */
taper_status weight_gates_read(const char *file, const char *json, weight_set *set, taper_error *error);
/* PATH with its last part replaced by `name`; `name` in the folder when is_folder. */
const char *weights_beside(arena *memory, const char *path, const char *name, bool is_folder);

#endif

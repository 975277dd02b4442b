/* What launches did, by kernel. */
#include "cuda/sim/driver_priv.h"
#include "runtime/base/text.h"
#include <stdlib.h>
#include <string.h>

static taper_sim_counters *rows; /* [row_count], 0: the total */
static unsigned row_count, row_cap;

static taper_sim_counters *row_of(const char *kernel) {
  for (unsigned i = 0; i < row_count; i++)
    if (strcmp(rows[i].kernel, kernel) == 0) return &rows[i];
  if (row_count == row_cap) {
    unsigned cap = row_cap ? 2 * row_cap : 64;
    taper_sim_counters *more = realloc(rows, cap * sizeof *rows);
    if (!more) return NULL;
    rows = more;
    row_cap = cap;
  }
  taper_sim_counters *row = &rows[row_count++];
  *row = (taper_sim_counters){0};
  text_format(row->kernel, sizeof row->kernel, "%s", kernel);
  return row;
}

void drv_count(const char *kernel, const sim_counters *counters) {
  const char *names[] = {"", kernel};
  for (int i = 0; i < 2; i++) {
    taper_sim_counters *row = row_of(names[i]);
    if (row) sim_counters_add(&row->count, counters);
  }
}

/* Locks; a failure is said by the next call of the driver. */
static void finish_work(const char *call) {
  if (drv_enter(call, 0) == CUDA_SUCCESS && drv.retained && !drv.broken) (void)drv_wait_all();
}

unsigned taper_sim_counters_read(taper_sim_counters *out, unsigned most) {
  finish_work(__func__);
  (void)row_of("");
  unsigned count = row_count;
  if (out && rows) memcpy(out, rows, (count < most ? count : most) * sizeof *rows);
  drv_leave(CUDA_SUCCESS);
  return count;
}

void taper_sim_counters_reset(void) {
  finish_work(__func__);
  for (const drv_block *b = drv.blocks; b; b = b->next) {
    sim_usage use;
    if (!b->host) (void)sim_memory_usage(drv.memory, b->address, true, &use);
  }
  row_count = 0;
  drv_leave(CUDA_SUCCESS);
}

void taper_sim_constants(sim_usage *out) {
  finish_work(__func__);
  sim_counters sum = {0};
  for (const drv_block *b = drv.blocks; b; b = b->next) {
    sim_counters one = {0};
    if (!b->host && sim_memory_usage(drv.memory, b->address, false, &one.global) && !one.global.store_bytes)
      sim_counters_add(&sum, &one);
  }
  *out = sum.global;
  drv_leave(CUDA_SUCCESS);
}

__attribute__((destructor)) static void forget(void) {
  free(rows);
  rows = NULL;
  row_count = row_cap = 0;
}

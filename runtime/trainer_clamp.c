/* Factors of looked-up rows, for evaluations without norms (tapernorm.md 9): min(1, K median / norm), the median over the
   rows that training read. They are a parameter of the image that only its program `eval` reads. */
#include "runtime/abi/abi.h"
#include "runtime/trainer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

taper_status trainer_bind_clamp(taper_trainer *t, double clamp_rows, taper_error *error) {
  const taper_train_image *im = t->t;
  t->clamp = TAPER_ABI_NONE;
  if (!isfinite(clamp_rows) || clamp_rows < 0)
    return TAPER_FAIL(error, TAPER_INVALID, "taper_trainer_options.clamp_rows is %g; give 0, or a number above it",
                      clamp_rows);
  const char *table = im->table == TAPER_ABI_NONE ? NULL : im->params[im->table].tensor;
  for (uint32_t i = 0; table && i < im->param_count; i++) {
    const taper_train_param *p = &im->params[i];
    const size_t n = strlen(table);
    const bool named = strncmp(p->tensor, table, n) == 0 && strcmp(p->tensor + n, ".clamp") == 0;
    if (named && !p->trained && t->elements[i] == im->params[im->table].dim[0]) t->clamp = i;
  }
  t->clamp_rows = clamp_rows;
  if (clamp_rows == 0 || t->clamp != TAPER_ABI_NONE) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                    "the package was not made for clamped rows; compile it so, or leave clamp_rows at 0");
}

static int by_value(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* The lower of the two middle ones of an even number; 0: no row was read, or there is no memory to sort them. */
static float median_read(const taper_trainer *t, const float *norms, uint64_t rows) {
  float *sorted = malloc((size_t)rows * sizeof(float));
  uint64_t n = 0;
  for (uint64_t v = 0; sorted && v < rows; v++)
    if (v < t->t->vocab && t->state.seen[v]) sorted[n++] = norms[v];
  if (n) qsort(sorted, (size_t)n, sizeof(float), by_value);
  const float median = n ? sorted[(n - 1) / 2] : 0;
  free(sorted);
  return median;
}

void trainer_set_clamp(taper_trainer *t, bool on) {
  if (t->clamp == TAPER_ABI_NONE) return;
  float *factor = t->param[t->clamp];
  const uint64_t rows = t->elements[t->clamp], width = t->elements[t->t->table] / rows;
  const float *row = t->param[t->t->table];
  for (uint64_t v = 0; v < rows; v++, row += width) {
    double square = 0;
    for (uint64_t i = 0; i < width; i++) square += (double)row[i] * (double)row[i];
    factor[v] = (float)sqrt(square);
  }
  const float limit = (float)t->clamp_rows * median_read(t, factor, rows);
  for (uint64_t v = 0; v < rows; v++)
    factor[v] = on && t->clamp_rows > 0 && limit > 0 && factor[v] > limit ? limit / factor[v] : 1;
}

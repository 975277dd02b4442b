#include "compiler/driver/words.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { LONGEST = 39 };

/* Optimal string alignment distance. */
static size_t distance(const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b), row[3][LONGEST + 1];
  if (n >= LONGEST || m >= LONGEST) return LONGEST;
  for (size_t j = 0; j <= m; j++) row[0][j] = j;
  for (size_t i = 1; i <= n; i++) {
    size_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
    now[0] = i;
    for (size_t j = 1; j <= m; j++) {
      size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
      if (last[j] + 1 < best) best = last[j] + 1;
      if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
      now[j] = best;
    }
  }
  return row[n % 3][m];
}

const char *words_nearest(const char *word, const char *const *words, size_t n) {
  const char *best = NULL;
  size_t least = strlen(word) / 3 + 1;
  if (least > 3) least = 3;
  for (size_t i = 0; i < n; i++) {
    size_t d = distance(word, words[i]);
    if (d < least || (d == least && !best)) best = words[i], least = d;
  }
  return best;
}

void words_put_number(text *out, double value) {
  if (value >= -1e15 && value <= 1e15 && trunc(value) == value && !(value == 0 && signbit(value)))
    text_printf(out, "%lld", (long long)value);
  else
    text_put_double(out, value);
}

void words_put_float(text *out, float value) {
  char word[32];
  double back = 0;
  for (int digits = 1; digits <= 9; digits++) {
    int n = text_format(word, sizeof word, "%.*g", digits, (double)value);
    if (!number_parse_double(word, (size_t)n, &back) || (float)back == value) break;
  }
  if (number_parse_double(word, strlen(word), &back)) words_put_number(out, back);
}

#include "compiler/driver/initial.h"
#include "runtime/base/hash.h"
#include "runtime/base/philox.h"
#include <math.h>
#include <string.h>

/* ln u for u in (0, 1): u = m 2^e with m in [1/sqrt 2, sqrt 2), ln m = 2 atanh((m - 1) / (m + 1)). The C library's
   functions differ from one version to the next. */
static double natural_log(double u) {
  int e;
  double m = frexp(u, &e); /* exact */
  if (m < 0.70710678118654752) m *= 2, e--;
  double s = (m - 1) / (m + 1), z = s * s, sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * z + 1.0 / k;
  return e * 0.69314718055994531 + 2 * s * sum;
}

/* cos and sin of 2 pi v, v in (0, 1): to the nearest quarter turn, then power series. */
static void turn(double v, double *out_cos, double *out_sin) {
  int quarter = (int)(v * 4 + 0.5);
  double t = (v - quarter * 0.25) * 6.28318530717958648, z = t * t, c = 0, s = 0;
  for (int k = 16; k >= 2; k -= 2) c = (1 - c) * z / (k * (k - 1)); /* 1 - c is the series from the inside out */
  for (int k = 17; k >= 3; k -= 2) s = (1 - s) * z / (k * (k - 1));
  c = 1 - c, s = t * (1 - s);
  const double cosines[] = {c, -s, -c, s}, sines[] = {s, c, -s, -c};
  *out_cos = cosines[quarter & 3], *out_sin = sines[quarter & 3];
}

static void normals(const uint32_t words[4], double out[4]) {
  for (int i = 0; i < 4; i += 2) {
    double radius = sqrt(-2 * natural_log(philox_uniform(words[i])));
    turn(philox_uniform(words[i + 1]), &out[i], &out[i + 1]);
    out[i] *= radius, out[i + 1] *= radius;
  }
}

static uint32_t name_key(const char *name) {
  hash128 h = hash_bytes(name, strlen(name));
  uint32_t key = 0;
  for (int i = 0; i < 8; i++) key = key << 4 | (uint32_t)(h.hex[i] <= '9' ? h.hex[i] - '0' : h.hex[i] - 'a' + 10);
  return key;
}

static void draw(bool normal, double size, uint64_t seed, const char *name, float *out, uint64_t n) {
  uint32_t key = name_key(name), words[4];
  double values[4];
  for (uint64_t i = 0; i < n; i += 4) {
    philox4x32(seed, PHILOX_INIT, key, (uint32_t)(i / 4 >> 32), (uint32_t)(i / 4), words);
    if (normal)
      normals(words, values);
    else
      for (int k = 0; k < 4; k++) values[k] = 2 * philox_uniform(words[k]) - 1;
    for (uint64_t k = 0; k < 4 && i + k < n; k++) out[i + k] = (float)(size * values[k]);
  }
}

bool initial_values(const char *init, uint64_t seed, const char *name, float *out, uint64_t n) {
  static const char *const calls[] = {"normal(", "uniform("};
  size_t length = strlen(init);
  double value = 0;
  for (int i = 0; i < 2; i++) {
    size_t skip = strlen(calls[i]);
    if (strncmp(init, calls[i], skip) != 0 || init[length - 1] != ')') continue;
    if (!number_parse_double(init + skip, length - skip - 1, &value)) return false;
    draw(i == 0, value, seed, name, out, n);
    return true;
  }
  bool ones = strcmp(init, "ones") == 0;
  if (!ones && strcmp(init, "zeros") != 0 && !number_parse_double(init, length, &value)) return false;
  for (uint64_t i = 0; i < n; i++) out[i] = ones ? 1.0f : (float)value;
  return true;
}

taper_status initial_bind(ir_module *m, uint64_t seed, taper_error *error) {
  for (ir_value v = ir_first(m, IR_GLOBALS); v.id; v = ir_next(m, v)) {
    if (!ir_is(m, v, IR_PARAM) || !ir_is_symbolic(m, v)) continue;
    const char *name = ir_name_of(m, v), *init = ir_attr_string(m, v, IR_ATTR_INIT, "zeros");
    int64_t n = ir_elements(ir_type_of(m, v));
    if (n < 1 || !name) return TAPER_FAIL(error, TAPER_INVALID, "param '%s' has no fixed size", name ? name : "?");
    float *data = n < INT64_MAX / 8 ? ir_payload_new(m, (size_t)n * sizeof *data) : NULL;
    if (!data)
      return TAPER_FAIL(error, TAPER_NOMEM, "no memory for tensor '%s' of %lld elements; free some", name,
                        (long long)n);
    if (!initial_values(init, seed, name, data, (uint64_t)n))
      return TAPER_FAIL(error, TAPER_INVALID, "tensor '%s': '%s' is no initial value that is known", name, init);
    ir_bind(m, v, data);
  }
  return TAPER_OK;
}

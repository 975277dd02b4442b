#include "runtime/base/checked.h"
#include "runtime/base/safetensors_priv.h"

#include <string.h>

static const struct {
  const char *name;
  uint8_t size;
  bool is_float;
} types[] = {
    [ST_BOOL] = {"BOOL", 1, false}, [ST_U8] = {"U8", 1, false},   [ST_I8] = {"I8", 1, false},
    [ST_I16] = {"I16", 2, false},   [ST_U16] = {"U16", 2, false}, [ST_F16] = {"F16", 2, true},
    [ST_BF16] = {"BF16", 2, true},  [ST_I32] = {"I32", 4, false}, [ST_U32] = {"U32", 4, false},
    [ST_F32] = {"F32", 4, true},    [ST_F64] = {"F64", 8, true},  [ST_I64] = {"I64", 8, false},
    [ST_U64] = {"U64", 8, false},
};

const char *st_dtype_name(st_dtype type) { return types[type].name; }
size_t st_dtype_size(st_dtype type) { return types[type].size; }
bool st_dtype_is_float(st_dtype type) { return types[type].is_float; }

bool st_dtype_parse(const char *name, st_dtype *out) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i].name, name) == 0) {
      *out = (st_dtype)i;
      return true;
    }
  return false;
}

bool st_sizes(st_dtype type, const uint64_t *shape, uint32_t rank, uint64_t *out_elements, uint64_t *out_bytes) {
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; i++)
    if (shape[i] == 0) return *out_elements = *out_bytes = 0, true;
  for (uint32_t i = 0; i < rank; i++)
    if (!checked_mul_u64(elements, shape[i], &elements)) return false;
  *out_elements = elements;
  return checked_mul_u64(elements, types[type].size, out_bytes);
}

static float f32_of_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3FFu, bits;
  if (exponent == 31) {
    bits = sign | 0x7F800000u | fraction << 13;
  } else if (exponent > 0) {
    bits = sign | (exponent + 112u) << 23 | fraction << 13;
  } else {
    float value = (float)fraction * 0x1p-24f;
    return sign ? -value : value;
  }
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

static float f32_of_bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

/* Data may be unaligned, so every element is copied out. EACH(T, expression of x) is one loop over elements of type T.
 */
#define EACH(T, expression)                                                                                            \
  for (uint64_t i = 0; i < n; i++) {                                                                                   \
    T x;                                                                                                               \
    memcpy(&x, p + i * sizeof(T), sizeof x);                                                                           \
    out[i] = (expression);                                                                                             \
  }                                                                                                                    \
  break

#define READ_AS(R)                                                                                                     \
  const uint8_t *p = t->data;                                                                                          \
  if (n == 0) return;                                                                                                  \
  p += first * types[t->dtype].size;                                                                                   \
  switch (t->dtype) {                                                                                                  \
  case ST_BOOL: EACH(uint8_t, (R)(x != 0));                                                                            \
  case ST_U8: EACH(uint8_t, (R)x);                                                                                     \
  case ST_I8: EACH(int8_t, (R)x);                                                                                      \
  case ST_I16: EACH(int16_t, (R)x);                                                                                    \
  case ST_U16: EACH(uint16_t, (R)x);                                                                                   \
  case ST_F16: EACH(uint16_t, (R)f32_of_f16(x));                                                                       \
  case ST_BF16: EACH(uint16_t, (R)f32_of_bf16(x));                                                                     \
  case ST_I32: EACH(int32_t, (R)x);                                                                                    \
  case ST_U32: EACH(uint32_t, (R)x);                                                                                   \
  case ST_F32: EACH(float, (R)x);                                                                                      \
  case ST_F64: EACH(double, (R)x);                                                                                     \
  case ST_I64: EACH(int64_t, (R)x);                                                                                    \
  case ST_U64: EACH(uint64_t, (R)x);                                                                                   \
  }

void st_read_f64(const st_tensor *t, uint64_t first, uint64_t n, double *out) { READ_AS(double) }
void st_read_f32(const st_tensor *t, uint64_t first, uint64_t n, float *out) { READ_AS(float) }

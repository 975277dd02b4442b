/* type.c - types, and numbers in their storage formats. */
#include "compiler/ir/ir_priv.h"
#include "runtime/base/checked.h"

#include <math.h>
#include <string.h>

int64_t ir_elements(ir_type t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; i++)
    if (t.dim[i] < 0 || !checked_mul_i64(n, t.dim[i], &n) || n > IR_MAX_ELEMENTS) return -1;
  return n;
}

bool ir_type_equal(ir_type a, ir_type b) {
  if (a.dtype != b.dtype || a.rank != b.rank || a.state != b.state) return false;
  for (uint32_t i = 0; i < a.rank; i++)
    if (a.dim[i] != b.dim[i]) return false;
  return true;
}

ir_type ir_type_make(ir_dtype dtype, uint32_t rank, const int64_t *dims) {
  ir_type t = {.dtype = dtype, .rank = rank};
  if (rank > IR_MAX_RANK) ir_bug("a type of rank %u", rank);
  for (uint32_t i = 0; i < rank; i++) t.dim[i] = dims[i];
  return t;
}

void ir_print_type(text *out, ir_type t) {
  text_printf(out, "%s%s[", t.state ? "state " : "", ir_dtype_name(t.dtype));
  for (uint32_t i = 0; i < t.rank; i++) {
    if (i) text_puts(out, ",");
    if (t.dim[i] == IR_DIM_B || t.dim[i] == IR_DIM_T)
      text_puts(out, t.dim[i] == IR_DIM_B ? "B" : "T");
    else
      text_printf(out, "%lld", (long long)t.dim[i]);
  }
  text_puts(out, "]");
}

/* Rounds to `bits` significant bits, ties to even; below 2^least to a multiple of 2^(least - bits + 1). */
static double round_bits(double v, int bits, int least, double largest) {
  if (v == 0 || !isfinite(v)) return v;
  int e;
  frexp(v, &e);
  double unit = ldexp(1.0, (e - 1 < least ? least : e - 1) - (bits - 1));
  double r = nearbyint(v / unit) * unit;
  return fabs(r) > largest ? copysign(INFINITY, v) : r;
}

double ir_round_to(ir_dtype type, double v) {
  switch (type) {
  case IR_F32: return (double)(float)v;
  case IR_BF16: return round_bits(v, 8, -126, 0x1.fep+127);
  case IR_F16: return round_bits(v, 11, -14, 65504.0);
  case IR_I32:
  case IR_I8:
  case IR_DTYPE_COUNT: break;
  }
  return v;
}

static double half_value(uint16_t h) {
  int e = (h >> 10) & 31;
  double m = (double)(h & 1023), v = e == 31  ? (m != 0 ? NAN : INFINITY)
                                     : e == 0 ? ldexp(m, -24)
                                              : ldexp(m + 1024, e - 25);
  return h & 0x8000 ? -v : v;
}

/* Element i of packed little-endian data. */
static double element(ir_dtype type, const unsigned char *data, size_t i) {
  const unsigned char *p = data + i * ir_dtype_size(type);
  uint32_t bits = 0;
  for (size_t k = ir_dtype_size(type); k-- > 0;) bits = bits << 8 | p[k];
  if (type == IR_BF16) bits <<= 16;
  switch (type) {
  case IR_F32:
  case IR_BF16: {
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
  }
  case IR_F16: return half_value((uint16_t)bits);
  case IR_I32: return (double)(int32_t)bits;
  case IR_I8: return (double)(int8_t)bits;
  case IR_DTYPE_COUNT: break;
  }
  return NAN;
}

static uint16_t half_bits(double v) {
  const uint16_t sign = signbit(v) ? 0x8000 : 0;
  int e = 0;
  if (isnan(v)) return 0x7e00;
  if (isinf(v)) return sign | 0x7c00;
  frexp(v, &e);
  if (v == 0 || e < -13) return (uint16_t)(sign | (unsigned)ldexp(fabs(v), 24));
  return (uint16_t)(sign | ((unsigned)(e + 14) << 10) | ((unsigned)ldexp(fabs(v), 11 - e) & 1023));
}

void ir_store(ir_dtype type, void *data, size_t i, double v) {
  const float f = (float)ir_round_to(type, v);
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if (type == IR_F32) ((uint32_t *)data)[i] = bits;
  if (type == IR_BF16) ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
  if (type == IR_F16) ((uint16_t *)data)[i] = half_bits((double)f);
}

bool ir_read_const(const ir_module *m, ir_value v, double *out) {
  const ir_node *node = ir_node_at(m, v);
  int64_t n = ir_elements(node->type);
  size_t given;
  const double *value = ir_attr_floats(m, v, IR_ATTR_VALUE, &given);
  if (n < 0 || !ir_op_has(node->op, OPF_GLOBAL)) return false;
  if (node->payload) {
    for (int64_t i = 0; i < n; i++) out[i] = element(node->type.dtype, node->payload, (size_t)i);
    return true;
  }
  if (!value || (given != 1 && given != (size_t)n)) return false;
  for (int64_t i = 0; i < n; i++) out[i] = value[given == 1 ? 0 : i];
  return true;
}

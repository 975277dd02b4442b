/* matrix.c - ldmatrix and mma.sync with fragments as the PTX ISA lays them out; products are exact, sums are rounded once per instruction
   (a GPU's order and rounding inside the instruction are not defined). */
#include "cuda/sim/half.h"
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

/* ldmatrix{.trans} of 1, 2 or 4 tiles of 8 x 8 numbers of 16 bits: lane 8 t + r has the address of row r of tile t. */
static void ldmatrix(warp *w, const inst *i) {
  const uint32_t tiles = i->destinations, at = i->destinations;
  uint16_t rows[4][8][8] = {0};
  const block *b = w->block;
  w->block->worker->counters.shared_accesses++;
  for (uint32_t n = 0; n < tiles * 8; n++) {
    const uint64_t base = lane_value(w, i, at, n) + (uint64_t)i->imm;
    uint64_t v = i->width[at] == 4 ? (uint32_t)base : base;
    if (v > UINT32_MAX) v = 0;
    if (!sim_shared_read(w, i, n, (uint32_t)v, 16)) return;
    memcpy(rows[n / 8][n % 8], b->shared + ((uint32_t)v - SIM_SHARED_BASE), 16);
  }
  const bool trans = i->choice[4] != 0;
  for (uint32_t t = 0; t < tiles; t++) {
    uint32_t *pd = lanes_of(w, i->r[t]);
    for (uint32_t l = 0; l < SIM_LANES; l++) {
      const uint32_t r = l / 4, c = l % 4 * 2;
      pd[l] =
          trans ? rows[t][c][r] | (uint32_t)rows[t][c + 1][r] << 16 : rows[t][r][c] | (uint32_t)rows[t][r][c + 1] << 16;
    }
  }
}
/* choice: sync, aligned, m8n8, count, trans, ... */
static taper_status decode_ldmatrix(decoder *d, inst *i) {
  static const uint8_t counts[] = {0, 1, 2, 4};
  space where = SPACE_SHARED;
  i->needs_all = 1;
  if (!parse_is(parse_peek(d), "{")) return parse_expect(d, "{");
  TAPER_TRY(operand_list(d, i, counts[i->choice[3]], 4, true, true));
  TAPER_TRY(parse_expect(d, ","));
  TAPER_TRY(operand_address(d, i, &where));
  i->space = SPACE_SHARED;
  return TAPER_OK;
}

enum { MMA_F16 = 1, MMA_BF16, MMA_TF32, MMA_S8 };

/* Element e of a register of packed operands. */
static float packed(uint8_t type, uint32_t v, uint32_t e) {
  switch (type) {
  case MMA_F16: return float_of_half((uint16_t)(v >> (16 * e)));
  case MMA_BF16: return float_of_brain((uint16_t)(v >> (16 * e)));
  case MMA_TF32: return float_of(v & ~0x1fffu);
  }
  return (float)(int8_t)(v >> (8 * e));
}

typedef struct fragments {
  float a[16][32], b[32][8];
  uint32_t depth;
} fragments;

/* A: register r of lane l has row l/4 + 8 (r % 2), columns from (r / 2) * 4n + (l % 4) n, n numbers in each; B: register r has rows
   from 4n r + (l % 4) n of column l/4. */
static void gather(const warp *w, const inst *i, uint8_t type, uint32_t depth, uint32_t a_registers, fragments *f) {
  const uint32_t n = type == MMA_TF32 ? 1 : type == MMA_S8 ? 4 : 2, b_registers = a_registers / 2, at = i->destinations;
  f->depth = depth;
  for (uint32_t l = 0; l < SIM_LANES; l++) {
    for (uint32_t r = 0; r < a_registers; r++) {
      const uint32_t v = (uint32_t)lane_value(w, i, at + r, l);
      for (uint32_t e = 0; e < n; e++) f->a[l / 4 + 8 * (r % 2)][r / 2 * 4 * n + l % 4 * n + e] = packed(type, v, e);
    }
    for (uint32_t r = 0; r < b_registers; r++) {
      const uint32_t v = (uint32_t)lane_value(w, i, at + a_registers + r, l);
      for (uint32_t e = 0; e < n; e++) f->b[r * 4 * n + l % 4 * n + e][l / 4] = packed(type, v, e);
    }
  }
}

/* choice: sync, aligned, shape, row, col, accumulator and operand types; imm: operand type | shape's depth << 8 | A's registers << 16 |
   accumulators of 16 bits << 24 */
static void mma(warp *w, const inst *i) {
  const uint8_t type = (uint8_t)i->imm;
  const uint32_t depth = (uint32_t)i->imm >> 8 & 0xffu, a_registers = (uint32_t)i->imm >> 16 & 0xffu;
  const bool halves = (i->imm >> 24 & 1) != 0;
  const uint32_t c = i->destinations + a_registers + a_registers / 2;
  fragments f;
  uint32_t out[4][SIM_LANES];
  gather(w, i, type, depth, a_registers, &f);
  for (uint32_t l = 0; l < SIM_LANES; l++)
    for (uint32_t r = 0; r < 4; r++) {
      const uint32_t row = l / 4 + r / 2 * 8, column = l % 4 * 2 + r % 2;
      const uint32_t v = (uint32_t)lane_value(w, i, c + (halves ? r / 2 : r), l);
      double sum = type == MMA_S8 ? (double)(int32_t)v
                   : halves       ? (double)float_of_half((uint16_t)(v >> (16 * (r % 2))))
                                  : (double)float_of(v);
      for (uint32_t k = 0; k < depth; k++) sum += (double)f.a[row][k] * (double)f.b[k][column];
      out[r][l] = type == MMA_S8 ? (uint32_t)(int64_t)sum
                  : halves       ? half_of(sum, ROUND_NEAREST)
                                 : bits_of(canonical((float)sum));
    }
  for (uint32_t r = 0; r < 4; r++) {
    uint32_t *pd = lanes_of(w, i->r[halves ? r / 2 : r]);
    for (uint32_t l = 0; l < SIM_LANES; l++)
      pd[l] = !halves ? out[r][l] : r % 2 ? (pd[l] & 0xffffu) | out[r][l] << 16 : out[r][l];
  }
}

static taper_status decode_mma(decoder *d, inst *i, uint8_t type, uint32_t depth, bool halves) {
  const uint32_t n = type == MMA_TF32 ? 1
                     : type == MMA_S8 ? 4
                                      : 2,
                 a_registers = depth / (2 * n), sums = halves ? 2 : 4;
  const uint32_t counts[] = {sums, a_registers, a_registers / 2, sums};
  i->needs_all = 1;
  i->imm = type | depth << 8 | a_registers << 16 | (uint32_t)halves << 24;
  for (uint32_t k = 0; k < 4; k++) {
    if (k) TAPER_TRY(parse_expect(d, ","));
    TAPER_TRY(operand_list(d, i, counts[k], 4, true, k == 0));
  }
  return TAPER_OK;
}
#define MMA(name, type, depth, halves)                                                                                 \
  static taper_status name(decoder *d, inst *i) { return decode_mma(d, i, type, depth, halves); }
MMA(decode_f16_8, MMA_F16, 8, false)
MMA(decode_f16_16, MMA_F16, 16, false)
MMA(decode_f16_8_half, MMA_F16, 8, true)
MMA(decode_f16_16_half, MMA_F16, 16, true)
MMA(decode_bf16_8, MMA_BF16, 8, false)
MMA(decode_bf16_16, MMA_BF16, 16, false)
MMA(decode_tf32_4, MMA_TF32, 4, false)
MMA(decode_tf32_8, MMA_TF32, 8, false)
MMA(decode_s8_16, MMA_S8, 16, false)
MMA(decode_s8_32, MMA_S8, 32, false)

#define MMA_ROW(shape, types, decode_)                                                                                 \
  { .pattern = "mma.sync.aligned." shape ".row.col." types, .kind = INST_COLLECT, .run = mma, .decode = decode_ }
static const op_row rows[] = {
    {.pattern = "ldmatrix.sync.aligned.m8n8.x1|x2|x4.?trans.shared|shared::cta.b16",
     .kind = INST_COLLECT,
     .run = ldmatrix,
     .decode = decode_ldmatrix},
    MMA_ROW("m16n8k8", "f32.f16.f16.f32", decode_f16_8),
    MMA_ROW("m16n8k16", "f32.f16.f16.f32", decode_f16_16),
    MMA_ROW("m16n8k8", "f16.f16.f16.f16", decode_f16_8_half),
    MMA_ROW("m16n8k16", "f16.f16.f16.f16", decode_f16_16_half),
    MMA_ROW("m16n8k8", "f32.bf16.bf16.f32", decode_bf16_8),
    MMA_ROW("m16n8k16", "f32.bf16.bf16.f32", decode_bf16_16),
    MMA_ROW("m16n8k4", "f32.tf32.tf32.f32", decode_tf32_4),
    MMA_ROW("m16n8k8", "f32.tf32.tf32.f32", decode_tf32_8),
    MMA_ROW("m16n8k16", "s32.s8.s8.s32", decode_s8_16),
    MMA_ROW("m16n8k32", "s32.s8.s8.s32", decode_s8_32),
};
OP_TABLE(sim_matrix_ops, rows);

/* cuda_shape.c - how the products of a linear stage are cut into blocks, warps and teams of lanes. */
#include "compiler/emit/cuda_priv.h"

enum { MULTIPROCESSORS = 132, PACKS_AHEAD = 8, MOST_COLUMNS = 4, MOST_WARPS = 16, WIDE_BLOCK = 64 };

static uint32_t packs_of(const plan *p, const plan_root *r) {
  const uint32_t per_pack = 16u / (uint32_t)ir_dtype_size(p->weights[r->weight].dtype);
  return (r->cols + per_pack - 1) / per_pack;
}

static uint32_t steps_of(uint32_t packs, uint32_t lanes) { return (packs + lanes - 1) / lanes; }

/* Lanes that share a column: as many as have work, in whole sectors of 32 bytes where rows lie on them. */
static uint32_t lanes_of(uint32_t packs) {
  static const uint32_t wanted[] = {95, 85}; /* % of the lanes' packs that are there */
  const uint32_t least = packs < 4 ? 2 : packs % 2 ? 8 : 4;
  uint32_t best = least;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    for (uint32_t lanes = 32; lanes >= least; lanes /= 2)
      if (100 * packs >= wanted[i] * lanes * steps_of(packs, lanes)) return lanes;
  for (uint32_t lanes = least; lanes <= 32; lanes *= 2)
    if (lanes * steps_of(packs, lanes) <= best * steps_of(packs, best)) best = lanes;
  return best;
}

/* Columns of a team: more share what is read of a row, as long as all packs are asked for at once or warps are many. */
static uint32_t columns_of(const plan_segment *g, uint32_t steps, uint32_t lanes, uint64_t columns) {
  uint32_t n = 1;
  while (n < MOST_COLUMNS && (g->root_count * steps * 2 * n <= PACKS_AHEAD ||
                              (n == 1 && g->root_count <= 2 && columns * lanes / 32 / 2 >= MULTIPROCESSORS * 8)))
    n *= 2;
  return n;
}

/* Of a segment alone: lanes and columns of a team. */
static cuda_shape shape_of(const plan *p, const plan_stage *s, const plan_segment *g) {
  uint64_t columns = 0;
  cuda_shape shape = {.lanes = 1, .columns = 1};
  for (size_t i = 0; i < s->segment_count; i++) columns += s->segments[i].columns;
  if (!g->root_count) return shape;
  uint32_t packs = packs_of(p, &g->roots[0]);
  shape.lanes = lanes_of(packs);
  shape.columns = columns_of(g, steps_of(packs, shape.lanes), shape.lanes, columns);
  return shape;
}

static uint32_t tile_of(const cuda_shape *shape) {
  const uint32_t tile = 32 / shape->lanes * shape->columns;
  return tile ? tile : 1;
}

static uint32_t widest_unit(const plan_stage *s) {
  uint32_t unit = 1;
  for (size_t i = 0; i < s->segment_count; i++)
    if (s->segments[i].unit > unit) unit = s->segments[i].unit;
  return unit;
}

cuda_shape cuda_shape_of_root(const plan *p, const plan_segment *g, const plan_root *r, cuda_shape shape) {
  shape.lanes = lanes_of(packs_of(p, r));
  shape.full = g->columns % tile_of(&shape) == 0 && shape.block % tile_of(&shape) == 0;
  return shape;
}

static uint32_t widest(const plan_stage *s) {
  uint32_t columns = 1;
  for (size_t i = 0; i < s->segment_count; i++)
    if (s->segments[i].columns > columns) columns = s->segments[i].columns;
  return columns;
}

uint32_t cuda_warps_of(const plan *p, const plan_stage *s) {
  uint64_t tiles = 0;
  const uint32_t unit = widest_unit(s);
  uint32_t needed = 0;
  for (size_t i = 0; i < s->segment_count; i++) {
    const cuda_shape shape = shape_of(p, s, &s->segments[i]);
    const uint32_t tile = tile_of(&shape), of_unit = (unit + tile - 1) / tile;
    tiles += (s->segments[i].columns + tile - 1) / tile;
    if (s->segments[i].root_count && of_unit > needed) needed = of_unit;
  }
  uint32_t warps = tiles >= MULTIPROCESSORS * 16 ? 8 : 4;
  while (warps < needed && warps < MOST_WARPS) warps *= 2; /* so that a thread may have 128 registers */
  return warps;
}

cuda_shape cuda_shape_of(const plan *p, const plan_stage *s, const plan_segment *g, bool wide) {
  cuda_shape shape = shape_of(p, s, g);
  const uint32_t unit = widest_unit(s), most = wide ? WIDE_BLOCK : cuda_warps_of(p, s) * tile_of(&shape);
  const uint32_t there = (widest(s) + unit - 1) / unit * unit, room = wide || there > most ? most : there,
                 whole = !wide && room >= unit ? room / unit * unit : room;
  const uint32_t own = g->unit ? g->unit : 1;
  shape.block = own >= whole ? own : whole / own * own;
  if (!wide && shape.block < unit && unit % own == 0) shape.block = unit;
  shape.full = g->columns % tile_of(&shape) == 0 && shape.block % tile_of(&shape) == 0;
  return shape;
}

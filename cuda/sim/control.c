/* control.c - instructions that change where lanes go on, and those that only order. */
#include "cuda/sim/lane.h"
#include "cuda/sim/parse.h"

static void nothing(warp *w, const inst *i) {
  (void)w;
  (void)i;
}

/* bar.sync a {, b}; bar.arrive a, b: vector: 1 arrives only; is_signed: has a count. */
static taper_status decode_barrier(decoder *d, inst *i) {
  TAPER_TRY(operand_value(d, i, 4, true));
  if (!parse_accept(d, ",")) return TAPER_OK;
  i->is_signed = 1;
  return operand_value(d, i, 4, true);
}
/* barrier.sync: without .aligned the lanes of a warp may come one after the other: vector 2. */
static taper_status decode_apart(decoder *d, inst *i) {
  i->vector = i->choice[2] ? 0 : 2;
  return decode_barrier(d, i);
}
static taper_status decode_arrive(decoder *d, inst *i) {
  i->vector = 1;
  i->is_signed = 1;
  TAPER_TRY(operand_value(d, i, 4, true));
  TAPER_TRY(parse_expect(d, ","));
  return operand_value(d, i, 4, true);
}
/* bar.red.and|or|popc d, a {, b}, {!}p; imm: BARRIER_AND, ... */
static taper_status decode_reduction(decoder *d, inst *i) {
  TAPER_TRY(i->imm == BARRIER_COUNT ? operand_register(d, i, 4, true) : operand_predicate(d, i, true));
  TAPER_TRY(parse_expect(d, ","));
  TAPER_TRY(operand_value(d, i, 4, true));
  TAPER_TRY(parse_expect(d, ","));
  const token *t = parse_peek(d);
  uint32_t commas = 0;
  for (; !parse_is(t, ";") && t->kind != TOKEN_END; t++) commas += parse_is(t, ",");
  if (commas) {
    i->is_signed = 1;
    TAPER_TRY(operand_value(d, i, 4, true));
    TAPER_TRY(parse_expect(d, ","));
  }
  return operand_predicate(d, i, false);
}

static taper_status decode_vote(decoder *d, inst *i) {
  i->imm = i->choice[1] == 1 ? BARRIER_AND : BARRIER_OR;
  return decode_reduction(d, i);
}
static taper_status decode_count(decoder *d, inst *i) {
  i->imm = BARRIER_COUNT;
  return decode_reduction(d, i);
}

/* A fence that other blocks can rely on. */
static void fence(warp *w, const inst *i) {
  block *b = w->block;
  (void)i;
  if (b->order) order_fence(b->run->ordered, b->order, b->number);
}
static taper_status decode_fence(decoder *d, inst *i) {
  (void)d;
  i->fence = 1;
  return TAPER_OK;
}

static const op_row rows[] = {
    {.pattern = "bra.?uni", .kind = INST_BRANCH, .run = nothing, .decode = decode_label},
    {.pattern = "brx.idx.?uni", .kind = INST_BRANCH_INDEXED, .run = nothing, .decode = decode_indexed},
    {.pattern = "call.?uni", .kind = INST_CALL, .run = nothing, .decode = decode_call},
    {.pattern = "ret.?uni", .kind = INST_RETURN, .run = nothing},
    {.pattern = "exit", .kind = INST_EXIT, .run = nothing},
    {.pattern = "trap", .kind = INST_TRAP, .run = nothing},
    {.pattern = "brkpt", .kind = INST_TRAP, .run = nothing},
    {.pattern = "nanosleep.u32", .kind = INST_NANOSLEEP, .run = nothing, .operands = {4}},
    {.pattern = "bar.?cta.sync", .kind = INST_BARRIER, .run = nothing, .decode = decode_barrier},
    {.pattern = "barrier.?cta.sync.?aligned", .kind = INST_BARRIER, .run = nothing, .decode = decode_apart},
    {.pattern = "bar.?cta.arrive", .kind = INST_BARRIER, .run = nothing, .decode = decode_arrive},
    {.pattern = "barrier.?cta.arrive.?aligned", .kind = INST_BARRIER, .run = nothing, .decode = decode_arrive},
    {.pattern = "bar.red.and|or.pred", .kind = INST_BARRIER, .run = nothing, .decode = decode_vote},
    {.pattern = "bar.red.popc.u32", .kind = INST_BARRIER, .run = nothing, .decode = decode_count},
    {.pattern = "membar.cta", .run = nothing},
    {.pattern = "membar.gl|sys", .run = fence, .decode = decode_fence},
    {.pattern = "fence.?sc|acq_rel.cta", .run = nothing},
    {.pattern = "fence.?sc|acq_rel.gpu|sys|cluster", .run = fence, .decode = decode_fence},
    {.pattern = "griddepcontrol.wait", .kind = INST_GRID_WAIT, .run = nothing},
    {.pattern = "griddepcontrol.launch_dependents", .run = nothing},
};
OP_TABLE(sim_control_ops, rows);

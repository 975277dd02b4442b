/* infer_attention.c - shape rules of rope, attention and the cache. */
#include "compiler/ir/infer_priv.h"

#include <string.h>

static bool is_heads(ir_type t) { return t.dtype == IR_F32 && t.rank == 4 && !t.state && t.dim[2] > 0 && t.dim[3] > 0; }

static bool infer_heads(infer_ctx *c, size_t i) {
  return is_heads(infer_type(c, i)) || infer_fail_operand(c, i, "f32[B,T,heads,head_dim]");
}

static bool check_scaling(infer_ctx *c) {
  static const ir_attr_key llama3[] = {IR_ATTR_SCALING_FACTOR, IR_ATTR_SCALING_HIGH, IR_ATTR_SCALING_LOW,
                                       IR_ATTR_SCALING_ORIGINAL};
  const char *scaling = infer_string(c, IR_ATTR_SCALING, NULL);
  size_t needed = !scaling ? 0 : strcmp(scaling, "linear") == 0 ? 1 : strcmp(scaling, "llama3") == 0 ? 4 : 5;
  if (needed == 5) return infer_fail(c, "attribute 'scaling': '%s' is neither \"linear\" nor \"llama3\"", scaling);
  for (size_t i = 0; i < 4; i++) {
    bool given = ir_attr_in(c->attrs, c->attr_count, llama3[i]) != NULL;
    if (i < needed && !given)
      return infer_fail(c, "scaling \"%s\" needs attribute '%s'", scaling, ir_attr_name(llama3[i]));
    if (i >= needed && given) return infer_fail(c, "attribute '%s' has no effect here", ir_attr_name(llama3[i]));
  }
  if (needed == 4 && ir_attr_in(c->attrs, c->attr_count, IR_ATTR_SCALING_HIGH)->u.f <=
                         ir_attr_in(c->attrs, c->attr_count, IR_ATTR_SCALING_LOW)->u.f)
    return infer_fail(c, "attribute 'scaling_high' must be above 'scaling_low'");
  return true;
}

bool infer_rope(infer_ctx *c) {
  if (!infer_operands(c) || !infer_heads(c, 0)) return false;
  int64_t d = infer_last(infer_type(c, 0)), dims = infer_int(c, IR_ATTR_DIMS, d);
  if (dims % 2 || dims > d)
    return infer_fail(c, "attribute 'dims': expected an even number of at most head_dim = %lld, found %lld",
                      (long long)d, (long long)dims);
  return check_scaling(c) && infer_finish(c, infer_type(c, 0));
}

bool infer_attention(infer_ctx *c) {
  if (!infer_operands(c) || !infer_heads(c, 0) || !infer_heads(c, 1) || !infer_heads(c, 2)) return false;
  ir_type q = infer_type(c, 0), k = infer_type(c, 1), v = infer_type(c, 2);
  if (!infer_expect(c, 1, IR_F32, 4, (int64_t[]){q.dim[0], q.dim[1], k.dim[2], q.dim[3]})) return false;
  if (!infer_expect(c, 2, IR_F32, 4, (int64_t[]){q.dim[0], q.dim[1], k.dim[2], v.dim[3]})) return false;
  if (q.dim[2] % k.dim[2])
    return infer_fail(c, "the %lld heads of q are no multiple of the %lld heads of k and v", (long long)q.dim[2],
                      (long long)k.dim[2]);
  q.dim[3] = v.dim[3];
  return infer_finish(c, q);
}

/* Operands i and i + 1: pos and len. */
static bool infer_pos_len(infer_ctx *c, size_t i, int64_t batch) {
  return infer_expect(c, i, IR_I32, 1, &batch) && infer_expect(c, i + 1, IR_I32, 1, &batch);
}

static bool infer_state(infer_ctx *c, size_t i, int64_t batch, int64_t heads, int64_t head_dim) {
  ir_type s = infer_type(c, i);
  bool good = s.state && s.dtype == IR_F32 && s.rank == 4 && s.dim[0] == batch && s.dim[2] > 0 &&
              (heads ? s.dim[1] == heads : s.dim[1] > 0) && (head_dim ? s.dim[3] == head_dim : s.dim[3] > 0);
  if (good) return true;
  text t = {0};
  ir_type want = ir_type_make(IR_F32, 4, (int64_t[]){batch, heads, 0, head_dim});
  text_printf(&t, "state f32[%s,", want.dim[0] == IR_DIM_B ? "B" : "batch");
  if (heads)
    text_printf(&t, "%lld,context,", (long long)heads);
  else
    text_puts(&t, "heads,context,");
  if (head_dim)
    text_printf(&t, "%lld]", (long long)head_dim);
  else
    text_puts(&t, "head_dim]");
  infer_fail_operand(c, i, t.data ? t.data : "a state");
  text_free(&t);
  return false;
}

bool infer_cache_append(infer_ctx *c) {
  if (!infer_heads(c, 1)) return false;
  ir_type x = infer_type(c, 1);
  return infer_state(c, 0, x.dim[0], x.dim[2], x.dim[3]) && infer_pos_len(c, 2, x.dim[0]) &&
         infer_finish(c, infer_type(c, 0));
}

bool infer_cache_attention(infer_ctx *c) {
  if (!infer_heads(c, 0)) return false;
  ir_type q = infer_type(c, 0);
  if (!infer_state(c, 1, q.dim[0], 0, q.dim[3])) return false;
  ir_type k = infer_type(c, 1);
  if (!infer_state(c, 2, q.dim[0], k.dim[1], 0)) return false;
  ir_type v = infer_type(c, 2);
  if (v.dim[2] != k.dim[2])
    return infer_fail(c, "the contexts of the two states differ: %lld and %lld", (long long)k.dim[2],
                      (long long)v.dim[2]);
  if (q.dim[2] % k.dim[1])
    return infer_fail(c, "the %lld heads of q are no multiple of the %lld heads of the states", (long long)q.dim[2],
                      (long long)k.dim[1]);
  q.dim[3] = v.dim[3];
  return infer_pos_len(c, 3, q.dim[0]) && infer_finish(c, q);
}

/* train_tables.c - the headers and the tables of a training image: parameters, packed weights, gates, norms, results, programs. */
#include "compiler/emit/train_priv.h"
#include "runtime/abi/train_abi.h"

#include <string.h>

bool train_put_headers(text *out) {
  static const char *const names[] = {"runtime/abi/abi.h",
                                      "runtime/abi/train_abi.h",
                                      "templates/cpu/prelude.h",
                                      "templates/cpu/math.h",
                                      "templates/cpu/dot.h",
                                      "templates/cpu/axis.h",
                                      "templates/cpu/train/gemm.h",
                                      "templates/cpu/train/rows.h",
                                      "templates/cpu/train/attention.h",
                                      "templates/cpu/train/optimizer.h",
                                      "templates/cpu/train/stage.h"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *t = emit_template(names[i]);
    if (!t) return false;
    text_puts(out, "\n");
    emit_header(t, out);
  }
  return true;
}

static void end_table(size_t count, text *out) { text_puts(out, count ? "};\n" : "    {0}};\n"); }

/* Of a weight [out,in] in the direction that it is multiplied in: outputs and inputs of the product. */
static void product_shape(const train_plan *p, const train_pack *k, uint64_t *n, uint64_t *inputs) {
  ir_type t = ir_type_of(p->m, p->params[k->param]);
  *n = (uint64_t)t.dim[k->back ? 1 : 0], *inputs = (uint64_t)t.dim[k->back ? 0 : 1];
}

void train_put_packs(const train_emitter *e, text *out) {
  const train_plan *p = e->p;
  uint64_t n, k;
  text_puts(out, "\nstatic const struct {\n  uint32_t param, n, k;\n  int back;\n} packed_weights[] = {\n");
  for (size_t i = 0; i < p->pack_count; i++) {
    product_shape(p, &p->packs[i], &n, &k);
    text_printf(out, "    {%u, %llu, %llu, %d},\n", p->packs[i].param, (unsigned long long)n, (unsigned long long)k,
                p->packs[i].back);
  }
  end_table(p->pack_count, out);
  text_printf(out,
              "/* The packed forms of all weights: every worker packs panels of each. */\n"
              "STAGE void pack_all(const taper_train_ctx *c, const void *args) {\n"
              "  (void)args;\n"
              "  for (uint32_t i = 0; i < %zu; i++) {\n"
              "    const uint32_t n = packed_weights[i].n, k = packed_weights[i].k;\n"
              "    const span s = train_share(c, gemm_panels(n));\n"
              "    gemm_pack(c->packed[i], c->param[packed_weights[i].param], n, k, packed_weights[i].back, s.first, "
              "s.last);\n"
              "  }\n}\n",
              p->pack_count);
  text_puts(out, "static const taper_train_pack packs[] = {\n");
  for (size_t i = 0; i < p->pack_count; i++) {
    product_shape(p, &p->packs[i], &n, &k);
    unsigned long long floats = (n + 63) / 64 * 64 * k;
    text_printf(out, "    {%u, %llu},\n", p->packs[i].param, floats);
  }
  end_table(p->pack_count, out);
}

static void put_params(const train_plan *p, text *out) {
  text_puts(out, "static const taper_train_param params[] = {\n");
  for (size_t i = 0; i < p->param_count; i++) {
    ir_value v = p->params[i];
    ir_type t = ir_type_of(p->m, v);
    text_puts(out, "    {");
    emit_string(out, ir_attr_string(p->m, v, IR_ATTR_TENSOR, ir_attr_string(p->m, v, IR_ATTR_NAME, "")));
    text_printf(out, ", %u, {", t.rank);
    for (uint32_t d = 0; d < IR_MAX_RANK; d++)
      text_printf(out, "%s%lld", d ? ", " : "", d < t.rank ? (long long)t.dim[d] : 0);
    text_printf(out, "}, %d, %d, %u, ", p->param_programs[i] != 0, t.rank == 2, p->param_programs[i]);
    emit_string(out, p->param_kinds[i]);
    text_puts(out, "},\n");
  }
  end_table(p->param_count, out);
}

static void put_gates(const train_plan *p, text *out) {
  text_puts(out, "static const taper_train_gate gates[] = {\n");
  for (size_t i = 0; i < p->gate_count; i++) {
    ir_value v = p->gates[i].gate;
    size_t n = 0;
    const double *value = v.id ? ir_attr_floats(p->m, v, IR_ATTR_VALUE, &n) : NULL;
    text_puts(out, "    {");
    emit_string(out, p->gates[i].name);
    text_printf(out, ", %u, %u, ", p->gates[i].index, p->gates[i].count);
    emit_float(out, n ? value[0] : 1);
    text_printf(out, ", %d},\n", p->gates[i].scheduled);
  }
  end_table(p->gate_count, out);
}

static void put_norms(const train_plan *p, text *out) {
  text_puts(out, "static const taper_train_norm norms[] = {\n");
  for (size_t i = 0; i < p->norm_count; i++) {
    const train_norm *n = &p->norms[i];
    text_puts(out, "    {");
    emit_string(out, n->name);
    text_printf(out, ", %u, %u, %u, %u, %d},\n", n->gate, n->weight, n->taper_weight, n->taper_c, n->layer_norm);
  }
  end_table(p->norm_count, out);
}

static void put_results(const train_plan *p, text *out) {
  text_puts(out, "static const taper_train_result results[] = {\n");
  for (size_t i = 0; i < p->result_count; i++) {
    const train_result *r = &p->results[i];
    ir_value rows = r->rows ? train_view_of(p->m, ir_operand(p->m, r->op, 0)).owner : IR_NONE;
    text_puts(out, "    {");
    emit_string(out, ir_attr_string(p->m, r->op, IR_ATTR_NAME, ""));
    text_printf(out, ", %u, %d, %llu},\n", r->program, r->rows,
                rows.id ? (unsigned long long)p->slots[rows.id].offset : 0ull);
  }
  end_table(p->result_count, out);
}

static void put_rotary(train_emitter *e, text *out) {
  const train_plan *p = e->p;
  for (size_t i = 0; i < p->rotary_count; i++) {
    uint32_t n = p->rotary[i].pairs;
    double *freq = ARENA_ARRAY(&e->mem, double, n + 1);
    ir_rope_inv_freq(p->m, p->rotary[i].op, freq, n);
    text_printf(out, "static const double inv_freq_%zu[] = {", i);
    for (uint32_t j = 0; j < n; j++) {
      text_puts(out, j % 4 ? ", " : j ? ",\n    " : "\n    ");
      text_put_hex(out, freq[j]);
    }
    text_puts(out, "};\n");
  }
  text_puts(out, "static const taper_train_rotary rotary[] = {\n");
  for (size_t i = 0; i < p->rotary_count; i++)
    text_printf(out, "    {%u, inv_freq_%zu, 1.0},\n", p->rotary[i].pairs, i);
  end_table(p->rotary_count, out);
}

/* ---- programs ---- */
static const train_program *find_program(const train_plan *p, uint32_t id) {
  for (size_t i = 0; i < p->program_count; i++)
    if (p->programs[i].id == id) return &p->programs[i];
  return NULL;
}

static void put_program(train_emitter *e, const train_program *g, text *out) {
  uint64_t rows = 0, blocks = 0;
  bool weights = false;
  for (size_t i = 0; i < g->stage_count; i++) {
    if (g->stages[i].row_scratch > rows) rows = g->stages[i].row_scratch;
    if (g->stages[i].block_scratch > blocks) blocks = g->stages[i].block_scratch;
    weights |= g->stages[i].kind == TRAIN_WEIGHTS;
  }
  text_printf(out, "        {stages_%u, %zu, %llu, %llu, %llu, %llu,\n", g->id, g->stage_count,
              (unsigned long long)g->row_floats, (unsigned long long)g->chunk_floats,
              (unsigned long long)g->partial_floats, (unsigned long long)g->fixed_floats);
  text_printf(out, "         MORE(%llu, MORE(%s, %s)), %llu, %s},\n", (unsigned long long)rows,
              weights ? "GEMM_WEIGHT_SCRATCH" : "0", train_attention_scratch(e, g, false), (unsigned long long)blocks,
              train_attention_scratch(e, g, true));
}

static void put_index(uint32_t i, const char *comma, text *out) {
  if (i == TRAIN_NOT)
    text_printf(out, "TAPER_ABI_NONE%s", comma);
  else
    text_printf(out, "%u%s", i, comma);
}

static void put_image(train_emitter *e, const char *model_hash, text *out) {
  const train_plan *p = e->p;
  text_puts(out, "#define MORE(a, b) ((uint64_t)(a) > (uint64_t)(b) ? (uint64_t)(a) : (uint64_t)(b))\n"
                 "extern const taper_train_image image __asm__(\"taper_train_image\") "
                 "__attribute__((visibility(\"default\")));\nconst taper_train_image image = {\n"
                 "    TAPER_TRAIN_ABI_MAGIC, TAPER_TRAIN_ABI_VERSION, sizeof(taper_train_image),\n");
  text_printf(out, "    %u, %u, %u, /* vocab, context, width */\n", p->vocab, p->context, p->width);
  text_printf(
      out,
      "    %zu, %zu, %zu, %zu, %zu, %zu, /* parameters, packed weights, gates, norms, results, rotary tables */\n"
      "    {\n        {stages_pack, 1, 0, 0, 0, 0, 0, 0, 0},\n",
      p->param_count, p->pack_count, p->gate_count, p->norm_count, p->result_count, p->rotary_count);
  for (uint32_t id = TAPER_TRAIN_WARM; id < TAPER_TRAIN_PROGRAMS; id++) {
    const train_program *g = find_program(p, id);
    if (g)
      put_program(e, g, out);
    else
      text_puts(out, "        {0},\n");
  }
  text_puts(out, "    },\n    params, packs, gates, norms, results, rotary,\n    ");
  put_index(p->final_norm, ", ", out);
  put_index(p->anchor_target, ", ", out);
  put_index(p->table, ", /* final norm, anchor target, table */\n", out);
  text_puts(out, "    adamw, train_sum_squares, gemm_generic, GEMM_WEIGHT_SCRATCH, ");
  emit_string(out, model_hash);
  text_puts(out, "};\n");
}

void train_put_tables(train_emitter *e, const char *model_hash, text *out) {
  put_params(e->p, out);
  put_gates(e->p, out);
  put_norms(e->p, out);
  put_results(e->p, out);
  put_rotary(e, out);
  put_image(e, model_hash, out);
}

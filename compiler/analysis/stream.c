#include "compiler/analysis/stream.h"

bool analysis_joins(const ir_module *m, ir_value op) {
  ir_opcode code = ir_opcode_of(m, op);
  return code == IR_ADD || code == IR_SUB || ir_op_has(code, OPF_IDENTITY);
}

/* The operands of a joining op that are terms: a probe's inverse scale is none. */
static size_t term_count(const ir_module *m, ir_value op) {
  return ir_op_has(ir_opcode_of(m, op), OPF_IDENTITY) ? 1 : ir_operand_count(m, op);
}

static bool is_local(const ir_module *m, ir_value v) { return v.id && ir_region_of(m, v).id != IR_GLOBALS.id; }

static uint32_t find(uint32_t *parent, uint32_t i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

static void join_all(const ir_module *m, ir_region entry, uint32_t *parent) {
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) parent[v.id] = v.id;
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) {
    if (!analysis_joins(m, v)) continue;
    for (size_t i = 0; i < term_count(m, v); i++) {
      ir_value o = ir_operand(m, v, i);
      if (!is_local(m, o)) continue;
      uint32_t a = find(parent, v.id), b = find(parent, o.id);
      if (a != b) parent[a > b ? a : b] = a > b ? b : a;
    }
  }
}

/* Where a value's use by `user` belongs: counts on the first walk (arrays NULL), fills on the second. */
static void note_reader(analysis_stream *s, ir_value user, uint32_t operand) {
  for (size_t i = s->reader_count; i-- > 0 && s->readers;) {
    if (!ir_same(s->readers[i].op, user)) break;
    s->readers[i].again = true;
    return;
  }
  if (s->readers) s->readers[s->reader_count] = (analysis_reader){user, operand, false};
  s->reader_count++;
}

static void note_writer(analysis_stream *s, analysis_writer w) {
  if (s->writers) s->writers[s->writer_count] = w;
  s->writer_count++;
}

static void note_op(const ir_module *m, ir_value v, uint32_t *parent, const uint32_t *stream_of,
                    analysis_stream *streams) {
  analysis_stream *own = &streams[stream_of[find(parent, v.id)]];
  bool joins = analysis_joins(m, v);
  if (!joins)
    note_writer(own, (analysis_writer){v, IR_NONE});
  else if (ir_op_has(ir_opcode_of(m, v), OPF_IDENTITY)) {
    if (own->probes) own->probes[own->probe_count] = v;
    own->probe_count++;
  }
  for (uint32_t i = 0; i < ir_operand_count(m, v); i++) {
    ir_value o = ir_operand(m, v, i);
    if (joins && i < term_count(m, v)) {
      if (!is_local(m, o))
        note_writer(own, (analysis_writer){o, v});
      else if (!ir_type_equal(ir_type_of(m, o), ir_type_of(m, v)))
        own->mixed = true;
    } else if (is_local(m, o))
      note_reader(&streams[stream_of[find(parent, o.id)]], v, i);
  }
}

size_t analysis_streams(const ir_module *m, ir_region entry, arena *scratch, analysis_stream **out) {
  uint32_t limit = ir_value_limit(m), count = 0;
  uint32_t *parent = ARENA_ARRAY(scratch, uint32_t, limit + 1), *stream_of = ARENA_ARRAY(scratch, uint32_t, limit + 1);
  join_all(m, entry, parent);
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v))
    if (find(parent, v.id) == v.id) stream_of[v.id] = count++;
  analysis_stream *s = ARENA_ARRAY(scratch, analysis_stream, count + 1);
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) note_op(m, v, parent, stream_of, s);
  for (uint32_t i = 0; i < count; i++) {
    s[i].entry = entry;
    s[i].writers = ARENA_ARRAY(scratch, analysis_writer, s[i].writer_count + 1);
    s[i].readers = ARENA_ARRAY(scratch, analysis_reader, s[i].reader_count + 1);
    s[i].probes = ARENA_ARRAY(scratch, ir_value, s[i].probe_count + 1);
    s[i].writer_count = s[i].reader_count = s[i].probe_count = 0;
  }
  for (ir_value v = ir_first(m, entry); v.id; v = ir_next(m, v)) note_op(m, v, parent, stream_of, s);
  *out = s;
  return count;
}

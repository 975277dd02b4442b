/* protobuf.h - the wire format of protocol buffers, read strictly and without copies: enough for a SentencePiece model.
   https://protobuf.dev/programming-guides/encoding */
#ifndef TAPER_TEXT_PROTOBUF_H
#define TAPER_TEXT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 } pb_wire;

typedef struct pb_reader {
  const uint8_t *start, *at, *end;
  const char *bad; /* not NULL: what is wrong at `at`; nothing more is read */
} pb_reader;

typedef struct pb_field {
  uint32_t number;
  pb_wire wire;
  uint64_t value; /* varint, fixed */
  const uint8_t *data;
  size_t size; /* bytes */
} pb_field;

static inline pb_reader pb_read(const void *data, size_t size) {
  pb_reader r = {data, data, data, NULL};
  if (size) r.end = r.start + size;
  return r;
}

static inline bool pb_fail(pb_reader *r, const char *what) {
  r->bad = what;
  return false;
}

static inline bool pb_varint(pb_reader *r, uint64_t *out) {
  uint64_t v = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (r->at == r->end) return pb_fail(r, "the data ends inside a number");
    uint8_t b = *r->at++;
    if (shift == 63 && b > 1) return pb_fail(r, "a number of more than 64 bits");
    v |= (uint64_t)(b & 127) << shift;
    if (b < 128) return *out = v, true;
  }
  return pb_fail(r, "a number of more than 64 bits");
}

static inline bool pb_fixed(pb_reader *r, size_t bytes, uint64_t *out) {
  if ((size_t)(r->end - r->at) < bytes) return pb_fail(r, "the data ends inside a number");
  *out = 0;
  for (size_t i = 0; i < bytes; i++) *out |= (uint64_t)r->at[i] << (8 * i);
  r->at += bytes;
  return true;
}

/* The next field; false at the end or where something is wrong (r->bad). */
static inline bool pb_next(pb_reader *r, pb_field *f) {
  uint64_t key, size;
  if (r->bad || r->at == r->end) return false;
  if (!pb_varint(r, &key)) return false;
  *f = (pb_field){.number = (uint32_t)(key >> 3), .wire = (pb_wire)(key & 7)};
  if (key >> 3 == 0 || key >> 3 > 0x1fffffff) return pb_fail(r, "a field number that does not exist");
  switch (key & 7) {
  case PB_VARINT: return pb_varint(r, &f->value);
  case PB_FIXED64: return pb_fixed(r, 8, &f->value);
  case PB_FIXED32: return pb_fixed(r, 4, &f->value);
  case PB_BYTES:
    if (!pb_varint(r, &size)) return false;
    if (size > (size_t)(r->end - r->at)) return pb_fail(r, "a field longer than the data");
    f->data = r->at;
    f->size = (size_t)size;
    r->at += size;
    return true;
  default: return pb_fail(r, "a field of an unknown kind");
  }
}

static inline float pb_float(const pb_field *f) {
  uint32_t bits = (uint32_t)f->value;
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

#endif

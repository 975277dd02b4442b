/* names.c - what a name stands for, by scope. */
#include "cuda/sim/parse.h"
#include <ctype.h>
#include <string.h>

static uint32_t bucket_of(const char *text, uint32_t length) {
  uint32_t h = 5381;
  for (uint32_t i = 0; i < length; i++) h = h * 33u ^ (unsigned char)text[i];
  return h % PARSE_BUCKETS;
}

static const name *find_exact(const decoder *d, const char *text, uint32_t length) {
  for (uint32_t k = d->buckets[bucket_of(text, length)]; k; k = d->names[k - 1].next) {
    const name *n = &d->names[k - 1];
    if (n->length == length && memcmp(n->text, text, length) == 0) return n;
  }
  return NULL;
}

/* %r57 is member 57 of the family %r<100>. */
const name *parse_find(const decoder *d, const char *text, uint32_t length, uint32_t *out_member) {
  *out_member = 0;
  const name *n = find_exact(d, text, length);
  if (n && n->family == 0) return n;
  uint32_t head = length, member = 0, scale = 1;
  while (head > 0 && isdigit((unsigned char)text[head - 1]) && length - head < 9) {
    member += (uint32_t)(text[--head] - '0') * scale;
    scale *= 10;
    if (head + 1 < length && text[head] == '0') continue; /* %r05 is no member, %r10 is */
    n = find_exact(d, text, head);
    if (!n || n->family <= member) continue;
    *out_member = member;
    return n;
  }
  return NULL;
}

/* Is the name, or a family that it is of, one of the innermost scope already? */
static bool stands(const decoder *d, const token *t) {
  uint32_t member;
  const name *same = find_exact(d, t->at, t->length), *of_family = parse_find(d, t->at, t->length, &member);
  return (same && (size_t)(same - d->names) >= d->scope) || (of_family && (size_t)(of_family - d->names) >= d->scope);
}

taper_status parse_add_name(decoder *d, const token *t, name value) {
  if (stands(d, t)) return parse_fail(d, t, "the name '%.*s' stands twice", (int)t->length, t->at);
  size_t capacity = d->name_capacity;
  TAPER_TRY(parse_room(d, (void **)&d->names, sizeof(name), d->name_count, &capacity));
  d->name_capacity = (uint32_t)capacity;
  const uint32_t bucket = bucket_of(t->at, t->length);
  value.text = t->at;
  value.length = t->length;
  value.next = d->buckets[bucket];
  d->names[d->name_count++] = value;
  d->buckets[bucket] = d->name_count;
  return TAPER_OK;
}

void parse_pop_names(decoder *d, uint32_t count) {
  while (d->name_count > count) {
    const name *n = &d->names[--d->name_count];
    d->buckets[bucket_of(n->text, n->length)] = n->next;
  }
}

uint32_t parse_type_bytes(const token *t, bool *out_predicate) {
  static const struct {
    const char *text;
    uint32_t bytes;
  } types[] = {{".b8", 1},  {".u8", 1},  {".s8", 1},  {".b16", 2},  {".u16", 2},   {".s16", 2},
               {".f16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4},  {".f32", 4},   {".b64", 8},
               {".u64", 8}, {".s64", 8}, {".f64", 8}, {".bf16", 2}, {".f16x2", 4}, {".bf16x2", 4}};
  *out_predicate = parse_is(t, ".pred");
  for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++)
    if (parse_is(t, types[k].text)) return types[k].bytes;
  return 0;
}

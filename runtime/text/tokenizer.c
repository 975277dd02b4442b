#include "runtime/text/tokenizer.h"

const char *tokenizer_name(package_tokenizer t) { return t == PACKAGE_TOKENIZER_BYTES ? "bytes" : "none"; }

size_t tokenizer_encode(package_tokenizer t, const char *bytes, size_t n, int32_t *ids, size_t cap) {
  if (t == PACKAGE_TOKENIZER_NONE) return 0;
  for (size_t i = 0; i < n && i < cap; i++) ids[i] = (uint8_t)bytes[i];
  return n;
}

size_t tokenizer_piece(package_tokenizer t, int32_t id, char *out) {
  if (t == PACKAGE_TOKENIZER_NONE || id < 0 || id > 255) return 0;
  *out = (char)(uint8_t)id;
  return 1;
}

/* fuzz_sentencepiece.c - any bytes as a SentencePiece model: refused in words, or a tokenizer that encodes any text (the
   last 64 bytes of the input) and decodes what it made. */
#include "runtime/text/tokenizer.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tokenizer t;
  taper_error error = {.status = TAPER_OK};
  size_t n = size < 64 ? size : 64, count = 0, bytes = 0;
  const char *text = (const char *)data + size - n;
  taper_status status = tokenizer_open(TOKENIZER_SENTENCEPIECE, data, size, "fuzz.model", NULL, &t, &error);
  if (status != TAPER_OK) {
    if (error.status != status || error.message[0] == 0 || strchr(error.message, '\n')) abort();
    return 0;
  }
  const uint32_t vocab = tokenizer_vocab(&t);
  for (unsigned flags = 0; flags < 4; flags++) {
    int32_t ids[4096];
    if (tokenizer_encode(&t, text, n, flags, ids, 4096, &count, &error) != TAPER_OK) abort();
    if (count > 4096) continue;
    for (size_t i = 0; i < count; i++)
      if (ids[i] < 0 || (uint32_t)ids[i] >= vocab) abort();
    if (tokenizer_decode(&t, ids, count, NULL, 0, &bytes, &error) != TAPER_OK) abort();
  }
  tokenizer_close(&t);
  return 0;
}

/* The tokenizer of a model that is loaded from its source. */
#include "compiler/driver/model_priv.h"
#include <string.h>
#include <unistd.h>

taper_status model_set_tokenizer(model_loaded *m, const char *path, taper_error *error) {
  mapped_file map = {0};
  tokenizer opened = {0};
  double vocab = 0;
  TAPER_TRY(file_map(path, &map, error));
  taper_status status = tokenizer_open(TOKENIZER_SENTENCEPIECE, map.data, map.size, path, NULL, &opened, error);
  ir_module_param(m->module, "vocab", &vocab);
  if (status == TAPER_OK && vocab != tokenizer_vocab(&opened)) {
    status = TAPER_FAIL(error, TAPER_INVALID,
                        "%s: the tokenizer has %u ids, the model's vocab is %.0f; give the model -D vocab=%u, or the "
                        "tokenizer that belongs to it",
                        path, tokenizer_vocab(&opened), vocab, tokenizer_vocab(&opened));
    tokenizer_close(&opened);
  }
  if (status != TAPER_OK) return file_unmap(&map), status;
  tokenizer_close(&m->tokens);
  file_unmap(&m->tokenizer_file);
  m->tokens = opened;
  m->tokenizer_file = map;
  return TAPER_OK;
}

static const char *beside(model_loaded *m, const char *name) {
  const char *source = m->place.source, *slash = strrchr(source, '/');
  int folder = slash && *name != '/' ? (int)(slash - source) + 1 : 0;
  return arena_printf(&m->priv->memory, "%.*s%s", folder, source, name);
}

taper_status tokenizer_find_file(model_loaded *m, taper_error *error) {
  tokenizer_kind kind = TOKENIZER_NONE;
  const char *named = front_train_section(m->priv->front)->tokenizer_file, *own = beside(m, TOKENIZER_FILE);
  tokenizer_find(m->tokenizer, &kind);
  if (kind != TOKENIZER_SENTENCEPIECE) return tokenizer_open(kind, NULL, 0, "", NULL, &m->tokens, error);
  bool has_own = access(own, F_OK) == 0;
  if (named && !(m->place.kind == MODEL_CHECKPOINT && has_own)) {
    const char *path = beside(m, named);
    if (access(path, F_OK) == 0 || !has_own) return model_set_tokenizer(m, path, error);
  }
  return has_own ? model_set_tokenizer(m, own, error) : TAPER_OK;
}

/* train_tokenizer.h - `tokenizer sentencepiece(vocab = N)` without a file: learned from the training data. docs/data.md */
#ifndef TAPERC_DRIVER_TRAIN_TOKENIZER_H
#define TAPERC_DRIVER_TRAIN_TOKENIZER_H

#include "compiler/driver/corpus.h"
#include "compiler/driver/model.h"

/* Gives `m` (whose source says sentencepiece, and for which model_load found no file) a tokenizer of as many pieces as
   its vocab, learned by spm_train from those of the data files that hold text (all of each). It is kept beside the first
   (FILE.<key>.model) and taken from there the next time. Same texts, same spm_train: same tokenizer. TAPER_DEVICE: the
   program is not there (the message names its package) or nothing can be written; TAPER_INVALID: it made none of the texts. */
taper_status train_tokenizer(model_loaded *m, const char *const *files, size_t count, diag_sink *sink,
                             taper_error *error);

#endif

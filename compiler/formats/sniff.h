/* sniff.h - what a file or folder is, by its content. */
#ifndef TAPERC_FORMATS_SNIFF_H
#define TAPERC_FORMATS_SNIFF_H

#include "runtime/base/file.h"

typedef enum format_kind {
  FORMAT_UNKNOWN,
  FORMAT_FOLDER,     /* a folder without the marks of a checkpoint */
  FORMAT_CHECKPOINT, /* a folder with manifest.json, or a run folder (checkpoint-<step>/ inside) */
  FORMAT_PACKAGE,    /* safetensors with metadata taper.package */
  FORMAT_TIR,
  FORMAT_SAFETENSORS,
  FORMAT_GGUF,
  FORMAT_LLAMA2C,
  FORMAT_TMODEL
} format_kind;

const char *format_kind_name(format_kind kind); /* "folder", ...; "unknown" */
/* Of an unknown file *out_guess (may be NULL) says what it seems to be, a constant such as "a Git LFS pointer" or
   "binary data"; else it is NULL. A damaged safetensors file still is one: opening it says what is wrong. TAPER_IO
   where nothing can be read. */
taper_status formats_sniff(const char *path, format_kind *out, const char **out_guess, taper_error *error);

#endif

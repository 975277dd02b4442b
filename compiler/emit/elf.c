/* elf.c - what a compiled image exports and needs, read from its section of dynamic symbols. */
#include "compiler/emit/emit_priv.h"

#include <elf.h>
#include <string.h>

typedef struct view {
  const unsigned char *data;
  size_t size;
} view;

static bool slice(view all, uint64_t offset, uint64_t size, view *out) {
  if (offset > all.size || size > all.size - offset) return false;
  *out = (view){all.data + offset, (size_t)size};
  return true;
}

static bool section(view all, const Elf64_Ehdr *h, size_t i, Elf64_Shdr *out, view *content) {
  view v;
  if (i >= h->e_shnum || h->e_shentsize != sizeof *out || !slice(all, h->e_shoff + i * sizeof *out, sizeof *out, &v))
    return false;
  memcpy(out, v.data, sizeof *out);
  return out->sh_type == SHT_NOBITS || slice(all, out->sh_offset, out->sh_size, content);
}

static const char *name_at(view names, uint64_t at) {
  return at < names.size && memchr(names.data + at, 0, names.size - (size_t)at) ? (const char *)names.data + at : "?";
}

static taper_status check_symbols(view symbols, view names, taper_error *error) {
  bool exported = false;
  for (size_t i = 1; (i + 1) * sizeof(Elf64_Sym) <= symbols.size; i++) {
    Elf64_Sym s;
    memcpy(&s, symbols.data + i * sizeof s, sizeof s);
    const char *name = name_at(names, s.st_name);
    if (s.st_shndx == SHN_UNDEF)
      return TAPER_FAIL(error, TAPER_INTERNAL, "the compiled image needs the symbol '%s'; it must need none", name);
    exported |= strcmp(name, "taper_image") == 0 || strcmp(name, "taper_train_image") == 0;
  }
  return exported ? TAPER_OK
                  : TAPER_FAIL(error, TAPER_INTERNAL,
                               "the compiled image exports neither 'taper_image' nor 'taper_train_image'");
}

taper_status emit_check_image(const void *image, size_t size, taper_error *error) {
  view all = {image, size}, content = {0}, names = {0};
  Elf64_Ehdr h;
  Elf64_Shdr s = {0}, t = {0};
  if (size < sizeof h || memcmp(image, ELFMAG, SELFMAG) != 0 || all.data[EI_CLASS] != ELFCLASS64 ||
      all.data[EI_DATA] != ELFDATA2LSB)
    return TAPER_FAIL(error, TAPER_INTERNAL, "the C compiler's output is no 64-bit little-endian ELF file");
  memcpy(&h, image, sizeof h);
  if (h.e_type != ET_DYN) return TAPER_FAIL(error, TAPER_INTERNAL, "the C compiler's output is no shared object");
  for (size_t i = 0; i < h.e_shnum; i++) {
    if (!section(all, &h, i, &s, &content))
      return TAPER_FAIL(error, TAPER_INTERNAL, "section %zu of the compiled image is cut off", i);
    if (s.sh_type != SHT_DYNSYM) continue;
    if (!section(all, &h, s.sh_link, &t, &names))
      return TAPER_FAIL(error, TAPER_INTERNAL, "the compiled image has no symbol names");
    return check_symbols(content, names, error);
  }
  return TAPER_FAIL(error, TAPER_INTERNAL, "the compiled image has no dynamic symbols");
}

#include "cuda/library.h"
#include "runtime/base/text.h"
#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes that an ELF file has by its tables of sections and segments; 0: it is none. */
static unsigned long long elf_bytes(FILE *f) {
  Elf64_Ehdr head;
  Elf64_Phdr part;
  if (fread(&head, sizeof head, 1, f) != 1 || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof part || head.e_phoff > LONG_MAX)
    return 0;
  unsigned long long most = head.e_shoff + (unsigned long long)head.e_shnum * head.e_shentsize;
  if (fseek(f, (long)head.e_phoff, SEEK_SET) != 0) return 0;
  for (unsigned i = 0; i < head.e_phnum && fread(&part, sizeof part, 1, f) == 1; i++)
    if (part.p_type == PT_LOAD && part.p_offset + part.p_filesz > most) most = part.p_offset + part.p_filesz;
  return most;
}

/* A copy that broke off: the linker maps it, and its code dies at the first page that is not there. */
static bool is_cut_off(const char *path, unsigned long long *out_bytes, unsigned long long *out_whole) {
  FILE *f = strchr(path, '/') ? fopen(path, "rb") : NULL;
  if (!f) return false;
  *out_whole = elf_bytes(f);
  const long bytes = *out_whole && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
  fclose(f);
  *out_bytes = bytes < 0 ? 0 : (unsigned long long)bytes;
  return bytes >= 0 && *out_bytes < *out_whole;
}

static void *try_open(const char *name, text *tried) {
  unsigned long long bytes, whole;
  if (is_cut_off(name, &bytes, &whole)) {
    text_printf(tried, "%s%s: cut off: %llu bytes of %llu", tried->size ? "; " : "", name, bytes, whole);
    return NULL;
  }
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library) return library;
  const char *why = dlerror();
  if (tried->size) text_puts(tried, "; ");
  /* the linker names the file itself, mostly */
  if (why && strncmp(why, name, strlen(name)) == 0)
    text_puts(tried, why);
  else
    text_printf(tried, "%s: %s", name, why ? why : "cannot be opened");
  return NULL;
}

static void tell_path(void *library, const char *name, char *out_path, size_t cap) {
  const struct link_map *map = NULL;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name || !*map->l_name) map = NULL;
  snprintf(out_path, cap, "%s", map ? map->l_name : name);
}

void *library_open(const library_search *search, char *out_path, size_t cap, taper_error *error) {
  const char *given = search->variable ? getenv(search->variable) : NULL;
  const char *only = search->path ? search->path : given && *given ? given : NULL;
  const size_t count = only ? 1 : search->name_count;
  text tried = {0};
  void *library = NULL;
  if (cap) *out_path = 0;
  for (size_t i = 0; i < count && !library; i++) {
    const char *name = only ? only : search->names[i];
    if ((library = try_open(name, &tried))) tell_path(library, name, out_path, cap);
  }
  if (!library)
    taper_fail(error, TAPER_DEVICE, "cannot open the %s%s%s: %s; %s", search->what,
               only && !search->path ? " named by " : "", only && !search->path ? search->variable : "",
               tried.data ? tried.data : "no name to try", search->remedy);
  text_free(&tried);
  return library;
}

const char *library_symbols(void *library, const library_symbol *table, size_t count, void *out) {
  const char *missing = NULL;
  for (size_t i = 0; i < count; i++) {
    void *symbol = dlsym(library, table[i].name);
    memcpy((char *)out + table[i].offset, &symbol, sizeof symbol);
    if (!symbol && !table[i].optional && !missing) missing = table[i].name;
  }
  return missing;
}

/* The folder of the file that holds this code, with its last '/'. */
static bool own_folder(char out[PATH_MAX]) {
  static const char here = 0;
  Dl_info info;
  void *extra = NULL;
  if (!dladdr1(&here, &info, &extra, RTLD_DL_LINKMAP)) return false;
  const struct link_map *map = extra; /* the program itself has no name there */
  if (!realpath(map && map->l_name && *map->l_name ? map->l_name : "/proc/self/exe", out)) return false;
  char *slash = strrchr(out, '/');
  if (!slash) return false;
  slash[1] = 0;
  return true;
}

bool library_beside(const char *name, char *out_path, size_t cap) {
  static const char *const places[] = {"", "../lib/", "../../"};
  char folder[PATH_MAX], path[2 * PATH_MAX];
  if (!own_folder(folder)) return false;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    snprintf(path, sizeof path, "%s%s%s", folder, places[i], name);
    if (access(path, R_OK) != 0) continue;
    snprintf(out_path, cap, "%s", path);
    return strlen(path) < cap;
  }
  return false;
}

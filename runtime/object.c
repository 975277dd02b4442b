#include "runtime/object.h"
#include "runtime/base/checked.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010u
#endif

/* Whether an ELF file is one this process can load and none of its headers points beyond its end. */
static bool elf_is_sound(const uint8_t *data, uint64_t size) {
  Elf64_Ehdr h;
  if (size < sizeof(h)) return false;
  memcpy(&h, data, sizeof(h));
  if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_type != ET_DYN) return false;
#if defined(__x86_64__)
  if (h.e_machine != EM_X86_64 || h.e_ident[EI_DATA] != ELFDATA2LSB) return false;
#endif
  uint64_t end;
  if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0) return false;
  if (!checked_add_u64(h.e_phoff, (uint64_t)h.e_phnum * sizeof(Elf64_Phdr), &end) || end > size) return false;
  for (unsigned i = 0; i < h.e_phnum; i++) {
    Elf64_Phdr ph;
    memcpy(&ph, data + h.e_phoff + i * sizeof(ph), sizeof(ph));
    if (!checked_add_u64(ph.p_offset, ph.p_filesz, &end) || end > size) return false;
  }
  return true;
}

static int open_memory_file(void) {
  int fd = memfd_create("taper-image", MFD_CLOEXEC | MFD_EXEC);
  if (fd < 0 && errno == EINVAL) fd = memfd_create("taper-image", MFD_CLOEXEC); /* Linux before 6.3 */
  return fd;
}

static bool write_all(int fd, const uint8_t *data, uint64_t size) {
  while (size > 0) {
    ssize_t n = write(fd, data, size < (1u << 30) ? size : 1u << 30);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n, size -= (uint64_t)n;
  }
  return true;
}

static int find_segments(struct dl_phdr_info *info, size_t size, void *user) {
  (void)size;
  object_extent *x = user;
  if (info->dlpi_addr != x->base) return 0;
  for (unsigned i = 0; i < info->dlpi_phnum && x->count < 16; i++) {
    const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
    if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_R)) continue;
    x->first[x->count] = x->base + ph->p_vaddr;
    x->end[x->count++] = x->base + ph->p_vaddr + ph->p_memsz;
  }
  return 1;
}

static bool find_extent(void *handle, object_extent *out) {
  struct link_map *map = NULL;
  memset(out, 0, sizeof(*out));
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map) return false;
  out->base = map->l_addr;
  dl_iterate_phdr(find_segments, out);
  return out->count > 0;
}

bool object_holds_address(const object_extent *x, uint64_t at, uint64_t bytes) {
  uint64_t end;
  if (!checked_add_u64(at, bytes, &end)) return false;
  for (unsigned i = 0; i < x->count; i++) {
    if (at >= x->first[i] && end <= x->end[i]) return true;
  }
  return false;
}

bool object_holds(const object_extent *x, const void *p, uint64_t count, uint64_t size) {
  uint64_t bytes;
  return checked_mul_u64(count, size, &bytes) && object_holds_address(x, (uintptr_t)p, bytes);
}

bool object_holds_string(const object_extent *x, const char *s) {
  for (unsigned i = 0; i < x->count; i++) {
    if ((uintptr_t)s >= x->first[i] && (uintptr_t)s < x->end[i]) return memchr(s, 0, x->end[i] - (uintptr_t)s) != NULL;
  }
  return false;
}

static taper_status load(const void *data, uint64_t bytes, const char *symbol, object_code *out,
                         const void **out_symbol, taper_error *error) {
  if (!elf_is_sound(data, bytes))
    return TAPER_FAIL(error, TAPER_INVALID, "not a shared object for this machine; compile the package again");
  out->fd = open_memory_file();
  if (out->fd < 0 || !write_all(out->fd, data, bytes))
    return TAPER_FAIL(error, errno == ENOMEM || errno == ENOSPC ? TAPER_NOMEM : TAPER_IO,
                      "cannot put %llu bytes of code in memory: %s; free some memory and allow memory files",
                      (unsigned long long)bytes, strerror(errno));
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", out->fd);
  out->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!out->handle) {
    const char *cause = dlerror();
    return TAPER_FAIL(error, TAPER_IO,
                      "the system cannot load it: %.200s; /proc must be mounted and memory files executable",
                      cause ? cause : "?");
  }
  *out_symbol = dlsym(out->handle, symbol);
  if (*out_symbol && find_extent(out->handle, &out->extent)) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_INVALID, "it has no table '%s'; compile the package again", symbol);
}

taper_status object_load(const void *data, uint64_t bytes, const char *symbol, object_code *out,
                         const void **out_symbol, taper_error *error) {
  *out = (object_code){.fd = -1};
  taper_status status = load(data, bytes, symbol, out, out_symbol, error);
  if (status != TAPER_OK) object_unload(out);
  return status;
}

void object_unload(object_code *o) {
  if (o->handle) dlclose(o->handle);
  if (o->fd >= 0) close(o->fd);
  *o = (object_code){.fd = -1};
}

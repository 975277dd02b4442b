#include "compiler/cli/machine.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

enum { PROC_LIMIT = 4 << 20 };

/* What follows `key` and blanks and a colon at the start of a line. */
static const char *line_value(const char *path, const char *key, arena *a) {
  char *data = NULL;
  size_t size = 0, n = strlen(key);
  const char *result = NULL;
  if (file_read(path, PROC_LIMIT, &data, &size, NULL) != TAPER_OK) return NULL;
  for (char *line = data; line && *line && !result; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    if (strncmp(line, key, n) != 0 || line[n + strspn(line + n, " \t")] != ':') continue;
    const char *value = line + n + strspn(line + n, " \t:");
    result = arena_strndup(a, value, strcspn(value, "\n"));
  }
  free(data);
  return result;
}

const char *machine_cpu(arena *a) {
  const char *name = line_value("/proc/cpuinfo", "model name", a);
  return name ? name : "unknown";
}

const char *machine_cpu_features(arena *a) {
  text t = {0};
#if defined(__x86_64__)
  __builtin_cpu_init();
#define CPUF(word, macro)                                                                                              \
  if (__builtin_cpu_supports(word)) text_printf(&t, "%s%s", t.size ? "," : "", word);
#include "runtime/abi/cpu_features.def"
#undef CPUF
#endif
  const char *result = arena_strdup(a, t.data ? t.data : "");
  text_free(&t);
  return result;
}

const char *machine_system(arena *a) {
  struct utsname u;
  return uname(&u) == 0 ? arena_printf(a, "%s %s %s", u.sysname, u.release, u.machine) : "unknown";
}

uint32_t machine_cpus(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

uint64_t machine_memory(const char *key) {
  arena a = {0};
  uint64_t kib = 0;
  const char *value = line_value("/proc/meminfo", key, &a);
  if (value) number_parse_u64(value, strcspn(value, " "), &kib);
  arena_free(&a);
  return kib * 1024;
}

const char *machine_huge_pages(arena *a) {
  char *data = NULL;
  size_t size = 0;
  if (file_read("/sys/kernel/mm/transparent_hugepage/enabled", PROC_LIMIT, &data, &size, NULL) != TAPER_OK)
    return "unknown";
  const char *open = strchr(data, '['),
             *result = open ? arena_strndup(a, open + 1, strcspn(open + 1, "]\n")) : "unknown";
  free(data);
  return result;
}

/* machine.h - what this machine is, for benchmarks and doctor. Strings live in the arena. */
#ifndef TAPERC_CLI_MACHINE_H
#define TAPERC_CLI_MACHINE_H

#include "runtime/base/arena.h"
#include <stdint.h>

const char *machine_cpu(arena *a);          /* "Intel(R) Xeon(R) ..."; "unknown" */
const char *machine_cpu_features(arena *a); /* those of runtime/abi/cpu_features.def that it has, comma-separated */
const char *machine_system(arena *a);       /* "Linux 6.1.0 x86_64" */
uint32_t machine_cpus(void);                /* that this process may use */
uint64_t machine_memory(const char *key); /* bytes of a line of /proc/meminfo: "MemTotal", "MemAvailable"; 0: unknown */
const char *machine_huge_pages(arena *a); /* "always", "madvise", "never", "unknown" */

#endif

/* A libnvrtc for tests. Macros: STUB_MAJOR, STUB_MINOR, STUB_ARCHS, STUB_CUBIN_BYTES, STUB_COMPILE (statements of nvrtcCompileProgram), STUB_OPENED (of
   a constructor). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifndef STUB_MAJOR
#define STUB_MAJOR 12
#endif
#ifndef STUB_MINOR
#define STUB_MINOR 4
#endif
#ifndef STUB_ARCHS
#define STUB_ARCHS 80, 90
#endif
#ifndef STUB_COMPILE
#define STUB_COMPILE return 0;
#endif
#ifndef STUB_CUBIN_BYTES
#define STUB_CUBIN_BYTES 4
#endif
#ifdef STUB_OPENED
__attribute__((constructor)) static void opened(void) { STUB_OPENED }
#endif
static const int archs[] = {STUB_ARCHS};
static char taken[1000], said[4000];
int nvrtcVersion(int *major, int *minor) { return *major = STUB_MAJOR, *minor = STUB_MINOR, 0; }
const char *nvrtcGetErrorString(int result) {
  return result == 11 ? "NVRTC_ERROR_INTERNAL_ERROR" : "NVRTC_ERROR_OTHER";
}
#ifndef STUB_NO_ARCHS
int nvrtcGetNumSupportedArchs(int *count) { return *count = sizeof archs / sizeof *archs, 0; }
int nvrtcGetSupportedArchs(int *out) { return memcpy(out, archs, sizeof archs), 0; }
#endif
int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers, const char *const *h,
                       const char *const *i) {
  snprintf(taken, sizeof taken, "%s|%s|%d", name, source, headers);
  return *program = taken, 0;
}
int nvrtcCompileProgram(void *program, int count, const char *const *options) {
  said[0] = 0;
  for (int i = 0; i < count; i++) strcat(strcat(said, options[i]), "\n");
  STUB_COMPILE
}
int nvrtcGetProgramLogSize(void *program, size_t *bytes) { return *bytes = strlen(said) + 1, 0; }
int nvrtcGetProgramLog(void *program, char *log) { return strcpy(log, said), 0; }
int nvrtcGetPTXSize(void *program, size_t *bytes) { return *bytes = strlen(taken) + 1, 0; }
int nvrtcGetPTX(void *program, char *ptx) { return strcpy(ptx, taken), 0; }
int nvrtcGetCUBINSize(void *program, size_t *bytes) { return *bytes = STUB_CUBIN_BYTES, 0; }
int nvrtcGetCUBIN(void *program, char *cubin) { return memcpy(cubin, "\177ELF", 4), 0; }

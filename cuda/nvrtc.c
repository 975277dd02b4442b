/* NVRTC in a child process. The request is four texts, each with its NUL: library, name, arch, source. */
#include "cuda/nvrtc.h"
#include "cuda/child.h"
#include "cuda/library.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INSTALL "install it (pip install nvidia-cuda-nvrtc) and set TAPER_LIBNVRTC to its libnvrtc.so.13"
#define ANOTHER "set TAPER_LIBNVRTC to another NVRTC (pip install nvidia-cuda-nvrtc; older: nvidia-cuda-nvrtc-cu12)"

typedef struct nvrtc_program_of_library *nvrtc_program;
enum { NVRTC_SUCCESS = 0, NVRTC_ERROR_OUT_OF_MEMORY = 1, NVRTC_ERROR_INVALID_OPTION = 5, NVRTC_ERROR_COMPILATION = 6 };
enum { MOST_ARCHS = 64, SECONDS = 600 };
enum { LEAST_MAJOR = 11, LEAST_MINOR = 8 };              /* knows __grid_constant__ and sm_90 */
enum { FACTS = 'V', LOG = 'L', CUBIN = 'C', PTX = 'P' }; /* records of the answer */

typedef struct nvrtc {
  void *library;
  nvrtc_facts facts;
  char who[320]; /* "NVRTC 13.0 (path)" */
#define NVRTC(result, name, parameters) result(*name) parameters;
#include "cuda/nvrtc.def"
} nvrtc;

static const library_symbol symbols[] = {
#define NVRTC(result, name, parameters) {#name, offsetof(nvrtc, name), false},
#define NVRTC_OPTIONAL(result, name, parameters) {#name, offsetof(nvrtc, name), true},
#include "cuda/nvrtc.def"
};

/* ---- in the child ---- */

static taper_status open_library(const char *path, int out, nvrtc *n, taper_error *error) {
  static const char *const names[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                                      "/usr/local/cuda/lib64/libnvrtc.so"};
  const library_search search = {.what = "NVRTC library",
                                 .path = *path ? path : NULL,
                                 .variable = "TAPER_LIBNVRTC",
                                 .names = names,
                                 .name_count = sizeof names / sizeof *names,
                                 .remedy = INSTALL};
  nvrtc_facts *f = &n->facts;
  const char *given = *path ? path : getenv(search.variable);
  if (given && *given) child_say(out, CHILD_WHO, "NVRTC (%s)", given);
  n->library = library_open(&search, f->path, sizeof f->path, error);
  if (!n->library) return TAPER_DEVICE;
  child_say(out, CHILD_WHO, "NVRTC (%s)", f->path);
  child_say(out, CHILD_STAGE, "it was asked for its version");
  const char *missing = library_symbols(n->library, symbols, sizeof symbols / sizeof *symbols, n);
  if (!n->nvrtcVersion || n->nvrtcVersion(&f->major, &f->minor) != NVRTC_SUCCESS)
    return TAPER_FAIL(error, TAPER_DEVICE, "%s: tells no version, so it is no NVRTC; set TAPER_LIBNVRTC to one",
                      f->path);
  snprintf(n->who, sizeof n->who, "NVRTC %d.%d (%s)", f->major, f->minor, f->path);
  child_say(out, CHILD_WHO, "%s", n->who);
  if (missing) return TAPER_FAIL(error, TAPER_DEVICE, "%s is too old: it has no '%s'; " ANOTHER, n->who, missing);
  if (f->major < LEAST_MAJOR || (f->major == LEAST_MAJOR && f->minor < LEAST_MINOR))
    return TAPER_FAIL(error, TAPER_DEVICE, "%s is too old: %d.%d or newer is needed; " ANOTHER, n->who, LEAST_MAJOR,
                      LEAST_MINOR);
  struct stat s;
  f->bytes = stat(f->path, &s) == 0 ? (uint64_t)s.st_size : 0;
  return TAPER_OK;
}

static void ask_archs(nvrtc *n) {
  int archs[MOST_ARCHS], count = 0;
  text t = {0};
  if (n->nvrtcGetNumSupportedArchs && n->nvrtcGetSupportedArchs &&
      n->nvrtcGetNumSupportedArchs(&count) == NVRTC_SUCCESS && count > 0 && count <= MOST_ARCHS &&
      n->nvrtcGetSupportedArchs(archs) == NVRTC_SUCCESS)
    for (int i = 0; i < count; i++) text_printf(&t, "%ssm_%d", i ? "," : "", archs[i]);
  if (t.data && t.size < sizeof n->facts.archs) memcpy(n->facts.archs, t.data, t.size + 1);
  text_free(&t);
}

/* It is found beside the library, wherever the linker looks. */
static void open_builtins(const nvrtc_facts *f) {
  const char *slash = strrchr(f->path, '/');
  char path[sizeof f->path + 64];
  if (!slash) return;
  snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - f->path), f->path, f->major, f->minor);
  (void)dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static bool knows(const nvrtc_facts *f, const char *arch) {
  const char *number = strchr(arch, '_');
  const size_t digits = number ? strspn(number + 1, "0123456789") : 0;
  if (!*f->archs || !digits) return true; /* let it say so */
  for (const char *p = f->archs; (p = strstr(p, "sm_")); p++)
    if (strspn(p + 3, "0123456789") == digits && memcmp(p + 3, number + 1, digits) == 0) return true;
  return false;
}

static char *take_log(const nvrtc *n, nvrtc_program program) {
  size_t bytes = 0;
  if (n->nvrtcGetProgramLogSize(program, &bytes) != NVRTC_SUCCESS) bytes = 0;
  char *log = calloc(1, bytes + 1);
  if (log && bytes && n->nvrtcGetProgramLog(program, log) != NVRTC_SUCCESS) *log = 0;
  return log;
}

/* The log on one line. */
static void one_line(char *log) {
  for (char *p = log; *p; p++)
    if (*p == '\n') *p = p[1] ? '|' : 0;
}

static taper_status result_failed(const nvrtc *n, int result, const char *arch, const char *name, char *log,
                                  taper_error *error) {
  if (log) one_line(log);
  const char *said = log ? log : "";
  if (result == NVRTC_ERROR_OUT_OF_MEMORY)
    return TAPER_FAIL(error, TAPER_NOMEM, "%s: no memory to compile '%s' for %s; free some memory", n->who, name, arch);
  if (result == NVRTC_ERROR_INVALID_OPTION)
    return TAPER_FAIL(error, TAPER_UNSUPPORTED,
                      "%s does not take the options for %s: %s; it compiles for %s: name one of these, or " ANOTHER,
                      n->who, arch, said, *n->facts.archs ? n->facts.archs : "what it does not tell");
  if (result == NVRTC_ERROR_COMPILATION)
    return TAPER_FAIL(error, TAPER_INVALID, "%s: does not compile for %s with %s: %s; see its log", name, arch, n->who,
                      said);
  return TAPER_FAIL(error, TAPER_DEVICE, "%s fails at '%s' for %s: %s: %s; " ANOTHER, n->who, name, arch,
                    n->nvrtcGetErrorString(result), said);
}

static taper_status put_image(const nvrtc *n, nvrtc_program program, char kind, int out, taper_error *error) {
  const bool ptx = kind == PTX;
  size_t bytes = 0;
  int result = ptx ? n->nvrtcGetPTXSize(program, &bytes) : n->nvrtcGetCUBINSize(program, &bytes);
  char *image = result == NVRTC_SUCCESS && bytes ? malloc(bytes) : NULL;
  if (image) result = ptx ? n->nvrtcGetPTX(program, image) : n->nvrtcGetCUBIN(program, image);
  const bool done = image && result == NVRTC_SUCCESS;
  if (done) child_put(out, kind, image, bytes);
  free(image);
  if (done) return TAPER_OK;
  return TAPER_FAIL(error, TAPER_DEVICE, "%s gives no %s (%s, %zu bytes); " ANOTHER, n->who, ptx ? "PTX" : "cubin",
                    n->nvrtcGetErrorString(result), bytes);
}

static bool is_virtual(const char *arch) { return strncmp(arch, "compute_", 8) == 0; }

static taper_status compile(const nvrtc *n, const char *name, const char *arch, const char *source, int out,
                            taper_error *error) {
  char architecture[64];
  snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", arch);
  /* 13 keeps results of its own, without their log; an older one does not know the last option */
  const char *const options[] = {architecture, NVRTC_OPTIONS, "--no-cache"};
  const int count = (int)(sizeof options / sizeof *options);
  nvrtc_program program = NULL;
  if (chdir("/") != 0)
    return TAPER_FAIL(error, TAPER_IO, "/: cannot be entered: %s",
                      file_error_text(errno)); /* it writes the folder into the PTX */
  int result = n->nvrtcCreateProgram(&program, source, name, 0, NULL, NULL);
  if (result == NVRTC_SUCCESS) {
    result = n->nvrtcCompileProgram(program, count, options);
    if (result == NVRTC_ERROR_INVALID_OPTION) result = n->nvrtcCompileProgram(program, count - 1, options);
  }
  char *log = program ? take_log(n, program) : NULL;
  if (log) child_put(out, LOG, log, strlen(log));
  taper_status status = result == NVRTC_SUCCESS ? put_image(n, program, PTX, out, error)
                                                : result_failed(n, result, arch, name, log, error);
  if (status == TAPER_OK && !is_virtual(arch)) status = put_image(n, program, CUBIN, out, error);
  free(log);
  return status;
}

static void serve(const char *request, size_t size, int out) {
  const char *field[4], *p = request;
  taper_error error = {0};
  nvrtc n = {0};
  for (size_t i = 0; i < 4; i++) {
    field[i] = p;
    if ((p = memchr(p, 0, (size_t)(request + size - p))) == NULL) _Exit(1);
    p++;
  }
  child_say(out, CHILD_STAGE, "it was opened");
  taper_status status = open_library(field[0], out, &n, &error);
  if (status == TAPER_OK) {
    ask_archs(&n);
    child_put(out, FACTS, &n.facts, sizeof n.facts);
  }
  if (status == TAPER_OK && *field[2]) {
    open_builtins(&n.facts);
    child_say(out, CHILD_STAGE, "'%s' was compiled for %s", field[1], field[2]);
    if (knows(&n.facts, field[2]))
      status = compile(&n, field[1], field[2], field[3], out, &error);
    else
      status = TAPER_FAIL(&error, TAPER_UNSUPPORTED,
                          "%s does not know %s; it compiles for %s: name one of these, or " ANOTHER, n.who, field[2],
                          n.facts.archs);
  }
  if (status != TAPER_OK) child_fail(out, &error);
}

static const child_job nvrtc_job = {"nvrtc", serve};
CHILD_JOB(nvrtc_job)

/* ---- in the parent ---- */

static taper_status ask(const char *library, const char *name, const char *arch, const char *source,
                        child_answer *answer, taper_error *error) {
  const char *const fields[] = {library ? library : "", name, arch, source}, *given = getenv("TAPER_NVRTC_SECONDS");
  uint64_t seconds = SECONDS;
  if (given && (!number_parse_u64(given, strlen(given), &seconds) || seconds == 0 || seconds > 1000000))
    return TAPER_FAIL(error, TAPER_INVALID, "TAPER_NVRTC_SECONDS is '%s'; set it to 1 or more, or not at all", given);
  text request = {0};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) text_put(&request, fields[i], strlen(fields[i]) + 1);
  taper_status status =
      request.failed
          ? TAPER_FAIL(error, TAPER_NOMEM, "no memory for a source of %zu bytes; free some memory", strlen(source))
          : child_run(&nvrtc_job, request.data, request.size, (unsigned)seconds, answer, error);
  text_free(&request);
  return status == TAPER_OK ? child_outcome(answer, "NVRTC", ANOTHER, error) : status;
}

static bool take_facts(const child_answer *a, nvrtc_facts *out) {
  size_t size = 0;
  const char *facts = child_find(a, FACTS, &size);
  if (!facts || size != sizeof *out) return false;
  memcpy(out, facts, sizeof *out);
  return true;
}

static char *copy_record(const child_answer *a, char letter, size_t *out_size) {
  const char *data = child_find(a, letter, out_size);
  char *copy = data ? malloc(*out_size + 1) : NULL;
  if (copy) memcpy(copy, data, *out_size + 1);
  return copy;
}

taper_status nvrtc_compile(const nvrtc_request *request, nvrtc_result *out, taper_error *error) {
  child_answer answer = {0};
  nvrtc_facts facts = {0};
  size_t log_size = 0;
  memset(out, 0, sizeof *out);
  if (strncmp(request->arch, "sm_", 3) != 0 && !is_virtual(request->arch))
    return TAPER_FAIL(error, TAPER_INVALID, "'%s' is no CUDA arch; give sm_90 or compute_90", request->arch);
  taper_status status = ask(request->library, request->name, request->arch, request->source, &answer, error);
  if (take_facts(&answer, &facts)) out->major = facts.major, out->minor = facts.minor;
  out->log = copy_record(&answer, LOG, &log_size);
  if (status == TAPER_OK) {
    out->ptx = copy_record(&answer, PTX, &out->ptx_size);
    out->image = copy_record(&answer, is_virtual(request->arch) ? PTX : CUBIN, &out->size);
    if (!out->image || !out->log || !out->ptx)
      status = TAPER_FAIL(error, TAPER_NOMEM, "no memory for an image for %s; free some memory", request->arch);
  }
  child_free(&answer);
  return status;
}

void nvrtc_free(nvrtc_result *r) {
  free(r->image), free(r->log), free(r->ptx);
  memset(r, 0, sizeof *r);
}

taper_status nvrtc_find(const char *library, nvrtc_facts *out, taper_error *error) {
  child_answer answer = {0};
  memset(out, 0, sizeof *out);
  taper_status status = ask(library, "", "", "", &answer, error);
  if (status == TAPER_OK && !take_facts(&answer, out))
    status = TAPER_FAIL(error, TAPER_DEVICE, "NVRTC says nothing of itself; " ANOTHER);
  child_free(&answer);
  return status;
}

/* Modules and functions: PTX alone, as a device without a compiler for its own code would take it. */
#include "cuda/sim/driver_priv.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include <stdlib.h>
#include <string.h>

/* ---- the log of the JIT compiler ---- */

typedef struct jit_log {
  char *buffer; /* NULL: not wanted */
  size_t bytes;
} jit_log;

static CUresult jit_options(unsigned count, const int *options, void **values, jit_log *info, jit_log *error) {
  if (count && (!options || !values)) return drv_fail(CUDA_ERROR_INVALID_VALUE, "%u options, but none given", count);
  for (unsigned i = 0; i < count; i++) {
    switch (options[i]) {
    case CU_JIT_INFO_LOG_BUFFER: info->buffer = values[i]; break;
    case CU_JIT_INFO_LOG_BYTES: info->bytes = (size_t)(uintptr_t)values[i]; break;
    case CU_JIT_ERROR_LOG_BUFFER: error->buffer = values[i]; break;
    case CU_JIT_ERROR_LOG_BYTES: error->bytes = (size_t)(uintptr_t)values[i]; break;
    default: return drv_fail(CUDA_ERROR_INVALID_VALUE, "option %d of the JIT compiler is not known here", options[i]);
    }
  }
  if ((info->buffer && !info->bytes) || (error->buffer && !error->bytes))
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "a log buffer without its size");
  return CUDA_SUCCESS;
}

static CUresult refuse(const jit_log *log, CUresult result, const char *why) {
  if (log->buffer) text_format(log->buffer, log->bytes, "%s\n", why);
  return drv_fail(result, "%s", why);
}

/* ---- loading ---- */

/* Newest PTX that a driver takes: 13.M takes 9.M, and what CUDA's release notes say of those before. */
static unsigned newest_ptx(unsigned driver) {
  static const struct {
    unsigned driver, ptx;
  } rows[] = {{12090, 88}, {12080, 87}, {12070, 86}, {12050, 85}, {12040, 84}, {12030, 83},
              {12020, 82}, {12010, 81}, {12000, 80}, {11080, 78}, {0, 70}};
  if (driver >= 13000) return 90 + driver % 1000 / 10;
  size_t i = 0;
  while (driver < rows[i].driver) i++;
  return rows[i].ptx;
}

static CUresult ptx_check(const sim_module *m, const jit_log *log) {
  char why[256];
  unsigned version = sim_module_version(m), newest = newest_ptx(drv.options.driver_version);
  if (version > newest) {
    text_format(why, sizeof why,
                "ptxas application ptx input, line 1; fatal: Unsupported .version %u.%u; current version is '%u.%u'",
                version / 10, version % 10, newest / 10, newest % 10);
    return refuse(log, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, why);
  }
  if (sim_module_target(m) > drv.options.capability) {
    text_format(why, sizeof why,
                "ptxas fatal: SM version specified by .target (sm_%u) is higher than that of the device (sm_%u)",
                sim_module_target(m), drv.options.capability);
    return refuse(log, CUDA_ERROR_INVALID_PTX, why);
  }
  return CUDA_SUCCESS;
}

static CUresult ptx_load(CUmodule m, const char *ptx, const jit_log *log) {
  taper_error error = {0};
  taper_status status = sim_module_load(ptx, strlen(ptx), "ptx", drv.memory, &m->module, &error);
  if (status == TAPER_OK) return ptx_check(m->module, log);
  return refuse(log, status == TAPER_NOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX, error.message);
}

enum { MODULE_LIMIT = 1 << 28 }; /* bytes of a file */

static CUresult module_load(CUmodule *out, const void *image, unsigned count, const int *options, void **values) {
  static const unsigned char elf[4] = {0x7f, 'E', 'L', 'F'}, fat[4] = {0x50, 0xed, 0x55, 0xba};
  jit_log info = {0}, error = {0};
  DRV_TRY(jit_options(count, options, values, &info, &error));
  if (!out || !image) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no image");
  if (info.buffer) info.buffer[0] = '\0';
  if (error.buffer) error.buffer[0] = '\0';
  if (memcmp(image, elf, sizeof elf) == 0 || memcmp(image, fat, sizeof fat) == 0)
    return refuse(&error, CUDA_ERROR_NO_BINARY_FOR_GPU, "a cubin cannot be simulated: load PTX");
  CUmodule m = drv_object_new(DRV_MODULE, sizeof *m);
  if (!m) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "a module");
  CUresult result = ptx_load(m, image, &error);
  if (result != CUDA_SUCCESS)
    drv_module_free(m);
  else
    *out = m;
  return result;
}

static CUresult module_file(CUmodule *out, const char *path) {
  char *image = NULL;
  size_t size = 0;
  taper_error error = {0};
  if (!path) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no path");
  taper_status status = file_read(path, MODULE_LIMIT, &image, &size, &error);
  if (status != TAPER_OK)
    return drv_fail(status == TAPER_NOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_FILE_NOT_FOUND, "%s", error.message);
  CUresult result = module_load(out, image, 0, NULL, NULL);
  free(image);
  return result;
}

void drv_module_free(CUmodule m) {
  for (drv_object *o = drv.objects, *next; o; o = next) {
    next = o->next;
    if (o->kind == DRV_FUNCTION && ((CUfunction)o)->module == m) drv_object_free(o);
  }
  sim_module_unload(m->module);
  m->module = NULL;
  drv_object_free(m);
}

static CUresult module_unload(CUmodule module) {
  DRV_TRY(drv_object_check(module, DRV_MODULE));
  CUresult result = drv_wait_all(); /* queued kernels need their code */
  drv_module_free(module);
  return result;
}

/* ---- functions ---- */

enum {
  STATIC_LIMIT = 48 * 1024,
  REGISTERS_PER_THREAD = 64,
  THREADS_PER_MULTIPROCESSOR = 2048,
  BLOCKS_PER_MULTIPROCESSOR = 32,
  REGISTER_FILE = 65536
};

static CUresult module_function(CUfunction *out, CUmodule module, const char *name) {
  DRV_TRY(drv_object_check(module, DRV_MODULE));
  if (!out || !name) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no name");
  const sim_kernel *k = sim_module_find(module->module, name);
  if (!k) return drv_fail(CUDA_ERROR_NOT_FOUND, "the module has no kernel '%s'", name);
  for (drv_object *o = drv.objects; o; o = o->next)
    if (o->kind == DRV_FUNCTION && ((CUfunction)o)->kernel == k) {
      *out = (CUfunction)o;
      return CUDA_SUCCESS;
    }
  CUfunction f = drv_object_new(DRV_FUNCTION, sizeof *f);
  if (!f) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "a function");
  f->module = module;
  f->kernel = k;
  f->dynamic_shared = STATIC_LIMIT - (int)sim_facts(k)->shared_bytes;
  *out = f;
  return CUDA_SUCCESS;
}

static CUresult function_attribute(int *value, int attribute, CUfunction function) {
  DRV_TRY(drv_object_check(function, DRV_FUNCTION));
  const sim_kernel_facts *facts = sim_facts(function->kernel);
  if (!value) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
  switch (attribute) {
  case CU_FUNC_MAX_THREADS: *value = (int)facts->max_threads; return CUDA_SUCCESS;
  case CU_FUNC_SHARED_BYTES: *value = (int)facts->shared_bytes; return CUDA_SUCCESS;
  case CU_FUNC_LOCAL_BYTES: *value = (int)facts->local_bytes; return CUDA_SUCCESS;
  case CU_FUNC_REGISTERS: *value = REGISTERS_PER_THREAD; return CUDA_SUCCESS;
  case CU_FUNC_PTX_VERSION: *value = (int)sim_module_target(function->module->module); return CUDA_SUCCESS;
  case CU_FUNC_BINARY_VERSION: *value = (int)drv.options.capability; return CUDA_SUCCESS;
  case CU_FUNC_MAX_DYNAMIC_SHARED: *value = function->dynamic_shared; return CUDA_SUCCESS;
  default: return drv_fail(CUDA_ERROR_INVALID_VALUE, "attribute %d is not known here", attribute);
  }
}

static CUresult function_set(CUfunction function, int attribute, int value) {
  DRV_TRY(drv_object_check(function, DRV_FUNCTION));
  int most = drv_shared_optin() - (int)sim_facts(function->kernel)->shared_bytes;
  if (attribute != CU_FUNC_MAX_DYNAMIC_SHARED)
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "attribute %d cannot be set here", attribute);
  if (value < 0 || value > most)
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "%d bytes of dynamic shared memory; at most %d", value, most);
  function->dynamic_shared = value;
  return CUDA_SUCCESS;
}

CUresult drv_occupancy(int *blocks, CUfunction function, int threads, size_t shared) {
  DRV_TRY(drv_object_check(function, DRV_FUNCTION));
  const sim_kernel_facts *facts = sim_facts(function->kernel);
  if (!blocks || threads < 1) return drv_fail(CUDA_ERROR_INVALID_VALUE, "%d threads", threads);
  size_t whole = ((size_t)threads + 31) / 32 * 32, used = facts->shared_bytes + shared + 1024;
  size_t most = THREADS_PER_MULTIPROCESSOR / whole;
  if (most > REGISTER_FILE / (whole * REGISTERS_PER_THREAD)) most = REGISTER_FILE / (whole * REGISTERS_PER_THREAD);
  if (most > BLOCKS_PER_MULTIPROCESSOR) most = BLOCKS_PER_MULTIPROCESSOR;
  if (most > ((size_t)drv_shared_optin() + 1024) / used) most = ((size_t)drv_shared_optin() + 1024) / used;
  *blocks = threads > (int)facts->max_threads || shared > (size_t)function->dynamic_shared ? 0 : (int)most;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
  DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, module_load(module, image, count, options, values));
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, module_load(module, image, 0, NULL, NULL));
}
CUresult cuModuleLoad(CUmodule *module, const char *path) {
  DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, module_file(module, path));
}
CUresult cuModuleUnload(CUmodule module) { DRV_CALL(DRV_CONTEXT | DRV_UNSAFE, module_unload(module)); }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  DRV_CALL(DRV_CONTEXT, module_function(function, module, name));
}
CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
  DRV_CALL(DRV_CONTEXT, function_attribute(value, attribute, function));
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  DRV_CALL(DRV_CONTEXT, function_set(function, attribute, value));
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) {
  DRV_CALL(DRV_CONTEXT, drv_occupancy(blocks, function, threads, shared));
}

/* The device: what cuInit finds, its attributes, the options of the simulator. */
#include "cuda/sim/driver_priv.h"
#include "runtime/base/text.h"
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

/* OPTION(member, environment variable, least, most) */
#define OPTIONS                                                                                                        \
  OPTION(eager, "TAPER_SIM_EAGER", 0, 1)                                                                               \
  OPTION(capability, "TAPER_SIM_CAPABILITY", 75, 121)                                                                  \
  OPTION(multiprocessors, "TAPER_SIM_MULTIPROCESSORS", 1, 1024)                                                        \
  OPTION(driver_version, "TAPER_SIM_DRIVER", 11000, 99000)                                                             \
  OPTION(devices, "TAPER_SIM_DEVICES", 0, 1)                                                                           \
  OPTION(threads, "TAPER_SIM_THREADS", 0, 256)                                                                         \
  OPTION(memory_bytes, "TAPER_SIM_MEMORY", 1, (uint64_t)1 << 40)                                                       \
  OPTION(seed, "TAPER_SIM_SEED", 0, UINT64_MAX)                                                                        \
  OPTION(instruction_budget, "TAPER_SIM_BUDGET", 0, UINT64_MAX)

static bool in_range(uint64_t value, uint64_t least, uint64_t most) { return value >= least && value <= most; }

static const char *options_check(const taper_sim_options *o) {
#define OPTION(member, variable, least, most)                                                                          \
  if (!in_range(o->member, (least), (most))) return #member;
  OPTIONS
#undef OPTION
  return NULL;
}

static CUresult options_set(const taper_sim_options *options) {
  if (!options) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no options");
  const char *bad = options_check(options);
  if (bad) return drv_fail(CUDA_ERROR_INVALID_VALUE, "%s is out of range", bad);
  taper_sim_options o = *options;
  if (drv.retained) { /* these alone may change under a context */
    o = drv.options;
    o.eager = options->eager;
    o.seed = options->seed;
    o.threads = options->threads;
    o.instruction_budget = options->instruction_budget;
    if (memcmp(&o, options, sizeof o) != 0)
      return drv_fail(CUDA_ERROR_INVALID_VALUE, "the device cannot change while it has a context");
  }
  drv.options = o;
  return CUDA_SUCCESS;
}
CUresult taper_sim_options_set(const taper_sim_options *options) { DRV_CALL(0, options_set(options)); }

void taper_sim_options_get(taper_sim_options *options) {
  pthread_mutex_lock(&drv.lock);
  *options = drv.options;
  pthread_mutex_unlock(&drv.lock);
}

static bool environment(const char *name, uint64_t *out) {
  const char *value = getenv(name);
  uint64_t number = 0;
  if (!value || !*value) return true;
  if (!number_parse_u64(value, strlen(value), &number)) return false;
  *out = number;
  return true;
}

static CUresult options_from_environment(void) {
  taper_sim_options o = drv.options;
#define OPTION(member, variable, least, most)                                                                          \
  {                                                                                                                    \
    uint64_t value = o.member;                                                                                         \
    if (!environment(variable, &value) || !in_range(value, (least), (most)))                                           \
      return drv_fail(CUDA_ERROR_INVALID_VALUE, "%s is '%.40s', no whole number from %llu to %llu", variable,          \
                      getenv(variable), (unsigned long long)(least), (unsigned long long)(most));                      \
    o.member = (__typeof__(o.member))value;                                                                            \
  }
  OPTIONS
#undef OPTION
  drv.options = o;
  return CUDA_SUCCESS;
}

/* ---- the device ---- */

static CUresult init(unsigned flags) {
  if (flags) return drv_fail(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
  if (!drv.initialised) DRV_TRY(options_from_environment());
  if (!drv.options.devices) return drv_fail(CUDA_ERROR_NO_DEVICE, "TAPER_SIM_DEVICES is 0");
  drv.initialised = true;
  return CUDA_SUCCESS;
}

typedef struct attribute_row {
  int attribute, fixed; /* fixed < 0: see attribute_value */
} attribute_row;
enum {
  ATTRIBUTE_SHARED_PER_MULTIPROCESSOR = 81,
  VARIES = -1,
};
static const attribute_row attributes[] = {
    {1, 1024}, /* threads of a block */
    {2, 1024}, /* x, y, z of a block */
    {3, 1024},
    {4, 64},
    {5, 2147483647}, /* x, y, z of a grid */
    {6, 65535},
    {7, 65535},
    {8, 49152},  /* shared memory of a block without opt-in */
    {9, 65536},  /* constant memory */
    {10, 32},    /* warp */
    {12, 65536}, /* registers of a block */
    {15, 0},     /* copies and kernels overlap: one thing at a time */
    {31, 1},     /* concurrent kernels */
    {39, 2048},  /* threads of a multiprocessor */
    {40, 1},     /* asynchronous engines */
    {41, 1},     /* unified addressing */
    {82, 65536}, /* registers of a multiprocessor */
    {95, 0},     /* cooperative launch */
    {106, 32},   /* blocks of a multiprocessor */
    {CU_ATTRIBUTE_CLOCK_KHZ, 1000000},
    {CU_ATTRIBUTE_MEMORY_CLOCK_KHZ, 1000000},
    {CU_ATTRIBUTE_MEMORY_BUS_BITS, 64},
    {CU_ATTRIBUTE_L2_BYTES, 32 << 20},
    {CU_ATTRIBUTE_MULTIPROCESSORS, VARIES},
    {CU_ATTRIBUTE_MAJOR, VARIES},
    {CU_ATTRIBUTE_MINOR, VARIES},
    {CU_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN, VARIES},
    {ATTRIBUTE_SHARED_PER_MULTIPROCESSOR, VARIES},
};

/* Shared memory of a multiprocessor in KiB (CUDA C++ Programming Guide, technical specifications per compute capability);
 * a block may have all but 1. */
static int shared_kib(unsigned capability) {
  static const struct {
    unsigned from;
    int kib;
  } rows[] = {{120, 100}, {90, 228}, {89, 100}, {88, 164}, {86, 100}, {80, 164}, {0, 64}};
  size_t i = 0;
  while (capability < rows[i].from) i++;
  return rows[i].kib;
}

int drv_shared_optin(void) {
  int kib = shared_kib(drv.options.capability);
  return (drv.options.capability < 80 ? kib : kib - 1) * 1024;
}

static int attribute_value(int attribute) {
  switch (attribute) {
  case CU_ATTRIBUTE_MULTIPROCESSORS: return (int)drv.options.multiprocessors;
  case CU_ATTRIBUTE_MAJOR: return (int)drv.options.capability / 10;
  case CU_ATTRIBUTE_MINOR: return (int)drv.options.capability % 10;
  case CU_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN: return drv_shared_optin();
  default: return shared_kib(drv.options.capability) * 1024;
  }
}

static CUresult device_attribute(int *value, int attribute, CUdevice device) {
  if (!value || device != 0)
    return drv_fail(value ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE, "device %d", device);
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i].attribute == attribute) {
      *value = attributes[i].fixed == VARIES ? attribute_value(attribute) : attributes[i].fixed;
      return CUDA_SUCCESS;
    }
  return drv_fail(CUDA_ERROR_INVALID_VALUE, "attribute %d is not known here", attribute);
}

static CUresult device_name(char *name, int length, CUdevice device) {
  if (device != 0) return drv_fail(CUDA_ERROR_INVALID_DEVICE, "device %d", device);
  if (!name || length <= 0) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the name");
  text_format(name, (size_t)length, "taper simulator (compute capability %u.%u)", drv.options.capability / 10,
              drv.options.capability % 10);
  return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device, int ordinal) {
  if (!device) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the device");
  if (ordinal < 0 || ordinal >= (int)drv.options.devices)
    return drv_fail(CUDA_ERROR_INVALID_DEVICE, "ordinal %d; there are %u devices", ordinal, drv.options.devices);
  *device = 0;
  return CUDA_SUCCESS;
}

static CUresult put_int(int *to, int value) {
  if (!to) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
  *to = value;
  return CUDA_SUCCESS;
}

static CUresult total_memory(size_t *bytes, CUdevice device) {
  if (device != 0) return drv_fail(CUDA_ERROR_INVALID_DEVICE, "device %d", device);
  if (!bytes) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the answer");
  *bytes = drv.options.memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) { DRV_CALL(0, init(flags)); }
static CUresult driver_version(int *version) { /* asked before cuInit, too */
  if (!drv.initialised) DRV_TRY(options_from_environment());
  return put_int(version, (int)drv.options.driver_version);
}

CUresult cuDriverGetVersion(int *version) { DRV_CALL(0, driver_version(version)); }
CUresult cuDeviceGetCount(int *count) { DRV_CALL(DRV_INIT, put_int(count, (int)drv.options.devices)); }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { DRV_CALL(DRV_INIT, device_get(device, ordinal)); }
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  DRV_CALL(DRV_INIT, device_name(name, length, device));
}
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  DRV_CALL(DRV_INIT, device_attribute(value, attribute, device));
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) { DRV_CALL(DRV_INIT, total_memory(bytes, device)); }

/* device_cpu.h - what the measurements of bench.h need of the CPU device. */
#ifndef TAPER_DEVICE_CPU_H
#define TAPER_DEVICE_CPU_H

#include "runtime/device.h"

/* The workers of a device opened by device_cpu. */
pool *device_cpu_pool(device *d);

#endif

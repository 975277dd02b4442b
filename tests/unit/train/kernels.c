/* kernels.c - compiled once for each instruction set (KERNELS: the name of the table), as the compiler compiles an image. */
#include "tests/unit/train/kernels.h"

#include "templates/cpu/train/gemm.h"

static uint64_t packed_floats(uint32_t n, uint32_t k) { return gemm_packed_floats(n, k); }
static uint32_t panels(uint32_t n) { return gemm_panels(n); }

const train_kernels KERNELS = {
    .name = KERNELS_NAME,
    .vl = VL,
    .gemm_scratch = GEMM_WEIGHT_SCRATCH,
    .packed_floats = packed_floats,
    .panels = panels,
    .pack = gemm_pack,
    .rows = gemm_rows,
    .weight = gemm_weight,
    .generic = gemm_generic,
};

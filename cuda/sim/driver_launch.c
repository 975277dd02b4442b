/*
 * Launches. A kernel with the programmatic attribute begins before the one ahead of it: its part before griddepcontrol.wait is
 * executed ahead of that one where the queue shows both, and what it touched there must have nothing in common with what the
 * kernels wrote that may still be at work: all since the last one that waited for everything.
 */
#include "cuda/sim/driver_priv.h"
#include <stdlib.h>
#include <string.h>

/* ---- execution ---- */

static CUresult fault_result(sim_fault_kind kind) {
  switch (kind) {
  case SIM_OUT_OF_BOUNDS: return CUDA_ERROR_ILLEGAL_ADDRESS;
  case SIM_MISALIGNED: return CUDA_ERROR_MISALIGNED_ADDRESS;
  case SIM_SPIN: return CUDA_ERROR_LAUNCH_TIMEOUT;
  default: return CUDA_ERROR_LAUNCH_FAILED;
  }
}

static CUresult broken_kernel(const sim_fault *fault) {
  return drv_break(fault_result(fault->kind), "%s", fault->text);
}

/* Whether the kernel may begin while kernels ahead of it are at work. */
static bool may_begin_early(const struct CUstream_st *stream, const drv_op *op) {
  return op->kind == DRV_OP_KERNEL && op->as.kernel.programmatic && !op->boundary && stream->after_kernel;
}

static sim_run *begin(const drv_op *op, sim_fault *fault) {
  const drv_kernel *k = &op->as.kernel;
  sim_launch launch = {.kernel = k->function->kernel,
                       .grid = {k->grid[0], k->grid[1], k->grid[2]},
                       .block = {k->block[0], k->block[1], k->block[2]},
                       .dynamic_shared = k->shared,
                       .shared_limit = (uint32_t)drv_shared_optin(),
                       .parameters = op->parameters,
                       .parameter_bytes = k->parameter_bytes,
                       .memory = drv.memory,
                       .seed = drv.options.seed ? drv.options.seed + op->number : 0,
                       .budget = drv.options.instruction_budget,
                       .threads = drv.options.threads,
                       .cooperative = k->cooperative,
                       .sms = drv.options.multiprocessors};
  return sim_run_begin(&launch, fault);
}

static CUresult begin_early(const drv_op *op, sim_run **out) {
  sim_fault fault = {0};
  *out = begin(op, &fault);
  return *out && sim_run_early(*out, &fault) ? CUDA_SUCCESS : broken_kernel(&fault);
}

/* The part before the wait must have kept away from what the kernels ahead touched. */
static CUresult check_early(CUstream stream, const drv_op *op, sim_run **run) {
  sim_fault fault = {0};
  if (!*run) DRV_TRY(begin_early(op, run));
  return stream->at_work && sim_run_conflict(*run, stream->at_work, &fault) ? broken_kernel(&fault) : CUDA_SUCCESS;
}

static CUresult finish(CUstream stream, const drv_op *op, sim_run *run, bool early, bool remember) {
  sim_fault fault = {0};
  sim_counters counters = {0};
  const char *name = sim_facts(op->as.kernel.function->kernel)->name;
  bool ended = sim_run_rest(run, &counters, &fault);
  drv_count(name, &counters);
  if (!ended) return broken_kernel(&fault);
  if (early && !counters.grid_waits)
    return drv_break(
        CUDA_ERROR_LAUNCH_FAILED,
        "no thread of kernel '%s' came to griddepcontrol.wait, and it may begin before the kernel ahead of "
        "it has ended: whatever comes after it is not ordered after that one",
        name);
  if (!remember) return CUDA_SUCCESS;
  if (!stream->at_work) stream->at_work = sim_footprint_new();
  if (stream->at_work && sim_footprint_add(stream->at_work, run)) return CUDA_SUCCESS;
  return drv_break(CUDA_ERROR_OUT_OF_MEMORY, "the host has no memory");
}

CUresult drv_queued_kernel(drv_op *op) {
  (void)op;
  return CUDA_SUCCESS;
}

CUresult drv_run_kernel(CUstream stream, drv_op *op) {
  bool early = may_begin_early(stream, op);
  sim_run *run = stream->early;
  sim_fault fault = {0};
  stream->early = NULL;
  if (!early && stream->at_work) sim_footprint_clear(stream->at_work);
  if (!early && !run) run = begin(op, &fault);
  if (!early && !run) return broken_kernel(&fault);
  stream->after_kernel = true;
  drv_op *next = stream->queue.head;
  bool next_early = next && may_begin_early(stream, next);
  CUresult result = next_early ? begin_early(next, &stream->early) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && early) result = check_early(stream, op, &run);
  /* in eager mode the next one is not known yet */
  if (result == CUDA_SUCCESS) result = finish(stream, op, run, early, next_early || drv.options.eager);
  sim_run_free(run);
  return result;
}

/* ---- launching ---- */

static CUresult launch_check(const CUlaunchConfig *c, CUfunction f) {
  const sim_kernel_facts *facts = sim_facts(f->kernel);
  uint64_t threads = (uint64_t)c->block_x * c->block_y * c->block_z;
  if (!c->grid_x || !c->grid_y || !c->grid_z || c->grid_x > INT32_MAX || c->grid_y > 65535 || c->grid_z > 65535)
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "'%s': grid %u x %u x %u", facts->name, c->grid_x, c->grid_y, c->grid_z);
  if (!threads || c->block_x > 1024 || c->block_y > 1024 || c->block_z > 64 || threads > 1024)
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "'%s': block %u x %u x %u", facts->name, c->block_x, c->block_y,
                    c->block_z);
  if (threads > facts->max_threads)
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "'%s': %u threads; it was compiled for %u at most", facts->name,
                    (unsigned)threads, facts->max_threads);
  if (f->dynamic_shared < 0 || c->shared > (unsigned)f->dynamic_shared)
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "'%s': %u bytes of dynamic shared memory; at most %d are allowed",
                    facts->name, c->shared, f->dynamic_shared);
  return CUDA_SUCCESS;
}

/* Blocks that the device holds at once. */
static CUresult fits_at_once(const CUlaunchConfig *c, CUfunction f) {
  int blocks = 0, threads = (int)(c->block_x * c->block_y * c->block_z);
  CUresult result = drv_occupancy(&blocks, f, threads, c->shared);
  if (result != CUDA_SUCCESS) return result;
  uint64_t grid = (uint64_t)c->grid_x * c->grid_y * c->grid_z, most = (uint64_t)blocks * drv.options.multiprocessors;
  if (grid <= most) return CUDA_SUCCESS;
  return drv_fail(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "'%s': %llu blocks; the device holds %llu at once",
                  sim_facts(f->kernel)->name, (unsigned long long)grid, (unsigned long long)most);
}

static CUresult read_attributes(const CUlaunchConfig *c, CUstream stream, drv_kernel *out) {
  if (c->attribute_count && !c->attributes) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no attributes");
  for (unsigned i = 0; i < c->attribute_count; i++) {
    const CUlaunchAttribute *a = &c->attributes[i];
    if (a->id == CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION)
      out->programmatic = a->value.programmatic_stream_serialization_allowed != 0;
    else if (a->id == CU_LAUNCH_COOPERATIVE)
      out->cooperative = a->value.cooperative != 0;
    else
      return drv_fail(CUDA_ERROR_NOT_SUPPORTED, "attribute %d of a launch is not simulated", a->id);
  }
  if (out->programmatic && drv.options.capability < 90)
    return drv_fail(CUDA_ERROR_NOT_SUPPORTED, "programmatic launches need compute capability 9.0");
  if (out->programmatic && stream->capture == DRV_CAPTURING && drv.options.driver_version < 12030)
    return drv_capture_spoil(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                             "graphs of programmatic launches need a driver of CUDA 12.3");
  return out->cooperative ? fits_at_once(c, out->function) : CUDA_SUCCESS;
}

static CUresult copy_parameters(const sim_kernel_facts *facts, void **parameters, unsigned char *to) {
  if (facts->parameter_count && !parameters)
    return drv_fail(CUDA_ERROR_INVALID_VALUE, "'%s' takes %u parameters", facts->name, facts->parameter_count);
  for (uint32_t i = 0; i < facts->parameter_count; i++) {
    if (!parameters[i]) return drv_fail(CUDA_ERROR_INVALID_VALUE, "'%s': parameter %u is NULL", facts->name, i);
    memcpy(to + facts->offsets[i], parameters[i], facts->sizes[i]);
  }
  return CUDA_SUCCESS;
}

static CUresult launch(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra) {
  CUstream s = NULL;
  drv_kernel k = {.function = f};
  if (!c) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no configuration");
  DRV_TRY(drv_object_check(f, DRV_FUNCTION));
  DRV_TRY(drv_stream_find(c->stream, &s));
  if (extra) return drv_fail(CUDA_ERROR_NOT_SUPPORTED, "parameters in one buffer are not simulated");
  DRV_TRY(launch_check(c, f));
  DRV_TRY(read_attributes(c, s, &k));
  const sim_kernel_facts *facts = sim_facts(f->kernel);
  drv_op *op = drv_op_new(DRV_OP_KERNEL, facts->parameter_bytes);
  if (!op) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "queued work");
  op->as.kernel = (drv_kernel){.function = f,
                               .grid = {c->grid_x, c->grid_y, c->grid_z},
                               .block = {c->block_x, c->block_y, c->block_z},
                               .shared = c->shared,
                               .parameter_bytes = facts->parameter_bytes,
                               .programmatic = k.programmatic,
                               .cooperative = k.cooperative};
  CUresult result = copy_parameters(facts, parameters, op->parameters);
  if (result == CUDA_SUCCESS) return drv_push(s, op);
  free(op);
  return result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                        void **extra) {
  CUlaunchConfig c = {.grid_x = grid_x,
                      .grid_y = grid_y,
                      .grid_z = grid_z,
                      .block_x = block_x,
                      .block_y = block_y,
                      .block_z = block_z,
                      .shared = shared,
                      .stream = stream};
  DRV_CALL(DRV_CONTEXT, launch(&c, function, parameters, extra));
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
  DRV_CALL(DRV_CONTEXT, launch(config, function, parameters, extra));
}

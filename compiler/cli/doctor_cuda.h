/* doctor_cuda.h - the part of doctor that is about CUDA: what is there, and whether its versions go together. */
#ifndef TAPERC_CLI_DOCTOR_CUDA_H
#define TAPERC_CLI_DOCTOR_CUDA_H

#include "compiler/cli/json.h"
#include "cuda/nvrtc.h"
#include "cuda/probe.h"
#include "runtime/base/arena.h"

/* A problem is NULL where the thing is there. Strings live in the arena. */
typedef struct doctor_cuda {
  cuda_probe_facts driver, sim, cublas;
  nvrtc_facts nvrtc;
  const char *driver_problem, *sim_problem, *cublas_problem, *nvrtc_problem;
  const char *runtime; /* libtaper-cuda.so; NULL: not there */
} doctor_cuda;

void doctor_cuda_look(doctor_cuda *d, arena *a);
/* The members "cuda", "nvrtc", "cublas", "simulator", "versions", "devices" of the object that is open. */
void doctor_cuda_json(const doctor_cuda *d, json_out *j, arena *a);
void doctor_cuda_text(const doctor_cuda *d, text *out, arena *a);

#endif

/*
 * driver_priv.h - the stand-in for libcuda and libcublas: what its files share.
 *
 * One lock is held by every call. Work is put into the queue of its stream (drv_push) and executed by drv_drain: at once in
 * eager mode, else when a call waits for it, as late as the driver may. Handles are pointers to objects that stand in
 * drv.objects; whatever is not there is refused. A failure while work is executed breaks the context: every later call but
 * the release of the context returns the same error.
 */
#ifndef TAPER_CUDA_SIM_DRIVER_PRIV_H
#define TAPER_CUDA_SIM_DRIVER_PRIV_H

#include "cuda/cublas.h"
#include "cuda/sim/control.h"
#include "cuda/sim/sim.h"
#include <pthread.h>

/* What the library exports. */
#define DRV_EXPORT __attribute__((visibility("default")))
#define CU(name, parameters) DRV_EXPORT CUresult name parameters;
#include "cuda/driver.def"
#define CU(name, parameters) DRV_EXPORT CUresult name parameters;
#include "cuda/sim/plain.def"
#define CUBLAS(name, parameters) DRV_EXPORT cublas_status name parameters;
#include "cuda/cublas.def"
#define SIM_CONTROL(result, name, parameters) DRV_EXPORT result name parameters;
#include "cuda/sim/control.def"

/* ---- objects ---- */

/* DRV_KIND(name, words, struct): what a handle may stand for. */
#define DRV_KINDS                                                                                                      \
  DRV_KIND(DRV_STREAM, "stream")                                                                                       \
  DRV_KIND(DRV_EVENT, "event")                                                                                         \
  DRV_KIND(DRV_MODULE, "module")                                                                                       \
  DRV_KIND(DRV_FUNCTION, "function")                                                                                   \
  DRV_KIND(DRV_GRAPH, "graph")                                                                                         \
  DRV_KIND(DRV_EXEC, "executable graph")                                                                               \
  DRV_KIND(DRV_CUBLAS, "cublas handle")
typedef enum drv_kind {
#define DRV_KIND(name, words) name,
  DRV_KINDS
#undef DRV_KIND
      DRV_KIND_COUNT
} drv_kind;

typedef struct drv_object {
  struct drv_object *next;
  drv_kind kind;
} drv_object;

/* Zeroed, first member a drv_object, in the list; NULL when memory ran out. */
void *drv_object_new(drv_kind kind, size_t bytes);
/* Out of the list; its memory is kept until the context is destroyed, so that no later object has the same address. */
void drv_object_free(void *object);
/* CUDA_ERROR_INVALID_HANDLE, with the fault said, if `handle` is no live object of the kind. */
CUresult drv_object_check(const void *handle, drv_kind kind);

/* ---- queued work ---- */

typedef struct drv_kernel {
  CUfunction function;
  unsigned grid[3], block[3], shared;
  size_t parameter_bytes;
  bool programmatic; /* may begin before the kernel that stands before it has ended */
  bool cooperative;  /* all blocks run at once */
} drv_kernel;

typedef struct drv_copy {
  CUdeviceptr to, from; /* 0: host */
  void *host;           /* source or target in the host's memory */
  size_t bytes;
  bool watched; /* the host's bytes must be the same when the copy is executed */
  char hash[33];
} drv_copy;

typedef struct drv_set {
  CUdeviceptr memory;
  uint32_t value;
  size_t count;
  unsigned width; /* bytes of the value: 1 or 4 */
} drv_set;

typedef struct drv_range {
  CUdeviceptr memory;
  size_t bytes;
} drv_range;

typedef struct drv_gemm {
  bool trans_a, trans_b;
  size_t m, n, k, lda, ldb, ldc;
  CUdeviceptr a, b, c;
  int ab_type; /* C is f32 */
  float alpha, beta;
} drv_gemm;

/* DRV_OP(kind, words, member): drv_run_<member> executes it, drv_queued_<member> is called when it enters a queue. */
#define DRV_OPS                                                                                                        \
  DRV_OP(DRV_OP_KERNEL, "kernel", kernel)                                                                              \
  DRV_OP(DRV_OP_COPY, "copy", copy)                                                                                    \
  DRV_OP(DRV_OP_SET, "memset", set)                                                                                    \
  DRV_OP(DRV_OP_FORGET, "forgetting", forget)                                                                          \
  DRV_OP(DRV_OP_EVENT, "event", event)                                                                                 \
  DRV_OP(DRV_OP_GEMM, "product of matrices", gemm)
typedef enum drv_op_kind {
#define DRV_OP(kind, words, member) kind,
  DRV_OPS
#undef DRV_OP
} drv_op_kind;

/* One record, so that a graph copies it by its size. */
typedef struct drv_op {
  struct drv_op *next;
  uint64_t number; /* in the order of all streams */
  size_t bytes;    /* of this record with its parameters */
  drv_op_kind kind;
  bool boundary; /* first of a graph: nothing before it is still at work */
  union {
    drv_kernel kernel;
    drv_copy copy;
    drv_set set;
    drv_range forget;
    CUevent event;
    drv_gemm gemm;
  } as;
  _Alignas(16) unsigned char parameters[];
} drv_op;

typedef struct drv_list {
  drv_op *head, *tail;
  size_t count;
} drv_list;
void drv_list_add(drv_list *l, drv_op *op);
void drv_list_free(drv_list *l);
/* Zeroed; NULL when memory ran out. */
drv_op *drv_op_new(drv_op_kind kind, size_t parameter_bytes);

typedef enum drv_capture { DRV_NOT_CAPTURING, DRV_CAPTURING, DRV_CAPTURE_BROKEN } drv_capture;

struct CUstream_st {
  drv_object object;
  bool blocking; /* waits for the default stream, which waits for it */
  drv_list queue;
  drv_capture capture;
  int capture_mode;
  pthread_t capture_thread;
  drv_list captured;
  /* programmatic launches: */
  bool after_graph;       /* the last work queued was of a graph */
  bool after_kernel;      /* the last work executed was a kernel, and nobody has waited for it since */
  sim_run *early;         /* of the kernel at the head of the queue: begun before the one ahead of it */
  sim_footprint *at_work; /* what the kernels touched that may still be at work then */
};

struct CUevent_st {
  drv_object object;
  bool timed, recorded, captured;
  unsigned pending; /* queued records */
  CUstream stream;  /* of the last record */
  uint64_t number;  /* of the last record */
  double seconds;   /* when the last record was executed */
};

struct CUmod_st {
  drv_object object;
  sim_module *module;
};

struct CUfunc_st {
  drv_object object;
  CUmodule module;
  const sim_kernel *kernel;
  int dynamic_shared; /* most that a launch may ask for */
};

struct CUgraph_st {
  drv_object object;
  drv_list nodes;
};
struct CUgraphExec_st {
  drv_object object;
  drv_list nodes;
};
struct cublasContext {
  drv_object object;
  CUstream stream;
  CUdeviceptr workspace; /* 0: the library's own, which a captured stream may not use */
  size_t workspace_bytes;
};
struct CUctx_st {
  uint64_t generation;
};

/* ---- the state ---- */

/* What cuMemAlloc or cuMemHostAlloc gave. */
typedef struct drv_block {
  struct drv_block *next;
  void *host; /* NULL: device memory */
  CUdeviceptr address;
  size_t bytes;
} drv_block;

typedef struct drv_state {
  pthread_mutex_t lock;
  bool initialised;
  taper_sim_options options;
  struct CUctx_st context; /* of the one device */
  unsigned retained;
  CUresult broken; /* what every call returns from now on */
  drv_object *objects, *dead;
  struct CUstream_st legacy; /* the default stream */
  uint64_t numbers;          /* of queued work */
  sim_memory *memory;
  drv_block *blocks;
  char fault[2048];
} drv_state;
extern drv_state drv;

/* ---- calls ---- */

/* What a call needs before its body runs. */
#define DRV_INIT 1u    /* cuInit */
#define DRV_CONTEXT 2u /* a current context that is not broken, and cuInit */
#define DRV_UNSAFE 4u  /* no capture that this call would spoil */

/* Locks, and checks `needs`; drv_leave unlocks and returns `result`. */
CUresult drv_enter(const char *call, unsigned needs);
CUresult drv_leave(CUresult result);
/* The body of an entry point. */
#define DRV_CALL(needs, body)                                                                                          \
  do {                                                                                                                 \
    CUresult drv_result_ = drv_enter(__func__, (needs));                                                               \
    if (drv_result_ == CUDA_SUCCESS) drv_result_ = (body);                                                             \
    return drv_leave(drv_result_);                                                                                     \
  } while (0)
#define DRV_TRY(call)                                                                                                  \
  do {                                                                                                                 \
    CUresult drv_try_ = (call);                                                                                        \
    if (drv_try_ != CUDA_SUCCESS) return drv_try_;                                                                     \
  } while (0)
/* Says what is wrong ("CALL: text") for taper_sim_fault; returns `result`. drv_break also breaks the context. */
CUresult drv_fail(CUresult result, const char *format, ...) __attribute__((format(printf, 2, 3)));
CUresult drv_break(CUresult result, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *drv_error_name(CUresult result);

/* ---- streams ---- */

/* The stream of a handle; NULL and 1 are the default stream. */
CUresult drv_stream_find(CUstream handle, CUstream *out);
/* Takes op, whatever happens: into the captured graph, or the queue (and executes it in eager mode). */
CUresult drv_push(CUstream stream, drv_op *op);
CUresult drv_queue(CUstream stream, drv_op *op); /* never captured */
/* Executes what was queued up to `number` (UINT64_MAX: all), and what that has to wait for. drv_wait: the host waits for it
   too, so that nothing that was queued before is still at work. */
CUresult drv_drain(CUstream stream, uint64_t number);
CUresult drv_wait(CUstream stream, uint64_t number);
CUresult drv_wait_all(void);
/* Spoils every capture that a call of this thread must not happen in; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if there is one. */
CUresult drv_capture_unsafe(void);
int drv_shared_optin(void); /* bytes of shared memory that a block may have at most */
/* Spoils the capture of this stream. */
CUresult drv_capture_spoil(CUstream stream, CUresult result, const char *why);

#define DRV_OP(kind, words, member)                                                                                    \
  CUresult drv_queued_##member(drv_op *op);                                                                            \
  CUresult drv_run_##member(CUstream stream, drv_op *op);
DRV_OPS
#undef DRV_OP

/* ---- memory ---- */

/* CUDA_ERROR_INVALID_VALUE unless [address, address + bytes) lies in one allocation. */
CUresult drv_memory_check(const char *what, CUdeviceptr address, size_t bytes);
/* True if the range lies in memory of cuMemHostAlloc. */
bool drv_host_pinned(const void *memory, size_t bytes);
/* True if queued work touches (writes) the range of the host. */
bool drv_host_pending(const void *memory, size_t bytes, bool writes);
/* Frees all device and host memory; how many there were. */
unsigned drv_memory_clear(uint64_t *out_bytes, unsigned *out_host);

/* ---- counters ---- */
void drv_count(const char *kernel, const sim_counters *counters);

/* ---- context ---- */
void drv_module_free(CUmodule m);
void drv_stream_free(CUstream s);
void drv_graph_free(CUgraph g);
void drv_exec_free(CUgraphExec x);

/* Blocks of `threads` threads and `shared` dynamic bytes that a multiprocessor holds at once. */
CUresult drv_occupancy(int *blocks, CUfunction function, int threads, size_t shared);

#endif

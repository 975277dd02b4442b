/*
 * taper.h - the public interface of libtaper, the runtime of taperc. The only public header.
 *
 * The library never exits, never prints and never trusts data: every call that can fail returns a status and fills the
 * error record that the caller passes (NULL is allowed). Handles are opaque; X_free(NULL) is legal. Plain C99, usable
 * from C++.
 *
 * Threads: a taper_model may be shared by any number of threads. A taper_session is used by one thread at a time;
 * sessions of one model may run in different threads at once (their parallel sections take turns on the model's worker
 * pool).
 */
#ifndef TAPER_H
#define TAPER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TAPER_VERSION_MAJOR 0
#define TAPER_VERSION_MINOR 1
#define TAPER_VERSION_PATCH 0

#if defined(__GNUC__)
#define TAPER_API __attribute__((visibility("default")))
#define TAPER_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define TAPER_API
#define TAPER_PRINTF(f, a)
#endif

typedef enum taper_status {
  TAPER_OK = 0,
  TAPER_INVALID = 1,      /* an argument or a file's content is wrong */
  TAPER_IO = 2,           /* a file cannot be opened, read or written */
  TAPER_NOMEM = 3,        /* memory ran out; the message names the size */
  TAPER_UNSUPPORTED = 4,  /* a feature, version or CPU that this build or machine lacks */
  TAPER_DEVICE = 5,       /* a device failed or is absent */
  TAPER_CONTEXT_FULL = 6, /* the sequence would grow past the session's context */
  TAPER_NUMERIC = 7,      /* NaN or Inf logits; the message names the position */
  TAPER_STOPPED = 8,      /* a callback asked to stop */
  TAPER_INTERNAL = 9      /* a defect of this library */
} taper_status;

/* The caller owns it; a call that fails fills it, a call that succeeds leaves it alone. */
typedef struct taper_error {
  taper_status status;
  char message[1000]; /* one line, UTF-8, no newline; names file, place, cause and remedy */
} taper_error;

/* Memory of handles, caches and packed weights. resize(p, 0) frees; (NULL, n) allocates; alignment is that of malloc.
   NULL functions mean the C library. Must be thread-safe. */
typedef struct taper_allocator {
  void *(*resize)(void *user, void *block, size_t old_size, size_t new_size);
  void *user;
} taper_allocator;

typedef enum taper_log_level { TAPER_LOG_INFO = 0, TAPER_LOG_WARNING = 1 } taper_log_level;
typedef void (*taper_log_fn)(void *user, taper_log_level level, const char *message);

/* "0.1.0" */
TAPER_API const char *taper_version(void);
/* A constant word for a status, e.g. "context full". */
TAPER_API const char *taper_status_name(taper_status status);

/* ---- models -------------------------------------------------------------------------------------------------------
 */

typedef struct taper_model taper_model;

typedef struct taper_model_options {
  size_t size;      /* sizeof(taper_model_options), set by taper_model_options_init */
  uint32_t threads; /* workers, this one included; 0: one per online CPU of the affinity mask */
  uint32_t spin_us; /* how long a waiting worker spins before it parks; default 50 */
  const int32_t
      *cpus; /* worker i > 0 is pinned to cpus[i % cpu_count]; worker 0 is the calling thread and stays as it is */
  size_t cpu_count;
  uint32_t chunk_rows; /* tokens computed side by side in a prefill; 0: 64, on the device cuda 256 */
  const char *image;   /* "x86-64-v3", "native", "sm_90", "compute_80", ...: use this image; NULL: the best one */
  /* "cpu", "cuda" (the first GPU), "cuda:N", or "sim": a CUDA package executed by an interpreter, with no GPU. NULL: the
     variable TAPER_DEVICE, and "cpu" where it is not set. The package must have been compiled for the device's target.
     Another device than cpu is opened through libtaper-cuda.so, which stands beside libtaper or the program. */
  const char *device;
  const char
      *gemm;    /* on a CUDA device, prefills of more than 8 rows: "cublas" (libcublas; it must be there), "generated"
                       (kernels of the package); NULL: cublas where it is found. TAPER_LIBCUBLAS names another library */
  int no_graph; /* on a CUDA device: launch each kernel from the host in place of graphs of several tokens */
  taper_allocator allocator;
  taper_log_fn log;
  void *log_user;
} taper_model_options;

TAPER_API void taper_model_options_init(taper_model_options *options);

/* Loads the package (.tpack) at `path`: maps it, checks every field and hash, packs the weights for the workers, starts
   them; on a CUDA device, uploads the weights and loads the kernels. Loading a package runs the code in it: see
   docs/package-format.md on trust. `options` may be NULL. TAPER_DEVICE: there is no such device or no driver; the message
   says what to install or give. */
TAPER_API taper_status taper_model_open(const char *path, const taper_model_options *options, taper_model **out,
                                        taper_error *error);
/* All sessions of the model must have been freed. */
TAPER_API void taper_model_free(taper_model *model);

typedef struct taper_model_info {
  size_t size;
  const char *name;      /* the strings live as long as the model */
  const char *device;    /* "cpu", "cuda" or "sim" */
  const char *image;     /* e.g. "x86-64-v4", "sm_90" */
  const char *tokenizer; /* "bytes", "sentencepiece" or "none" */
  uint32_t vocab;        /* ids are 0 .. vocab-1 */
  uint32_t context;      /* the longest sequence the model was compiled for */
  uint32_t width;        /* d, floats of one row of the residual stream */
  uint32_t probes;       /* rows that taper_layer_fn sees for one token: layers + 1; 0: none */
  uint32_t threads;
  uint64_t weight_bytes;    /* packed weights */
  uint64_t bytes_per_token; /* weight bytes that one decode step reads */
  int32_t end_token;        /* -1: none */
  double scale_limit;       /* a taper_session_scale_ratio above it is out of range: 3 times 99.9 %; 0: not known */
} taper_model_info;

TAPER_API void taper_model_get_info(const taper_model *model, taper_model_info *out);

/* ---- tokens -------------------------------------------------------------------------------------------------------
 */

/* Text -> ids with the model's tokenizer. Writes at most `cap` ids and sets *out_n to the number needed;
   call with ids = NULL, cap = 0 to learn it. TAPER_UNSUPPORTED where the package has no tokenizer. */
TAPER_API taper_status taper_tokenize(const taper_model *model, const char *text, size_t bytes, int32_t *ids,
                                      size_t cap, size_t *out_n, taper_error *error);
/* ids -> bytes (no terminator), same two-call protocol. */
TAPER_API taper_status taper_detokenize(const taper_model *model, const int32_t *ids, size_t n, char *text, size_t cap,
                                        size_t *out_bytes, taper_error *error);

/* ---- sessions: the state of up to max_batch sequences --------------------------------------------------------------
 */

typedef struct taper_session taper_session;

typedef struct taper_session_options {
  size_t size;
  uint32_t max_batch; /* sequences, 1 .. 8; default 1 */
  uint32_t context;   /* positions kept a sequence; 0: the model's */
} taper_session_options;

TAPER_API void taper_session_options_init(taper_session_options *options);
TAPER_API taper_status taper_session_new(taper_model *model, const taper_session_options *options, taper_session **out,
                                         taper_error *error);
TAPER_API void taper_session_free(taper_session *session);
/* A second session with the same sequences; later calls on either do not touch the other. */
TAPER_API taper_status taper_session_clone(const taper_session *session, taper_session **out, taper_error *error);
/* Tokens sequence `seq` holds. */
TAPER_API uint32_t taper_session_length(const taper_session *session, uint32_t seq);
TAPER_API uint32_t taper_session_context(const taper_session *session);
/* Forgets all tokens of `seq` from position `length` on. */
TAPER_API taper_status taper_session_rewind(taper_session *session, uint32_t seq, uint32_t length, taper_error *error);

/* Appends tokens[0..n) to sequence `seq` and writes the logits after the last one to logits[0..vocab) (NULL: not
   wanted). All or nothing: an id out of range, a full context or logits that are not finite (TAPER_NUMERIC) change
   nothing. */
TAPER_API taper_status taper_session_append(taper_session *session, uint32_t seq, const int32_t *tokens, size_t n,
                                            float *logits, taper_error *error);

/* One entry of a ragged batch: as taper_session_append. Each seq at most once a call. */
typedef struct taper_batch_entry {
  uint32_t seq;
  const int32_t *tokens;
  size_t n;
  float *logits;
} taper_batch_entry;

TAPER_API taper_status taper_session_append_batch(taper_session *session, const taper_batch_entry *entries, size_t n,
                                                  taper_error *error);

/* layer: 0 = the stream that enters block 0, ... probes - 1 = what enters the final norm; row[0..width), scales undone.
   Called in the calling thread after each chunk of rows, layer by layer; it must not use the session. */
typedef void (*taper_layer_fn)(void *user, uint32_t layer, size_t position, const float *row);

/* Appends tokens and writes logits for every one of them: logits[n * vocab] (NULL: not wanted). on_layer may be NULL.
 */
TAPER_API taper_status taper_session_append_all(taper_session *session, uint32_t seq, const int32_t *tokens, size_t n,
                                                float *logits, taper_layer_fn on_layer, void *user, taper_error *error);

/* Without norms a rare token may drive the residual stream out of range, and through attention everything behind it.
   How large the stream was before the head, at the last token of `seq`, as a ratio to the median in training. 0: not
   known, since no norm was removed, the weights had no `taper.scale`, or nothing was appended since a rewind. */
TAPER_API double taper_session_scale_ratio(const taper_session *session, uint32_t seq);
/* The largest ratio among the tokens of the last append to `seq`; *out_position (may be NULL): of the first one above
   scale_limit, or of the largest where none is. */
TAPER_API double taper_session_scale_peak(const taper_session *session, uint32_t seq, uint32_t *out_position);

/* ---- sampling ------------------------------------------------------------------------------------------------------
 */

/* Filters act in the order: repeat penalty, top-k, top-p (renormalised), min-p, temperature; at least one id always
 * survives. */
typedef struct taper_sampling {
  size_t size;
  float temperature;    /* 0: the largest logit, lowest id on ties; default 0.8 */
  uint32_t top_k;       /* 0: off; default 40 */
  float top_p;          /* 0: best only, 1: off; default 0.95 */
  float min_p;          /* 0: off; default 0.05 */
  float repeat_penalty; /* 1: off (default); logits of seen ids are divided (positive) or multiplied (negative) by it */
  uint32_t repeat_last; /* how many last tokens the penalty sees; default 64 */
  uint64_t seed;
} taper_sampling;

TAPER_API void taper_sampling_init(taper_sampling *sampling);

/* Picks an id from logits[0..vocab). history[0..n): the tokens so far (for the penalty); `sequence` and n select the
   random number (Philox, key = seed). Fails with TAPER_NUMERIC on NaN, TAPER_INVALID on an option out of range. */
TAPER_API taper_status taper_sample(const taper_sampling *sampling, const float *logits, uint32_t vocab,
                                    const int32_t *history, size_t n, uint32_t sequence, int32_t *out_id,
                                    taper_error *error);

/* ---- generation: append, sample, stream ---------------------------------------------------------------------------
 */

typedef enum taper_finish {
  TAPER_FINISH_LENGTH = 0,  /* max_tokens reached */
  TAPER_FINISH_END = 1,     /* the model's end token */
  TAPER_FINISH_STOP = 2,    /* a stop string */
  TAPER_FINISH_CONTEXT = 3, /* the context is full */
  TAPER_FINISH_CALLBACK = 4 /* on_text or on_token asked to stop */
} taper_finish;

typedef struct taper_generation {
  size_t size;
  taper_sampling sampling;
  size_t max_tokens;
  const char *const *stop; /* stop strings, cut exactly; they may span tokens */
  size_t stop_count;
  /* Whole UTF-8 characters; invalid bytes pass as they are once they cannot become a character. Nonzero stops. */
  int (*on_text)(void *user, const char *text, size_t bytes);
  int (*on_token)(void *user, int32_t id); /* every generated id but the end token. Nonzero stops. */
  void *user;
} taper_generation;

TAPER_API void taper_generation_init(taper_generation *generation);
/* Appends prompt[0..n) (n > 0) to sequence `seq` and generates. A prompt that does not fit the context is refused
   whole, with both lengths, before any work. A session of context C holds at most C tokens, so at most C - n + 1 are
   generated: the last one is told, not appended; so it is when the length is reached. At the end nothing is withheld;
   after a callback asked to stop, none is called again. */
TAPER_API taper_status taper_generate(taper_session *session, uint32_t seq, const int32_t *prompt, size_t n,
                                      const taper_generation *generation, taper_finish *out_finish, taper_error *error);

/* ---- training ------------------------------------------------------------------------------------------------------
 */

typedef enum taper_gate_kind {
  TAPER_GATE_NEVER = 0, /* stays as it is */
  TAPER_GATE_RAMP = 1,  /* cosine from 1 to 0 between `start` and `end` */
  TAPER_GATE_STEP = 2   /* element i goes from 1 to 0 after update start + i * every */
} taper_gate_kind;

/* Of one gate, or of one array of gates. Steps are counted from 1; start 0: calibrated before the first step. */
typedef struct taper_gate_schedule {
  const char *gate;
  taper_gate_kind kind;
  uint64_t start, end, every;
  double ema;    /* momentum of the calibration and, of the earliest gate, of the anchor's target */
  int inv_sigma; /* c = 1 / mean(sigma) instead of least squares */
} taper_gate_schedule;

typedef enum taper_lr_schedule { TAPER_LR_COSINE = 0, TAPER_LR_LINEAR = 1, TAPER_LR_CONSTANT = 2 } taper_lr_schedule;

/* What a training run is. A training package carries one; taper_trainer_options.recipe replaces it. */
typedef struct taper_recipe {
  size_t size;
  uint64_t steps, seed;
  uint32_t batch, sequence, accumulate; /* windows of a micro-batch, positions of a window, micro-batches of a step */
  double lr, beta1, beta2, eps, weight_decay, clip; /* AdamW; decay on matrices only; clip 0: off */
  taper_lr_schedule schedule;
  uint64_t warmup; /* steps of linear rise from 0 */
  double floor;    /* share of lr at the end */
  const taper_gate_schedule *gates;
  size_t gate_count;
} taper_recipe; /* the anchor's weight is compiled in */

TAPER_API void taper_recipe_init(taper_recipe *recipe);

typedef struct taper_trainer taper_trainer;

typedef enum taper_gemm_choice {
  TAPER_GEMM_AUTO = 0, /* measured when the trainer opens */
  TAPER_GEMM_GENERATED = 1,
  TAPER_GEMM_LIBRARY = 2 /* oneDNN, opened at run time */
} taper_gemm_choice;

typedef struct taper_trainer_options {
  size_t size;
  uint32_t threads, spin_us; /* as of taper_model_options */
  const int32_t *cpus;
  size_t cpu_count;
  const char *image;
  taper_gemm_choice gemm;
  const taper_recipe *recipe; /* NULL: the package's */
  double
      clamp_rows; /* in evaluations without norms (scheduled gates 0), rows of the token table longer than this many medians of
                        the rows that training read are looked up shortened; 0: off. The package must be made for it */
  taper_allocator allocator;
  taper_log_fn log;
  void *log_user;
} taper_trainer_options;

TAPER_API void taper_trainer_options_init(taper_trainer_options *options);
/* Loads a package made with `compile --for train|both`: parameters at their initial values, step 0. */
TAPER_API taper_status taper_trainer_open(const char *path, const taper_trainer_options *options, taper_trainer **out,
                                          taper_error *error);
TAPER_API void taper_trainer_free(taper_trainer *trainer);

typedef struct taper_trainer_info {
  size_t size;
  const char *name, *image, *gemm; /* gemm: "generated" or "oneDNN 2.6.3" */
  uint32_t vocab, context, width, threads, gates, norms;
  uint64_t parameters, memory_bytes;
  uint64_t step;       /* optimizer steps done */
  uint64_t tokens;     /* trained on so far */
  taper_recipe recipe; /* in force; its strings live as long as the trainer */
} taper_trainer_info;

TAPER_API void taper_trainer_get_info(const taper_trainer *trainer, taper_trainer_info *out);

/* What one step was. Arrays live until the next call on the trainer. */
typedef struct taper_step {
  size_t size;
  uint64_t step;
  double loss, ce, aux, lr, grad_norm; /* loss = ce + aux; grad_norm before clipping */
  double logit_norm, residual_scale;   /* NaN where the model does not tell it */
  const char *program;                 /* "warm", "taper" or "zero" */
  const float *gates;                  /* [info.gates] values the step was computed with */
  int taper_start;                     /* gates began to taper after this update: c (and s_tgt) were set */
} taper_step;

/* One optimizer step on recipe.accumulate micro-batches of batch x sequence ids, one after another: tokens and targets
   [accumulate][batch][sequence]; a target of -1 is padding and counts nowhere. All or nothing: an id out of range, or a
   loss or gradient that is not finite (TAPER_NUMERIC; the message names the step and the tensor), changes nothing. */
TAPER_API taper_status taper_trainer_step(taper_trainer *trainer, const int32_t *tokens, const int32_t *targets,
                                          taper_step *out, taper_error *error);
#define TAPER_CALIBRATION_BATCHES 8
/* Statistics without an update, for gates that start at step 0: before the first step it must be called
   TAPER_CALIBRATION_BATCHES times, after the last of which those gates begin to taper. Batch as above. */
TAPER_API taper_status taper_trainer_calibrate(taper_trainer *trainer, const int32_t *tokens, const int32_t *targets,
                                               taper_error *error);
/* Does the next step need (another) calibration batch first? */
TAPER_API int taper_trainer_wants_calibration(const taper_trainer *trainer);

typedef enum taper_gates_at {
  TAPER_GATES_CURRENT = 0,
  TAPER_GATES_ZERO =
      1 /* scheduled gates taken as 0; before taper start with c as calibrated so far and gammat = gamma */
} taper_gates_at;
/* Sum of the cross-entropy over the counted positions of `windows` windows of `length` ids (at most the context), and their
   number. TAPER_GATES_ZERO before a gate's first calibration: TAPER_INVALID. */
TAPER_API taper_status taper_trainer_evaluate(taper_trainer *trainer, const int32_t *tokens, const int32_t *targets,
                                              uint32_t windows, uint32_t length, taper_gates_at gates, double *out_sum,
                                              uint64_t *out_count, taper_error *error);

/* What --metrics full adds, on one batch at the current gates. on_value is called once a number:
   "grad_norm.qkv", "layers.0.scale", "layers.0.attn_norm.calibration_error", "logit_margin", ... Gradient norms are those
   of the last step. */
TAPER_API taper_status taper_trainer_observe(taper_trainer *trainer, const int32_t *tokens, const int32_t *targets,
                                             void (*on_value)(void *user, const char *name, double value), void *user,
                                             taper_error *error);

/* The numbers of one batch of `windows` windows of `length` ids, at gate values of the caller's choice ([info.gates]; NULL:
   those of the next step): of the program that compares with all gates at 1 (compare; only in packages made for scan), else
   of the one behind taper_trainer_observe. Norms that have not begun to taper are shown as TAPER_GATES_ZERO shows them.
   on_value gets means over counted positions, by name; on_rows, where not NULL, results that have a number for every
   position ([windows][length], padding included): "<norm>.scale_rows", "scale_rows". */
TAPER_API taper_status taper_trainer_measure(taper_trainer *trainer, int compare, const int32_t *tokens,
                                             const int32_t *targets, uint32_t windows, uint32_t length,
                                             const float *gates,
                                             void (*on_value)(void *user, const char *name, double value),
                                             void (*on_rows)(void *user, const char *name, const float *rows, size_t n),
                                             void *user, taper_error *error);

/* Gate element i: its array's name, its index there, the array's length, its value for the next step. */
TAPER_API void taper_trainer_gate(const taper_trainer *trainer, uint32_t i, const char **out_name, uint32_t *out_index,
                                  uint32_t *out_count, double *out_value);
/* Norm i: its name, its gate element, and c (calibrated so far, or frozen). */
TAPER_API void taper_trainer_norm(const taper_trainer *trainer, uint32_t i, const char **out_name, uint32_t *out_gate,
                                  double *out_c);
TAPER_API double taper_trainer_scale_target(const taper_trainer *trainer); /* s_tgt so far; 0: no anchor */
/* Parameter `name`, canonical [out, in]; NULL: none of that name. Read only. */
TAPER_API const float *taper_trainer_parameter(const taper_trainer *trainer, const char *name, size_t *out_elements);

/* Puts other values in the place of parameter `name`, which has n elements; its moments stay. They must be finite. */
TAPER_API taper_status taper_trainer_set_parameter(taper_trainer *trainer, const char *name, const float *values,
                                                   size_t n, taper_error *error);

/* Writes checkpoint-<step>/ in the folder `run`: weights.safetensors, optimizer.safetensors, the model's source and
   tokenizer files that the package carries, manifest.json last; all through a temporary folder that is renamed when it
   is whole and on the disk. A kill at any moment leaves what was there before. `extra`: JSON members of the manifest
   ("\"data\": {...}"), or NULL. */
TAPER_API taper_status taper_trainer_save(taper_trainer *trainer, const char *run, const char *extra,
                                          taper_error *error);
/* Takes up a checkpoint folder: every hash is compared first; on failure the trainer is as it was. */
TAPER_API taper_status taper_trainer_resume(taper_trainer *trainer, const char *checkpoint, taper_error *error);

#ifdef __cplusplus
}
#endif
#endif

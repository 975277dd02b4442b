#include "runtime/device_cpu.h"
#include "runtime/base/checked.h"
#include "runtime/pace.h"
#include "runtime/pack.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { DEFAULT_CHUNK = 64, MAX_CHUNK = 4096, PARALLEL_COPY = 1 << 15 };

typedef struct cpu_device {
  device base;
  taper_allocator allocator;
  pool *workers;
  image_code code;
  packed weights;
  float *arena, *scratch;
  taper_ctx *ctx;     /* [threads] and one more: of a caller that works alone */
  uint32_t *stages;   /* [2][stage_count]: indices of all, then of those that a call without probes runs */
  uint32_t quiet;     /* how many these are */
  uint32_t positions; /* the context, in whole tiles */
  pace single;        /* of batches of one row; guarded by the pool's lock */
  bool scale_std;     /* s(h) is a standard deviation, else a root mean square */
} cpu_device;

struct device_state {
  uint32_t slots, positions;
  float *block;
  float *state[]; /* [state_count] */
};

typedef struct cpu_run {
  cpu_device *d;
  device_batch *batch;
  const taper_ctx *ctx;   /* [parts] */
  const uint32_t *stages; /* [count] */
  uint32_t parts, count;
  _Atomic uint64_t bad; /* lowest out row * vocab + id of a logit that is not finite */
} cpu_run;

static uint32_t whole_tiles(uint32_t positions) { return (positions + TAPER_TILE - 1) / TAPER_TILE * TAPER_TILE; }

/* ---- open and close ---- */

static void cpu_close(device *base) {
  cpu_device *d = (cpu_device *)base;
  if (!d) return;
  taper_allocator a = d->allocator;
  pool_free(d->workers);
  pack_free(&d->weights, &a);
  memory_free(&a, d->arena);
  memory_free(&a, d->scratch);
  memory_free(&a, d->ctx);
  memory_free(&a, d->stages);
  image_unload(&d->code);
  memory_free(&a, d);
}

static void set_facts(cpu_device *d, const package_image *which, uint32_t row_cap) {
  const taper_image *t = d->code.table;
  device_facts *f = &d->base.facts;
  memcpy(f->image, which->name, sizeof(f->image));
  f->vocab = t->vocab, f->context = t->context, f->width = t->width, f->max_batch = t->max_batch;
  f->probes = t->probe_count;
  f->threads = pool_threads(d->workers);
  f->weight_bytes = d->weights.weight_bytes, f->bytes_per_token = d->weights.bytes_per_token;
  uint64_t most = (uint64_t)t->context * t->max_batch;
  f->row_cap = most < row_cap ? (uint32_t)most : row_cap;
  for (uint32_t i = t->probe_count; i-- > 0;) {
    if (t->probes[i].stage == TAPER_ABI_NONE) snprintf(f->lost_probe, sizeof(f->lost_probe), "%s", t->probes[i].name);
  }
}

/* The stream before the head is what the last probe sees: known where a stage of every call leaves it behind. */
static void set_scale(cpu_device *d, const package *p) {
  const taper_image *t = d->code.table;
  const uint32_t stage = t->probe_count ? t->probes[t->probe_count - 1].stage : TAPER_ABI_NONE;
  if (stage == TAPER_ABI_NONE || t->stages[stage].flags & TAPER_STAGE_PROBES) return;
  d->base.facts.scale_median = p->scale_median, d->base.facts.scale_high = p->scale_high;
  d->scale_std = p->scale_std;
}

static taper_status list_stages(cpu_device *d, taper_error *error) {
  const taper_image *t = d->code.table;
  d->stages = memory_zalloc(&d->allocator, 2 * (size_t)t->stage_count + 1, sizeof(uint32_t));
  if (!d->stages) return memory_exhausted(error, "the list of stages", 2 * (uint64_t)t->stage_count * sizeof(uint32_t));
  for (uint32_t i = 0; i < t->stage_count; i++) {
    d->stages[i] = i;
    if (!(t->stages[i].flags & TAPER_STAGE_PROBES)) d->stages[t->stage_count + d->quiet++] = i;
  }
  return TAPER_OK;
}

/* The buffers of a batch, shared by all sessions: they take turns. */
static taper_status make_room(cpu_device *d, taper_error *error) {
  const taper_image *t = d->code.table;
  const uint32_t cap = d->base.facts.row_cap, threads = d->base.facts.threads;
  const uint64_t arena_bytes = t->row_floats * cap * sizeof(float); /* each factor is under 2^31, image.c */
  uint64_t per_pos = t->scratch_per_pos * d->positions, per_row = t->scratch_per_row * cap, floats, scratch_bytes;
  if (!checked_add_u64(per_pos, per_row, &floats) || !checked_add_u64(floats, t->scratch_floats, &floats) ||
      floats > INT64_MAX / 64)
    return memory_exhausted(error, "the workers' scratch", UINT64_MAX);
  floats = (floats / 32 + 1) * 32; /* whole lines, and one between workers */
  if (!checked_mul_u64(floats * sizeof(float), threads, &scratch_bytes))
    return memory_exhausted(error, "the workers' scratch", UINT64_MAX);
  d->arena = memory_alloc(&d->allocator, arena_bytes, MEMORY_LINE);
  if (!d->arena) return memory_exhausted(error, "the buffers of a batch", arena_bytes);
  d->scratch = memory_alloc(&d->allocator, scratch_bytes, 128);
  if (!d->scratch) return memory_exhausted(error, "the workers' scratch", scratch_bytes);
  d->ctx = memory_zalloc(&d->allocator, threads + 1, sizeof(taper_ctx));
  if (!d->ctx) return memory_exhausted(error, "the workers' contexts", (threads + 1) * sizeof(taper_ctx));
  for (uint32_t i = 0; i <= threads; i++) {
    const bool alone = i == threads;
    d->ctx[i] = (taper_ctx){.version = TAPER_ABI_VERSION,
                            .size = sizeof(taper_ctx),
                            .workers = alone ? 1 : threads,
                            .worker = alone ? 0 : i,
                            .row_cap = cap,
                            .arena = d->arena,
                            .weight = d->weights.weight,
                            .rotary = d->weights.rotary,
                            .scratch = d->scratch + (alone ? 0 : i) * floats};
  }
  return TAPER_OK;
}

static taper_status load_weights(cpu_device *d, const package *p, const package_image *which, uint32_t row_cap,
                                 taper_error *error) {
  pool_lock(d->workers);
  taper_status status = package_verify(p, d->workers, error);
  if (status == TAPER_OK) status = image_load(p, which, &d->code, error);
  if (status == TAPER_OK) {
    d->positions = whole_tiles(d->code.table->context);
    status = pack_weights(p, d->code.table, d->positions, d->workers, &d->allocator, &d->weights, error);
  }
  pool_unlock(d->workers);
  TAPER_TRY(status);
  TAPER_TRY(list_stages(d, error));
  set_facts(d, which, row_cap);
  set_scale(d, p);
  return make_room(d, error);
}

static taper_status cpu_open(const package *p, const taper_model_options *o, const taper_allocator *allocator,
                             device **out, taper_error *error) {
  *out = NULL;
  const package_image *which;
  uint32_t row_cap = o->chunk_rows ? o->chunk_rows : DEFAULT_CHUNK;
  if (row_cap > MAX_CHUNK)
    return TAPER_FAIL(error, TAPER_INVALID, "option 'chunk_rows' is %u; at most %d", row_cap, MAX_CHUNK);
  TAPER_TRY(package_choose_image(p, PACKAGE_DECODE, o->image, &which, error));
  cpu_device *d = memory_zalloc(allocator, 1, sizeof(*d));
  if (!d) return memory_exhausted(error, "the device", sizeof(*d));
  d->base.ops = &device_cpu;
  d->allocator = *allocator;
  d->code.object.fd = -1;
  pool_options options = {o->threads, o->spin_us, o->cpus, o->cpu_count};
  taper_status status = pool_new(&options, allocator, &d->workers, error);
  if (status == TAPER_OK) status = load_weights(d, p, which, row_cap, error);
  if (status != TAPER_OK) return cpu_close(&d->base), status;
  *out = &d->base;
  return TAPER_OK;
}

pool *device_cpu_pool(device *d) { return ((cpu_device *)d)->workers; }

/* ---- states ---- */

static void cpu_state_free(device *base, device_state *s) {
  cpu_device *d = (cpu_device *)base;
  if (!s) return;
  memory_free(&d->allocator, s->block);
  memory_free(&d->allocator, s);
}

static taper_status cpu_state_new(device *base, uint32_t slots, uint32_t context, device_state **out,
                                  taper_error *error) {
  cpu_device *d = (cpu_device *)base;
  const taper_image *t = d->code.table;
  const uint32_t positions = whole_tiles(context);
  uint64_t per_pos = 0, floats, bytes;
  *out = NULL;
  for (uint32_t i = 0; i < t->state_count; i++) per_pos += t->states[i].floats_per_pos; /* under 2^20 * 2^31 */
  if (!checked_mul_u64(per_pos, (uint64_t)positions * slots, &floats) ||
      !checked_mul_u64(floats, sizeof(float), &bytes) || bytes > INT64_MAX)
    return memory_exhausted(error, "the key and value cache", UINT64_MAX);
  device_state *s = memory_zalloc(&d->allocator, 1, sizeof(*s) + t->state_count * sizeof(float *));
  if (!s) return memory_exhausted(error, "a session", sizeof(*s));
  s->block = memory_alloc(&d->allocator, bytes, bytes >= MEMORY_HUGE ? MEMORY_HUGE : MEMORY_LINE);
  if (!s->block) return cpu_state_free(base, s), memory_exhausted(error, "the key and value cache", bytes);
  memory_advise_huge(s->block, bytes);
  memset(s->block, 0, bytes);
  s->slots = slots, s->positions = positions;
  float *at = s->block;
  for (uint32_t i = 0; i < t->state_count; i++) {
    s->state[i] = at;
    at += (uint64_t)t->states[i].floats_per_pos * positions * slots;
  }
  *out = s;
  return TAPER_OK;
}

/* How positions lie within a slot is the kernels' own affair: a slot is copied whole. */
static taper_status cpu_state_copy(device *base, device_state *to, const device_state *from, uint32_t slot,
                                   uint32_t positions, taper_error *error) {
  (void)error;
  const taper_image *t = ((cpu_device *)base)->code.table;
  for (uint32_t i = 0; i < t->state_count && positions > 0; i++) {
    const uint64_t floats = (uint64_t)t->states[i].floats_per_pos * from->positions, begin = floats * slot;
    memcpy(to->state[i] + begin, from->state[i] + begin, floats * sizeof(float));
  }
  return TAPER_OK;
}

/* What the slot held when its last call succeeded was finite: every number that is not is the failed call's. */
static void cpu_state_scrub(device *base, device_state *s, uint32_t slot) {
  const taper_image *t = ((cpu_device *)base)->code.table;
  for (uint32_t i = 0; i < t->state_count; i++) {
    const uint64_t floats = (uint64_t)t->states[i].floats_per_pos * s->positions;
    float *at = s->state[i] + floats * slot;
    for (uint64_t k = 0; k < floats; k++) {
      if (!isfinite(at[k])) at[k] = 0;
    }
  }
}

/* ---- run ---- */

static void note_bad(cpu_run *r, uint32_t row, const float *v, uint64_t first, uint64_t end) {
  for (uint64_t id = first; id < end; id++) {
    if (isfinite(v[id])) continue;
    uint64_t at = (uint64_t)row * r->d->base.facts.vocab + id, seen = atomic_load(&r->bad);
    while (at < seen && !atomic_compare_exchange_weak(&r->bad, &seen, at)) {}
    return;
  }
}

/* Checks and hands out the logits; part of parts takes the same ids of every row. */
static void collect(cpu_run *r, uint32_t part, uint32_t parts) {
  const taper_image *t = r->d->code.table;
  const float *logits = r->d->arena + t->logits_offset * r->d->base.facts.row_cap;
  uint64_t first, end;
  pool_range(t->vocab, part, parts, &first, &end);
  for (uint32_t j = 0; j < r->batch->out_rows; j++, logits += t->vocab) {
    if (!device_is_finite(logits + first, end - first)) note_bad(r, j, logits, first, end);
    if (r->batch->logits[j]) memcpy(r->batch->logits[j] + first, logits + first, (end - first) * sizeof(float));
  }
}

static void run_part(void *arg, uint32_t i, uint32_t part) {
  cpu_run *r = arg;
  if (i == r->count) {
    collect(r, part, r->parts);
    return;
  }
  const taper_stage *stage = &r->d->code.table->stages[r->stages[i]];
  stage->fn(&r->ctx[part], stage->args);
}

/* Later stages add to the stream in place, so a probed value is copied before the next stage begins. */
static void copy_probes(void *arg, uint32_t i) {
  cpu_run *r = arg;
  if (i == r->count) return;
  const taper_image *t = r->d->code.table;
  const uint64_t rows = r->batch->rows, width = t->width;
  for (uint32_t k = 0; k < t->probe_count; k++) {
    const taper_probe_desc *d = &t->probes[k];
    if (d->stage != r->stages[i]) continue;
    const float *from = r->d->arena + d->offset * r->d->base.facts.row_cap;
    const float *scale = d->inv_scale == TAPER_ABI_NONE ? NULL : r->d->weights.weight[d->inv_scale];
    float *to = r->batch->probe_rows + k * rows * width;
    for (uint64_t j = 0; j < rows * width; j++) to[j] = scale ? from[j] * scale[j % width] : from[j];
  }
}

static void measure_scales(const cpu_run *r) {
  const cpu_device *d = r->d;
  const taper_image *t = d->code.table;
  const taper_probe_desc *last = &t->probes[t->probe_count - 1];
  const float *x = d->arena + last->offset * d->base.facts.row_cap,
              *inverse = last->inv_scale == TAPER_ABI_NONE ? NULL : d->weights.weight[last->inv_scale];
  for (uint32_t i = 0; i < r->batch->rows; i++, x += t->width)
    r->batch->scales[i] = device_scale_of(x, inverse, t->width, d->scale_std);
}

static void after_stage(void *arg, uint32_t i) {
  cpu_run *r = arg;
  const taper_image *t = r->d->code.table;
  if (r->batch->probe_rows) copy_probes(arg, i);
  if (r->batch->scales && i < r->count && r->stages[i] == t->probes[t->probe_count - 1].stage) measure_scales(r);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool is_watched(const cpu_run *r) { return r->batch->probe_rows || r->batch->scales; }

static void run_together(cpu_run *r, uint32_t stages) {
  r->ctx = r->d->ctx, r->parts = r->d->base.facts.threads;
  pool_run(r->d->workers,
           &(pool_job){.part = run_part, .after = is_watched(r) ? after_stage : NULL, .arg = r, .stages = stages});
}

static void run_alone(cpu_run *r, uint32_t stages) {
  r->ctx = &r->d->ctx[r->d->base.facts.threads], r->parts = 1;
  for (uint32_t i = 0; i < stages; i++) {
    run_part(r, i, 0);
    if (is_watched(r)) after_stage(r, i);
  }
}

static void run_stages(cpu_run *r, uint32_t stages) {
  cpu_device *d = r->d;
  const bool choose = r->batch->rows == 1 && d->base.facts.threads > 1;
  if (!choose) {
    run_together(r, stages);
    return;
  }
  const uint64_t begin = now_ns();
  if (pace_alone(&d->single))
    run_alone(r, stages);
  else
    run_together(r, stages);
  pace_note(&d->single, now_ns() - begin);
}

static taper_status cpu_run_batch(device *base, device_state *s, device_batch *batch, taper_error *error) {
  cpu_device *d = (cpu_device *)base;
  const taper_image *t = d->code.table;
  cpu_run r = {.d = d, .batch = batch, .bad = UINT64_MAX};
  const bool shared_copy = (uint64_t)batch->out_rows * t->vocab >= PARALLEL_COPY;
  pool_lock(d->workers);
  for (uint32_t i = 0; i <= d->base.facts.threads; i++) {
    taper_ctx *c = &d->ctx[i];
    c->rows = batch->rows, c->out_rows = batch->out_rows, c->context = s->positions;
    c->token = batch->token, c->pos = batch->pos, c->slot = batch->slot, c->out_row = batch->out_row;
    c->state = s->state;
  }
  r.stages = batch->probe_rows ? d->stages : d->stages + t->stage_count;
  r.count = batch->probe_rows ? t->stage_count : d->quiet;
  run_stages(&r, r.count + (shared_copy ? 1 : 0));
  if (!shared_copy) collect(&r, 0, 1);
  pool_unlock(d->workers);
  const uint64_t bad = atomic_load(&r.bad);
  if (bad == UINT64_MAX) return TAPER_OK;
  batch->bad_row = (uint32_t)(bad / t->vocab), batch->bad_id = (uint32_t)(bad % t->vocab);
  return TAPER_FAIL(error, TAPER_NUMERIC,
                    "the logit of id %u is not a finite number; check the weights for NaN and for values beyond f32",
                    batch->bad_id);
}

const device_ops device_cpu = {.name = "cpu",
                               .open = cpu_open,
                               .close = cpu_close,
                               .state_new = cpu_state_new,
                               .state_free = cpu_state_free,
                               .state_copy = cpu_state_copy,
                               .state_scrub = cpu_state_scrub,
                               .run = cpu_run_batch};

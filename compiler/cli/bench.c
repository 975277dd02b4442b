/* bench: load, prefill and decode apart, each beside this machine's limit measured in the same round. */
#include "runtime/bench.h"
#include "compiler/cli/cli.h"
#include "compiler/cli/json.h"
#include "compiler/cli/machine.h"
#include "runtime/base/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct bench_own {
  uint64_t prefill, decode, rounds;
  bool prefill_given, decode_given, rounds_given;
} bench_own;

enum { MAX_THREAD_COUNTS = 16, MAX_ROUNDS = 1000, LOADS = 3, SIM_TOKENS = 16 };

static const struct argp_option options[] = {
    {NULL, 'p', "N", 0, "tokens of the prefill (default 128, on sim 16; at most the context)", 0},
    {NULL, 'n', "N", 0, "tokens of the decode (default 128, on sim 16; at most the context)", 0},
    {NULL, 'r', "N", 0, "rounds (default 5, on sim 1), after one that does not count", 0},
    {0}};

static void init(void *own) { *(bench_own *)own = (bench_own){.prefill = 128, .decode = 128, .rounds = 5}; }

static int option(cli *c, int key, const char *value) {
  bench_own *o = c->own;
  switch (key) {
  case 'p': o->prefill_given = true; return cli_parse_count(c, "-p", value, 1, INT32_MAX, &o->prefill);
  case 'n': o->decode_given = true; return cli_parse_count(c, "-n", value, 1, INT32_MAX, &o->decode);
  case 'r': o->rounds_given = true; return cli_parse_count(c, "-r", value, 1, MAX_ROUNDS, &o->rounds);
  default: return CLI_OK;
  }
}

typedef struct bench_row {
  taper_model_info info;
  size_t rounds, loads;
  double load[LOADS], *prefill, *decode, *gb, *limit, *share; /* [rounds] */
  double fma, barrier;
  bool cpu;                             /* limits are measured on the CPU, traffic is counted by the simulator */
  uint32_t counted;                     /* 0: nothing is */
  bench_traffic traffic[BENCH_KERNELS]; /* of the last decode: all of it, then by kernels */
  uint64_t decoded;                     /* its tokens */
  double interpreted;                   /* its instructions of warps a second: the simulator's rate, nothing of a GPU */
} bench_row;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int parse_threads(cli *c, uint32_t *out, size_t *out_n) {
  *out_n = 1;
  out[0] = 0;
  if (!c->threads_text) return CLI_OK;
  *out_n = 0;
  for (const char *p = c->threads_text;; p++) {
    size_t n = strcspn(p, ",");
    uint64_t value;
    if (*out_n == MAX_THREAD_COUNTS)
      return cli_fail(c, CLI_USAGE, "option '-t': more than %d thread counts; give fewer", MAX_THREAD_COUNTS);
    int bad = cli_parse_count(c, "-t", arena_strndup(&c->memory, p, n), 1, 1024, &value);
    if (bad) return bad;
    out[(*out_n)++] = (uint32_t)value;
    p += n;
    if (!*p) return CLI_OK;
  }
}

static int fit(cli *c, const char *option, bool given, uint64_t *n, uint32_t context) {
  if (*n <= context) return CLI_OK;
  if (given)
    return cli_fail(c, CLI_USAGE, "option '%s': %llu tokens do not fit the context of %u; give at most that", option,
                    (unsigned long long)*n, context);
  *n = context;
  return CLI_OK;
}

static int count_token(void *user, int32_t id) {
  (void)id;
  ++*(uint64_t *)user;
  return 0;
}

/* Token after token: on the CPU those of ids, on a device that chooses them itself its own. */
static taper_status decode(taper_session *s, const int32_t *ids, const bench_own *o, float *logits, bench_row *row,
                           taper_error *error) {
  taper_generation g;
  row->decoded = o->decode;
  if (row->cpu) {
    for (uint64_t i = 0; i < o->decode; i++) TAPER_TRY(taper_session_append(s, 0, ids + i, 1, logits, error));
    return TAPER_OK;
  }
  taper_generation_init(&g);
  row->decoded = 0;
  g.sampling.temperature = 0, g.max_tokens = (size_t)o->decode, g.on_token = count_token, g.user = &row->decoded;
  TAPER_TRY(taper_generate(s, 0, ids, 1, &g, NULL, error));
  if (row->decoded == 0) row->decoded = 1; /* the end came at once, after one token */
  return TAPER_OK;
}

static taper_status one_round(const build_opened *b, taper_session *s, const int32_t *ids, const bench_own *o,
                              float *logits, bench_row *row, size_t round, taper_error *error) {
  TAPER_TRY(taper_session_rewind(s, 0, 0, error));
  double start = now();
  TAPER_TRY(taper_session_append(s, 0, ids, (size_t)o->prefill, logits, error));
  double middle = now();
  TAPER_TRY(taper_session_rewind(s, 0, 0, error));
  (void)bench_count(b->model, row->traffic);
  double again = now();
  TAPER_TRY(decode(s, ids, o, logits, row, error));
  double end = now();
  row->counted = bench_count(b->model, row->traffic);
  row->prefill[round] = (double)o->prefill / (middle - start);
  row->decode[round] = (double)row->decoded / (end - again);
  row->interpreted = row->counted ? (double)row->traffic[0].instructions / (end - again) : NAN;
  row->gb[round] = row->decode[round] * (double)row->info.bytes_per_token * 1e-9;
  if (!row->cpu) return TAPER_OK;
  TAPER_TRY(bench_read(b->model, 0, &row->limit[round], error));
  row->share[round] = row->gb[round] / row->limit[round];
  return TAPER_OK;
}

/* Text of the model's own: ids drawn at random would drive a norm-free stream to sizes that no text reaches. */
static taper_status draw_text(taper_session *s, const taper_model_info *info, int32_t *ids, size_t n, float *logits,
                              taper_error *error) {
  taper_sampling plain;
  taper_sampling_init(&plain);
  plain.temperature = 1, plain.top_k = 0, plain.top_p = 1, plain.min_p = 0;
  uint32_t bits[4];
  philox4x32(0, PHILOX_BENCH, 0, 0, 0, bits);
  ids[0] = strcmp(info->tokenizer, "bytes") == 0 ? ' ' : (int32_t)(philox_uniform(bits[0]) * info->vocab);
  for (size_t i = 1; i < n; i++) {
    TAPER_TRY(taper_session_append(s, 0, ids + i - 1, 1, logits, error));
    TAPER_TRY(taper_sample(&plain, logits, info->vocab, ids, i, 0, ids + i, error));
  }
  return TAPER_OK;
}

static taper_status measure(cli *c, build_opened *b, const bench_own *o, uint32_t threads, bench_row *row,
                            taper_error *error) {
  taper_model_options runtime;
  cli_runtime_options(c, &runtime);
  runtime.threads = threads;
  row->loads = o->rounds < LOADS ? (size_t)o->rounds : LOADS;
  for (size_t i = 0; i < row->loads; i++) {
    double start = now();
    TAPER_TRY(build_reopen(b, &runtime, error));
    row->load[i] = now() - start;
  }
  row->info.size = sizeof row->info;
  taper_model_get_info(b->model, &row->info);
  row->cpu = bench_is_cpu(b->model);
  size_t most = (size_t)(o->prefill > o->decode ? o->prefill : o->decode);
  int32_t *ids = ARENA_ARRAY(&c->memory, int32_t, most);
  float *logits = ARENA_ARRAY(&c->memory, float, row->info.vocab);
  taper_session *s = NULL;
  TAPER_TRY(taper_session_new(b->model, NULL, &s, error));
  taper_status status = draw_text(s, &row->info, ids, most, logits, error);
  /* a warm-up: its numbers are overwritten */
  if (status == TAPER_OK) status = one_round(b, s, ids, o, logits, row, 0, error);
  for (size_t i = 0; status == TAPER_OK && i < row->rounds; i++) {
    status = one_round(b, s, ids, o, logits, row, i, error);
    cli_progress("bench", i + 1, row->rounds);
  }
  taper_session_free(s);
  row->fma = row->barrier = NAN;
  if (row->cpu) row->fma = bench_fma(b->model), row->barrier = bench_barrier(b->model);
  return status;
}

/* What the matrices of a package are stored in. */
static const char *stored_type(const st_file *package) {
  for (size_t i = 0; i < package->count; i++) {
    const st_dtype type = package->tensors[i].dtype;
    if (type == ST_BF16 || type == ST_F16) return type == ST_BF16 ? "bf16" : "f16";
  }
  return "f32";
}

static void put_json_kernels(json_out *j, const bench_row *r, double tokens) {
  json_open(j, "kernels", '[');
  for (uint32_t i = 1; i < r->counted; i++) {
    json_open(j, NULL, '{');
    json_string(j, "kernel", r->traffic[i].kernel);
    json_number(j, "launches_per_token", (double)r->traffic[i].launches / tokens);
    json_number(j, "blocks_per_token", (double)r->traffic[i].blocks / tokens);
    json_number(j, "instructions_per_token", (double)r->traffic[i].instructions / tokens);
    json_number(j, "read_bytes_per_token", (double)r->traffic[i].bytes / tokens);
    json_close(j, '}');
  }
  json_close(j, ']');
}

static void put_json(cli *c, const build_opened *b, const bench_own *o, bench_row *r) {
  json_out j = {0};
  const char *versions = st_metadata(&b->package, "taper.versions");
  json_open(&j, NULL, '{');
  json_string(&j, "model", r->info.name);
  json_string(&j, "device", r->info.device);
  json_whole(&j, "threads", r->info.threads);
  json_string(&j, "dtype", stored_type(&b->package));
  json_measured(&j, "load_s", r->load, r->loads);
  json_measured(&j, "prefill_tok_s", r->prefill, r->rounds);
  json_measured(&j, "decode_tok_s", r->decode, r->rounds);
  json_measured(&j, "gb_s", r->gb, r->rounds);
  json_measured(&j, "limit_gb_s", r->limit, r->cpu ? r->rounds : 0);
  json_measured(&j, "limit_share", r->share, r->cpu ? r->rounds : 0);
  json_whole(&j, "bytes_per_token", r->info.bytes_per_token);
  const double tokens = r->counted ? (double)r->decoded : NAN; /* null where nothing is counted */
  json_number(&j, "sectors_per_token", (double)r->traffic[0].sectors / tokens);
  json_number(&j, "read_bytes_per_token", (double)r->traffic[0].bytes / tokens);
  json_number(&j, "weight_sectors_per_token", (double)r->traffic[0].weight_sectors / tokens);
  json_number(&j, "weight_read_bytes_per_token", (double)r->traffic[0].weight_bytes / tokens);
  json_number(&j, "instructions_per_token", (double)r->traffic[0].instructions / tokens);
  json_number(&j, "launches_per_token", (double)r->traffic[0].launches / tokens);
  put_json_kernels(&j, r, tokens);
  json_number(&j, "interpreter_instructions_s", r->interpreted);
  json_whole(&j, "prefill_tokens", o->prefill);
  json_whole(&j, "decode_tokens", o->decode);
  json_whole(&j, "weight_bytes", r->info.weight_bytes);
  json_number(&j, "fma_gflop_s", r->fma);
  json_number(&j, "barrier_us", r->barrier);
  json_string(&j, "image", r->info.image);
  json_string(&j, "options", b->options);
  json_raw(&j, "gates", b->gates);
  json_string(&j, "versions", versions ? versions : "");
  json_string(&j, "runtime", taper_version());
  json_string(&j, "cpu", machine_cpu(&c->memory));
  json_string(&j, "system", machine_system(&c->memory));
  json_close(&j, '}');
  text_puts(&j.t, "\n");
  cli_put(j.t.data, j.t.size);
  text_free(&j.t);
}

static void put_measured(text *t, const char *name, double *values, size_t n, const char *unit) {
  char line[160];
  double median = median_of(values, n);
  text_format(line, sizeof line, "  %-8s %12.5g %-8s (%.5g .. %.5g, %zu times)\n", name, median, unit, values[0],
              values[n - 1], n);
  text_puts(t, line);
}

/* What a token costs a GPU, as far as counting tells; of times there is the interpreter's rate alone. */
static void put_traffic(text *t, const bench_own *o, const bench_row *r) {
  char line[240];
  const double tokens = (double)r->decoded, bytes = (double)r->traffic[0].bytes / tokens,
               sectors = (double)r->traffic[0].sectors / tokens, weights = (double)r->traffic[0].weight_bytes / tokens,
               weight_sectors = (double)r->traffic[0].weight_sectors / tokens;
  text_format(line, sizeof line, "  simulated: a token of a decode of %llu, in global memory:\n",
              (unsigned long long)o->decode);
  text_puts(t, line);
  text_format(line, sizeof line, "  reads    %12.6g bytes    in %.6g sectors of 32 bytes\n", bytes, sectors);
  text_puts(t, line);
  text_format(line, sizeof line,
              "  of these %12.6g bytes    of weights and tables, in %.6g sectors, %.4g %% of them used; %.4g times the "
              "weights' %llu bytes\n",
              weights, weight_sectors, weight_sectors > 0 ? 100 * weights / (32 * weight_sectors) : 0,
              weights / (double)r->info.bytes_per_token, (unsigned long long)r->info.bytes_per_token);
  text_puts(t, line);
  text_format(line, sizeof line, "  executes %12.6g instructions of warps\n",
              (double)r->traffic[0].instructions / tokens);
  text_puts(t, line);
  text_format(line, sizeof line,
              "  the interpreter's own rate, no GPU's: %.3g million instructions of warps a second\n",
              1e-6 * r->interpreted);
  text_puts(t, line);
}

/* Of a token, kernel by kernel. */
static void put_kernels(text *t, const bench_row *r) {
  char line[200];
  const double tokens = (double)r->decoded;
  text_puts(t, "  kernel             launches  blocks  instructions  bytes read\n");
  for (uint32_t i = 1; i <= r->counted; i++) {
    const bench_traffic *k = &r->traffic[i < r->counted ? i : 0];
    text_format(line, sizeof line, "  %-18.30s %8.4g %7.5g %13.7g %11.7g\n", *k->kernel ? k->kernel : "all",
                (double)k->launches / tokens, (double)k->blocks / tokens, (double)k->instructions / tokens,
                (double)k->bytes / tokens);
    text_puts(t, line);
  }
}

static void put_times(text *t, const bench_own *o, bench_row *r) {
  char line[200];
  put_measured(t, "load", r->load, r->loads, "s");
  text_format(line, sizeof line, "  prefill of %llu tokens, decode of %llu, medians:\n", (unsigned long long)o->prefill,
              (unsigned long long)o->decode);
  text_puts(t, line);
  put_measured(t, "prefill", r->prefill, r->rounds, "tok/s");
  put_measured(t, "decode", r->decode, r->rounds, "tok/s");
  put_measured(t, "reads", r->gb, r->rounds, "GB/s");
  if (r->cpu) {
    put_measured(t, "limit", r->limit, r->rounds, "GB/s");
    put_measured(t, "share", r->share, r->rounds, "");
    text_format(line, sizeof line,
                "  %llu bytes of weights a token; fused multiply-add %.4g GFLOP/s; an exchange %.3g us\n",
                (unsigned long long)r->info.bytes_per_token, r->fma, r->barrier);
  } else {
    text_format(line, sizeof line, "  %llu bytes of weights a token\n", (unsigned long long)r->info.bytes_per_token);
  }
  text_puts(t, line);
}

static void put_text(cli *c, const build_opened *b, const bench_own *o, bench_row *r) {
  text t = {0};
  const char *versions = st_metadata(&b->package, "taper.versions");
  text_printf(&t, "%s on %s, %u threads, image %s, %s, %s; %s\n", r->info.name, machine_cpu(&c->memory),
              r->info.threads, r->info.image, stored_type(&b->package), b->options, versions ? versions : "");
  if (r->counted)
    put_traffic(&t, o, r);
  else
    put_times(&t, o, r);
  if (r->counted && c->verbose) put_kernels(&t, r);
  cli_put(t.data, t.size);
  text_free(&t);
}

static int bench_threads(cli *c, build_opened *b, const bench_own *o, uint32_t threads) {
  bench_row row = {.rounds = (size_t)o->rounds};
  double **const lists[] = {&row.prefill, &row.decode, &row.gb, &row.limit, &row.share};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) *lists[i] = ARENA_ARRAY(&c->memory, double, row.rounds + 1);
  taper_error error = {0};
  taper_status status = measure(c, b, o, threads, &row, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  if (c->json)
    put_json(c, b, o, &row);
  else
    put_text(c, b, o, &row);
  cli_put_now("", 0);
  return CLI_OK;
}

static int run(cli *c) {
  bench_own *o = c->own;
  build_opened b = {0};
  uint32_t threads[MAX_THREAD_COUNTS];
  size_t n;
  taper_model_info info = {.size = sizeof info};
  c->model.need_weights = true;
  if (c->device_kind == CLI_SIM) {
    if (!o->prefill_given) o->prefill = SIM_TOKENS;
    if (!o->decode_given) o->decode = SIM_TOKENS;
    if (!o->rounds_given) o->rounds = 1;
  }
  int bad = parse_threads(c, threads, &n);
  if (!bad) bad = cli_open(c, 0, &b);
  if (!bad) taper_model_get_info(b.model, &info);
  if (!bad) bad = fit(c, "-p", o->prefill_given, &o->prefill, info.context);
  if (!bad) bad = fit(c, "-n", o->decode_given, &o->decode, info.context);
  for (size_t i = 0; !bad && i < n; i++) bad = bench_threads(c, &b, o, threads[i]);
  cli_flush(c);
  build_close(&b);
  return bad;
}

const cli_command cli_cmd_bench = {
    .name = "bench",
    .args = "MODEL",
    .summary = "measure load, prefill and decode beside this machine's limits",
    .min_args = 1,
    .max_args = 1,
    .details = "-t takes a list, e.g. -t 1,2: one row each. Numbers are medians of -r rounds; the limit is the rate at "
               "which the same threads read as many bytes as the weights have.",
    .acts = CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_BUILD | CLI_ACT_CC | CLI_ACT_THREAD_LIST | CLI_ACT_DEVICE |
            CLI_ACT_RUN,
    .options = options,
    .own_size = sizeof(bench_own),
    .init = init,
    .option = option,
    .run = run};

#include "compiler/cli/train.h"
#include "compiler/cli/json.h"
#include "compiler/driver/train_tokenizer.h"
#include "runtime/base/file.h"
#include "runtime/base/json_scan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
  KEY_DATA = 3000,
  KEY_VAL,
  KEY_FRACTION,
  KEY_EVAL,
  KEY_EVAL_WINDOWS,
  KEY_RESUME,
  KEY_INIT,
  KEY_VARIANT,
  KEY_STEPS,
  KEY_BATCH,
  KEY_SEQ,
  KEY_ACCUMULATE,
  KEY_SEED,
  KEY_LR,
  KEY_WARMUP,
  KEY_SCHEDULE,
  KEY_FLOOR,
  KEY_DECAY,
  KEY_CLIP,
  KEY_BETA1,
  KEY_BETA2,
  KEY_EPS,
  KEY_CHECKPOINT,
  KEY_KEEP,
  KEY_METRICS,
  KEY_GEMM,
  KEY_NO_STRESS,
  KEY_CLAMP
};

static const struct argp_option options[] = {
    {"data", KEY_DATA, "FILE", 0, "text, or ids: NAME.ids, NAME.u16, NAME.u32, NAME.bin; may be given again", 0},
    {"val", KEY_VAL, "FILE", 0, "held-out data", 0},
    {"val-fraction", KEY_FRACTION, "F", 0, "hold out this share of the data, its end (default 0.05 without --val)", 0},
    {"eval-every", KEY_EVAL, "N", 0, "measure the held-out loss every N steps (it is at the end, always)", 0},
    {"eval-windows", KEY_EVAL_WINDOWS, "N", 0,
     "held-out windows that are measured, evenly spread (default 2048; 0: all)", 0},
    {"resume", KEY_RESUME, NULL, 0, "go on from the newest complete checkpoint of -o RUN", 0},
    {"init", KEY_INIT, "MODEL", 0, "start from the weights of that model or safetensors file", 0},
    {"variant", KEY_VARIANT, "WORD", 0, "what tapers: baseline, internal, internal-aux, final, all, all-aux", 0},
    {"steps", KEY_STEPS, "N", 0, "optimizer steps (default 1000)", 0},
    {"batch", KEY_BATCH, "N", 0, "windows of a batch (default 16)", 0},
    {"seq", KEY_SEQ, "N", 0, "ids of a window (default: the model's context)", 0},
    {"accumulate", KEY_ACCUMULATE, "N", 0, "batches of one optimizer step (default 1)", 0},
    {"seed", KEY_SEED, "N", 0, "of initial values and of the order of the data (default 0)", 0},
    {"lr", KEY_LR, "X", 0, "learning rate (default 3e-4)", 0},
    {"warmup", KEY_WARMUP, "T", 0, "steps, or a share as 5%, of linear warm-up (default 0)", 0},
    {"schedule", KEY_SCHEDULE, "WORD", 0, "of the learning rate after the warm-up: cosine (default), linear, constant",
     0},
    {"floor", KEY_FLOOR, "X", 0, "share of the learning rate at the end (default 0)", 0},
    {"weight-decay", KEY_DECAY, "X", 0, "decoupled, on matrices only (default 0)", 0},
    {"clip", KEY_CLIP, "X", 0, "bound of the gradient's norm (default 1; 0: none)", 0},
    {"beta1", KEY_BETA1, "X", 0, "of AdamW (default 0.9)", 0},
    {"beta2", KEY_BETA2, "X", 0, "of AdamW (default 0.95)", 0},
    {"eps", KEY_EPS, "X", 0, "of AdamW (default 1e-8)", 0},
    {"clamp-rows", KEY_CLAMP, "K", 0,
     "held-out losses at gates 0: look rows up that are longer than K median rows shortened to that", 0},
    {"checkpoint-every", KEY_CHECKPOINT, "N", 0, "write a checkpoint every N steps (one is written at the end, always)",
     0},
    {"keep", KEY_KEEP, "N", 0, "keep the newest N checkpoints (default: all)", 0},
    {"metrics", KEY_METRICS, "WORD", 0, "basic (default), or full: gradient norms by kind, scales a layer, ...", 0},
    {"gemm", KEY_GEMM, "WORD", 0, "auto (default: measured), generated, library (oneDNN)", 0},
    {"no-stress", KEY_NO_STRESS, NULL, 0, "do not try every id at the end of a run that removed a norm", 0},
    {0}};

static void init(void *own) {
  train_own *o = own;
  train_settings_init(&o->settings);
  o->val_fraction = NAN;
}

static int set_warmup(cli *c, const char *value, front_amount *out) {
  size_t n = strlen(value);
  double v = 0;
  bool percent = n && value[n - 1] == '%', good = number_parse_double(value, percent ? n - 1 : n, &v) && v >= 0;
  good = good && (percent ? v <= 100 : v == floor(v) && v <= 1e15);
  if (!good)
    return cli_fail(c, CLI_USAGE,
                    "option '--warmup': '%s' is no amount of time; give whole steps, or 0%% to 100%% of them", value);
  *out = (front_amount){true, percent, percent ? v / 100 : v};
  return CLI_OK;
}

static int set_variant(cli *c, const char *value, train_variant *out) {
  static const char words[] =
#define VARIANT(id, name, internal, final, anchor) name "|"
#include "compiler/driver/variants.def"
#undef VARIANT
      "";
  size_t word = 0;
  int bad = cli_parse_word(c, "--variant", value, words, &word);
  if (!bad) *out = (train_variant)(word + 1);
  return bad;
}

/* As in a .tmodel: 500k, 1M. */
static int set_count(cli *c, const char *name, const char *value, uint64_t most, uint64_t *out) {
  size_t n = strlen(value);
  uint64_t unit = n < 2 ? 1 : value[n - 1] == 'k' ? 1000 : value[n - 1] == 'M' ? 1000000 : 1;
  uint64_t v;
  if (unit == 1) return cli_parse_count(c, name, value, 1, most, out);
  if (!number_parse_u64(value, n - 1, &v) || v > most / unit) return cli_parse_count(c, name, value, 1, most, out);
  return cli_parse_count(c, name, arena_printf(&c->memory, "%zu", (size_t)(v * unit)), 1, most, out);
}

static int number_option(cli *c, int key, const char *value, train_settings *s) {
  switch (key) {
  case KEY_STEPS: return set_count(c, "--steps", value, 1000000000000, &s->steps);
  case KEY_BATCH: return set_count(c, "--batch", value, 1 << 20, &s->batch);
  case KEY_SEQ: return set_count(c, "--seq", value, INT32_MAX, &s->sequence);
  case KEY_ACCUMULATE: return set_count(c, "--accumulate", value, 1 << 16, &s->accumulate);
  case KEY_SEED: s->has_seed = true; return cli_parse_count(c, "--seed", value, 0, INT64_MAX, &s->seed);
  case KEY_LR: return cli_parse_real(c, "--lr", value, 1e-300, INFINITY, &s->lr);
  case KEY_FLOOR: return cli_parse_real(c, "--floor", value, 0, 1, &s->floor);
  case KEY_DECAY: return cli_parse_real(c, "--weight-decay", value, 0, INFINITY, &s->weight_decay);
  case KEY_CLAMP: return cli_parse_real(c, "--clamp-rows", value, 1e-300, INFINITY, &s->clamp_rows);
  case KEY_CLIP: return cli_parse_real(c, "--clip", value, 0, INFINITY, &s->clip);
  case KEY_BETA1: return cli_parse_real(c, "--beta1", value, 0, 0.9999999, &s->beta1);
  case KEY_BETA2: return cli_parse_real(c, "--beta2", value, 0, 0.9999999, &s->beta2);
  case KEY_EPS: return cli_parse_real(c, "--eps", value, 1e-300, INFINITY, &s->eps);
  case KEY_WARMUP: return set_warmup(c, value, &s->warmup);
  case KEY_VARIANT: return set_variant(c, value, &s->variant);
  default: return CLI_OK;
  }
}

static int option(cli *c, int key, const char *value) {
  static const char *const schedules[] = {"cosine", "linear", "constant"};
  train_own *o = c->own;
  size_t word = 0;
  int bad;
  switch (key) {
  case KEY_DATA: cli_list_add(c, &o->data, &o->data_count, value); return CLI_OK;
  case KEY_VAL: o->val = value; return CLI_OK;
  case KEY_FRACTION: return cli_parse_real(c, "--val-fraction", value, 0, 0.999, &o->val_fraction);
  case KEY_EVAL: return set_count(c, "--eval-every", value, 1000000000000, &o->eval_every);
  case KEY_EVAL_WINDOWS:
    o->has_eval_windows = true;
    return cli_parse_count(c, "--eval-windows", value, 0, UINT32_MAX, &o->eval_windows);
  case KEY_RESUME: o->resume = true; return CLI_OK;
  case KEY_INIT: o->settings.init = value; return CLI_OK;
  case KEY_CHECKPOINT: return set_count(c, "--checkpoint-every", value, 1000000000000, &o->checkpoint_every);
  case KEY_KEEP: o->has_keep = true; return set_count(c, "--keep", value, 1000000, &o->keep);
  case KEY_NO_STRESS: o->no_stress = true; return CLI_OK;
  case KEY_GEMM: return cli_parse_word(c, "--gemm", value, "auto|generated|library", &o->gemm);
  case KEY_METRICS:
    bad = cli_parse_word(c, "--metrics", value, "basic|full", &word);
    o->metrics_full = word == 1;
    return bad;
  case KEY_SCHEDULE:
    bad = cli_parse_word(c, "--schedule", value, "cosine|linear|constant", &word);
    if (!bad) o->settings.schedule = schedules[word];
    return bad;
  default: return number_option(c, key, value, &o->settings);
  }
}

/* ---- before the first step ---- */

static int check_options(train_run *t) {
  cli *c = t->c;
  train_own *o = t->o;
  for (size_t i = 1; i < c->arg_count; i++) cli_list_add(c, &o->data, &o->data_count, c->args[i]);
  if (!o->data_count) return cli_fail(c, CLI_USAGE, "'train' needs data; give --data FILE");
  if (!c->output) return cli_fail(c, CLI_USAGE, "'train' needs a folder for the run; give -o RUN");
  if (o->val && !isnan(o->val_fraction))
    return cli_fail(c, CLI_USAGE, "both --val and --val-fraction say what is held out; give one");
  if (isnan(o->val_fraction)) o->val_fraction = o->val ? 0 : 0.05;
  if (!o->val && o->val_fraction == 0 && (o->eval_every || o->has_eval_windows))
    return cli_fail(c, CLI_USAGE,
                    "option '--eval-%s' acts on nothing without held-out data; give --val, or a --val-fraction",
                    o->eval_every ? "every" : "windows");
  if (o->settings.schedule && strcmp(o->settings.schedule, "constant") == 0 && !isnan(o->settings.floor))
    return cli_fail(c, CLI_USAGE, "option '--floor' acts on nothing with --schedule constant; leave it out");
  if (o->settings.init && c->model.weights)
    return cli_fail(c, CLI_USAGE, "option '--weights' acts on nothing with --init, which wins; give one");
  if (!o->has_eval_windows) o->eval_windows = 2048;
  struct stat s;
  if (!o->resume && stat(c->output, &s) == 0)
    return cli_fail_file(c, CLI_WRONG, c->output, "exists already; give --resume to go on with it, or another -o");
  return CLI_OK;
}

static int prepare(train_run *t) {
  cli *c = t->c;
  model_place place;
  taper_error error = {0};
  taper_status status = model_locate(c->args[0], &c->memory, c->sink, &place, &error);
  if (status == TAPER_OK) status = train_prepare(&place, &c->model, &t->o->settings, c->sink, &t->job, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  t->recipe = t->job.recipe;
  return CLI_OK;
}

static void on_progress(void *user, const char *file, uint64_t done, uint64_t all) {
  (void)user, (void)file;
  cli_progress("tokenize", done, all);
}

/* A SentencePiece tokenizer that has no file: a resumed run goes on with the one of its checkpoint, a new one learns it
 * from the data. */
static int find_tokenizer(train_run *t) {
  cli *c = t->c;
  model_loaded *m = &t->job.model;
  taper_error error = {0};
  model_place place = {0};
  if (!m->tokenizer || strcmp(m->tokenizer, tokenizer_name(m->tokens.kind)) == 0) return CLI_OK;
  bool resumed = t->o->resume && model_locate(c->output, &c->memory, c->sink, &place, &error) == TAPER_OK &&
                 place.kind == MODEL_CHECKPOINT;
  const char *path = resumed ? arena_printf(&c->memory, "%s/" TOKENIZER_FILE, place.folder) : NULL;
  taper_status status;
  if (path) {
    status = model_set_tokenizer(m, path, &error);
  } else {
    cli_note(c, "the tokenizer comes from the data: learned by spm_train, or kept beside it");
    cli_flush(c);
    status = train_tokenizer(m, t->o->data, t->o->data_count, c->sink, &error);
  }
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
}

static int open_data(train_run *t) {
  cli *c = t->c;
  double vocab = 0;
  taper_error error = {0};
  ir_module_param(t->job.model.module, "vocab", &vocab);
  int bad = find_tokenizer(t);
  if (bad) return bad;
  const corpus_options data = {.files = t->o->data,
                               .file_count = t->o->data_count,
                               .val = t->o->val,
                               .val_fraction = t->o->val_fraction,
                               .tokenizer = &t->job.model.tokens,
                               .vocab = (uint32_t)vocab,
                               .window = t->recipe.sequence,
                               .keep_tokens = true,
                               .progress = on_progress};
  cli_flush(c);
  taper_status status = corpus_open(&data, c->sink, &t->data, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  t->val_windows =
      corpus_count(t->data, CORPUS_VAL) ? corpus_val_windows(t->data, t->recipe.sequence, t->o->eval_windows) : 0;
  return CLI_OK;
}

static void on_log(void *user, taper_log_level level, const char *message) {
  train_run *t = user;
  if (level == TAPER_LOG_WARNING)
    cli_note(t->c, "%s", message);
  else
    cli_say(t->c, "%s", message);
  run_folder_log(&t->run, "%s", message);
}

static int open_trainer(train_run *t) {
  cli *c = t->c;
  taper_error error = {0};
  taper_status status = train_package_private(&t->job, &c->build, c->sink, &t->package, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, true);
  taper_trainer_options o;
  taper_trainer_options_init(&o);
  o.threads = c->threads, o.gemm = (taper_gemm_choice)t->o->gemm, o.log = on_log, o.log_user = t;
  o.clamp_rows = t->o->settings.clamp_rows;
  status = taper_trainer_open(t->package.file.opened, &o, &t->trainer, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, true);
  t->info.size = sizeof t->info;
  taper_trainer_get_info(t->trainer, &t->info);
  size_t rows = (size_t)t->recipe.accumulate * t->recipe.batch * t->recipe.sequence;
  t->tokens = calloc(rows, sizeof *t->tokens), t->targets = calloc(rows, sizeof *t->targets);
  t->gates = calloc(t->info.gates + 1, sizeof *t->gates);
  if (t->tokens && t->targets && t->gates) return CLI_OK;
  return cli_fail(c, CLI_ENVIRONMENT, "no memory for the %zu ids of a step; give a smaller --batch", rows);
}

/* ---- resume ---- */

/* The key of the data that a checkpoint was trained on, or NULL. */
static const char *checkpoint_data(const char *folder, arena *a) {
  char *json = NULL;
  const char *found = NULL;
  size_t size;
  if (file_read(arena_printf(a, "%s/manifest.json", folder), 16 << 20, &json, &size, NULL) != TAPER_OK) return NULL;
  json_scan s;
  json_scan_init(&s, json, size);
  if (json_scan_next(&s).kind == JS_OBJECT)
    for (json_event key; (key = json_scan_next(&s)).kind == JS_KEY;) {
      if (!json_is(&s, key, "data")) {
        json_scan_skip(&s);
        continue;
      }
      if (json_scan_next(&s).kind != JS_OBJECT) break;
      while ((key = json_scan_next(&s)).kind == JS_KEY) {
        json_event value = json_scan_next(&s);
        if (!json_is(&s, key, "key") || value.kind != JS_STRING) continue;
        char *decoded = arena_alloc(a, value.length + 1);
        json_decode(&s, value, decoded, NULL);
        found = decoded;
      }
    }
  free(json);
  return found;
}

static int resume(train_run *t) {
  cli *c = t->c;
  taper_error error = {0};
  const char *folder = t->run.found.folder, *key = folder ? checkpoint_data(folder, &c->memory) : NULL;
  if (!t->o->resume) return CLI_OK;
  if (!folder) {
    cli_note(c, "%s: no %scheckpoint to go on from; the run starts anew", c->output,
             t->run.found.count ? "complete " : "");
    return CLI_OK;
  }
  if (key && strcmp(key, corpus_key(t->data)) != 0)
    return cli_fail_file(
        c, CLI_WRONG, folder,
        "was trained on other data, or with another split; give the same --data, --val and --val-fraction");
  taper_status status = taper_trainer_resume(t->trainer, folder, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  taper_trainer_get_info(t->trainer, &t->info);
  t->has_saved = true, t->last_saved = t->info.step;
  status = train_put_event(t, t->info.step, "checkpoint", &error);
  if (status == TAPER_OK && t->info.step < t->recipe.steps) status = train_put_event(t, t->info.step, "resume", &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, true);
  if (t->info.step < t->recipe.steps)
    cli_note(c, "%s: goes on after step %llu", folder, (unsigned long long)t->info.step);
  else
    cli_note(c, "%s: the run is complete; nothing is left to do", folder);
  return CLI_OK;
}

static int open_run(train_run *t) {
  taper_error error = {0};
  taper_status status = run_folder_open(t->c->output, t->o->resume, t->c->sink, &t->run, &error);
  if (status != TAPER_OK) return cli_fail_status(t->c, status, &error, true);
  return resume(t);
}

/* ---- what is said ---- */

static void say_start(train_run *t) {
  const taper_recipe *r = &t->recipe;
  const train_job *j = &t->job;
  static const char *const schedules[] = {"cosine", "linear", "constant"};
  text gates = {0};
  for (size_t i = 0; i < r->gate_count; i++) {
    const taper_gate_schedule *g = &r->gates[i];
    unsigned long long start = g->start, second = g->kind == TAPER_GATE_STEP ? g->every : g->end;
    text_printf(&gates, "%s%s %s %llu %s %llu", i ? ", " : "", g->gate,
                g->kind == TAPER_GATE_STEP ? "at step" : "from step", start,
                g->kind == TAPER_GATE_STEP ? "every" : "to", second);
  }
  if (j->new_norms)
    cli_note(t->c, "%zu live norm%s, with gate 1: the logits are what they were", j->new_norms,
             j->new_norms == 1 ? " became a taper norm" : "s became taper norms");
  const char *lines[] = {
      arena_printf(&t->c->memory, "model %s, %llu parameters, %u thread%s, image %s, products %s, %llu MB",
                   j->model.name, (unsigned long long)t->info.parameters, t->info.threads,
                   t->info.threads == 1 ? "" : "s", t->info.image, t->info.gemm,
                   (unsigned long long)(t->info.memory_bytes >> 20)),
      arena_printf(&t->c->memory, "starts from %s", j->started_from),
      arena_printf(&t->c->memory, "%llu steps of %u x %u x %u ids, warm-up %llu, %s, seed %llu",
                   (unsigned long long)r->steps, r->accumulate, r->batch, r->sequence, (unsigned long long)r->warmup,
                   schedules[r->schedule], (unsigned long long)r->seed),
      arena_printf(&t->c->memory, "tapers: %s; anchor: %s", gates.size ? gates.data : "none",
                   j->anchor ? "fixed target" : "none"),
      arena_printf(&t->c->memory, "data: %llu ids to train on, %llu held out, key %s",
                   (unsigned long long)corpus_count(t->data, CORPUS_TRAIN),
                   (unsigned long long)corpus_count(t->data, CORPUS_VAL), corpus_key(t->data))};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    run_folder_log(&t->run, "%s", lines[i]);
    cli_say(t->c, "%s", lines[i]);
  }
  text_free(&gates);
  cli_flush(t->c);
}

static void put_result(const train_run *t) {
  const char *folder = checkpoint_folder(t->run.path, t->info.step, &t->c->memory);
  double speed = t->speed_sum > 0 ? (double)t->speed_tokens / t->speed_sum : (double)NAN;
  json_out j = {0};
  text plain = {0};
  json_open(&j, NULL, '{');
  json_string(&j, "run", t->run.path);
  json_string(&j, "checkpoint", folder);
  json_whole(&j, "steps", t->info.step);
  json_whole(&j, "tokens", t->info.tokens);
  json_number(&j, "ce", t->last.size ? t->last.ce : (double)NAN);
  json_number(&j, "val_ce", t->val.ce);
  json_number(&j, "val_ce_g0", t->val.ce_g0);
  json_number(&j, "tokens_per_s", speed);
  if (t->stress_known) {
    json_open(&j, "stress", '{');
    if (t->clamp_rows > 0)
      json_number(&j, "clamp_rows", t->clamp_rows);
    else
      json_null(&j, "clamp_rows");
    json_number(&j, "worst_ratio", t->worst_ratio);
    json_close(&j, '}');
  }
  json_close(&j, '}');
  text_puts(&j.t, "\n");
  char numbers[200] = "";
  if (!isnan(t->val.ce))
    text_format(numbers, sizeof numbers, "val_ce            %.6f\nval_ce_g0         %.6f\n", t->val.ce, t->val.ce_g0);
  text_printf(&plain, "steps             %llu\ntokens            %llu\n%scheckpoint        %s\n",
              (unsigned long long)t->info.step, (unsigned long long)t->info.tokens, numbers, folder);
  const text *out = t->c->json ? &j.t : &plain;
  cli_put(out->data, out->size);
  text_free(&j.t), text_free(&plain);
}

static int run(cli *c) {
  train_run t = {.c = c, .o = c->own, .val = {NAN, NAN}};
  int bad = check_options(&t);
  if (!bad) bad = prepare(&t);
  if (!bad) bad = open_data(&t);
  if (!bad) bad = open_trainer(&t);
  if (!bad) bad = open_run(&t);
  if (!bad) {
    say_start(&t);
    train_watch_signals();
    bad = train_loop(&t);
  }
  if (!bad && t.last.size) train_stress(&t); /* of a run that did something */
  if (!bad) put_result(&t);
  taper_trainer_free(t.trainer);
  corpus_close(t.data);
  run_folder_close(&t.run);
  train_private_free(&t.package);
  free(t.tokens), free(t.targets), free(t.gates);
  cli_flush(c); /* places in messages live in the model */
  train_free(&t.job);
  return bad;
}

const cli_command cli_cmd_train = {
    .name = "train",
    .args = "MODEL --data FILE... -o RUN",
    .summary = "train a model while its norms are tapered away",
    .min_args = 1,
    .max_args = 1000,
    .details =
        "RUN/ gets metrics.jsonl, log.txt and checkpoint-STEP/; a checkpoint is a MODEL. Options win over the train "
        "section of the model; a folder with weights starts from them. SIGINT and SIGTERM finish the step, write a "
        "checkpoint and exit with 3; --resume goes on, bit for bit as if nothing had happened.",
    .acts = CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_CC | CLI_ACT_THREADS | CLI_ACT_DEVICE | CLI_ACT_TRAINS |
            CLI_ACT_OUTPUT,
    .options = options,
    .own_size = sizeof(train_own),
    .init = init,
    .option = option,
    .run = run};

/* The options that several commands share, and the words and numbers that all of them are made of. */
#include "compiler/cli/cli.h"
#include "compiler/driver/words.h"
#include "compiler/passes/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  KEY_GATE = 1000,
  KEY_WEIGHTS,
  KEY_NONFINITE,
  KEY_NORMS,
  KEY_FOLD,
  KEY_UNTIE,
  KEY_DTYPE,
  KEY_SPLIT,
  KEY_CLAMP,
  KEY_CC,
  KEY_DEVICE,
  KEY_GEMM,
  KEY_NO_GRAPH,
  KEY_JSON,
  KEY_RPASS,
  KEY_RMISSED,
  KEY_NO_CACHE
};

/* `group` holds the CLI_ACT_* bit without which the option is unknown; 0: known everywhere. */
static const struct argp_option common_options[] = {
    {"weights", KEY_WEIGHTS, "FILE", 0, "weights of a bare .tmodel", CLI_ACT_WEIGHTS},
    {"allow-nonfinite", KEY_NONFINITE, NULL, 0, "compute with weights that hold NaN or infinity", CLI_ACT_WEIGHTS},
    {NULL, 'O', "LEVEL", 0, "0: as written; 1: detection and folding; 2: everything (default)", CLI_ACT_BUILD},
    {"norms", KEY_NORMS, "WORD", 0, "kernel: live norms stay kernels; deferred (default): into their neighbours",
     CLI_ACT_BUILD},
    {"fold", KEY_FOLD, "WORD", 0, "norms at gate 0: none, explicit (a scale of its own), full (default)",
     CLI_ACT_BUILD},
    {"dtype", KEY_DTYPE, "WORD", 0,
     "f32 (default); for cuda also bf16, f16: matrices, and rows that meet them (w8a8, w8a32, w4a8: not built yet)",
     CLI_ACT_BUILD},
    {"untie", KEY_UNTIE, NULL, 0, "write a separate head with the final scale folded in", CLI_ACT_BUILD},
    {"split-scale", KEY_SPLIT, NULL, 0, "carry the square root of the final scale in the tied table", CLI_ACT_BUILD},
    {"clamp-rows", KEY_CLAMP, "K", 0,
     "look up no row of the token table longer than K times the median of the trained ones", CLI_ACT_BUILD},
    {"cc", KEY_CC, "CC", 0, "C compiler, a name or path (default gcc)", CLI_ACT_CC},
    {"no-cache", KEY_NO_CACHE, NULL, 0, "neither read nor write the image cache", CLI_ACT_CC},
    {NULL, 'o', "FILE", 0, "write there", CLI_ACT_OUTPUT},
    {NULL, 'D', "NAME=VALUE", 0, "a model parameter", 0},
    {"gate", KEY_GATE, "NAME=V", 0, "a gate's value, from 0 to 1, in place of the weights'", 0},
    {"device", KEY_DEVICE, "WORD", 0, "cpu, cuda[:N], or sim, CUDA with no GPU; default TAPER_DEVICE, else cpu", 0},
    {"gemm", KEY_GEMM, "WORD", 0, "prefills on CUDA: cublas (default where it is), or generated", CLI_ACT_RUN},
    {"no-graph", KEY_NO_GRAPH, NULL, 0, "on CUDA: launch each kernel, no graphs of several tokens", CLI_ACT_RUN},
    {NULL, 't', "N", 0, "threads (default: one per CPU)", 0},
    {"json", KEY_JSON, NULL, 0, "results and messages as JSON", 0},
    {NULL, 'v', NULL, 0, "say what is in force; print every remark", 0},
    {"Rpass", KEY_RPASS, "NAME", OPTION_HIDDEN, "print what the pass did", 0},
    {"Rpass-missed", KEY_RMISSED, "NAME", OPTION_HIDDEN, "print what the pass could not do, and why", 0},
    {0}};

const struct argp_option *cli_common_options(void) { return common_options; }

void cli_list_add(cli *c, const char ***list, size_t *count, const char *item) {
  const char **grown = ARENA_ARRAY(&c->memory, const char *, *count + 2);
  if (*count) memcpy(grown, *list, *count * sizeof *grown);
  grown[(*count)++] = item;
  *list = grown;
}

int cli_parse_count(cli *c, const char *option, const char *value, uint64_t low, uint64_t high, uint64_t *out) {
  uint64_t v;
  if (number_parse_u64(value, strlen(value), &v) && v >= low && v <= high) {
    *out = v;
    return CLI_OK;
  }
  return cli_fail(c, CLI_USAGE, "option '%s': '%s' is not a whole number in range; give one from %llu to %llu", option,
                  value, (unsigned long long)low, (unsigned long long)high);
}

int cli_parse_real(cli *c, const char *option, const char *value, double low, double high, double *out) {
  double v;
  if (number_parse_double(value, strlen(value), &v) && v >= low && v <= high && isfinite(v)) { /* NaN compares false */
    *out = v;
    return CLI_OK;
  }
  text range = {0};
  words_put_number(&range, low);
  if (isfinite(high)) {
    text_puts(&range, " to ");
    words_put_number(&range, high);
  } else {
    text_puts(&range, " up");
  }
  int code = cli_fail(c, CLI_USAGE, "option '%s': '%s' is not a number in range; give one from %s", option, value,
                      range.data ? range.data : "");
  text_free(&range);
  return code;
}

int cli_parse_word(cli *c, const char *option, const char *value, const char *words, size_t *out) {
  const char *known[24];
  size_t n = 0, built = SIZE_MAX;
  char *copy = arena_strdup(&c->memory, words);
  for (char *p = copy; *p && n < 24;) {
    known[n++] = p;
    p += strcspn(p, "|;");
    if (*p == ';') built = n;
    if (*p) *p++ = 0;
  }
  size_t at = 0;
  while (at < n && strcmp(value, known[at]) != 0) at++;
  if (at < n && at < built) return *out = at, CLI_OK;
  text list = {0};
  for (size_t i = 0; i < n && i < built; i++)
    text_printf(&list, "%s%s", i == 0 ? "" : i + 1 == n || i + 1 == built ? " or " : ", ", known[i]);
  const char *nearest = at < n ? NULL : words_nearest(value, known, n);
  const char *hint = nearest ? arena_printf(&c->memory, " (did you mean '%s'?)", nearest) : "";
  int code = cli_fail(c, CLI_USAGE, "option '%s': '%s' is not %s%s; give %s", option, value,
                      at < n ? "built yet" : "one of its words", hint, list.data ? list.data : "");
  text_free(&list);
  return code;
}

static int parse_assignment(cli *c, const char *option, const char *value, bool gate, const model_define **list,
                            size_t *count) {
  const char *equals = strchr(value, '=');
  if (!equals || equals == value)
    return cli_fail(c, CLI_USAGE, "option '%s': '%s' has no name and value; give %s NAME=VALUE", option, value, option);
  model_define d = {arena_strndup(&c->memory, value, (size_t)(equals - value)), 0};
  const char *full = arena_printf(&c->memory, "%s %s", option, d.name);
  int bad = cli_parse_real(c, full, equals + 1, gate ? 0 : -1e300, gate ? 1 : 1e300, &d.value);
  if (bad) return bad;
  model_define *grown = ARENA_ARRAY(&c->memory, model_define, *count + 1);
  if (*count) memcpy(grown, *list, *count * sizeof *grown);
  grown[(*count)++] = d;
  *list = grown;
  return CLI_OK;
}

static void mark(cli *c, unsigned bit, const char *option) {
  c->given |= bit;
  for (unsigned i = 0; i < CLI_GROUPS; i++)
    if (bit == 1u << i && !c->given_name[i]) c->given_name[i] = option;
}

static int set_level(cli *c, const char *value) {
  if (strlen(value) != 1 || *value < '0' || *value > '2')
    return cli_fail(c, CLI_USAGE, "option '-O': '%s' is not a level; give -O0, -O1 or -O2", value);
  c->build.pass.level = *value - '0';
  return CLI_OK;
}

static int set_clamp(cli *c, const char *value) {
  double k = 0;
  int bad = cli_parse_real(c, "--clamp-rows", value, 0, HUGE_VAL, &k);
  if (bad) return bad;
  if (k <= 0) return cli_fail(c, CLI_USAGE, "option '--clamp-rows': '%s' is not above 0; give e.g. 2", value);
  c->build.pass.clamp_rows = k;
  return CLI_OK;
}

static int set_device(cli *c, const char *where, const char *value) {
  uint64_t n = 0;
  const bool numbered = strncmp(value, "cuda:", 5) == 0;
  if (numbered && !(number_parse_u64(value + 5, strlen(value + 5), &n) && n < INT32_MAX))
    return cli_fail(c, CLI_USAGE, "%s: '%s' is not a device; give cpu, cuda, cuda:N or sim", where, value);
  const bool cuda = numbered || strcmp(value, "cuda") == 0, sim = strcmp(value, "sim") == 0;
  if (!cuda && !sim && strcmp(value, "cpu") != 0)
    return cli_fail(c, CLI_USAGE, "%s: '%s' is not a device; give cpu, cuda, cuda:N or sim", where, value);
  if ((cuda || sim) && c->command->acts & CLI_ACT_TRAINS)
    return cli_fail(c, CLI_USAGE, "%s: '%s' on the device '%s' is not built yet; give cpu", where, c->command->name,
                    value);
  c->device = value;
  c->device_kind = cuda ? CLI_CUDA : sim ? CLI_SIM : CLI_CPU;
  c->device_number = (uint32_t)n;
  return CLI_OK;
}

/* Remarks of the driver stand under "model". */
static int check_pass(cli *c, const char *option, const char *name) {
  if (strcmp(name, "all") == 0 || strcmp(name, "model") == 0 || pass_find(name)) return CLI_OK;
  const char *names[64];
  size_t n = 0;
  for (; n < pass_count() && n < 64; n++) names[n] = pass_at(n)->name;
  const char *nearest = words_nearest(name, names, n);
  if (nearest)
    return cli_fail(c, CLI_USAGE, "option '%s': there is no pass '%s'; did you mean '%s'?", option, name, nearest);
  return cli_fail(c, CLI_USAGE, "option '%s': there is no pass '%s'; give a name of taperc opt --help, or all", option,
                  name);
}

int cli_common_option(cli *c, int key, const char *value, bool *out_known) {
  size_t word = 0;
  int bad = CLI_OK;
  *out_known = true;
  switch (key) {
  case 'D':
    mark(c, CLI_ACT_MODEL, "-D");
    return parse_assignment(c, "-D", value, false, &c->model.defines, &c->model.define_count);
  case KEY_GATE:
    mark(c, CLI_ACT_MODEL, "--gate");
    return parse_assignment(c, "--gate", value, true, &c->model.gates, &c->model.gate_count);
  case KEY_WEIGHTS:
    mark(c, CLI_ACT_WEIGHTS, "--weights");
    c->model.weights = value;
    break;
  case KEY_NONFINITE:
    mark(c, CLI_ACT_WEIGHTS, "--allow-nonfinite");
    c->model.allow_nonfinite = true;
    break;
  case 'O': mark(c, CLI_ACT_BUILD, "-O"); return set_level(c, value);
  case KEY_NORMS:
    mark(c, CLI_ACT_BUILD, "--norms");
    c->norms_given = true;
    bad = cli_parse_word(c, "--norms", value, "deferred|kernel", &word);
    if (!bad) c->build.pass.norms = word ? NORMS_KERNEL : NORMS_DEFERRED;
    return bad;
  case KEY_FOLD:
    mark(c, CLI_ACT_BUILD, "--fold");
    c->fold_given = true;
    bad = cli_parse_word(c, "--fold", value, "full|explicit|none", &word);
    if (!bad) c->build.pass.fold = word == 0 ? FOLD_FULL : word == 1 ? FOLD_EXPLICIT : FOLD_NONE;
    return bad;
  case KEY_DTYPE:
    mark(c, CLI_ACT_BUILD, "--dtype");
    bad = cli_parse_word(c, "--dtype", value, "f32|bf16|f16;w8a8|w8a32|w4a8", &word);
    if (!bad) c->build.pass.dtype = word == 0 ? IR_F32 : word == 1 ? IR_BF16 : IR_F16;
    return bad;
  case KEY_UNTIE:
    mark(c, CLI_ACT_BUILD, "--untie");
    c->build.pass.untie = true;
    break;
  case KEY_SPLIT:
    mark(c, CLI_ACT_BUILD, "--split-scale");
    c->build.pass.split_scale = true;
    break;
  case KEY_CLAMP: mark(c, CLI_ACT_BUILD, "--clamp-rows"); return set_clamp(c, value);
  case KEY_CC:
    mark(c, CLI_ACT_CC, "--cc");
    if (!*value) return cli_fail(c, CLI_USAGE, "option '--cc': '' is not a compiler; give its name or path");
    c->build.cc = value;
    break;
  case KEY_NO_CACHE:
    mark(c, CLI_ACT_CC, "--no-cache");
    c->build.no_cache = true;
    break;
  case 'o':
    if (!*value) return cli_fail(c, CLI_USAGE, "option '-o': '' is not a file; give its name");
    c->output = value;
    break;
  case 't':
    mark(c, CLI_ACT_THREADS, "-t");
    c->threads_text = value;
    break;
  case KEY_DEVICE: mark(c, CLI_ACT_DEVICE, "--device"); return set_device(c, "option '--device'", value);
  case KEY_GEMM:
    bad = cli_parse_word(c, "--gemm", value, "cublas|generated", &word);
    if (!bad) c->gemm = value;
    return bad;
  case KEY_NO_GRAPH: c->no_graph = true; break;
  case KEY_JSON: c->json = true; break;
  case 'v': c->verbose = true; break;
  case KEY_RPASS:
  case KEY_RMISSED:
    mark(c, CLI_ACT_REMARKS, key == KEY_RPASS ? "-Rpass" : "-Rpass-missed");
    if (key == KEY_RPASS)
      cli_list_add(c, &c->rpass, &c->rpass_count, value);
    else
      cli_list_add(c, &c->rpass_missed, &c->rpass_missed_count, value);
    return check_pass(c, key == KEY_RPASS ? "-Rpass" : "-Rpass-missed", value);
  default: *out_known = false;
  }
  return CLI_OK;
}

/* Options that the contract allows in every command, but that do nothing in this one, are said. */
static void warn_idle(cli *c, unsigned bit, unsigned needs) {
  if (!(c->given & bit) || (c->command->acts & needs)) return;
  for (unsigned i = 0; i < CLI_GROUPS; i++)
    if (bit == 1u << i) cli_warn(c, "option '%s' acts on nothing in '%s'", c->given_name[i], c->command->name);
}

/* Switches of passes that the chosen level does not run. */
static int check_switches(cli *c) {
  const pass_options *o = &c->build.pass;
  if (o->untie && o->split_scale)
    return cli_fail(c, CLI_USAGE, "both --untie and --split-scale change the tied table; give one");
  if (o->level == 0) {
    if (c->fold_given && o->fold != FOLD_NONE)
      cli_warn(c, "option '--fold' acts on nothing at -O0, which folds nothing");
    if (o->untie || o->split_scale)
      cli_warn(c, "option '%s' acts on nothing at -O0, which folds nothing", o->untie ? "--untie" : "--split-scale");
  } else if ((o->untie || o->split_scale) && o->fold != FOLD_FULL) {
    cli_warn(c, "option '%s' acts on nothing without --fold=full", o->untie ? "--untie" : "--split-scale");
  }
  if (c->norms_given && o->norms == NORMS_DEFERRED && o->level < 2)
    cli_warn(c, "option '--norms' acts on nothing below -O2, where every norm stays a kernel");
  return CLI_OK;
}

int cli_no_halves(cli *c) {
  return cli_not_built(
      c, arena_printf(&c->memory, "option '--dtype': %s on a CPU (--%s)", ir_dtype_name(c->build.pass.dtype),
                      c->command->acts & CLI_ACT_DEVICE ? "device=cuda or sim has it" : "target cuda has it"));
}

int cli_common_finish(cli *c) {
  unsigned acts = c->command->acts;
  warn_idle(c, CLI_ACT_MODEL, CLI_ACT_MODEL);
  warn_idle(c, CLI_ACT_THREADS, CLI_ACT_THREADS | CLI_ACT_THREAD_LIST);
  warn_idle(c, CLI_ACT_DEVICE, CLI_ACT_DEVICE);
  warn_idle(c, CLI_ACT_REMARKS, CLI_ACT_BUILD);
  c->build.pass.allow_nonfinite = c->model.allow_nonfinite;
  const char *device = getenv("TAPER_DEVICE");
  if ((acts & CLI_ACT_DEVICE) && !c->device && device && *device) {
    int bad = set_device(c, "variable TAPER_DEVICE", device);
    if (bad) return bad;
  }
  if (c->device_kind == CLI_CPU && c->gemm) cli_warn(c, "option '--gemm' acts on nothing on the device cpu");
  if (c->device_kind == CLI_CPU && c->no_graph) cli_warn(c, "option '--no-graph' acts on nothing on the device cpu");
  if (c->device_kind != CLI_CPU && c->threads_text)
    cli_warn(c, "option '-t' acts on nothing on the device %s%s", c->device,
             c->device_kind == CLI_SIM ? "; TAPER_SIM_THREADS sets the interpreter's" : "");
  if ((acts & CLI_ACT_DEVICE) && c->device_kind == CLI_CPU && c->build.pass.dtype != IR_F32) return cli_no_halves(c);
  int wrong = check_switches(c);
  if (wrong) return wrong;
  if (!c->threads_text || (acts & CLI_ACT_THREAD_LIST)) return CLI_OK;
  uint64_t n = 0;
  int bad = cli_parse_count(c, "-t", c->threads_text, 1, 1024, &n);
  if (!bad) c->threads = (uint32_t)n;
  return bad;
}

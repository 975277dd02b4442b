#include "compiler/cli/cli.h"
#include "compiler/cli/json.h"
#include "compiler/driver/train_package.h"
#include <stdlib.h>
#include <string.h>

typedef struct compile_own {
  size_t use;    /* USE_* */
  size_t emit;   /* 0: a package; else a word of emit_words, from 1 */
  size_t target; /* TARGET_* */
  const char *arch_text;
  const char *archs[BUILD_MAX_ARCHS];
  size_t arch_count;
} compile_own;

enum { KEY_TARGET = 3000, KEY_ARCH, KEY_FOR, KEY_EMIT, KEY_TRIPLE, KEY_TEMPS };
enum { TARGET_CPU, TARGET_CUDA };
enum { USE_DECODE, USE_TRAIN, USE_BOTH };
enum { EMIT_PACKAGE, EMIT_AST, EMIT_IR, EMIT_PLAN, EMIT_SOURCE, EMIT_ASM, EMIT_DOT, EMIT_PTX };

static const struct argp_option options[] = {
    {"target", KEY_TARGET, "WORD", 0, "cpu (default), cuda", 0},
    {"arch", KEY_ARCH, "LIST", 0,
     "images to make: x86-64-v3, x86-64-v4, native; default x86-64-v3,x86-64-v4. For cuda: sm_NN a cubin, compute_NN "
     "PTX; default "
     "sm_80,sm_89,sm_90,sm_100,sm_120 as far as NVRTC knows them. Cubins alone bring PTX along",
     0},
    {"for", KEY_FOR, "WORD", 0, "decode (default), train, both: what the package is for", 0},
    {"emit", KEY_EMIT, "WORD", 0, "stop earlier and write a text: ast, ir, plan, source, asm, dot, ptx", 0},
    {"target-triple", KEY_TRIPLE, "T", 0, "triple for the C compiler (default: this machine's)", 0},
    {"save-temps", KEY_TEMPS, "DIR", OPTION_ARG_OPTIONAL,
     "keep the source and what was made of it: objects; cubins and PTX (default: the working folder)", 0},
    {0}};

static int set_cuda_archs(cli *c, compile_own *o, const char *value) {
  char *copy = arena_strdup(&c->memory, value);
  unsigned number;
  bool ptx;
  for (char *p = copy; p;) {
    char *comma = strchr(p, ',');
    if (comma) *comma = 0;
    if (!build_cuda_arch(p, &number, &ptx))
      return cli_fail(c, CLI_USAGE,
                      "option '--arch': '%s' is no arch of target cuda; give e.g. sm_90 or compute_90, from 80 on", p);
    bool again = false;
    for (size_t i = 0; i < o->arch_count; i++) again |= strcmp(o->archs[i], p) == 0;
    if (!again && o->arch_count + 2 >= BUILD_MAX_ARCHS) /* PTX may come along */
      return cli_fail(c, CLI_USAGE, "option '--arch': more than %d archs; give fewer", BUILD_MAX_ARCHS - 2);
    if (!again) o->archs[o->arch_count++] = p;
    p = comma ? comma + 1 : NULL;
  }
  return CLI_OK;
}

static int set_archs(cli *c, compile_own *o, const char *value) {
  char *copy = arena_strdup(&c->memory, value);
  bool wanted[BUILD_CPU_ARCHS] = {false};
  for (char *p = copy; p;) {
    char *comma = strchr(p, ',');
    if (comma) *comma = 0;
    size_t word;
    if (strncmp(p, "sm_", 3) == 0 || strncmp(p, "compute_", 8) == 0)
      return cli_fail(c, CLI_USAGE, "option '--arch': '%s' is an arch of target cuda; give --target cuda", p);
    int bad = cli_parse_word(c, "--arch", p, "native|x86-64-v4|x86-64-v3", &word);
    if (bad) return bad;
    wanted[word] = true;
    p = comma ? comma + 1 : NULL;
  }
  o->arch_count = 0;
  for (size_t i = 0; i < BUILD_CPU_ARCHS; i++) /* best first */
    if (wanted[i]) o->archs[o->arch_count++] = build_arch_names[i];
  return CLI_OK;
}

static int option(cli *c, int key, const char *value) {
  compile_own *o = c->own;
  size_t word;
  int bad;
  switch (key) {
  case KEY_TARGET: return cli_parse_word(c, "--target", value, "cpu|cuda", &o->target);
  case KEY_ARCH: /* given again: more of them */
    o->arch_text = o->arch_text ? arena_printf(&c->memory, "%s,%s", o->arch_text, value) : value;
    break;
  case KEY_FOR: return cli_parse_word(c, "--for", value, "decode|train|both", &o->use);
  case KEY_EMIT:
    bad = cli_parse_word(c, "--emit", value, "ast|ir|plan|source|asm|dot|ptx", &word);
    if (!bad) o->emit = word + 1;
    return bad;
  case KEY_TRIPLE:
    if (!*value)
      return cli_fail(c, CLI_USAGE, "option '--target-triple': '' is not a triple; give e.g. x86_64-linux-gnu");
    c->build.target_triple = value;
    break;
  case KEY_TEMPS: c->build.save_temps = value ? value : "."; break;
  default: break;
  }
  return CLI_OK;
}

/* Nothing folds in a training program. */
static int check_use(cli *c, const compile_own *o) {
  if (o->use == USE_BOTH && o->emit)
    return cli_fail(c, CLI_USAGE,
                    "option '--emit' writes one text, and --for both has two; give --for decode or train");
  if (o->use == USE_TRAIN && c->given & CLI_ACT_BUILD)
    return cli_fail(c, CLI_USAGE, "option '%s' acts on nothing with --for train; leave it out", c->given_name[1]);
  return CLI_OK;
}

static int check_target(cli *c, const compile_own *o) {
  const bool cuda = o->target == TARGET_CUDA;
  if (o->emit == EMIT_PTX && !cuda)
    return cli_fail(c, CLI_USAGE, "option '--emit': ptx is of target cuda; give --target cuda, or asm");
  if (!cuda && c->build.pass.dtype != IR_F32 && o->emit != EMIT_IR && o->emit != EMIT_DOT) return cli_no_halves(c);
  if (!cuda) return CLI_OK;
  if (o->use != USE_DECODE) return cli_not_built(c, "option '--target': training for cuda");
  if (o->emit == EMIT_ASM) return cli_fail(c, CLI_USAGE, "option '--emit': asm is of target cpu; give ptx");
  if (c->build.target_triple || c->build.cc)
    return cli_fail(c, CLI_USAGE, "option '%s' acts on nothing with --target cuda; leave it out",
                    c->build.cc ? "--cc" : "--target-triple");
  return CLI_OK;
}

/* A --emit word looks at a stage; options of later stages would act on nothing. */
static int check_emit(cli *c, const compile_own *o) {
  if (o->emit == EMIT_AST && c->given & (CLI_ACT_WEIGHTS | CLI_ACT_BUILD))
    return cli_fail(c, CLI_USAGE, "option '%s' acts on nothing with --emit=ast; leave it out",
                    c->given_name[c->given & CLI_ACT_BUILD ? 1 : 8]);
  bool makes_code = o->emit == EMIT_PACKAGE || o->emit == EMIT_ASM || o->emit == EMIT_PTX;
  if (makes_code) return CLI_OK;
  if (c->given & CLI_ACT_CC)
    return cli_fail(c, CLI_USAGE, "option '%s' acts on nothing with --emit=ast|ir|plan|source|dot; leave it out",
                    c->given_name[2]);
  if (o->arch_count)
    return cli_fail(c, CLI_USAGE, "option '--arch' acts on nothing with --emit=ast|ir|plan|source|dot; leave it out");
  if (c->build.target_triple || c->build.save_temps)
    return cli_fail(c, CLI_USAGE, "option '%s' acts on nothing with --emit=ast|ir|plan|source|dot; leave it out",
                    c->build.target_triple ? "--target-triple" : "--save-temps");
  return CLI_OK;
}

static int emit_code(cli *c, size_t emit, const model_loaded *m, const plan *p, text *out) {
  taper_error error = {0};
  char hash[33], *assembler = NULL;
  size_t size = 0;
  text source = {0}, launch = {0};
  taper_status status = build_source(m, p, &source, &launch, hash, c->sink, &error);
  if (status == TAPER_OK && emit == EMIT_ASM) {
    status = build_asm(&source, &c->build, &assembler, &size, &error);
    if (status == TAPER_OK) text_put(out, assembler, size);
  } else if (status == TAPER_OK && emit == EMIT_PTX) {
    status = build_ptx(&source, &c->build, c->sink, &assembler, &size, &error);
    if (status == TAPER_OK) text_put(out, assembler, size);
  } else if (status == TAPER_OK) {
    text_put(out, source.data, source.size);
  }
  free(assembler);
  text_free(&source);
  text_free(&launch);
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, true);
}

static int emit_text(cli *c, size_t emit, model_loaded *m, text *out) {
  if (emit == EMIT_AST)
    return model_print_ast(m, out)
               ? CLI_OK
               : cli_fail_file(c, CLI_WRONG, c->args[0], "IR text has no syntax tree; give the .tmodel, or --emit=ir");
  plan *p = NULL;
  taper_error error = {0};
  taper_status status = emit == EMIT_IR || emit == EMIT_DOT ? build_passes(m, &c->build, c->sink, &error)
                                                            : build_lower(m, &c->build, c->sink, &p, &error);
  int bad = status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
  if (!bad && emit == EMIT_IR)
    ir_print(m->module, out);
  else if (!bad && emit == EMIT_DOT)
    ir_print_dot(m->module, out);
  else if (!bad && emit == EMIT_PLAN)
    plan_print(p, out);
  else if (!bad)
    bad = emit_code(c, emit, m, p, out);
  plan_free(p);
  return bad;
}

/* ---- training ---- */

static int emit_train_code(cli *c, size_t emit, const train_job *job, const train_plan *p, text *out) {
  taper_error error = {0};
  char hash[33] = "", *assembler = NULL;
  size_t size = 0;
  text source = {0};
  taper_status status = train_source(job, p, emit == EMIT_SOURCE ? out : &source, hash, c->sink, &error);
  if (status == TAPER_OK && emit == EMIT_ASM) {
    status = build_asm(&source, &c->build, &assembler, &size, &error);
    if (status == TAPER_OK) text_put(out, assembler, size);
  }
  free(assembler);
  text_free(&source);
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, true);
}

static int emit_train_text(cli *c, size_t emit, train_job *job, text *out) {
  train_plan *p = NULL;
  taper_error error = {0};
  if (emit == EMIT_AST) return model_print_ast(&job->model, out) ? CLI_OK : CLI_BUG;
  taper_status status =
      emit == EMIT_IR || emit == EMIT_DOT ? train_passes(job, c->sink, &error) : train_lower(job, c->sink, &p, &error);
  int bad = status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
  if (!bad && emit == EMIT_IR)
    ir_print(job->model.module, out);
  else if (!bad && emit == EMIT_DOT)
    ir_print_dot(job->model.module, out);
  else if (!bad && emit == EMIT_PLAN)
    train_plan_print(p, out);
  else if (!bad)
    bad = emit_train_code(c, emit, job, p, out);
  train_plan_free(p);
  return bad;
}

static void put_json(const char *path, const char *archs, const build_result *r, arena *a) {
  json_out j = {0};
  json_open(&j, NULL, '{');
  json_string(&j, "package", path);
  json_whole(&j, "bytes", r->bytes);
  json_whole(&j, "tensors", r->tensors);
  json_open(&j, "images", '[');
  for (const char *p = archs; *p; p += strspn(p, ",")) {
    size_t n = strcspn(p, ",");
    json_string(&j, NULL, arena_strndup(a, p, n));
    p += n;
  }
  json_close(&j, ']');
  json_whole(&j, "images_from_cache", r->cached);
  json_string(&j, "model", r->model_hash);
  json_close(&j, '}');
  text_puts(&j.t, "\n");
  cli_put(j.t.data, j.t.size);
  text_free(&j.t);
}

/* `job`: for training; `m`: for decoding; either may be NULL. */
static int make_package(cli *c, model_loaded *m, train_job *job) {
  build_result r = {0};
  taper_error error = {0};
  if (m && !m->bound) return cli_fail_file(c, CLI_WRONG, c->args[0], "%s, or stop at a text by --emit", m->unbound);
  const char *name = m ? m->name : job->model.name,
             *path = c->output ? c->output : arena_printf(&c->memory, "%s.tpack", name);
  taper_status status = job ? train_package(job, m, &c->build, path, c->sink, &r, &error)
                            : build_package(m, &c->build, path, c->sink, &r, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, true);
  const char *archs = *r.archs ? r.archs : c->build.archs[0];
  for (size_t i = 1; i < c->build.arch_count && !*r.archs; i++)
    archs = arena_printf(&c->memory, "%s,%s", archs, c->build.archs[i]);
  text images = {0};
  for (const char *p = archs; *p; p++) text_printf(&images, "%c%s", *p, *p == ',' ? " " : "");
  cli_note(c, "wrote %s: %llu bytes, %zu tensors, images %s", path, (unsigned long long)r.bytes, r.tensors,
           images.data);
  text_free(&images);
  if (c->json) put_json(path, archs, &r, &c->memory);
  return CLI_OK;
}

static int compile(cli *c, const compile_own *o, model_loaded *m, train_job *job) {
  if (o->emit == EMIT_PACKAGE) return make_package(c, m, job);
  text t = {0};
  int bad = job ? emit_train_text(c, o->emit, job, &t) : emit_text(c, o->emit, m, &t);
  if (!bad) bad = cli_emit_text(c, &t);
  text_free(&t);
  return bad;
}

static int load_and_compile(cli *c, const compile_own *o, const model_place *place, model_loaded *m, train_job *job) {
  taper_error error = {0};
  taper_status status = TAPER_OK;
  if (o->use != USE_TRAIN) status = model_load(place, &c->model, c->sink, m, &error);
  if (status == TAPER_OK && o->use != USE_DECODE) {
    train_settings settings;
    train_settings_init(&settings);
    status = train_prepare(place, &c->model, &settings, c->sink, job, &error);
  }
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  return compile(c, o, o->use == USE_TRAIN ? NULL : m, o->use == USE_DECODE ? NULL : job);
}

static int run(cli *c) {
  compile_own *o = c->own;
  model_loaded m = {0};
  train_job job = {0};
  model_place place;
  taper_error error = {0};
  const bool cuda = o->target == TARGET_CUDA;
  int bad = o->arch_text ? (cuda ? set_cuda_archs : set_archs)(c, o, o->arch_text) : CLI_OK;
  c->build.target = cuda ? "cuda" : "cpu";
  if (!bad) bad = check_target(c, o);
  if (!bad) bad = check_use(c, o);
  if (!bad) bad = check_emit(c, o);
  if (bad) return bad;
  if (!o->arch_count && !cuda) o->archs[0] = "x86-64-v4", o->archs[1] = "x86-64-v3";
  c->build.arch_count = o->arch_count || cuda ? o->arch_count : 2;
  memcpy(c->build.archs, o->archs, sizeof c->build.archs);
  c->model.need_weights = o->emit == EMIT_PACKAGE;
  c->model.ignore_weights = o->emit == EMIT_AST;
  taper_status status = model_locate(c->args[0], &c->memory, c->sink, &place, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  if (place.kind == MODEL_PACKAGE)
    return cli_fail_file(c, CLI_WRONG, c->args[0],
                         "the package is compiled already; give the model that it was made of");
  bad = load_and_compile(c, o, &place, &m, &job);
  cli_flush(c); /* places in messages live in the model */
  model_free(&m);
  train_free(&job);
  return bad;
}

const cli_command cli_cmd_compile = {.name = "compile",
                                     .args = "MODEL",
                                     .summary = "compile a model to a package, M.tpack",
                                     .min_args = 1,
                                     .max_args = 1,
                                     .details = "Without -o the package is NAME.tpack in the working folder, NAME "
                                                "being the model's. --emit writes to standard output, or to -o FILE.",
                                     .acts =
                                         CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_BUILD | CLI_ACT_CC | CLI_ACT_OUTPUT,
                                     .options = options,
                                     .own_size = sizeof(compile_own),
                                     .option = option,
                                     .run = run};

/* Opening what a command computes with. */
#include "compiler/cli/cli.h"
#include "cuda/probe.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void on_log(void *user, taper_log_level level, const char *message) {
  cli *c = user;
  if (level == TAPER_LOG_WARNING)
    cli_note(c, "%s", message);
  else
    cli_say(c, "%s", message);
}

void cli_runtime_options(cli *c, taper_model_options *out) {
  taper_model_options_init(out);
  out->threads = c->threads;
  out->device = c->device ? c->device : "cpu";
  out->gemm = c->gemm;
  out->no_graph = c->no_graph;
  out->log = on_log;
  out->log_user = c;
}

int cli_check_package_options(cli *c, const model_place *place) {
  if (place->kind != MODEL_PACKAGE) return CLI_OK;
  for (unsigned i = 0; i < CLI_GROUPS; i++) {
    unsigned bit = 1u << i;
    if (!(c->given & bit & (CLI_ACT_MODEL | CLI_ACT_WEIGHTS | CLI_ACT_BUILD | CLI_ACT_CC | CLI_ACT_REMARKS))) continue;
    return cli_fail(
        c, CLI_USAGE,
        "option '%s' acts on nothing in '%s', which is compiled already; give it to taperc compile, or leave it out",
        c->given_name[i], place->path);
  }
  return CLI_OK;
}

/* A private package is compiled for the device that runs it. */
static int settle_target(cli *c, const model_place *place) {
  if (place->kind == MODEL_PACKAGE || c->device_kind == CLI_CPU) return CLI_OK;
  taper_error error = {0};
  c->build.target = "cuda", c->build.arch_count = 1, c->build.archs[0] = "compute_90";
  if (c->device_kind == CLI_SIM) return CLI_OK;
  cuda_probe_facts facts = {0};
  taper_status status = cuda_probe_driver(false, &facts, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, true);
  if (c->device_number >= (uint32_t)facts.described)
    return cli_fail(c, CLI_ENVIRONMENT, "there is no GPU %u: %s knows %d; give --device=cuda:N with N below that",
                    c->device_number, facts.path, facts.devices);
  const cuda_device_facts *gpu = &facts.device[c->device_number];
  status = build_cuda_for((unsigned)(gpu->major * 10 + gpu->minor), &c->memory, &c->build.archs[0], &error);
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, true);
}

int cli_open_place(cli *c, const model_place *place, build_opened *out) {
  taper_error error = {0};
  taper_model_options runtime;
  int bad = settle_target(c, place);
  if (bad) return bad;
  cli_runtime_options(c, &runtime);
  taper_status status = build_open(place, &c->model, &c->build, &runtime, c->sink, out, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, out->writing);
  taper_model_info info = {.size = sizeof info};
  taper_model_get_info(out->model, &info);
  cli_say(c, "%s: model %s, device %s, image %s, %u threads, vocabulary %u, context %u, width %u, tokenizer %s",
          place->path, info.name, info.device, info.image, info.threads, info.vocab, info.context, info.width,
          info.tokenizer);
  cli_say(c, "%s: gates %s, options %s", place->path, out->gates, out->options);
  cli_flush(c);
  return CLI_OK;
}

int cli_open(cli *c, size_t at, build_opened *out) {
  taper_error error = {0};
  model_place place;
  taper_status status = model_locate(c->args[at], &c->memory, c->sink, &place, &error);
  if (status != TAPER_OK) return cli_fail_status(c, status, &error, false);
  int bad = cli_check_package_options(c, &place);
  return bad ? bad : cli_open_place(c, &place, out);
}

int cli_session(cli *c, const build_opened *b, const char *option, uint64_t context, taper_session **out) {
  taper_model_info info = {.size = sizeof info};
  taper_model_get_info(b->model, &info);
  if (context > info.context)
    return cli_fail(c, CLI_USAGE,
                    "option '%s': %llu is more than the context the model was compiled for, %u; give at most that",
                    option, (unsigned long long)context, info.context);
  taper_session_options options;
  taper_session_options_init(&options);
  options.context = (uint32_t)context;
  taper_error error = {0};
  taper_status status = taper_session_new(b->model, &options, out, &error);
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, false);
}

void cli_progress(const char *what, uint64_t done, uint64_t all) {
  static uint64_t last = UINT64_MAX;
  if (!isatty(STDERR_FILENO) || all == 0) return;
  uint64_t share = done * 100 / all;
  if (done == all)
    fprintf(stderr, "\r\033[K");
  else if (share != last)
    fprintf(stderr, "\r%s: %3llu %%\033[K", what, (unsigned long long)share);
  fflush(stderr);
  last = done == all ? UINT64_MAX : share;
}

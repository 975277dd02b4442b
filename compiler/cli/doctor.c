/* doctor: what taperc finds on this machine, and what is missing. */
#include "compiler/cli/cli.h"
#include "compiler/cli/doctor_cuda.h"
#include "compiler/cli/json.h"
#include "compiler/cli/machine.h"
#include "compiler/driver/cache.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_CC = 3000 };

static const struct argp_option options[] = {{"cc", KEY_CC, "CC", 0, "C compiler to look for (default gcc)", 0}, {0}};

static int option(cli *c, int key, const char *value) {
  if (key == KEY_CC) c->build.cc = value;
  return CLI_OK;
}

typedef struct doctor_report {
  const char *compiler, *compiler_problem, *cache, *cache_problem, *temporary;
  bool temporary_writable;
  doctor_cuda cuda;
} doctor_report;

static doctor_report look(cli *c) {
  doctor_report r = {0};
  taper_error error = {0};
  if (build_compiler_version(c->build.cc ? c->build.cc : "gcc", &c->memory, &r.compiler, &error) != TAPER_OK)
    r.compiler_problem = arena_strdup(&c->memory, error.message);
  r.cache = cache_folder(&c->memory);
  cache_usable(r.cache, &r.cache_problem);
  const char *temporary = getenv("TMPDIR");
  r.temporary = temporary && *temporary ? temporary : "/tmp";
  r.temporary_writable = access(r.temporary, W_OK | X_OK) == 0;
  doctor_cuda_look(&r.cuda, &c->memory);
  return r;
}

static const char *runnable_images(cli *c) {
  text t = {0};
  for (size_t i = 0; i < BUILD_CPU_ARCHS; i++)
    if (build_arch_runs(build_arch_names[i])) text_printf(&t, "%s%s", t.size ? ", " : "", build_arch_names[i]);
  const char *result = arena_strdup(&c->memory, t.data ? t.data : "none");
  text_free(&t);
  return result;
}

static void put_json(cli *c, const doctor_report *r, bool fine) {
  json_out j = {0};
  json_open(&j, NULL, '{');
  json_string(&j, "version", TAPER_VERSION_TEXT);
  json_string(&j, "built_with", __VERSION__);
  json_string(&j, "system", machine_system(&c->memory));
  json_string(&j, "cpu", machine_cpu(&c->memory));
  json_string(&j, "cpu_features", machine_cpu_features(&c->memory));
  json_open(&j, "images", '[');
  for (size_t i = 0; i < BUILD_CPU_ARCHS; i++)
    if (build_arch_runs(build_arch_names[i])) json_string(&j, NULL, build_arch_names[i]);
  json_close(&j, ']');
  json_whole(&j, "threads", machine_cpus());
  json_whole(&j, "memory_bytes", machine_memory("MemTotal"));
  json_whole(&j, "memory_available_bytes", machine_memory("MemAvailable"));
  json_string(&j, "huge_pages", machine_huge_pages(&c->memory));
  json_string(&j, "compiler", r->compiler);
  json_string(&j, "compiler_problem", r->compiler_problem);
  json_string(&j, "cache", r->cache);
  json_string(&j, "cache_problem", r->cache_problem);
  json_string(&j, "temporary", r->temporary);
  json_bool(&j, "temporary_writable", r->temporary_writable);
  doctor_cuda_json(&r->cuda, &j, &c->memory);
  json_bool(&j, "ok", fine);
  json_close(&j, '}');
  text_puts(&j.t, "\n");
  cli_put(j.t.data, j.t.size);
  text_free(&j.t);
}

static void put_text(cli *c, const doctor_report *r) {
  const struct {
    const char *name, *value;
  } rows[] = {{"taperc", arena_printf(&c->memory, "%s, built with %s", TAPER_VERSION_TEXT, __VERSION__)},
              {"system", machine_system(&c->memory)},
              {"cpu", machine_cpu(&c->memory)},
              {"cpu features", machine_cpu_features(&c->memory)},
              {"images that run", runnable_images(c)},
              {"threads", arena_printf(&c->memory, "%u", machine_cpus())},
              {"memory", arena_printf(&c->memory, "%llu MiB, %llu MiB available",
                                      (unsigned long long)(machine_memory("MemTotal") >> 20),
                                      (unsigned long long)(machine_memory("MemAvailable") >> 20))},
              {"huge pages", machine_huge_pages(&c->memory)},
              {"C compiler", r->compiler ? r->compiler : r->compiler_problem},
              {"image cache",
               arena_printf(&c->memory, "%s%s%s", r->cache ? r->cache : "none",
                            r->cache_problem ? ": not used: " : ": ready", r->cache_problem ? r->cache_problem : "")},
              {"temporary files", arena_printf(&c->memory, "%s%s", r->temporary,
                                               r->temporary_writable ? "" : ": cannot be written; set TMPDIR")}};
  text t = {0};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) text_printf(&t, "%-16s %s\n", rows[i].name, rows[i].value);
  doctor_cuda_text(&r->cuda, &t, &c->memory);
  cli_put(t.data, t.size);
  text_free(&t);
}

static int run(cli *c) {
  doctor_report r = look(c);
  bool fine = r.compiler && r.temporary_writable;
  if (c->json)
    put_json(c, &r, fine);
  else
    put_text(c, &r);
  if (fine) return CLI_OK;
  if (!r.compiler) return cli_fail(c, CLI_ENVIRONMENT, "%s", r.compiler_problem);
  return cli_fail(c, CLI_ENVIRONMENT, "%s cannot be written; set TMPDIR to a folder that can", r.temporary);
}

const cli_command cli_cmd_doctor = {.name = "doctor",
                                    .args = "",
                                    .summary = "tell what is there and what is missing on this machine",
                                    .min_args = 0,
                                    .max_args = 0,
                                    .acts = CLI_ACT_DEVICE,
                                    .options = options,
                                    .option = option,
                                    .run = run};

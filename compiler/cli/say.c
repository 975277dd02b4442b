/* Messages: everything goes through the sink, so that text and JSON have one form. */
#include "compiler/cli/cli.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *format_message(cli *c, const char *format, va_list args) {
  return arena_vprintf(&c->memory, format, args);
}

static diag_code code_of(int exit_code) {
  switch (exit_code) {
  case CLI_USAGE: return DC_COMMAND_LINE;
  case CLI_ENVIRONMENT: return DC_ENVIRONMENT;
  case CLI_BUG: return DC_BUG;
  default: return DC_MODEL_FILE;
  }
}

int cli_fail(cli *c, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *message = format_message(c, format, args);
  va_end(args);
  diag_report(c->sink, code_of(code), (diag_loc){.file = "taperc"}, "%s", message);
  return code;
}

int cli_fail_file(cli *c, int code, const char *file, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *message = format_message(c, format, args);
  va_end(args);
  diag_report(c->sink, code_of(code), (diag_loc){.file = diag_intern(c->sink, file)}, "%s", message);
  return code;
}

int cli_not_built(cli *c, const char *what) {
  return cli_fail(c, CLI_USAGE, "%s is not built yet; docs/limits.md lists what is not", what);
}

void cli_note(cli *c, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag_report(c->sink, DC_SAID, (diag_loc){.file = "taperc"}, "%s", format_message(c, format, args));
  va_end(args);
}

void cli_warn(cli *c, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag_report(c->sink, DC_NO_EFFECT, (diag_loc){.file = "taperc"}, "%s", format_message(c, format, args));
  va_end(args);
}

void cli_say(cli *c, const char *format, ...) {
  if (!c->verbose) return;
  va_list args;
  va_start(args, format);
  diag_report(c->sink, DC_SAID, (diag_loc){.file = "taperc"}, "%s", format_message(c, format, args));
  va_end(args);
}

void cli_flush(cli *c) {
  diag_render_options options = {
      .json = c->json, .all_remarks = c->verbose, .rpass = c->rpass, .rpass_missed = c->rpass_missed};
  cli_put_now("", 0); /* in the order it was said; a failure is kept for the end */
  diag_render(c->sink, stderr, &options);
  fflush(stderr);
}

/* Length of the file name that a message of the lower rooms begins with ("FILE: cause"); 0: none. A name may hold ": ".
 */
static size_t file_prefix(const cli *c, const char *message) {
  for (char *const *a = c->argv; a && *a; a++) {
    size_t n = strlen(*a);
    if (n && strncmp(message, *a, n) == 0 && strncmp(message + n, ": ", 2) == 0) return n;
  }
  char path[1000];
  for (const char *p = strstr(message, ": "); p; p = strstr(p + 1, ": ")) {
    size_t n = (size_t)(p - message);
    memcpy(path, message, n);
    path[n] = 0;
    if (n && access(path, F_OK) == 0) return n;
  }
  size_t n = strcspn(message, " :'");
  return message[n] == ':' && message[n + 1] == ' ' && (memchr(message, '/', n) || memchr(message, '.', n)) ? n : 0;
}

static int exit_of(taper_status status, bool writing) {
  switch (status) {
  case TAPER_OK:
  case TAPER_STOPPED: return CLI_OK;
  case TAPER_NOMEM:
  case TAPER_DEVICE: return CLI_ENVIRONMENT;
  case TAPER_IO: return writing ? CLI_ENVIRONMENT : CLI_WRONG;
  case TAPER_INTERNAL: return CLI_BUG;
  case TAPER_INVALID:
  case TAPER_UNSUPPORTED:
  case TAPER_CONTEXT_FULL:
  case TAPER_NUMERIC: return CLI_WRONG;
  }
  return CLI_BUG;
}

int cli_fail_status(cli *c, taper_status status, const taper_error *error, bool writing) {
  int code = exit_of(status, writing);
  const char *message = error->message;
  if (!*message) return code; /* said in the sink */
  size_t n = file_prefix(c, message);
  if (!n && status == TAPER_NUMERIC && c->command->max_args == 1 && c->arg_count == 1) /* the model's fault */
    return cli_fail_file(c, code, c->args[0], "%s", message);
  const char *rest = n ? message + n + 2 : message;
  if (strncmp(rest, "error: ", 7) == 0) rest += 7;
  if (n) return cli_fail_file(c, code, arena_strndup(&c->memory, message, n), "%s", rest);
  return cli_fail(c, code, "%s", rest);
}

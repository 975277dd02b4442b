/* Standard output, and files that hold one text. */
#include "compiler/cli/cli.h"
#include "runtime/base/file.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int output_error; /* errno of the first failed write of standard output */

bool cli_put(const void *data, size_t bytes) {
  if (output_error) return false;
  errno = 0;
  if (bytes && fwrite(data, 1, bytes, stdout) != bytes) output_error = errno ? errno : EIO;
  return !output_error;
}

bool cli_put_now(const void *data, size_t bytes) {
  if (cli_put(data, bytes) && fflush(stdout) != 0) output_error = errno ? errno : EIO;
  return !output_error;
}

int cli_output_end(cli *c, int code) {
  if (!output_error && fflush(stdout) != 0) output_error = errno ? errno : EIO;
  if (!output_error || output_error == EPIPE) return code; /* a reader that has seen enough is no failure */
  int e = output_error;
  output_error = EPIPE;
  return cli_fail(c, CLI_ENVIRONMENT, "cannot write standard output: %s; free some space or choose another place",
                  file_error_text(e));
}

int cli_emit_text(cli *c, const text *t) {
  if (t->failed) return cli_fail(c, CLI_ENVIRONMENT, "memory ran out; free some and try again");
  if (!c->output) {
    cli_put(t->data, t->size);
    return CLI_OK;
  }
  taper_error error = {0};
  file_writer w = {0};
  taper_status status = file_writer_open(c->output, &w, &error);
  if (status == TAPER_OK) status = file_writer_put(&w, t->data, t->size, &error);
  if (status == TAPER_OK) status = file_writer_commit(&w, &error);
  file_writer_abort(&w);
  return status == TAPER_OK ? CLI_OK : cli_fail_status(c, status, &error, true);
}

/* generate.c - continues a prompt with a compiled package and streams the text.
 *
 *     cc -o generate generate.c $(pkg-config --cflags --libs taper)
 *     ./generate model.tpack "And God said, Let" 200
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <taper.h>

static int print(void *user, const char *text, size_t bytes) {
  (void)user;
  fwrite(text, 1, bytes, stdout);
  return fflush(stdout) == 0 ? 0 : 1; /* nobody reads any more: stop */
}

static int generate(taper_session *session, const int32_t *prompt, size_t n, size_t max_tokens, taper_error *error) {
  static const char *const words[] = {"the length asked for", "the end token", "a stop string",
                                      "the end of the context", "the reader's wish"};
  taper_generation options;
  taper_finish finish;
  taper_generation_init(&options);
  options.max_tokens = max_tokens;
  options.on_text = print;
  if (taper_generate(session, 0, prompt, n, &options, &finish, error) != TAPER_OK) return 0;
  fprintf(stderr, "\nstopped at %s\n", words[finish]);
  return 1;
}

int main(int argc, char **argv) {
  taper_error error;
  taper_model *model = NULL;
  taper_session *session = NULL;
  int32_t *prompt = NULL;
  size_t n = 0;
  int ok = 0;
  if (argc != 4) {
    fprintf(stderr, "usage: generate PACKAGE PROMPT MAX_TOKENS\n");
    return 2;
  }
  if (taper_model_open(argv[1], NULL, &model, &error) == TAPER_OK &&
      taper_session_new(model, NULL, &session, &error) == TAPER_OK &&
      taper_tokenize(model, argv[2], strlen(argv[2]), NULL, 0, &n, &error) == TAPER_OK) {
    prompt = malloc((n + 1) * sizeof(*prompt));
    if (prompt == NULL) return 3;
    ok = taper_tokenize(model, argv[2], strlen(argv[2]), prompt, n, &n, &error) == TAPER_OK &&
         generate(session, prompt, n, strtoul(argv[3], NULL, 10), &error);
  }
  if (!ok) fprintf(stderr, "generate: %s\n", error.message);
  free(prompt);
  taper_session_free(session);
  taper_model_free(model);
  return ok ? 0 : 1;
}

/* train.c - trains the model of a training package on the bytes of a text, by the package's recipe; the checkpoint is a MODEL.
 *
 *     taperc compile examples/mlp.tmodel --for train -o mlp.tpack
 *     cc -o train train.c $(pkg-config --cflags --libs taper)
 *     mkdir RUN && ./train mlp.tpack kjv.txt RUN [RUN/checkpoint-500]      (goes on from there)
 *     taperc run RUN --prompt "And God said, Let"
 */
#include <stdio.h>
#include <stdlib.h>
#include <taper.h>

/* Windows of the text, drawn with replacement: a function of the seed and the step alone, so that a resumed run sees the same. */
static void draw(const unsigned char *text, size_t size, const taper_recipe *r, uint64_t step, int32_t *tokens,
                 int32_t *targets) {
  uint64_t state = (r->seed + 1) * 0x9E3779B97F4A7C15u ^ (step + 1) * 0xBF58476D1CE4E5B9u;
  for (size_t w = 0; w < (size_t)r->accumulate * r->batch; w++) {
    for (int i = 0; i < 3; i++) state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift64 */
    size_t at = (size_t)(state % (size - r->sequence));
    for (uint32_t i = 0; i < r->sequence; i++) *tokens++ = text[at + i], *targets++ = text[at + i + 1];
  }
}

static taper_status train(taper_trainer *t, const unsigned char *text, size_t size, const char *run,
                          taper_error *error) {
  taper_trainer_info info = {.size = sizeof info};
  taper_status status = TAPER_OK;
  taper_trainer_get_info(t, &info);
  const taper_recipe *r = &info.recipe;
  size_t ids = (size_t)r->accumulate * r->batch * r->sequence;
  int32_t *tokens = malloc(ids * sizeof *tokens), *targets = malloc(ids * sizeof *targets);
  if (!tokens || !targets || size <= r->sequence) {
    fprintf(stderr, "train: no memory, or a text that is shorter than a window\n");
    exit(1);
  }
  for (uint64_t i = 0; status == TAPER_OK && taper_trainer_wants_calibration(t); i++) {
    draw(text, size, r, ~i, tokens, targets); /* statistics for gates that fall from step 0 on */
    status = taper_trainer_calibrate(t, tokens, targets, error);
  }
  for (uint64_t step = info.step; status == TAPER_OK && step < r->steps; step++) {
    taper_step s = {.size = sizeof s};
    draw(text, size, r, step, tokens, targets);
    status = taper_trainer_step(t, tokens, targets, &s, error);
    if (status == TAPER_OK && (s.step % 100 == 0 || s.step == r->steps))
      printf("step %llu: ce %.4f, gradient %.3f\n", (unsigned long long)s.step, s.ce, s.grad_norm), fflush(stdout);
    if (status == TAPER_OK && (s.step % 500 == 0 || s.step == r->steps))
      status = taper_trainer_save(t, run, NULL, error);
  }
  free(tokens), free(targets);
  return status;
}

int main(int argc, char **argv) {
  taper_error error;
  taper_trainer *trainer = NULL;
  FILE *f = argc < 4 || argc > 5 ? NULL : fopen(argv[2], "rb");
  if (!f || fseek(f, 0, SEEK_END) != 0) {
    fprintf(stderr, "usage: train PACKAGE TEXT RUN [CHECKPOINT]\n");
    return 2;
  }
  size_t size = (size_t)ftell(f);
  unsigned char *text = malloc(size + 1);
  rewind(f);
  if (!text || fread(text, 1, size, f) != size) return 3;
  fclose(f);
  taper_status status = taper_trainer_open(argv[1], NULL, &trainer, &error);
  if (status == TAPER_OK && argc == 5) status = taper_trainer_resume(trainer, argv[4], &error);
  if (status == TAPER_OK) status = train(trainer, text, size, argv[3], &error);
  if (status != TAPER_OK) fprintf(stderr, "train: %s\n", error.message);
  taper_trainer_free(trainer);
  free(text);
  return status == TAPER_OK ? 0 : 1;
}

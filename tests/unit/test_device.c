/* The conformance suite over packages: test_device [PACKAGE...], or TAPER_TEST_PACKAGES, paths separated by ':';
   without either, over the hand-written model. TAPER_TEST_DEVICE names the device, "cpu" by default. */
#include "tests/device/conformance.c" /* one source per test program */
#include "tests/device/toy.h"

int main(int argc, char **argv) {
  const char *device = getenv("TAPER_TEST_DEVICE"), *packages = getenv("TAPER_TEST_PACKAGES");
  int failed = 0;
  if (!device) device = "cpu";
  const bool in_brief = strcmp(device, "sim") == 0;
  for (int i = 1; i < argc; i++) failed += conformance_run(device, argv[i], in_brief);
  if (argc > 1) return failed != 0;
  if (packages && *packages) {
    char *list = strdup(packages), *rest = NULL;
    for (char *p = strtok_r(list, ":", &rest); p; p = strtok_r(NULL, ":", &rest))
      failed += conformance_run(device, p, in_brief);
    free(list);
    return failed != 0;
  }
  toy *t = toy_new(0);
  for (size_t i = 0; i < TOY_D; i++) t->emb[TOY_NAN * TOY_D + i] = 0.25f;
  toy_hash(t);
  const char *path = toy_path("toy.tpack");
  toy_write(t, path);
  failed = conformance_run(device, path, in_brief);
  toy_free(t);
  toy_remove_folder();
  return failed != 0;
}

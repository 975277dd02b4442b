/* Libraries for tests of what opens them, compiled from tests/unit/stubs with macros. Run from the root of the repository. */
#ifndef TAPER_TESTS_STUB_LIBRARY_H
#define TAPER_TESTS_STUB_LIBRARY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char stub_folder[] = "/tmp/test-stub-XXXXXX";
static char stub_path[600];

/* `sources` and `flags` as the C compiler takes them; the path of the library, the same for each. */
static const char *stub_build(const char *sources, const char *flags) {
  char command[2000];
  if (strstr(stub_folder, "XXXXXX")) assert_non_null(mkdtemp(stub_folder));
  snprintf(stub_path, sizeof stub_path, "%s/libstub.so", stub_folder);
  unlink(stub_path);
  snprintf(command, sizeof command, "gcc -shared -fPIC -w -I. -o %s %s %s", stub_path, flags, sources);
  assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): constants of the test */
  return stub_path;
}

static int stub_clean(void **state) {
  (void)state;
  if (*stub_path) unlink(stub_path);
  rmdir(stub_folder);
  return 0;
}

#endif

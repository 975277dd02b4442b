/* The choice between the generated GEMM and a library's: with none, with a stand-in that is fast or slow, and with oneDNN where
   it is installed. Each case in a process of its own: a process opens one library. */
#include "runtime/gemm_library.h"
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
// cmocka needs the headers above first
#include <cmocka.h>

static const char stub[] =
    "#include <stdint.h>\n#include <time.h>\n"
    "static int threads = 3, most_seen;\n"
    "int omp_get_max_threads(void) { return threads; }\n"
    "void omp_set_num_threads(int n) { threads = n; }\n"
    "int most_threads(void) { return most_seen; }\n"
    "struct version { int major, minor, patch; const char *hash; };\n"
    "const struct version *dnnl_version(void) { static const struct version v = {9, 8, 7, \"\"}; return &v; }\n"
    "int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,\n"
    "               const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {\n"
    "  if (threads > most_seen) most_seen = threads;\n"
    "  nanosleep(&(struct timespec){0, SLEEP}, 0);\n"
    "  if (m > 32) return 0;\n"
    "  for (int64_t i = 0; i < m; i++)\n"
    "    for (int64_t j = 0; j < n; j++) {\n"
    "      float s = 0;\n"
    "      for (int64_t l = 0; l < k; l++)\n"
    "        s += (ta == 'T' ? a[l * lda + i] : a[i * lda + l]) * (tb == 'T' ? b[j * ldb + l] : b[l * ldb + j]);\n"
    "      c[i * ldc + j] = alpha * s + (beta == 0 ? 0 : beta * c[i * ldc + j]);\n"
    "    }\n"
    "  return 0;\n"
    "}\n";

static char folder[64];

static void build_stub(const char *name, const char *sleep_ns, char path[128]) {
  char source[128], define[64];
  snprintf(source, sizeof(source), "%s/%s.c", folder, name);
  snprintf(path, 128, "%s/%s.so", folder, name);
  snprintf(define, sizeof(define), "-DSLEEP=%s", sleep_ns);
  FILE *f = fopen(source, "w");
  fputs(stub, f);
  fclose(f);
  const pid_t child = fork();
  if (child == 0)
    execlp("gcc", "gcc", "-O1", "-w", "-D_GNU_SOURCE", define, "-shared", "-fPIC", source, "-o", path, (char *)NULL);
  int how = 1;
  waitpid(child, &how, 0);
  assert_int_equal(how, 0);
}

/* Half a millisecond, or what the library takes. */
static void piece(void *arg, taper_gemm_fn gemm) {
  (void)arg;
  static float a[64], b[64], c[64];
  if (gemm)
    gemm(TAPER_GEMM_NN, 8, 8, 8, a, 8, b, 8, c, 8, 0);
  else
    nanosleep(&(struct timespec){0, 500000}, NULL);
}

static gemm_chosen choose(taper_gemm_choice choice, taper_status expected, taper_error *error) {
  gemm_chosen out;
  if (gemm_choose(choice, &(gemm_trial){piece, NULL}, &out, error) != expected) _exit(40);
  return out;
}

static void all_forms_are_right(taper_gemm_fn gemm) {
  enum { M = 17, N = 21, K = 33, LD = 40 };
  static float a[LD * LD], b[LD * LD], c[LD * LD];
  for (uint32_t form = 0; form < 3; form++) {
    for (int accumulate = 0; accumulate < 2; accumulate++) {
      for (int i = 0; i < LD * LD; i++)
        a[i] = (float)(i % 13 - 6), b[i] = (float)(i % 7 - 3), c[i] = accumulate ? 2 : NAN;
      gemm(form, M, N, K, a, LD, b, LD, c, LD, accumulate);
      for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
          float s = accumulate ? 2 : 0;
          for (int l = 0; l < K; l++)
            s += (form == TAPER_GEMM_TN ? a[l * LD + i] : a[i * LD + l]) *
                 (form == TAPER_GEMM_NT ? b[j * LD + l] : b[l * LD + j]);
          if (c[i * LD + j] != s) _exit(50 + (int)form);
        }
      }
      if (accumulate && c[M * LD] != 2) _exit(60);
    }
  }
}

/* Runs a case in a child; returns its exit status. */
static int in_child(void (*run)(const char *library), const char *library) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    setenv("TAPER_LIBDNNL", library, 1);
    run(library);
    _exit(0);
  }
  int how = 1;
  waitpid(child, &how, 0);
  return WIFEXITED(how) ? WEXITSTATUS(how) : 99;
}

static void none(const char *library) {
  (void)library;
  taper_error error = {0};
  gemm_chosen c = choose(TAPER_GEMM_AUTO, TAPER_OK, &error);
  if (c.fn || strcmp(c.name, "generated") != 0 || !strstr(c.why, "is not there")) _exit(1);
  (void)choose(TAPER_GEMM_LIBRARY, TAPER_UNSUPPORTED, &error);
  if (!strstr(error.message, "libdnnl2")) _exit(2);
  (void)choose((taper_gemm_choice)7, TAPER_INVALID, &error);
}

static void fast(const char *library) {
  taper_error error = {0};
  gemm_chosen c = choose(TAPER_GEMM_AUTO, TAPER_OK, &error);
  if (!c.fn || strcmp(c.name, "oneDNN 9.8.7") != 0) _exit(3);
  if (choose(TAPER_GEMM_GENERATED, TAPER_OK, &error).fn) _exit(4);
  all_forms_are_right(c.fn);
  void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  int (*now)(void) = (int (*)(void))(uintptr_t)dlsym(handle, "omp_get_max_threads");
  int (*most)(void) = (int (*)(void))(uintptr_t)dlsym(handle, "most_threads");
  if (now() != 3 || most() != 1) _exit(5); /* one thread within, the caller's setting after */
}

static void slow(const char *library) {
  (void)library;
  taper_error error = {0};
  if (choose(TAPER_GEMM_AUTO, TAPER_OK, &error).fn) _exit(6);
  if (!choose(TAPER_GEMM_LIBRARY, TAPER_OK, &error).fn) _exit(7);
}

static void real(const char *library) {
  (void)library;
  unsetenv("TAPER_LIBDNNL");
  taper_error error = {0};
  gemm_chosen c;
  if (gemm_choose(TAPER_GEMM_LIBRARY, &(gemm_trial){piece, NULL}, &c, &error) == TAPER_OK) all_forms_are_right(c.fn);
}

static void the_faster_one_is_chosen(void **state) {
  (void)state;
  char path[128];
  assert_int_equal(in_child(none, "/nonexistent/libdnnl.so"), 0);
  build_stub("fast", "1000", path);
  assert_int_equal(in_child(fast, path), 0);
  build_stub("slow", "2000000", path);
  assert_int_equal(in_child(slow, path), 0);
  assert_int_equal(in_child(real, ""), 0);
}

int main(void) {
  snprintf(folder, sizeof(folder), "/tmp/taper-gemm-XXXXXX");
  if (!mkdtemp(folder)) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_faster_one_is_chosen)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  const pid_t child = fork();
  if (child == 0) execlp("rm", "rm", "-rf", folder, (char *)NULL);
  waitpid(child, NULL, 0);
  return failed;
}

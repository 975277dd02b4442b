/* NVRTC in a child process: what it is given and gives, how it fails, dies and hangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda/nvrtc.h"
#include "tests/unit/stub_library.h"
#include <pthread.h>
#include <sys/stat.h>

#define STUB "tests/unit/stubs/nvrtc_stub.c"
#define KERNEL "extern \"C\" __global__ void k(float *x) { x[threadIdx.x] = expf(x[threadIdx.x]); }\n"

static nvrtc_result result;
static taper_error error;

static taper_status compile(const char *library, const char *arch, const char *source) {
  nvrtc_free(&result);
  error = (taper_error){0};
  return nvrtc_compile(&(nvrtc_request){.source = source, .name = "model.cu", .arch = arch, .library = library},
                       &result, &error);
}

static void has(const char *part) {
  if (!strstr(error.message, part)) fail_msg("'%s' is not in '%s'", part, error.message);
}

static void what_is_given_and_taken(void **state) {
  (void)state;
  const char *stub = stub_build(STUB, "");
  assert_int_equal(compile(stub, "compute_90", "source\nof two lines"), TAPER_OK);
  assert_string_equal(result.image, "model.cu|source\nof two lines|0");
  assert_int_equal(result.size, strlen(result.image) + 1); /* PTX has its NUL */
  assert_string_equal(result.log, "--gpu-architecture=compute_90\n--std=c++17\n--generate-line-info\n-default-device\n"
                                  "--ptxas-options=-v\n--no-cache\n");
  assert_int_equal(result.major * 100 + result.minor, 1204);
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_OK);
  assert_int_equal(result.size, 4);
  assert_memory_equal(result.image, "\177ELF", 4);
  assert_string_equal(result.ptx, "model.cu||0"); /* what it was made from */
  assert_int_equal(result.ptx_size, strlen(result.ptx) + 1);
  char *large = malloc((8 << 20) + 1); /* more than a pipe holds */
  memset(large, ' ', 8 << 20), large[8 << 20] = 0;
  assert_int_equal(compile(stub, "sm_80", large), TAPER_OK);
  free(large);
  nvrtc_facts facts;
  assert_int_equal(nvrtc_find(stub, &facts, &error), TAPER_OK);
  assert_string_equal(facts.path, stub);
  assert_string_equal(facts.archs, "sm_80,sm_90");
  assert_int_equal(facts.major * 100 + facts.minor, 1204);
  assert_true(facts.bytes > 1000);
}

static void an_option_that_is_not_known_is_left_out(void **state) {
  (void)state;
  const char *stub = stub_build(STUB, "-DSTUB_COMPILE='return strstr(said, \"no-cache\") ? 5 : 0;'");
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_OK);
  assert_null(strstr(result.log, "no-cache"));
}

static void archs_that_it_does_not_know(void **state) {
  (void)state;
  const char *stub = stub_build(STUB, "");
  assert_int_equal(compile(stub, "sm_120", ""), TAPER_UNSUPPORTED);
  has("NVRTC 12.4 ("), has("does not know sm_120; it compiles for sm_80,sm_90"), has("TAPER_LIBNVRTC");
  assert_int_equal(compile(stub, "compute_8", ""), TAPER_UNSUPPORTED); /* no part of a number is one */
  assert_int_equal(compile(stub, "sm_90a", ""), TAPER_OK);
  assert_int_equal(compile(stub, "x86-64-v3", ""), TAPER_INVALID);
  has("give sm_90 or compute_90");
  stub = stub_build(STUB, "-DSTUB_NO_ARCHS -DSTUB_COMPILE='return 5;'");
  assert_int_equal(compile(stub, "sm_120", ""), TAPER_UNSUPPORTED); /* it says so itself */
  has("what it does not tell");
}

static void sources_that_do_not_compile(void **state) {
  (void)state;
  const char *stub =
      stub_build(STUB, "-DSTUB_COMPILE='strcpy(said, \"model.cu(3): error: what\\n1 error\\n\"); return 6;'");
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_INVALID);
  has("model.cu: does not compile for sm_80 with NVRTC 12.4"), has("model.cu(3): error: what|1 error");
  assert_string_equal(result.log, "model.cu(3): error: what\n1 error\n");
  stub = stub_build(STUB, "-DSTUB_COMPILE='return 11;'");
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_DEVICE);
  has("NVRTC_ERROR_INTERNAL_ERROR");
  stub = stub_build(STUB, "-DSTUB_COMPILE='return 1;'");
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_NOMEM);
}

static void no_image(void **state) {
  (void)state;
  const char *stub = stub_build(STUB, "-DSTUB_CUBIN_BYTES=0");
  assert_int_equal(compile(stub, "compute_80", ""), TAPER_OK);
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_DEVICE);
  has("gives no cubin");
  assert_null(result.image);
}

static void deaths(void **state) {
  (void)state;
  const char *stub = stub_build(STUB, "-DSTUB_COMPILE='fputs(\"last words\\n\", stderr); raise(SIGSEGV);'");
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_DEVICE);
  has("NVRTC 12.4 ("), has("libstub.so) "), has("while 'model.cu' was compiled for sm_80: last words");
#ifndef __SANITIZE_ADDRESS__
  has("died of signal 11 (SIGSEGV)");
#endif
  assert_int_equal(result.major, 12); /* the version is known all the same */
  assert_null(result.image);
  stub = stub_build(STUB, "-DSTUB_COMPILE='exit(3);'");
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_DEVICE);
  has("ended with status 3");
  stub = stub_build(STUB, "-DSTUB_MAJOR='(raise(SIGKILL), 1)'");
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_DEVICE);
  has("died of signal 9 (SIGKILL) while it was asked for its version");
  nvrtc_facts facts;
  assert_int_equal(nvrtc_find(stub, &facts, &error), TAPER_DEVICE);
  stub = stub_build(STUB, "-DSTUB_OPENED='raise(SIGKILL);'");
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_DEVICE);
  has("libstub.so) died of signal 9 (SIGKILL) while it was opened");        /* which one is said all the same */
  stub = stub_build(STUB, "-DSTUB_COMPILE='printf(\"noise\"); return 0;'"); /* is not taken for an answer */
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_OK);
}

static void hanging(void **state) {
  (void)state;
  const char *stub = stub_build(STUB, "-DSTUB_COMPILE='for (;;) pause();'");
  setenv("TAPER_NVRTC_SECONDS", "1", 1);
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_DEVICE);
  has("was ended after 1 s while 'model.cu' was compiled for sm_80");
  stub = stub_build(STUB, "-DSTUB_COMPILE='close(3); for (int i = 3; i < 20; i++) close(i); for (;;) pause();'");
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_DEVICE); /* its pipe is closed, and it does not end */
  has("was ended after 1 s");
  setenv("TAPER_NVRTC_SECONDS", "0", 1);
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_INVALID);
  has("TAPER_NVRTC_SECONDS is '0'");
  unsetenv("TAPER_NVRTC_SECONDS");
}

static void what_is_no_nvrtc(void **state) {
  (void)state;
  assert_int_equal(compile("/no/such/library.so", "sm_80", ""), TAPER_DEVICE);
  has("cannot open the NVRTC library: /no/such/library.so"), has("pip install nvidia-cuda-nvrtc");
  assert_int_equal(compile("README.md", "sm_80", ""), TAPER_DEVICE);
  has("cannot open the NVRTC library"), has("README.md");
  assert_int_equal(compile("libm.so.6", "sm_80", ""), TAPER_DEVICE);
  has("so it is no NVRTC");
  const char *stub = stub_build(STUB, "-DnvrtcGetCUBIN=nvrtcGetSomething -DSTUB_MAJOR=10 -DSTUB_MINOR=2");
  assert_int_equal(compile(stub, "sm_80", ""), TAPER_DEVICE);
  has("NVRTC 10.2 ("), has("is too old: it has no 'nvrtcGetCUBIN'");
  static const char *const versions[] = {"-DSTUB_MAJOR=11 -DSTUB_MINOR=0", "-DSTUB_MAJOR=11 -DSTUB_MINOR=7",
                                         "-DSTUB_MAJOR=10 -DSTUB_MINOR=9"};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(compile(stub_build(STUB, versions[i]), "sm_80", ""), TAPER_DEVICE);
    has("is too old: 11.8 or newer is needed; set TAPER_LIBNVRTC to another NVRTC");
  }
  assert_int_equal(compile(stub_build(STUB, "-DSTUB_MAJOR=11 -DSTUB_MINOR=8"), "sm_80", ""), TAPER_OK);
  char *before = getenv("TAPER_LIBNVRTC");
  if (before) assert_non_null(before = strdup(before));
  setenv("TAPER_LIBNVRTC", "/named/by/variable.so", 1);
  assert_int_equal(compile(NULL, "sm_80", ""), TAPER_DEVICE); /* and no other is looked for */
  has("NVRTC library named by TAPER_LIBNVRTC: /named/by/variable.so"),
      assert_null(strstr(error.message, "libnvrtc.so.12"));
  unsetenv("TAPER_LIBNVRTC");
  if (before) setenv("TAPER_LIBNVRTC", before, 1);
  free(before);
}

/* A copy that broke off: the linker takes it, and its code would die of SIGBUS. */
static void cut_off(void **state) {
  (void)state;
  const char *stub = stub_build(STUB, "");
  struct stat s;
  assert_int_equal(stat(stub, &s), 0);
  for (off_t cut = 1; cut < s.st_size - 64; cut *= 4) {
    char words[100];
    snprintf(words, sizeof words, "libstub.so: cut off: %lld bytes of %lld; install it", (long long)(s.st_size - cut),
             (long long)s.st_size);
    assert_int_equal(truncate(stub, s.st_size - cut), 0);
    assert_int_equal(compile(stub, "sm_80", ""), TAPER_DEVICE);
    has("cannot open the NVRTC library"), has(words);
  }
}

static void *compile_in_thread(void *arg) {
  nvrtc_result r;
  taper_error e = {0};
  const char *arch = arg;
  taper_status s =
      nvrtc_compile(&(nvrtc_request){.source = KERNEL, .name = "model.cu", .arch = arch, .library = stub_path}, &r, &e);
  bool fine = s == TAPER_OK && strstr(r.log, arch);
  nvrtc_free(&r);
  return fine ? arg : NULL;
}

static void threads(void **state) {
  (void)state;
  static char archs[4][16] = {"sm_80", "sm_90", "compute_80", "compute_90"};
  pthread_t thread[12];
  stub_build(STUB, "");
  for (int i = 0; i < 12; i++) assert_int_equal(pthread_create(&thread[i], NULL, compile_in_thread, archs[i % 4]), 0);
  for (int i = 0; i < 12; i++) {
    void *fine;
    assert_int_equal(pthread_join(thread[i], &fine), 0);
    assert_non_null(fine);
  }
}

static void the_real_one(void **state) {
  (void)state;
  nvrtc_facts facts;
  if (nvrtc_find(NULL, &facts, &error) != TAPER_OK) {
    print_message("NVRTC is not there: %s\n", error.message);
    skip();
  }
  assert_non_null(strstr(facts.archs, "sm_90"));
  assert_int_equal(compile(NULL, "sm_90", KERNEL), TAPER_OK);
  assert_memory_equal(result.image, "\177ELF", 4);
  assert_non_null(strstr(result.log, "Compiling entry function 'k' for 'sm_90'"));
  assert_non_null(strstr(result.log, "registers"));
  assert_int_equal(compile(NULL, "sm_90", KERNEL), TAPER_OK); /* a second time has its log too */
  assert_non_null(strstr(result.log, "registers"));
  assert_int_equal(compile(NULL, "compute_80", KERNEL), TAPER_OK);
  assert_non_null(strstr(result.image, ".target sm_80"));
  assert_non_null(strstr(result.image, "model.cu")); /* lines */
  assert_int_equal(((char *)result.image)[result.size - 1], 0);
  assert_int_equal(compile(NULL, "sm_90", "#include <cuda_fp16.h>\n" KERNEL), TAPER_INVALID);
  has("cuda_fp16.h");
  assert_int_equal(compile(NULL, "sm_90", "__global__ void k() { x = 1; }"), TAPER_INVALID);
  has("model.cu(1): error: identifier \"x\" is undefined");
  assert_int_equal(compile(NULL, "sm_30", KERNEL), TAPER_UNSUPPORTED);
}

static int clean(void **state) { return nvrtc_free(&result), stub_clean(state); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_given_and_taken),
                                     cmocka_unit_test(an_option_that_is_not_known_is_left_out),
                                     cmocka_unit_test(archs_that_it_does_not_know),
                                     cmocka_unit_test(sources_that_do_not_compile),
                                     cmocka_unit_test(no_image),
                                     cmocka_unit_test(deaths),
                                     cmocka_unit_test(hanging),
                                     cmocka_unit_test(what_is_no_nvrtc),
                                     cmocka_unit_test(cut_off),
                                     cmocka_unit_test(threads),
                                     cmocka_unit_test(the_real_one)};
  return cmocka_run_group_tests(tests, NULL, clean);
}

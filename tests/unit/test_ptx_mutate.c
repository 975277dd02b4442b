/* PTX with lines changed, lost, doubled or swapped: refused, stopped by a fault, or executed; never worse (the sanitizers look). */
#include "tests/unit/ptx_op.h"

static char *line_of(char *text, size_t at) {
  char *p = text + at;
  while (p > text && p[-1] != '\n') p--;
  return p;
}

static void change_character(char *text, size_t at) { text[at] = (char)(32 + op_random() % 95); }
static void change_number(char *text, size_t at) {
  char *p = text + at;
  while (*p && !(*p >= '0' && *p <= '9')) p++;
  if (*p) *p = (char)('0' + op_random() % 10);
}
static void lose_line(char *text, size_t at) {
  char *p = line_of(text, at), *end = strchr(p, '\n');
  if (end) memmove(p, end + 1, strlen(end + 1) + 1);
}
static void swap_lines(char *text, size_t at) {
  char *p = line_of(text, at), *q = strchr(p, '\n'), *end = q && q[1] ? strchr(q + 1, '\n') : NULL;
  if (!end) return;
  const size_t first = (size_t)(q + 1 - p), second = (size_t)(end - q);
  char *both = malloc(first + second);
  memcpy(both, q + 1, second);
  memcpy(both + second, p, first);
  memcpy(p, both, first + second);
  free(both);
}

static void run_some(const sim_module *m, uint64_t buffer) {
  size_t count = 0;
  while (sim_module_kernel(m, count)) count++;
  for (int k = 0; k < 3 && count; k++) {
    uint64_t parameters[32];
    const sim_kernel *kernel = sim_module_kernel(m, op_random() % count);
    const sim_kernel_facts *f = sim_facts(kernel);
    if (f->parameter_bytes > sizeof(parameters) || f->local_bytes > 100000) continue;
    for (int i = 0; i < 32; i++) parameters[i] = i < 3 ? buffer : op_random() % 300;
    const sim_launch l = {.kernel = kernel,
                          .grid = {1 + (uint32_t)(op_random() % 3), 1, 1},
                          .block = {1 + (uint32_t)(op_random() % 128), 1, 1},
                          .parameters = parameters,
                          .parameter_bytes = f->parameter_bytes,
                          .memory = memory,
                          .budget = 20000,
                          .threads = 1 + (uint32_t)(op_random() % 2),
                          .seed = op_random() % 3};
    sim_fault fault = {0};
    if (!sim_launch_run(&l, NULL, &fault)) assert_true(fault.kind != SIM_NO_FAULT && fault.text[0]);
  }
}

static void mutations(void **state) {
  (void)state;
  static void (*const changes[])(char *, size_t) = {change_character, change_number, lose_line, swap_lines};
  static const char *const names[] = {"flow", "faults", "warp", "gemv"};
  static const float zeros[1024];
  const uint64_t buffer = ptx_buffer(zeros, sizeof(zeros));
  int read = 0;
  for (int k = 0; k < 160; k++) {
    char path[64];
    snprintf(path, sizeof(path), "tests/sim/%s.ptx", names[k % 4]);
    char *text = ptx_text(path);
    for (uint64_t edits = 1 + op_random() % 3; edits > 0; edits--)
      changes[op_random() % 4](text, op_random() % strlen(text));
    sim_module *m;
    taper_error error;
    if (sim_module_load(text, strlen(text) + 1, path, memory, &m, &error) == TAPER_OK) {
      read++;
      run_some(m, buffer);
      sim_module_unload(m);
    } else {
      assert_int_equal(error.status, TAPER_INVALID);
      assert_null(m);
    }
    free(text);
  }
  assert_true(read > 20 && read < 150);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mutations)};
  return cmocka_run_group_tests(tests, ptx_setup, ptx_teardown);
}

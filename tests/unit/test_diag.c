/* Diagnostics: sink, limit, carets, notes, remark filters, JSON. */
#include "compiler/diag/diag.h"
#include "runtime/base/text.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const diag_code SOME_ERROR = DC_TOO_MANY; /* any code with severity error */

static char *rendered(diag_sink *sink, const diag_render_options *options) {
  static char *out;
  static size_t size;
  free(out);
  out = NULL;
  FILE *f = open_memstream(&out, &size);
  diag_render(sink, f, options);
  fclose(f);
  return out;
}

static diag_loc at(const char *file, uint32_t line, uint32_t col, uint32_t length) {
  return (diag_loc){file, line, col, length};
}

static void add_source(diag_sink *sink, const char *source) {
  diag_add_source(sink, "m.tmodel", source, strlen(source));
}

/* The file's name may be gone when the messages are printed: a module's goes with the module. */
static void test_names_are_kept(void **state) {
  (void)state;
  diag_sink *sink = diag_sink_new();
  char *name = strdup("gone.tmodel");
  diag_report(sink, SOME_ERROR, at(name, 1, 2, 0), "first");
  diag_note(sink, at(name, 3, 4, 0), "second");
  memset(name, 'x', strlen(name));
  assert_string_equal(diag_at(sink, 0)->loc.file, "gone.tmodel");
  assert_string_equal(diag_at(sink, 0)->notes[0].loc.file, "gone.tmodel");
  free(name);
  diag_sink_free(sink);
}

static void test_caret(void **state) {
  (void)state;
  diag_sink *s = diag_sink_new();
  add_source(s, "model m {\n\tlet h = normm(x);\r\n}");
  const char *file = diag_intern(s, "m.tmodel");
  assert_ptr_equal(file, diag_intern(s, "m.tmodel"));
  diag_report(s, SOME_ERROR, at(file, 2, 10, 5), "unknown op '%s'", "normm");
  diag_note(s, at(file, 1, 7, 1), "in this model");
  assert_string_equal(rendered(s, NULL),
                      "m.tmodel:2:10: error: unknown op 'normm'\n\tlet h = normm(x);\n\t        ^~~~~\n"
                      "m.tmodel:1:7: note: in this model\nmodel m {\n      ^\n");
  assert_string_equal(rendered(s, NULL) ? rendered(s, NULL) : "", ""); /* once only */
  diag_report(s, SOME_ERROR, at(file, 1, 7, 500), "range beyond the line");
  assert_non_null(strstr(rendered(s, NULL), "model m {\n      ^~~\n"));
  diag_report(s, SOME_ERROR, at(file, 1, 10, 1), "at the end of the line");
  assert_non_null(strstr(rendered(s, NULL), "model m {\n         ^\n"));
  diag_report(s, SOME_ERROR, at(file, 1, 4000, 9), "beyond the end of the line");
  assert_non_null(strstr(rendered(s, NULL), "model m {\n         ^\n"));
  diag_report(s, SOME_ERROR, at(file, 99, 1, 1), "beyond the file");
  assert_string_equal(rendered(s, NULL), "m.tmodel:99:1: error: beyond the file\n");
  diag_report(s, SOME_ERROR, at("other.tmodel", 1, 1, 1), "no source");
  assert_string_equal(rendered(s, NULL), "other.tmodel:1:1: error: no source\n");
  diag_report(s, SOME_ERROR, at("w.safetensors", 0, 0, 0), "as a whole");
  assert_string_equal(rendered(s, NULL), "w.safetensors: error: as a whole\n");
  diag_report(s, SOME_ERROR, at(NULL, 0, 0, 0), "no file");
  assert_string_equal(rendered(s, NULL), "taperc: error: no file\n");
  diag_sink_free(s);
  diag_sink_free(NULL);
}

static void test_utf8(void **state) {
  (void)state;
  diag_sink *s = diag_sink_new();
  add_source(s, "a\xc3\xbc\xe4\xb8\xad x \x1b[31m \xff y");
  diag_report(s, SOME_ERROR, at("m.tmodel", 1, 8, 1), "x\x1b[2J\n%s", "\xc3\xbc\xff");
  /* \xc3\xbc is one cell, the ideograph two; escape codes and stray bytes are not passed on */
  assert_string_equal(rendered(s, NULL),
                      "m.tmodel:1:8: error: x?[2J?\xc3\xbc?\na\xc3\xbc\xe4\xb8\xad x ?[31m ? y\n     ^\n");
  diag_report(s, SOME_ERROR, at("m.tmodel", 1, 3, 4), "inside a character");
  assert_non_null(strstr(rendered(s, NULL), "\n ^~~\n"));
  diag_sink_free(s);
}

static void test_long_line(void **state) {
  (void)state;
  diag_sink *s = diag_sink_new();
  size_t n = 1000000;
  char *line = malloc(n + 1);
  for (size_t i = 0; i < n; i++) line[i] = (char)('a' + i % 26);
  line[n] = 0;
  add_source(s, line);
  uint32_t cols[] = {1, 50, 159, 160, 161, 5000, 999990, 1000000, 1000001};
  for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
    diag_report(s, SOME_ERROR, at("m.tmodel", 1, cols[i], 3), "e");
    char *out = rendered(s, NULL), *source = strchr(out, '\n') + 1, *marks = strchr(source, '\n') + 1,
         *caret = strchr(marks, '^');
    assert_true(strlen(out) < 400);
    assert_non_null(caret);
    if (cols[i] <= n) assert_int_equal(source[caret - marks], line[cols[i] - 1]);
  }
  free(line);
  diag_sink_free(s);
}

static void test_limit(void **state) {
  (void)state;
  diag_sink *s = diag_sink_new();
  diag_set_limit(s, 3);
  for (int i = 0; i < 10; i++) {
    diag_report(s, DC_PASS_NONFINITE, at("m", (uint32_t)i + 1, 1, 1), "e%d", i);
    diag_note(s, at("m", 1, 1, 1), "n%d", i);
  }
  assert_int_equal(diag_error_count(s), 10);
  assert_int_equal(diag_count(s), 4);
  assert_int_equal(diag_at(s, 2)->note_count, 1);
  assert_int_equal(diag_at(s, 3)->code, DC_TOO_MANY);
  assert_int_equal(diag_at(s, 3)->note_count, 0);
  const char *out = rendered(s, NULL);
  assert_non_null(strstr(out, "m:3:1: error: e2\nm:1:1: note: n2\nm: error: too many errors"));
  assert_null(strstr(out, "e3"));
  diag_sink_free(s);
  s = diag_sink_new();
  for (int i = 0; i < 30; i++) diag_report(s, DC_PASS_NONFINITE, at("m", 1, 1, 1), "e");
  assert_int_equal(diag_count(s), 21);
  diag_sink_free(s);
  s = diag_sink_new();
  diag_set_limit(s, 0);
  for (int i = 0; i < 300; i++) diag_report(s, DC_PASS_NONFINITE, at("m", 1, 1, 1), "e");
  assert_int_equal(diag_count(s), 300);
  diag_report(s, DC_PASS_GATE_OPEN, at("m", 1, 1, 1), "w");
  assert_int_equal(diag_error_count(s), 300);
  assert_int_equal(diag_at(s, 300)->severity, DIAG_WARNING);
  diag_sink_free(s);
}

static void report_remarks(diag_sink *s) {
  diag_remark(s, "fold-scale", false, at("m.tmodel", 3, 2, 1), "'%s' into attn.q", "n");
  diag_remark(s, "fold-scale", true, at("m.tmodel", 4, 2, 1), "blocked");
  diag_note(s, at("m.tmodel", 9, 1, 1), "by this reader");
  diag_remark(s, "dce", false, at("m.tmodel", 5, 2, 1), "gone");
}

static void test_remarks(void **state) {
  (void)state;
  static const char *const fold[] = {"fold-scale", NULL}, *const all[] = {"all", NULL}, *const other[] = {"fold", NULL};
  static const char done[] = "m.tmodel:3:2: remark: fold-scale: 'n' into attn.q [-Rpass=fold-scale]\n";
  static const char missed[] =
      "m.tmodel:4:2: remark: fold-scale: blocked [-Rpass-missed=fold-scale]\nm.tmodel:9:1: note: by this reader\n";
  static const char dce[] = "m.tmodel:5:2: remark: dce: gone [-Rpass=dce]\n";
  struct {
    diag_render_options options;
    const char *expected[3];
  } cases[] = {
      {{0}, {"", "", ""}},
      {{.rpass = fold}, {done, "", ""}},
      {{.rpass_missed = fold}, {"", missed, ""}},
      {{.rpass = all}, {done, "", dce}},
      {{.rpass = other, .rpass_missed = other}, {"", "", ""}},
      {{.all_remarks = true}, {done, missed, dce}},
  };
  diag_sink *s = diag_sink_new();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    text expected = {0};
    report_remarks(s);
    for (size_t k = 0; k < 3; k++) text_puts(&expected, cases[i].expected[k]);
    assert_string_equal(rendered(s, &cases[i].options), expected.data);
    text_free(&expected);
  }
  assert_int_equal(diag_error_count(s), 0);
  diag_sink_free(s);
}

static void test_json(void **state) {
  (void)state;
  diag_sink *s = diag_sink_new();
  diag_render_options json = {.json = true, .all_remarks = true};
  diag_report(s, SOME_ERROR, at("a\"b", 1, 2, 3), "line\none \xff");
  diag_note(s, at(NULL, 0, 0, 0), "n1");
  diag_note(s, at("c", 4, 5, 6), "n2");
  assert_string_equal(
      rendered(s, &json),
      "{\"severity\":\"error\",\"code\":2,\"file\":\"a\\\"b\",\"line\":1,\"col\":2,\"length\":3,\"message\":"
      "\"line\\none \\ufffd\","
      "\"notes\":[{\"severity\":\"note\",\"file\":null,\"line\":0,\"col\":0,\"length\":0,\"message\":\"n1\"},"
      "{\"severity\":\"note\",\"file\":\"c\",\"line\":4,\"col\":5,\"length\":6,\"message\":\"n2\"}]}\n");
  diag_remark(s, "dce", true, at("m", 1, 1, 1), "kept");
  assert_string_equal(
      rendered(s, &json),
      "{\"severity\":\"remark\",\"code\":1,\"file\":\"m\",\"line\":1,\"col\":1,\"length\":1,\"message\":\"kept\","
      "\"pass\":\"dce\",\"missed\":true,\"notes\":[]}\n");
  diag_sink_free(s);
}

/* An error without a remedy gets that of its code; a remedy of its own, or a note, is enough. */
static void test_remedies(void **state) {
  (void)state;
  static const diag_render_options json = {.json = true};
  diag_sink *s = diag_sink_new();
  diag_report(s, DC_FRONT_DIVISION, at("m", 1, 2, 3), "division by zero");
  assert_string_equal(rendered(s, NULL), "m:1:2: error: division by zero; divide by a number that goes into it\n");
  diag_report(s, DC_FRONT_DIVISION, at("m", 1, 2, 3), "division by zero");
  assert_non_null(strstr(rendered(s, &json), "\"message\":\"division by zero; divide by a number that goes into it\""));
  diag_report(s, DC_FRONT_DIVISION, at("m", 1, 2, 3), "division by zero; write 1");
  assert_string_equal(rendered(s, NULL), "m:1:2: error: division by zero; write 1\n");
  diag_report(s, DC_FRONT_DIVISION, at("m", 1, 2, 3), "division by zero");
  diag_note(s, at("m", 4, 5, 6), "did you mean 1?");
  assert_string_equal(rendered(s, NULL), "m:1:2: error: division by zero\nm:4:5: note: did you mean 1?\n");
  for (int i = 0; i < DC_COUNT; i++)
    if (strcmp(diag_code_title((diag_code)i), "too many errors") != 0) {
      diag_report(s, (diag_code)i, at("m", 1, 1, 1), "cause");
      bool is_error = diag_at(s, diag_count(s) - 1)->severity == DIAG_ERROR;
      if (is_error) assert_non_null(diag_code_remedy((diag_code)i));
      diag_sink_free(s);
      s = diag_sink_new();
    }
  diag_sink_free(s);
}

static void test_numbers(void **state) {
  (void)state;
  for (int i = 0; i < DC_COUNT; i++) {
    assert_true(strlen(diag_code_title((diag_code)i)) > 0);
    for (int k = 0; k < i; k++) assert_int_not_equal(diag_code_number((diag_code)i), diag_code_number((diag_code)k));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_caret),     cmocka_unit_test(test_names_are_kept), cmocka_unit_test(test_utf8),
      cmocka_unit_test(test_long_line), cmocka_unit_test(test_limit),          cmocka_unit_test(test_remarks),
      cmocka_unit_test(test_json),      cmocka_unit_test(test_numbers),        cmocka_unit_test(test_remedies),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

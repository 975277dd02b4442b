/* toy_session.h - what the tests of sessions over the hand-written model share: its package, tokens, and what is expected of them. For one
   cmocka program each. */
#ifndef TAPER_TESTS_TOY_SESSION_H
#define TAPER_TESTS_TOY_SESSION_H

#include "tests/device/toy.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka needs the headers above first
#include <cmocka.h>
// and this one cmocka
#include "tests/device/new_session.h"

static toy *good;
static int32_t line[TOY_CONTEXT]; /* tokens of the tests */
static double expected[TOY_CONTEXT * TOY_V], stream0[TOY_CONTEXT * TOY_D], stream1[TOY_CONTEXT * TOY_D];

static taper_model *open_toy(uint32_t threads, uint32_t chunk_rows) {
  taper_model_options o;
  taper_model *m;
  taper_error error;
  taper_model_options_init(&o);
  o.threads = threads, o.chunk_rows = chunk_rows;
  if (taper_model_open(toy_path("toy.tpack"), &o, &m, &error) != TAPER_OK) fail_msg("%s", error.message);
  return m;
}

static int setup(void **state) {
  (void)state;
  good = toy_new(0);
  toy_write(good, toy_path("toy.tpack"));
  for (int i = 0; i < TOY_CONTEXT; i++) line[i] = (i * 37 + 5) % TOY_NAN;
  toy_reference(good, line, TOY_CONTEXT, expected, stream0, stream1);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  toy_free(good);
  toy_remove_folder();
  return 0;
}

#endif

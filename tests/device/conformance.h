/* conformance.h - what every device must do with every package, by taper.h alone. */
#ifndef TAPER_TESTS_DEVICE_CONFORMANCE_H
#define TAPER_TESTS_DEVICE_CONFORMANCE_H

#include <stdbool.h>

/* Runs the suite over one package and prints as cmocka does; returns the number of tests that failed. In brief: with a
   few tokens, where the device is an interpreter. */
int conformance_run(const char *device, const char *package, bool in_brief);

#endif

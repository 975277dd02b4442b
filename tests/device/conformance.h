/* conformance.h - what every device must do with every package, by taper.h alone. */
#ifndef TAPER_TESTS_DEVICE_CONFORMANCE_H
#define TAPER_TESTS_DEVICE_CONFORMANCE_H

/* Runs the suite over one package and prints as cmocka does; returns the number of tests that failed. */
int conformance_run(const char *device, const char *package);

#endif

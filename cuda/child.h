/* child.h - work in which a foreign library may crash or hang, done in a process of its own: this program started anew,
   which does nothing but that work and ends. No fork: the program that asks may have threads. */
#ifndef TAPER_CUDA_CHILD_H
#define TAPER_CUDA_CHILD_H

#include "runtime/base/status.h"
#include <stdbool.h>
#include <stddef.h>

/* A kind of work. It runs before main of the new process: CHILD_JOB puts child_enter into a constructor, which glibc
   calls with the arguments of main. `serve` answers by child_put and child_fail; what it, or a library, writes to
   standard output or error is kept apart as what was said. */
typedef struct child_job {
  const char *name;
  void (*serve)(const char *request, size_t size, int out);
} child_job;
void child_enter(int argc, char **argv, const child_job *job);
#define CHILD_JOB(job)                                                                                                 \
  __attribute__((constructor)) static void enter_##job(int argc, char **argv) { child_enter(argc, argv, &job); }

/* Records of an answer, each with a letter. CHILD_STAGE: what is being done now, for the message of a crash. */
enum { CHILD_STAGE = 'S', CHILD_WHO = 'W', CHILD_FAILURE = 'F' };
void child_put(int out, char letter, const void *data, size_t size);
void child_say(int out, char letter, const char *format, ...) __attribute__((format(printf, 3, 4)));
void child_fail(int out, const taper_error *error);

typedef struct child_answer {
  char *data; /* records */
  size_t size;
  int signal, exit; /* what ended it; both 0: it ended well */
  bool late;        /* it was ended after its time */
  unsigned seconds; /* its time */
  char said[400];   /* the first of what was written to standard output and error */
} child_answer;

/* Runs a job on a request; at most `seconds`. TAPER_DEVICE: the process could not be started or lost. Any thread. */
taper_status child_run(const child_job *job, const void *request, size_t size, unsigned seconds, child_answer *out,
                       taper_error *error);
/* The last whole record of a letter, which a NUL follows; NULL: there is none. out_size may be NULL. */
const char *child_find(const child_answer *a, char letter, size_t *out_size);
/* TAPER_OK when it ended well and put no failure; its failure; else TAPER_DEVICE: how it died, doing what, with what it
   said. `who` is named where there is no record CHILD_WHO. */
taper_status child_outcome(const child_answer *a, const char *who, const char *remedy, taper_error *error);
void child_free(child_answer *a);

#endif

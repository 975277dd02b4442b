/* json.h - JSON results in the order they are written, with numbers that read back exactly. */
#ifndef TAPERC_CLI_JSON_H
#define TAPERC_CLI_JSON_H

#include "runtime/base/text.h"

/* Inside an object `key` is the member's name; in an array it is NULL. NaN and infinity are written as null. */
typedef struct json_out {
  text t;
  bool comma;
} json_out;

void json_open(json_out *j, const char *key, char bracket);        /* '{' or '[' */
void json_close(json_out *j, char bracket);                        /* '}' or ']' */
void json_string(json_out *j, const char *key, const char *value); /* NULL: null */
void json_bytes(json_out *j, const char *key, const char *value, size_t bytes);
void json_number(json_out *j, const char *key, double value);
void json_whole(json_out *j, const char *key, uint64_t value);
void json_bool(json_out *j, const char *key, bool value);
void json_null(json_out *j, const char *key);
void json_raw(json_out *j, const char *key, const char *value); /* JSON text */

/* Is the text one complete JSON value? NULL is none. */
bool json_is_valid(const char *s);

/* {median, min, max, n} of values[0..n), which are sorted in place; null where n is 0. */
void json_measured(json_out *j, const char *key, double *values, size_t n);
double median_of(double *values, size_t n); /* sorts in place */
/* The lower of the two middle ones of an even number, as torch.median takes it. Sorts in place. */
double lower_median_of(double *values, size_t n);

#endif

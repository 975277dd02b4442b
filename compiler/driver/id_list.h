/* id_list.h - ids written as text: whole numbers separated by commas or white space. */
#ifndef TAPERC_DRIVER_ID_LIST_H
#define TAPERC_DRIVER_ID_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum id_list_fault {
  ID_LIST_OK,
  ID_LIST_EMPTY, /* no id at all */
  ID_LIST_WORD,  /* something that is no whole number */
  ID_LIST_RANGE, /* a whole number that no vocabulary has */
  ID_LIST_COMMA, /* nothing beside a comma */
  ID_LIST_STOPPED
} id_list_fault;

typedef struct id_list_error {
  id_list_fault fault;
  size_t at; /* byte */
  char message[160];
} id_list_error;

/* Gives the ids of s[0..n) to `put` in pieces (`at`: bytes read so far); not 0 from it stops. False: *out_error says what is wrong. */
bool id_list_parse(const char *s, size_t n, int (*put)(void *user, const int32_t *ids, size_t n, size_t at), void *user,
                   id_list_error *out_error);

#endif

/* checked.h - arithmetic on sizes that come from files: false on overflow, *out untouched. */
#ifndef TAPER_BASE_CHECKED_H
#define TAPER_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECKED(name, type, builtin)                                                                                   \
  static inline bool name(type a, type b, type *out) {                                                                 \
    type result;                                                                                                       \
    if (builtin(a, b, &result)) return false;                                                                          \
    *out = result;                                                                                                     \
    return true;                                                                                                       \
  }
CHECKED(checked_add_u64, uint64_t, __builtin_add_overflow)
CHECKED(checked_mul_u64, uint64_t, __builtin_mul_overflow)
CHECKED(checked_add_i64, int64_t, __builtin_add_overflow)
CHECKED(checked_sub_i64, int64_t, __builtin_sub_overflow)
CHECKED(checked_mul_i64, int64_t, __builtin_mul_overflow)
#undef CHECKED

#endif

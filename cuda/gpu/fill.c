/*
 * gpu-fill FILE... - puts random weights into packages that travelled without them (unpack.py made them: sparse, the weights zero). Of
 * standard deviation 0.02, gains 1 +- 0.1; the hashes in the header are set to match. They are for timing: what such a model says
 * means nothing.
 */
#include "runtime/base/hash.h"
#include "runtime/base/philox.h"
#include "runtime/base/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 16, EXIT_ENVIRONMENT = 3 };
#define DEVIATION 0.02
#define GAIN_DEVIATION 0.1

static double normals[BLOCK]; /* the numbers of all weights, each tensor beginning elsewhere */

static void draw_normals(void) {
  for (uint32_t i = 0; i < BLOCK; i += 2) {
    uint32_t bits[4];
    philox4x32(1, PHILOX_BENCH, 1, i, 0, bits);
    double u = ((double)bits[0] + 1) / 4294967297.0, angle = 6.283185307179586 * (double)bits[1] / 4294967296.0;
    double length = sqrt(-2 * log(u));
    normals[i] = length * cos(angle), normals[i + 1] = length * sin(angle);
  }
}

/* Of finite numbers well inside the range of the type. */
static uint16_t to_f16(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  int32_t exponent = (int32_t)(bits >> 23 & 255) - 112;
  if (exponent <= 0) return (uint16_t)(bits >> 16 & 0x8000);
  return (uint16_t)((bits >> 16 & 0x8000) | ((uint32_t)exponent << 10) | (bits >> 13 & 0x3ff));
}

static uint16_t to_bf16(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static bool put_number(st_dtype type, float value, uint8_t *out) {
  uint16_t half = type == ST_BF16 ? to_bf16(value) : to_f16(value);
  if (type == ST_F32) return memcpy(out, &value, 4), true;
  if (type != ST_BF16 && type != ST_F16) return false;
  return memcpy(out, &half, 2), true;
}

/* One period of a tensor's numbers in its own type. */
static bool make_block(const st_tensor *t, uint32_t salt, uint8_t *block) {
  size_t size = st_dtype_size(t->dtype);
  bool bias = strstr(t->name, ".bias") != NULL, gain = t->rank < 2 && !bias;
  for (uint32_t i = 0; i < BLOCK; i++) {
    double n = normals[(i + salt * 4099u) % BLOCK];
    if (!put_number(t->dtype, (float)(gain ? 1 + GAIN_DEVIATION * n : DEVIATION * n), block + i * size)) return false;
  }
  return true;
}

static bool write_all(int fd, const uint8_t *data, size_t bytes, uint64_t offset) {
  while (bytes > 0) {
    ssize_t n = pwrite(fd, data, bytes, (off_t)offset);
    if (n <= 0) return false;
    data += n, offset += (uint64_t)n, bytes -= (size_t)n;
  }
  return true;
}

/* Writes the numbers and returns their hash; "": *error says why. */
static hash128 fill_tensor(int fd, const st_tensor *t, uint32_t salt, uint8_t *block, taper_error *error) {
  hash128 none = {""};
  size_t period = BLOCK * st_dtype_size(t->dtype);
  if (!make_block(t, salt, block))
    return taper_fail(error, TAPER_UNSUPPORTED, "tensor '%s': cannot be filled in the type %s", t->name,
                      st_dtype_name(t->dtype)),
           none;
  hash_stream *h = hash_begin();
  if (!h) return taper_fail(error, TAPER_NOMEM, "no memory"), none;
  for (uint64_t done = 0; done < t->bytes;) {
    size_t n = t->bytes - done < period ? (size_t)(t->bytes - done) : period;
    hash_update(h, block, n);
    if (!write_all(fd, block, n, t->offset + done)) {
      (void)hash_end(h);
      return taper_fail(error, TAPER_IO, "tensor '%s': %s", t->name, strerror(errno)), none;
    }
    done += n;
  }
  return hash_end(h);
}

/* Where in the header the hash of a tensor stands: 32 digits behind \"NAME\" in the text of taper.hashes. */
static char *find_hash(char *header, const char *name) {
  char quoted[700];
  char *at = strstr(header, "\"taper.hashes\"");
  if (!at || snprintf(quoted, sizeof quoted, "\\\"%s\\\"", name) >= (int)sizeof quoted) return NULL;
  at = strstr(at, quoted);
  if (!at) return NULL;
  at += strlen(quoted);
  at += strspn(at, " :\\\"");
  return strspn(at, "0123456789abcdef") == 32 ? at : NULL;
}

static taper_status fill_weights(const st_file *f, int fd, char *header, uint8_t *block, taper_error *error) {
  for (size_t i = 0; i < f->count; i++) {
    const st_tensor *t = &f->tensors[i];
    if (strncmp(t->name, "taper.", 6) == 0 || strncmp(t->name, "__pad.", 6) == 0) continue;
    char *place = find_hash(header, t->name);
    if (!place) return TAPER_FAIL(error, TAPER_INVALID, "tensor '%s' has no hash", t->name);
    hash128 hash = fill_tensor(fd, t, (uint32_t)i, block, error);
    if (!hash.hex[0]) return error->status;
    memcpy(place, hash.hex, 32);
  }
  if (!write_all(fd, (const uint8_t *)header, f->header_bytes, 8))
    return TAPER_FAIL(error, TAPER_IO, "header: %s", strerror(errno));
  return TAPER_OK;
}

static taper_status fill(const char *path, taper_error *error) {
  st_file f = {0};
  TAPER_TRY(st_open(path, &f, error));
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  char *header = malloc(f.header_bytes + 1);
  uint8_t *block = calloc(BLOCK, 4);
  taper_status status = TAPER_OK;
  if (fd < 0) status = TAPER_FAIL(error, TAPER_IO, "%s: %s", path, strerror(errno));
  if (status == TAPER_OK && (!header || !block)) status = TAPER_FAIL(error, TAPER_NOMEM, "no memory");
  if (status == TAPER_OK) {
    memcpy(header, f.map.data + 8, f.header_bytes);
    header[f.header_bytes] = '\0';
    status = fill_weights(&f, fd, header, block, error);
  }
  if (status != TAPER_OK) status = taper_add_context(error, status, "%s", path);
  free(header);
  free(block);
  if (fd >= 0) (void)close(fd);
  st_close(&f);
  return status;
}

int main(int argc, char **argv) {
  taper_error error = {0};
  draw_normals();
  for (int i = 1; i < argc; i++) {
    if (fill(argv[i], &error) == TAPER_OK) continue;
    fprintf(stderr, "gpu-fill: error: %s\n", error.message);
    return EXIT_ENVIRONMENT;
  }
  return 0;
}

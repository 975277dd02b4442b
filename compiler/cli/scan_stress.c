/* The results of `scan --stress` as a table and as JSON. */
#include "compiler/cli/scan.h"
#include <math.h>
#include <string.h>

enum { SHOWN = 12, PIECE = 64 };

static size_t piece_of(const taper_model *model, int32_t id, char *out) {
  size_t n = 0;
  if (taper_detokenize(model, &id, 1, out, PIECE, &n, NULL) != TAPER_OK) return 0;
  return n < PIECE ? n : PIECE;
}

/* Three significant digits; whole numbers from 1000 on, however large. */
static void put_short(text *out, double v, int width) {
  char word[48];
  if (!isfinite(v))
    text_format(word, sizeof word, "inf");
  else if (fabs(v) >= 1e7)
    text_format(word, sizeof word, "%.1e", v);
  else
    text_format(word, sizeof word, "%.*f", fabs(v) >= 1000 ? 0 : fabs(v) >= 100 ? 1 : 2, v);
  text_printf(out, "%*s", width, word);
}

/* ' ' and what is printable as it is; other bytes as \xNN. */
static void put_piece(text *out, const char *piece, size_t n) {
  text word = {0};
  text_puts(&word, "'");
  for (size_t i = 0; i < n && word.size < 20; i++) {
    unsigned char b = (unsigned char)piece[i];
    if (b >= 32 && b < 127)
      text_put(&word, piece + i, 1);
    else
      text_printf(&word, "\\x%02x", b);
  }
  text_puts(&word, "'");
  text_printf(out, "%-14s", word.data ? word.data : "");
  text_free(&word);
}

static void put_tokens(text *out, const taper_model *model, const stress_result *r) {
  char piece[PIECE];
  text_puts(out, "      id  text                 read  row norm  scale ratio  nats lost\n");
  for (size_t i = 0; i < r->count && i < SHOWN; i++) {
    const stress_token *t = &r->tokens[i];
    text_printf(out, "%8d  ", t->id);
    put_piece(out, piece, piece_of(model, t->id, piece));
    text_printf(out, "%11llu", (unsigned long long)t->seen);
    put_short(out, t->row_norm_ratio, 10);
    put_short(out, t->scale_ratio, 13);
    put_short(out, t->dloss, 11);
    text_puts(out, "\n");
  }
  if (r->count > SHOWN) text_printf(out, "     ... %zu more\n", r->count - SHOWN);
}

static void put_tries(text *out, const stress_result *r) {
  text_puts(out, "clamp-rows  ids that harm  worst scale  worst loss  loss on the data\n");
  for (size_t i = 0; i < r->try_count; i++) {
    const stress_try *t = &r->tries[i];
    if (t->k > 0)
      put_short(out, t->k, 10);
    else
      text_puts(out, "      none");
    text_printf(out, "%15zu", t->over);
    put_short(out, t->worst_ratio, 13);
    put_short(out, t->worst_dloss, 12);
    text_printf(out, "%18.4f\n", t->ce);
  }
}

void scan_put_verdict(text *out, const stress_result *r) {
  size_t over = r->try_count ? r->tries[0].over : 0;
  const char *s = over == 1 ? "" : "s";
  if (r->clamp_rows > 0)
    text_printf(out, "verdict: %zu id%s drive%s the stream out of range; --clamp-rows=%g mends it\n", over, s,
                over == 1 ? "s" : "", r->clamp_rows);
  else if (r->mended)
    text_puts(out, "verdict: no id drives the stream out of range; no clamp is needed\n");
  else if (r->live_first)
    text_printf(out,
                "verdict: %zu id%s cost%s the next tokens much, but a live norm reads the embedding first: a clamp "
                "would only harm it\n",
                over, s, over == 1 ? "s" : "");
  else
    text_printf(out, "verdict: %zu id%s drive%s the stream out of range, and no clamp from 2 to 1 mends it\n", over, s,
                over == 1 ? "s" : "");
}

void scan_put_stress(text *out, const taper_model *model, const stress_result *r) {
  text_puts(out, "residual scale before the head: median ");
  put_short(out, r->median, 0);
  text_puts(out, ", 99.9 % ");
  put_short(out, r->high, 0);
  text_printf(out, " (%s)\n", r->scale_given ? "as the weights say" : "measured on the data");
  text_printf(out, "%zu ids, each behind %u context%s of %u tokens, %u tokens predicted behind it; ids counted %s\n",
              r->count, r->contexts, r->contexts == 1 ? "" : "s", r->prefix, r->next,
              r->seen_given ? "in training" : "in the data");
  text_puts(out, "a wrong id costs the next tokens ");
  put_short(out, r->usual, 0);
  text_puts(out, " nats each as a rule; harm is above ");
  put_short(out, r->limit, 0);
  text_puts(out, "\n\n");
  put_tokens(out, model, r);
  text_puts(out, "\n");
  put_tries(out, r);
  text_puts(out, "\n");
  scan_put_verdict(out, r);
}

void scan_put_stress_json(json_out *j, const taper_model *model, const stress_result *r) {
  char piece[PIECE];
  json_open(j, "stress", '{');
  if (r->clamp_rows > 0)
    json_number(j, "clamp_rows", r->clamp_rows);
  else
    json_null(j, "clamp_rows");
  json_number(j, "worst_ratio", r->tries[0].worst_ratio);
  json_bool(j, "mended", r->mended);
  json_number(j, "scale_median", r->median);
  json_number(j, "scale_high", r->high);
  json_number(j, "usual_dloss", r->usual);
  json_number(j, "harm_dloss", r->limit);
  json_open(j, "tries", '[');
  for (size_t i = 0; i < r->try_count; i++) {
    const stress_try *t = &r->tries[i];
    json_open(j, NULL, '{');
    if (t->k > 0)
      json_number(j, "clamp_rows", t->k);
    else
      json_null(j, "clamp_rows");
    json_whole(j, "ids_that_harm", t->over);
    json_number(j, "worst_ratio", t->worst_ratio);
    json_number(j, "worst_dloss", t->worst_dloss);
    json_number(j, "ce", t->ce);
    json_close(j, '}');
  }
  json_close(j, ']');
  json_open(j, "tokens", '[');
  for (size_t i = 0; i < r->count; i++) {
    const stress_token *t = &r->tokens[i];
    json_open(j, NULL, '{');
    json_whole(j, "id", (uint64_t)t->id);
    json_bytes(j, "text", piece, piece_of(model, t->id, piece));
    json_whole(j, "seen", t->seen);
    json_number(j, "row_norm_ratio", t->row_norm_ratio);
    json_number(j, "scale_ratio", t->scale_ratio);
    json_number(j, "dloss", t->dloss);
    json_close(j, '}');
  }
  json_close(j, ']');
  json_close(j, '}');
}

/* The frame of a page, and the look of its charts. */
#include "compiler/driver/report_priv.h"
#include <math.h>
#include <string.h>

const char *const report_colours[REPORT_COLOURS] = {"#2f7fd1", "#d9662b", "#2e9e5b", "#a45bc9",
                                                    "#c23b5a", "#8a7a1f", "#1f9aa5", "#7a7f87"};

/* Length of the UTF-8 character at s, 0 where there is none. */
static size_t character(const char *s) {
  unsigned char b = (unsigned char)*s;
  size_t n = b < 0x80 ? 1 : b >= 0xc2 && b < 0xe0 ? 2 : b >= 0xe0 && b < 0xf0 ? 3 : b >= 0xf0 && b < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < n; i++)
    if (((unsigned char)s[i] & 0xc0) != 0x80) return 0;
  return n;
}

void report_put(text *out, const char *s) {
  while (*s) {
    size_t n = character(s);
    if (n == 0 || (n == 1 && ((unsigned char)*s < 32 || *s == 127)))
      text_puts(out, "\xef\xbf\xbd"), n = 1;
    else if (*s == '&')
      text_puts(out, "&amp;");
    else if (*s == '<')
      text_puts(out, "&lt;");
    else if (*s == '>')
      text_puts(out, "&gt;");
    else if (*s == '"')
      text_puts(out, "&quot;");
    else
      text_put(out, s, n);
    s += n;
  }
}

void report_number(text *out, double v) {
  if (!isfinite(v))
    text_puts(out, "\xe2\x80\x93");
  else if (v == floor(v) && fabs(v) < 1e15)
    text_printf(out, "%.0f", v);
  else if (fabs(v) >= 1e6 || fabs(v) < 1e-3)
    text_printf(out, "%.3e", v);
  else
    text_printf(out, "%.*f", fabs(v) >= 1000 ? 0 : fabs(v) >= 100 ? 1 : fabs(v) >= 10 ? 2 : 4, v);
}

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1d2126;--soft:#5a626c;--line:#d9dde2;--paper:#fff;--card:#f7f8fa}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e7eb;--soft:#a0a8b2;--line:#3a4048;--paper:#15181c;--card:#"
    "1c2025}}"
    "\n"
    "*{box-sizing:border-box}body{margin:0 auto;padding:1.5rem 1rem 3rem;max-width:76rem;background:var(--paper);"
    "color:var(--ink);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
    "h1{font-size:1.6rem;line-height:1.25;margin:0 0 .25rem;overflow-wrap:anywhere}h2{font-size:1.15rem;margin:2rem 0 "
    ".6rem}h3{font-size:1rem;margin:0 0 .1rem;overflow-wrap:anywhere}\n"
    "p{margin:.3rem 0;max-width:48rem}.soft{color:var(--soft);font-size:.9rem}.warn{border-left:4px solid "
    "#d9662b;padding:.1rem .7rem;overflow-wrap:anywhere}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.92rem}th,td{padding:.3rem "
    ".75rem;text-align:right;"
    "border-bottom:1px solid var(--line);white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    "th{font-weight:600;color:var(--soft);vertical-align:bottom}th:first-child,td:first-child{text-align:left;"
    "padding-left:0}tbody th{color:var(--ink);font-weight:500}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,32rem),1fr));gap:1.2rem}\n"
    "figure{margin:0;padding:.9rem 1rem .6rem;background:var(--card);border:1px solid "
    "var(--line);border-radius:8px;min-width:0}figure svg.plot,figure>svg{display:block;width:100%;height:auto}\n"
    ".key{display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:.2rem 0 .3rem;padding:0;list-style:none;font-size:.85rem;"
    "color:var(--soft)}.key li{display:flex;align-items:center;gap:.4rem;overflow-wrap:anywhere}.key "
    "svg{width:26px;height:10px;flex:none}\n"
    "code,pre{font:.85rem/1.45 ui-monospace,'DejaVu Sans Mono',monospace}pre{overflow-x:auto;background:var(--card);"
    "border:1px solid var(--line);border-radius:8px;padding:.7rem .9rem;margin:.4rem 0}\n";

void report_begin(text *out, const char *title) {
  text_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                 "content=\"width=device-width, initial-scale=1\">\n<title>");
  report_put(out, title);
  text_puts(out, "</title>\n<style>\n");
  text_puts(out, style);
  text_puts(out, "</style>\n</head>\n<body>\n<h1>");
  report_put(out, title);
  text_puts(out, "</h1>\n");
}

void report_end(text *out) { text_puts(out, "</body>\n</html>\n"); }

/* rgb(1, 2, 3), "#010203", becomes the colour of the page's text. */
void report_chart_begin(gnuplot *g, const char *x_axis, const char *y_axis, bool log_y) {
  text *s = &g->script;
  text_printf(s, "reset\nset terminal svg size 600,320 dynamic noenhanced font 'sans-serif,16' name 'plot'\n");
  text_printf(s, "set output 'chart-%zu.svg'\n", g->charts++);
  text_puts(s, "unset key\nset border 3 lc rgb '#010203' lw 0.6\nset tics nomirror textcolor rgb '#010203' scale 0.5\n"
               "set grid ytics lc rgb '#010203' lw 0.12 dt 1\nset tmargin 0.8\nset rmargin 2.5\n"
               "set style fill transparent solid 0.2 noborder\nset format x \"%.0s%c\"\n");
  text_printf(s, "set xlabel \"%s\" textcolor rgb '#010203' offset 0,0.3\nset ylabel \"%s\" textcolor rgb '#010203'\n",
              x_axis, y_axis);
  if (log_y) text_puts(s, "set logscale y\nset format y \"%g\"\n");
}

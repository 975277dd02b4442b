#!/bin/sh
# diagnostics_doc.sh - prints docs/diagnostics.md, made from compiler/diag/diag.def.
set -eu
cat <<'TEXT'
# Diagnostics

Every message of the compiler has a number that never changes; `--json` prints it as `code`. This page is made from `compiler/diag/diag.def` by
`tests/lint/diagnostics_doc.sh`. Numbers: 100-199 the language, 200-299 the IR, 300-399 passes, 400-499 formats, 500-599 schedule and emission,
600-699 the program.

| number | severity | name | what is wrong |
|---|---|---|---|
TEXT
LC_ALL=C awk -F'"' '/^DIAG\(/ {
  split($1, part, /[(, ]+/)
  title = $2
  for (i = 3; i < NF; i++) title = title "\"" $i
  gsub(/\\"/, "\"", title); gsub(/\|/, "\\|", title)
  printf "%d\t| %d | %s | %s | %s |\n", part[3], part[3], tolower(substr(part[4], 6)), tolower(part[2]), title
}' compiler/diag/diag.def | LC_ALL=C sort -n | cut -f2-

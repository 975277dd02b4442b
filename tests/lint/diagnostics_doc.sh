#!/bin/sh
# diagnostics_doc.sh - prints docs/diagnostics.md, made from compiler/diag/diag.def.
set -eu
cat <<'TEXT'
# Diagnostics

Every message of the compiler has a number that never changes; `--json` prints it as `code`. This page is made from `compiler/diag/diag.def` by
`tests/lint/diagnostics_doc.sh`. Numbers: 100-199 the language, 200-299 the IR, 300-399 passes, 400-499 formats, 500-599 schedule and emission,
600-699 the program.

| number | severity | name | what is wrong | what to do, where the message does not say it |
|---|---|---|---|---|
TEXT
LC_ALL=C awk '/^DIAG\(/ {
  line = $0
  split(line, part, /[(, ]+/)
  sub(/^[^"]*"/, "", line); sub(/"?\)$/, "", line)
  at = match(line, /", ("|NULL)/)
  title = substr(line, 1, at - 1); remedy = substr(line, at + 3)
  if (remedy == "NULL") remedy = ""; else remedy = substr(remedy, 2)
  gsub(/\\"/, "\"", title); gsub(/\|/, "\\|", title); gsub(/\\"/, "\"", remedy); gsub(/\|/, "\\|", remedy)
  printf "%d\t| %d | %s | %s | %s | %s |\n", part[3], part[3], tolower(substr(part[4], 6)), tolower(part[2]), title, remedy
}' compiler/diag/diag.def | LC_ALL=C sort -n | cut -f2-

#!/bin/sh
# lint.sh BUILD - every static check; prints what is wrong and fails at the end.
# TIDY_NODES: how far the analyzer of clang-tidy goes into a function, in states (225000 is its own limit, which check-long uses: 2.6 times the time).
set -u
TIDY_NODES=${TIDY_NODES:-60000}
export TIDY_NODES
B=${1:-build/release}
bad=0
step() { start=$(date +%s); name=$1; shift; if "$@"; then r=ok; else r=FAILED; bad=1; fi; printf 'lint %-20s %-6s %4d s\n' "$name" "$r" $(($(date +%s) - start)); }

format() { git ls-files '*.c' '*.h' '*.cpp' | grep -v '^templates/' | xargs clang-format-14 --dry-run -Werror 2>&1 | grep -A3 'error:' | head -40 | { ! grep .; }; }
structure() { /usr/bin/python3 tests/lint/structure.py; }
diagnostics() { sh tests/lint/diagnostics_doc.sh | diff -u docs/diagnostics.md - ; }
static_checks() { cppcheck -q -j2 --std=c11 --error-exitcode=1 --inline-suppr --suppressions-list=tests/lint/cppcheck.txt -I. -I"$B" -D_GNU_SOURCE -DTAPER_VERSION_TEXT='""' \
  --enable=warning,performance,portability compiler runtime cuda examples; }
tidy() { git ls-files 'compiler/*.c' 'runtime/*.c' 'cuda/*.c' | xargs -P2 -n6 sh -c 'clang-tidy-14 --quiet --warnings-as-errors="*" "$@" -- -std=c11 -D_GNU_SOURCE -DTAPER_VERSION_TEXT="\"\"" -I. -I"$0" -Xclang -analyzer-config -Xclang max-nodes="$TIDY_NODES" 2>/dev/null' "$B" | grep -E "error:|warning:" | sort -u | head -60 | { ! grep .; }; }
clang_build() { make -s -j2 VARIANT=clang CFLAGS=-Werror all 2>&1 | tail -30 | { ! grep -E 'warning|error'; }; }
gcc_build() { make -s -j2 CFLAGS= all 2>&1 | { ! grep -E 'warning:'; }; }
# the rooms are archives: of two functions of one name the linker would silently take the first
one_name() { nm -A --defined-only -g "$B"/lib*.a 2>/dev/null | awk '$2 ~ /^[A-TV-Z]$/ {print $3 ": two functions or objects of this name"}' | sort | uniq -d | { ! grep .; }; }

make -s -j2 "$B/grammar/tmodel.tab.h" "$B/grammar/tmodel.lex.h" >/dev/null
step structure structure
step diagnostics diagnostics
step format format
step gcc gcc_build
step 'one name' one_name
step clang clang_build
step cppcheck static_checks
step clang-tidy tidy
exit $bad

#!/bin/sh
# Prints a C source that holds the named files as strings: const struct embedded_file { const char *name, *text; } embedded_files[].
set -eu
echo '/* made by embed.sh */'
echo 'struct embedded_file { const char *name, *text; };'
echo 'extern const struct embedded_file embedded_files[];'
echo 'const struct embedded_file embedded_files[] = {'
for f; do
  printf '{"%s",\n' "$f"
  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$/\\n"/' "$f"
  echo '},'
done
echo '{0, 0}};'

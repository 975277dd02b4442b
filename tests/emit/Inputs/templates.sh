#!/bin/sh
# templates.sh ROOT TEMPORARY - compiles each template alone; compares its parameters with params.def.
set -eu
for f in rows linear segment attention; do
  for m in x86-64 x86-64-v3 x86-64-v4; do
    for c in gcc clang; do
      $c -std=gnu11 -O1 -Wall -Wextra -Werror -Wno-pass-failed -DSTAGE= -march=$m -ffreestanding -fno-builtin -fno-math-errno \
        -fno-stack-protector "-I$1" -c -o "$2.o" "$1/templates/cpu/$f.c"
    done
  done
done
for f in "$1"/templates/cpu/train/*.h; do
  for m in x86-64 x86-64-v3 x86-64-v4; do
    for c in gcc clang; do
      $c -std=gnu11 -O1 -Wall -Wextra -Werror -Wno-pass-failed -march=$m -ffreestanding -fno-builtin -fno-math-errno \
        -fno-stack-protector "-I$1" -x c -c -o "$2.o" "$f"
    done
  done
done
grep -ohw 'P_[A-Z_]*' "$1"/templates/cpu/*.c "$1"/templates/cuda/*.cu | sort -u > "$2.used"
sed -n 's/^PARAM(\(P_[A-Z_]*\),.*/\1/p' "$1/templates/params.def" | sort -u > "$2.listed"
diff "$2.used" "$2.listed"
# every row-wise op of inference has a kernel; these are arguments or other names of the same floats
for op in $(sed -n '/OPF_TRAIN/d; s/^OP(\([A-Z_]*\), .*OPF_ROWWISE.*/\1/p' "$1/compiler/ir/op.def"); do
  case $op in POSITIONS | SPLIT_HEADS | MERGE_HEADS | CAST) continue ;; esac
  grep -q "^KERNEL($op, " "$1/templates/kernels.def" || { echo "templates/kernels.def: no line for $op"; exit 1; }
done

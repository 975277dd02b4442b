#!/bin/sh
# Pre-trains a small byte-level GPT-2 form with its norms, fine-tunes it to norm-free (TaperLN), and compares: gpt2-finetune.sh [OUT [TAPERC [TEXT [THREADS]]]]
# README.md has the result. The control is fine-tuned as long with its norms kept.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-runs/gpt2-small}
taperc=${2:-taperc}
text=${3:-$here/../data/kjv.txt}
threads=${4:-2}
model=$here/gpt2-small.tmodel
mkdir -p "$out"
[ -d "$out/pretrained" ] || "$taperc" train "$model" --data "$text" --variant baseline --steps 2000 --lr 3e-3 --warmup 100 -o "$out/pretrained" -t "$threads"
[ -d "$out/control" ] || "$taperc" train "$model" --data "$text" --init "$out/pretrained" --variant baseline -o "$out/control" -t "$threads"
[ -d "$out/norm-free" ] || "$taperc" train "$model" --data "$text" --init "$out/pretrained" -o "$out/norm-free" -t "$threads"
# the held-out part: the last 5 % (bytes are ids here)
all=$(wc -c < "$text")
tail -c $((all - all * 95 / 100)) "$text" > "$out/held-out.txt"
for run in pretrained control norm-free; do
  printf '%-11s ' "$run"
  "$taperc" eval "$out/$run" --data "$out/held-out.txt" -t "$threads" --json
done

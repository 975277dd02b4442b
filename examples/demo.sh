#!/bin/sh
# demo.sh BUILD - the main job on real text: a small model trained while its norms are tapered away, folded, compared, timed, heard;
# then what rare tokens do to a norm-free model, and what mends it.
set -eu
export LC_ALL=C
B=${1:-build/release}
T=$B/taperc
W=$B/demo
STEPS=${DEMO_STEPS:-1500}
rm -rf "$W"
mkdir -p "$W"
json() { sed -n 's/.*"'"$1"'": *\(-\{0,1\}[0-9.e+-]*\).*/\1/p' | head -1; }
median() { sed -n 's/.*"'"$1"'": *{[^}]*"median": *\([0-9.e+-]*\).*/\1/p' | head -1; }

M=examples/models/kjv-all/model.tmodel
tail -c 206893 examples/data/kjv.txt | head -c 206849 > "$W/validation.txt"
head -c 793107 examples/data/kjv.txt > "$W/train.txt" # what stands before the held-out text
head -c 40961 "$W/validation.txt" > "$W/held-out.txt"
START=$((STEPS / 20))
echo "== Training $M (byte tokens, 4 layers, 218,240 parameters, all norms tapered, scale anchor) on the King James text: $STEPS steps;"
echo "   every gate is 1 up to step $START, falls as a cosine, and is 0 at the end. (gcc makes the training program first: some seconds.)"
"$T" train "$M" --data "$W/train.txt" --val "$W/held-out.txt" --steps "$STEPS" --eval-every "$START" --keep 1 -t 2 -o "$W/run" > "$W/result.txt"
line() { sed -n 's/^{"step": '"$1"',.*"'"$2"'": *\([0-9.e+-]*\).*/\1/p' "$W/run/metrics.jsonl" | head -1; }
printf '   trained %.0f tokens/s in the last step, gates 0\n' "$(line "$STEPS" tokens_per_s)"
C=$W/run/checkpoint-$STEPS

echo "== Held-out loss (nats per byte, $W/held-out.txt):"
printf '   at taper start (step %s, all norms live)   %.4f\n' "$START" "$(line "$START" val_ce)"
printf '   at the end, gates 0 (training program)      %.4f\n' "$(line "$STEPS" val_ce_g0)"
"$T" compile "$C" -Rpass=fold-scale -Rpass=fuse-final-scale -o "$W/folded.tpack" 2> "$W/remarks" || { cat "$W/remarks" >&2; exit 1; }
printf '   folded (decode program, no norm left)       %.4f\n' "$("$T" eval "$W/folded.tpack" --data "$W/held-out.txt" --json | json ce)"
echo "   $(grep -c 'remark: fold-scale: .* into ' "$W/remarks" || true) norms were folded into their neighbours, the last into the head's input"

echo "== Largest difference of logits, folded against as written:"
"$T" compile "$C" --fold=none -o "$W/written.tpack" 2> /dev/null
head -c 1025 "$W/validation.txt" > "$W/check.txt"
"$T" check "$W/folded.tpack" "$W/written.tpack" --data "$W/check.txt" --json > "$W/check.json"
printf '   max_abs %.2e   max_rel %.2e   over 1024 positions\n' "$(json max_abs < "$W/check.json")" "$(json max_rel < "$W/check.json")"

echo "== Decoding, tokens/s (median of 3 interleaved rounds, 2 threads): folded, and the same model with live norms (gates forced to 1)."
echo "   Norms are never kernels of their own here, live ones neither, so at this size the rows differ by little more than the noise: docs/performance.md."
"$T" compile "$C" --gate internal=1 --gate final=1 -o "$W/live.tpack" 2> /dev/null
for round in 1 2 3; do
  for kind in live folded; do
    "$T" bench "$W/$kind.tpack" -p 16 -n 96 -r 9 -t 2 --json | median decode_tok_s >> "$W/speed.$kind"
  done
done
for kind in live folded; do
  printf '   %-9s %8.0f\n' "$kind" "$(sort -g "$W/speed.$kind" | sed -n 2p)"
done

echo "== A passage, streamed from the folded model (temperature 0.7, seed 7):"
echo
printf 'And God said, Let '
"$T" run "$W/folded.tpack" --prompt 'And God said, Let ' -n 108 --temp 0.7 --seed 7
echo
echo

K=examples/models/kjv-all
echo "== What removal costs: $K, trained by an independent PyTorch program, met a 'Q' three times in 3.9 million bytes. Its loss on 1,616 windows:"
printf '   folded                        %.4f   (two windows hold a Q)\n' "$("$T" eval "$K" --data "$W/validation.txt" --json | json ce)"
"$T" scan "$K" --data "$W/train.txt" --stress --json > "$W/stress.json"
k=$(sed 's/"tries".*//' "$W/stress.json" | json clamp_rows)
echo "   taperc scan --stress puts every id behind typical contexts and advises --clamp-rows=$k:"
printf '   folded, rows clamped          %.4f\n' "$("$T" eval "$K" --data "$W/validation.txt" --clamp-rows="$k" --json | json ce)"
echo "   The model trained above, by the same test: $(sed -n 's/.*stress verdict: //p' "$W/run/log.txt" | tail -1)"

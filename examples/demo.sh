#!/bin/sh
# demo.sh BUILD - the main job on real text: a trained norm-free model folded, compared with its reference, timed, and heard.
set -eu
export LC_ALL=C
B=${1:-build/release}
T=$B/taperc
M=examples/models/kjv-all
W=$B/demo
mkdir -p "$W"
json() { sed -n 's/.*"'"$1"'": *\(-\{0,1\}[0-9.e+-]*\).*/\1/p' | head -1; }
median() { sed -n 's/.*"'"$1"'": *{[^}]*"median": *\([0-9.e+-]*\).*/\1/p' | head -1; }

echo "== The model: $M (King James text, byte tokens, 4 layers, all norms tapered away: every gate is 0)"
echo "== Compiling it; what the compiler did with each norm:"
"$T" compile "$M" -Rpass=detect-taper -Rpass=fold-scale -Rpass=fuse-final-scale -o "$W/folded.tpack" 2>"$W/remarks" || { cat "$W/remarks" >&2; exit 1; }
grep -E 'remark: (fold-scale|fuse-final-scale)' "$W/remarks" | sed -e "s|^$M/||" -e 's/^/   /' | head -6
n=$(grep -c 'remark: fold-scale' "$W/remarks" || true)
[ "$n" -gt 5 ] && echo "   ... ($n norms folded into their neighbours in all)"

echo "== Validation loss (nats per byte over 1616 windows) with the norms as written, explicit and folded; the reference is an independent PyTorch program:"
tail -c 206893 examples/data/kjv.txt | head -c 206849 > "$W/validation.txt"
printf '   reference   %.6f\n' "$(json val_ce_mean_nats_per_byte < $M/reference.json)"
for fold in none explicit full; do
  printf '   %-11s %.6f\n' "$(case $fold in none) echo 'as written';; full) echo folded;; *) echo $fold;; esac)" \
    "$("$T" eval "$M" --data "$W/validation.txt" --fold=$fold --json | json ce)"
done

echo "== Largest difference of logits, folded against as written:"
"$T" compile "$M" --fold=none -o "$W/written.tpack" 2>/dev/null
head -c 1025 "$W/validation.txt" > "$W/check.txt"
"$T" check "$W/folded.tpack" "$W/written.tpack" --data "$W/check.txt" --json > "$W/check.json"
printf '   max_abs %.2e   max_rel %.2e   over 1024 positions\n' "$(json max_abs < "$W/check.json")" "$(json max_rel < "$W/check.json")"

echo "== Decoding, tokens/s (median of 5 interleaved rounds, 2 threads): as written, explicit, folded, and the same model with live norms (gates forced to 1)."
echo "   Norms are never kernels of their own here, live ones neither, so at this size the rows differ by little more than the noise: docs/performance.md."
"$T" compile "$M" --fold=explicit -o "$W/explicit.tpack" 2>/dev/null
"$T" compile "$M" --gate internal=1 --gate final=1 -o "$W/live.tpack" 2>/dev/null
for round in 1 2 3 4 5; do
  for kind in written explicit folded live; do
    "$T" bench "$W/$kind.tpack" -p 16 -n 96 -r 9 -t 2 --json | median decode_tok_s >> "$W/speed.$kind.$$"
  done
done
for kind in written explicit folded live; do
  printf '   %-9s %8.0f\n' "$kind" "$(sort -g "$W/speed.$kind.$$" | sed -n 3p)"
done
rm -f "$W"/speed.*

echo "== A passage, streamed from the folded model (temperature 0.7, seed 7):"
echo
printf 'And God said, Let '
"$T" run "$W/folded.tpack" --prompt 'And God said, Let ' -n 108 --temp 0.7 --seed 7
echo

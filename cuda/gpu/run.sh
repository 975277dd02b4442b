#!/bin/sh
# run.sh OUT [--dry]: everything that is measured and tested on a machine with an NVIDIA GPU, in ten minutes. OUT gets 8 small files; a
# step that fails, or is cut off at its limit, stops no other one. Needs the driver and python3; NVRTC, compute-sanitizer and PyTorch are
# used where they are. --dry: the same steps, shortened, on the simulator: it tests this script, its figures mean nothing.
# Variables: TAPER_GPU (cuda, cuda:1, ...), TAPER_GPU_SECONDS (590), PYTHON (python3).
# Exit: 0 every step passed or had a reason to be skipped, 1 one failed, 2 usage.
set -u
out= dry=
usage() { echo "run.sh: error: $1; usage: run.sh OUT [--dry]" >&2; exit 2; }
for word in "$@"; do
  case $word in
    --dry) dry=--dry ;;
    -*) usage "unknown option '$word'" ;;
    *) [ -z "$out" ] || usage "more than one folder"; out=$word ;;
  esac
done
[ -n "$out" ] || usage "no folder for the results"
here=$(cd "$(dirname "$0")" && pwd) || exit 2
mkdir -p "$out" && out=$(cd "$out" && pwd) || usage "'$out' cannot be made"
device=${TAPER_GPU:-cuda}
budget=${TAPER_GPU_SECONDS:-590}
python=${PYTHON:-python3}
[ -z "$dry" ] || device=sim
work=$(mktemp -d "${TMPDIR:-/tmp}/taper-gpu.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir "$work/models"
for packed in "$here"/models/*.gz; do
  name=${packed##*/}
  gzip -dc "$packed" > "$work/models/${name%.gz}" || echo "run.sh: $packed cannot be unpacked" >&2
done
export here device dry work python
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TAPER_DEVICE="$device" TAPER_TEST_DEVICE="${device%%:*}" \
  TAPER_CACHE_DIR="$work/cache" PYTHONDONTWRITEBYTECODE=1
unset TAPER_TEST_PACKAGES
began=$(date +%s)
log=$out/commands.txt
failed=0
{ echo "# begun $(date -u '+%Y-%m-%d %H:%M:%S') UTC; device $device, $budget s${dry:+, dry}"; cat "$here/version.txt"; } > "$log"

# step NAME SECONDS FILE COMMAND...: its stdout is the result, stderr's end goes to commands.txt. Exit 77 of a command: skipped, it says why.
step() {
  name=$1 limit=$2 file=$3
  shift 3
  start=$(date +%s)
  left=$((began + budget - start))
  [ "$limit" -le "$left" ] || limit=$left
  printf '\n$ %s\n' "$*" | sed "s|$work|WORK|g; s|$here|BUNDLE|g" >> "$log"
  if [ "$limit" -lt 2 ]; then
    echo "# $name: skipped, $left s are left" | tee -a "$log"
    failed=1
    return
  fi
  STEP_SECONDS=$((limit > 20 ? limit - 10 : limit / 2)) timeout -k 5 "$limit" "$@" > "$work/stdout" 2> "$work/stderr" < /dev/null
  status=$?
  head -c 200000 "$work/stdout" > "$out/$file"
  tail -c 20000 "$work/stderr" | sed "s|$work|WORK|g; s|$here|BUNDLE|g" >> "$log"
  case $status in
    0) word=passed ;;
    77) word="skipped: $(tail -n 1 "$out/$file")" ;;
    124 | 137) word="cut off after $limit s" failed=1 ;;
    *) word="failed, exit $status" failed=1 ;;
  esac
  echo "# $name: $word, $(($(date +%s) - start)) s" | tee -a "$log"
}

step environment 30 environment.txt sh "$here/steps.sh" environment
step conformance 90 conformance.txt sh "$here/steps.sh" conformance
step numerics 60 numerics.json "$python" "$here/numerics.py"
step calibration 60 calibration.json "$here/bin/gpu-calibrate" --device "$device" --images "$here/images" --source "$here/images/calibrate.cu" --rounds "$([ -n "$dry" ] && echo 1 || echo 9)" --seconds 40
step decode 200 decode.jsonl "$python" "$here/decode.py"
step baselines 110 baselines.jsonl "$python" "$here/baseline.py"
step sanitizer 60 sanitizer.txt sh "$here/steps.sh" sanitizer
echo "# all: $([ $failed = 0 ] && echo passed || echo 'not all steps passed'), $(($(date +%s) - began)) s" | tee -a "$log"
exit $failed

#!/bin/sh
# steps.sh NAME: the steps of run.sh that are shell; run.sh sets here, device, dry, work, python. Exit 77: skipped, the last line says why.
set -u

environment() {
  date -u
  uname -srm
  sed -n 's/^model name[^:]*: /cpu: /p' /proc/cpuinfo | sort | uniq -c
  if command -v nvidia-smi; then
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit,persistence_mode,mig.mode.current --format=csv
    nvidia-smi | head -n 20
  fi
  "$here/bin/taperc" --version || return
  "$here/bin/taperc" doctor --json || return
  for tool in nvcc compute-sanitizer "$python"; do
    command -v "$tool" && "$tool" --version | tail -n 1
  done
  "$python" -c 'import torch; print("torch", torch.__version__, torch.version.cuda, torch.cuda.is_available())' 2>&1 | tail -n 1
  return 0
}

conformance() {
  bad=0
  if [ -n "$dry" ]; then set -- one_position-f32; else set -- $(cat "$here/conformance.list"); fi
  for model in "$@"; do
    echo "\$ test_device $model.tpack"
    timeout 60 "$here/bin/test_device" "$work/models/$model.tpack" 2>&1 || { bad=1; echo "[  FAILED  ] $model: exit or time limit"; }
  done
  return $bad
}

sanitizer() {
  command -v compute-sanitizer > "$work/which" || { echo "compute-sanitizer is not there"; return 77; }
  [ "$device" != sim ] || { echo "the simulator has checks of its own"; return 77; }
  bad=0
  for tool in memcheck racecheck initcheck synccheck; do
    echo "\$ compute-sanitizer --tool $tool taperc run dims20-f32.tpack"
    timeout 25 compute-sanitizer --tool "$tool" --error-exitcode 9 "$here/bin/taperc" run "$work/models/dims20-f32.tpack" --tokens 1,2,3 -n 6 --temp 0 --print-tokens --no-graph > "$work/sanitizer" 2>&1
    status=$?
    tail -n 25 "$work/sanitizer"
    echo "exit $status"
    [ $status = 0 ] || bad=1
  done
  return $bad
}

case ${1:-} in
  environment | conformance | sanitizer) "$1" ;;
  *) echo "steps.sh: error: no step '${1:-}'" >&2; exit 2 ;;
esac

#!/bin/sh
# Installs what a part needs, once: `setup.sh build`, `setup.sh check`. Debian packages by apt (as root or with sudo); Python oracles
# from PyPI into build/venv. Everything afterwards works offline. Nothing is done when all is there already.
set -eu
part=${1:-build}
build='gcc make flex bison libjansson-dev uthash-dev libxxhash-dev libc6-dev scdoc gnuplot-nox'
check="$build ca-certificates g++ clang-14 clang libclang-rt-14-dev clang-format-14 clang-tidy-14 cppcheck llvm-14-tools python3-psutil libcmocka-dev libdnnl2 python3-venv graphviz gcovr pkg-config locales-all"
case $part in
  build) want=$build ;;
  check) want=$check ;;
  *) echo "setup.sh: unknown part '$part'; give build or check" >&2; exit 2 ;;
esac
missing=
for p in $want; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
if [ -n "$missing" ]; then
  if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
  echo "setup: installing$missing" >&2
  $sudo apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >&2
fi
[ "$part" = check ] || exit 0
venv=build/venv
if ! "$venv/bin/python" -c 'import numpy, safetensors' 2>/dev/null; then
  mkdir -p build
  /usr/bin/python3 -m venv "$venv" >&2 &&
    "$venv/bin/pip" -q --disable-pip-version-check install 'numpy==2.3.*' 'safetensors==0.6.*' >&2 ||
    echo "setup: PyPI was not reached: test groups that need NumPy will be skipped" >&2
fi

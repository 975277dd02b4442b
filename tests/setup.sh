#!/bin/sh
# Installs what a part needs, once: `setup.sh build`, `setup.sh check`. Debian packages by apt (as root or with sudo); Python oracles
# from PyPI into build/venv. Everything afterwards works offline. Nothing is done when all is there already.
set -eu
part=${1:-build}
build='gcc make flex bison libjansson-dev uthash-dev libxxhash-dev libc6-dev scdoc gnuplot-nox'
check="$build ca-certificates g++ clang-14 clang libclang-rt-14-dev clang-format-14 clang-tidy-14 cppcheck llvm-14-tools python3-psutil libcmocka-dev libdnnl2 python3-venv graphviz gcovr pkg-config locales-all sentencepiece"
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
if ! "$venv/bin/python" -c 'import numpy, safetensors, sentencepiece' 2>/dev/null; then
  mkdir -p build
  { [ -x "$venv/bin/pip" ] || /usr/bin/python3 -m venv "$venv" >&2; } &&
    "$venv/bin/pip" -q --disable-pip-version-check install 'numpy==2.3.*' 'safetensors==0.6.*' 'sentencepiece==0.2.3' >&2 ||
    echo "setup: PyPI was not reached: test groups that need NumPy will be skipped" >&2
fi
# the compilers of the CUDA target, of two generations: libraries, never imported
nvrtc13=$(ls "$venv"/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13 2>/dev/null || :)
nvrtc12=$(ls "$venv"/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12 2>/dev/null || :)
if { [ -z "$nvrtc13" ] || [ -z "$nvrtc12" ]; } && [ -x "$venv/bin/pip" ] && [ "$(uname -m)" = x86_64 ]; then
  "$venv/bin/pip" -q --disable-pip-version-check install --no-deps --only-binary :all: 'nvidia-cuda-nvrtc==13.5.*' 'nvidia-cuda-nvrtc-cu12==12.9.*' >&2 ||
    echo "setup: PyPI was not reached: the CUDA target will be tested with what NVRTC is there, if any" >&2
fi
# a real vocabulary: unpacked, never imported
vocabulary=build/oracles/mistral.model.v1
if [ ! -e "$vocabulary" ] && [ -x "$venv/bin/pip" ]; then
  mkdir -p build/oracles
  echo 'mistral-common==1.12.0 --hash=sha256:fa4504b66c30c0201ae4578c0340c5ee2abd22151c271532f62e373b985a53cf' > build/oracles/mistral.txt
  "$venv/bin/pip" -q --disable-pip-version-check download --no-deps --only-binary :all: --require-hashes -r build/oracles/mistral.txt -d build/oracles >&2 &&
    "$venv/bin/python" -c "import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read('mistral_common/data/tokenizer.model.v1'))" \
      build/oracles/mistral_common-1.12.0-py3-none-any.whl > "$vocabulary.tmp" &&
    mv "$vocabulary.tmp" "$vocabulary" ||
    echo "setup: PyPI was not reached: one vocabulary will not be tested" >&2
fi

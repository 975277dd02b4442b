#!/usr/bin/python3
"""taperc doctor over libraries of CUDA that are absent, wrong, old, crash, or do not go together: it tells so, and never fails for it."""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

STUBS = os.path.join(cli.ROOT, "tests", "unit", "stubs")


def build(folder, name, sources, flags):
    path = os.path.join(folder, name)
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-I" + cli.ROOT, "-o", path] + flags + [os.path.join(STUBS, s) for s in sources], check=True)
    return path


def driver(folder, name, *flags):
    return build(folder, name, ["cuda_defaults.c", "cuda_stub.c"], list(flags))


def nvrtc(folder, name, *flags):
    return build(folder, name, ["nvrtc_stub.c"], list(flags))


def doctor(name, env, text, found):
    """found: {path in the JSON, with dots: a value, or a regular expression of it}"""
    cli.expect(name, ["doctor"], 0, "^$", re.compile(text.encode(), re.S | re.M), env=env)
    out, _ = cli.expect(name + ", JSON", ["doctor", "--json"], 0, "^$", env=env)
    for path, expected in found.items():
        value = json.loads(out)
        for key in path.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        fine = re.search(expected, value or "") if isinstance(expected, str) else value == expected
        cli.report("%s: %s" % (name, path), "" if fine else "%r, expected %r" % (value, expected))


def main():
    with tempfile.TemporaryDirectory() as folder:
        base = {"TAPER_CACHE_DIR": os.path.join(folder, "cache"), "TAPER_LIBCUBLAS": "/no/libcublas.so"}
        good_nvrtc, good_driver = nvrtc(folder, "nvrtc.so"), driver(folder, "cuda.so")
        no_gpu = dict(base, TAPER_LIBCUDA="/no/libcuda.so", TAPER_LIBNVRTC=good_nvrtc)
        doctor("no driver", no_gpu, r"^NVIDIA driver +cannot open .*TAPER_LIBCUDA: /no/libcuda.so.*; install the NVIDIA driver.*^cuBLAS +cannot open.*/no/libcublas.so",
               {"cuda.library": None, "cuda.devices": [], "cuda.problem": "/no/libcuda.so", "nvrtc.version": r"^12\.4$", "nvrtc.archs": ["sm_80", "sm_90"], "nvrtc.problem": None,
                "cublas.problem": "--gemm=generated", "versions": [], "ok": True, "devices.0": "cpu"})
        doctor("a driver that is no library", dict(no_gpu, TAPER_LIBCUDA=os.path.join(cli.ROOT, "README.md")), r"^NVIDIA driver +cannot open .*README.md", {"cuda.problem": "README.md"})
        doctor("a driver of another kind", dict(no_gpu, TAPER_LIBCUDA=good_nvrtc), r"has no 'cuInit', so it is no libcuda", {"cuda.problem": "no libcuda"})
        doctor("an old driver", dict(no_gpu, TAPER_LIBCUDA=driver(folder, "old.so", "-DcuGraphInstantiateWithFlags=cuOther", "-DSTUB_VERSION=11020")),
               r"a driver of CUDA 11\.2 is too old: .*; install one of CUDA 11\.4", {"cuda.problem": r"11\.2 is too old"})
        doctor("a driver without a device", dict(no_gpu, TAPER_LIBCUDA=driver(folder, "none.so", "-DSTUB_INIT=return 100;")), r"\(CUDA 13\.0\) finds no device: cuInit: CUDA_ERROR_NO_DEVICE",
               {"cuda.problem": "nvidia-smi", "cuda.devices": []})
        doctor("a driver that crashes", dict(no_gpu, TAPER_LIBCUDA=driver(folder, "crash.so", '-DSTUB_INIT=fputs("oh\\n", stderr); raise(SIGKILL);')),
               r"^NVIDIA driver +the NVIDIA driver died of signal 9 \(SIGKILL\) while it was opened: oh; ", {"cuda.problem": "SIGKILL"})
        simulated = os.path.join(os.path.dirname(cli.TAPERC), "libtaper-sim.so")
        doctor("the simulator as the driver, of an age", dict(base, TAPER_LIBCUDA=simulated, TAPER_LIBNVRTC=nvrtc(folder, "nvrtc.so"), TAPER_SIM_DRIVER="12010"), r"^NVIDIA driver +\S+libtaper-sim\.so, CUDA 12\.1\n", {"cuda.version": r"^12\.1$"})
        both = dict(base, TAPER_LIBCUDA=good_driver, TAPER_LIBNVRTC=good_nvrtc)
        doctor("a GPU", both, r"^NVIDIA driver +\S+cuda\.so, CUDA 13\.0\nGPU 0 +Stub GPU 0, sm_90, 132 multiprocessors, 81920 MiB\n",
               {"cuda.version": r"^13\.0$", "cuda.devices.0.name": "Stub GPU 0", "cuda.devices.0.arch": "^sm_90$", "cuda.devices.0.memory_bytes": 80 << 30, "cuda.problem": None, "versions": []})
        doctor("NVRTC absent", dict(both, TAPER_LIBNVRTC="/no/libnvrtc.so"), r"^NVRTC +cannot open .*/no/libnvrtc.so.*pip install nvidia-cuda-nvrtc",
               {"nvrtc.library": None, "nvrtc.archs": [], "nvrtc.problem": "/no/libnvrtc.so", "versions": []})
        doctor("NVRTC that is no library", dict(both, TAPER_LIBNVRTC="/etc/passwd"), r"^NVRTC +cannot open", {"nvrtc.problem": "/etc/passwd"})
        doctor("NVRTC of another kind", dict(both, TAPER_LIBNVRTC=good_driver), r"so it is no NVRTC", {"nvrtc.problem": "no NVRTC"})
        doctor("an old NVRTC", dict(both, TAPER_LIBNVRTC=nvrtc(folder, "n-old.so", "-DnvrtcGetCUBIN=nvrtcOther", "-DSTUB_MAJOR=10", "-DSTUB_MINOR=2")), r"NVRTC 10\.2 .* is too old: ", {"nvrtc.problem": "too old"})
        doctor("NVRTC that crashes", dict(both, TAPER_LIBNVRTC=nvrtc(folder, "n-crash.so", "-DSTUB_MAJOR=(raise(SIGKILL), 1)")), r"^NVRTC +NVRTC \(\S+n-crash\.so\) died of signal 9", {"nvrtc.problem": "SIGKILL"})
        # the triangle of versions
        doctor("a GPU newer than NVRTC", dict(both, TAPER_LIBCUDA=driver(folder, "gpu130.so", "-DSTUB_SM=130")), r"^versions +GPU 0 \(sm_130\) is newer than NVRTC 12\.4, which compiles up to sm_90: .*PTX",
               {"cuda.devices.0.arch": "^sm_130$", "versions.0": "newer than NVRTC", "ok": True})
        doctor("a GPU between", dict(both, TAPER_LIBCUDA=driver(folder, "gpu89.so", "-DSTUB_SM=89")), r"^versions +GPU 0 \(sm_89\) is not among", {"versions.0": "sm_89"})
        doctor("a GPU that is too old", dict(both, TAPER_LIBCUDA=driver(folder, "gpu75.so", "-DSTUB_SM=75")), r"^versions +GPU 0 \(sm_75\) is older than what the kernels need \(sm_80\)", {"versions.0": "sm_75"})
        doctor("NVRTC newer than the driver", dict(both, TAPER_LIBCUDA=driver(folder, "d122.so", "-DSTUB_VERSION=12020")),
               r"^versions +NVRTC 12\.4 is newer than the driver \(CUDA 12\.2\), which refuses its PTX; install a driver of CUDA 12\.4 or newer.*--arch of this GPU", {"versions.0": "12.4 or newer"})
        doctor("NVRTC of a newer kind", dict(both, TAPER_LIBCUDA=driver(folder, "d118.so", "-DSTUB_VERSION=11080")), r"may refuse its images", {"versions.0": "an NVRTC of 11.8 or older"})
        doctor("a simulator that is not there", dict(no_gpu, TAPER_LIBSIM="/no/sim.so"), r"^simulator +cannot open .*/no/sim.so", {"simulator.problem": "/no/sim.so", "devices": ["cpu"]})
    sys.exit(1 if cli.failed else 0)


main()

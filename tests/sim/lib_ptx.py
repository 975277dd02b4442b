#!/usr/bin/python3
"""lib_ptx.py [--nvrtc=LIBRARY] [--arch=compute_90] [--out=tests/sim] [NAME...]: compiles tests/sim/NAME.cu (NAME.h, where there is one, stands
before it) to the PTX that the tests of the interpreter run; what stands in the sources' tree is made by NVRTC 13.0 for compute_90."""
import argparse
import ctypes
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ("faults", "flow", "gemv", "warp")


def source(name):
    header = os.path.join(HERE, name + ".h")
    text = "".join(open(p, encoding="utf-8").read() for p in (header, os.path.join(HERE, name + ".cu")) if os.path.exists(p))
    return text.encode()


def compile_ptx(nvrtc, name, arch):
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source(name), (name + ".cu").encode(), 0, None, None)
    options = [o.encode() for o in ("--gpu-architecture=" + arch, "--std=c++17", "--generate-line-info")]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    if status:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit("%s.cu: NVRTC %d: %s" % (name, status, log.value.decode()))
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.value.decode()


def plain(ptx):
    """Without the tables of debug information, and with no machine's folders in the names of files."""
    ptx = re.sub(r"^\s*\.section[^{]*\{.*?^\s*\}\n", "", ptx, flags=re.S | re.M)
    ptx = re.sub(r"function_name \$L__info_string\d+", "function_name $L__info", ptx)
    return re.sub(r'(\.file\s+\d+\s+)"(?:[^"]*/)?([^"/]+)".*', r'\1"\2"', ptx)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--nvrtc", default=os.environ.get("TAPER_LIBNVRTC", "libnvrtc.so"))
    a.add_argument("--arch", default="compute_90")
    a.add_argument("--out", default=HERE)
    a.add_argument("names", nargs="*", default=NAMES)
    o = a.parse_args()
    try:
        nvrtc = ctypes.CDLL(o.nvrtc)
    except OSError as e:
        sys.exit("no NVRTC: %s" % e)
    for name in o.names:
        with open(os.path.join(o.out, name + ".ptx"), "w", encoding="utf-8") as f:
            f.write(plain(compile_ptx(nvrtc, name, o.arch)))


main()

#!/usr/bin/python3
"""sim_alone.py BUILD - docs/sim.md's example of a kernel of one's own on the stand-in driver, as it stands there, and what else such a program meets."""
import ctypes
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1])
LIBRARY = os.path.join(BUILD, "libtaper-sim.so")
KERNEL = """.version 7.0
.target sm_80
.address_size 64
.visible .entry put(.param .u64 y) {
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [y];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}
"""


def check(name, good, why=""):
    print("ok " + name if good else "not ok %s: %s" % (name, str(why).strip().replace("\n", " | ")))
    return good


def loads():
    """Python cannot open a library of the sanitizers' build: their runtime must be there first."""
    p = run([sys.executable, "-c", "import ctypes; ctypes.CDLL(%r)" % LIBRARY], ROOT)
    if p.returncode and "ASan runtime" in p.stdout:
        print("skip a program of its own on the simulator: Python cannot open what the sanitizers were built into")
    return not (p.returncode and "ASan runtime" in p.stdout)


def example():
    """The example's two files, and what it prints."""
    with open(os.path.join(ROOT, "docs/sim.md"), encoding="utf-8") as f:
        part = f.read().split("### A kernel of one's own")[1]
    kernel = re.search(r"```cuda\n(.*?)```", part, re.S).group(1)
    program = re.search(r"```python\n(.*?)```", part, re.S).group(1)
    printed = re.search(r"```text\n(.*?)```", part, re.S).group(1)
    good = re.search(r"With `([^`]*)` it prints `(.*?)`", part)
    for name, code, want in (("the example prints what the page says", kernel, printed), ("and its right form", kernel.replace("i <= n", good.group(1)), good.group(2))):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "double.cu"), "w") as f:
                f.write(code)
            p = run([os.path.join(BUILD, "tests/unit/nvrtc_tool"), "double.cu", "compute_90", "image", "double.ptx", "log"], folder)
            if p.returncode:
                return print("skip a kernel of one's own: %s" % p.stdout.strip())
            p = run([sys.executable, "-c", program.replace("build/release", BUILD)], folder)
            got = re.sub(r"\S*\bmodel\.cu:", "double.cu:", p.stdout)  # the tool's name of the source
            plain = [re.sub(r"line \d+ of", "line N of", text).strip() for text in (got, want)]  # it depends on NVRTC
            check(name, plain[0] == plain[1], got)
    return None


def run(command, folder):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Program:
    """A context of the library, whose calls are checked by their results."""

    def __init__(self):
        self.cuda = ctypes.CDLL(LIBRARY)
        self.cuda.taper_sim_fault.restype = ctypes.c_char_p

    def __getattr__(self, name):
        return getattr(self.cuda, name)

    def fault(self):
        return self.cuda.taper_sim_fault().decode()


def plain_calls():
    p, context, other, module, put, y = Program(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    got = (ctypes.c_uint32 * 64)()
    check("no context: every call says so", p.cuInit(0) == 0 and p.cuMemAlloc_v2(ctypes.byref(y), ctypes.c_size_t(256)) == 201, p.fault())
    check("a context is made and is the current one", p.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0 and p.cuCtxGetCurrent(ctypes.byref(other)) == 0 and other.value == context.value, p.fault())
    check("none can be set, and the same again", p.cuCtxSetCurrent(None) == 0 and p.cuCtxSynchronize() == 201 and p.cuCtxSetCurrent(context) == 0 and p.cuCtxSynchronize() == 0, p.fault())
    check("a module comes from text", p.cuModuleLoadData(ctypes.byref(module), KERNEL.encode()) == 0 and p.cuModuleGetFunction(ctypes.byref(put), module, b"put") == 0, p.fault())
    check("a file that is not there", p.cuModuleLoad(ctypes.byref(module), b"/nowhere.ptx") == 301 and "No such file" in p.fault(), p.fault())
    with tempfile.NamedTemporaryFile(suffix=".ptx") as f:
        f.write(KERNEL.encode())
        f.flush()
        check("or from a file", p.cuModuleLoad(ctypes.byref(module), f.name.encode()) == 0, p.fault())
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(y))
    p.cuMemAlloc_v2(ctypes.byref(y), ctypes.c_size_t(256))
    check("memory that nobody wrote is not copied", p.cuMemcpyDtoH_v2(got, y, ctypes.c_size_t(256)) == 719 and "never written" in p.fault(), p.fault())
    check("that broke the context; a new one works", p.cuCtxSynchronize() == 719 and p.cuCtxDestroy_v2(context) == 0 and p.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0, p.fault())
    p.cuModuleLoadData(ctypes.byref(module), KERNEL.encode())
    p.cuModuleGetFunction(ctypes.byref(put), module, b"put")
    p.cuMemAlloc_v2(ctypes.byref(y), ctypes.c_size_t(256))
    check("copies wait for kernels before them", p.cuMemsetD32_v2(y, 7, ctypes.c_size_t(64)) == 0 and p.cuLaunchKernel(put, 1, 1, 1, 32, 1, 1, 0, None, parameters, None) == 0 and p.cuMemcpyDtoH_v2(got, y, ctypes.c_size_t(256)) == 0 and list(got) == list(range(32)) + [7] * 32, list(got))
    check("and on the device", p.cuMemcpyDtoD_v2(ctypes.c_uint64(y.value + 128), y, ctypes.c_size_t(128)) == 0 and p.cuMemsetD8_v2(y, 1, ctypes.c_size_t(4)) == 0 and p.cuMemcpyDtoH_v2(got, y, ctypes.c_size_t(256)) == 0 and list(got) == [0x01010101] + list(range(1, 32)) + list(range(32)), list(got))
    p.cuLaunchKernel(put, 1, 1, 1, 128, 1, 1, 0, None, parameters, None)
    check("a fault is told by the call that waits", p.cuMemcpyHtoD_v2(y, got, ctypes.c_size_t(4)) == 700 and "outside of every allocation" in p.fault(), p.fault())
    check("the context is destroyed once", p.cuCtxDestroy_v2(context) == 0 and p.cuCtxDestroy_v2(context) == 201, p.fault())


if loads():
    example()
    plain_calls()

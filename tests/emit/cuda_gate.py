#!/usr/bin/python3
"""The compile gate of target cuda: every example and test model through NVRTC, with budgets on registers, spills and shared memory, and on
the mix of PTX: weights in 16-byte ld.global.nc, no local memory, tensor cores where they are claimed, nothing approximate, the waits of PDL.

Some models, each for one of the archs by one of the NVRTCs, in turn; TAPERC_GATE=all (make check-long): every model for each arch by each NVRTC.
`--only WORD`: models whose name holds it.
"""
import concurrent.futures
import ctypes
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1])
TAPERC, TOOL = os.path.join(BUILD, "taperc"), os.path.join(BUILD, "tests/unit/nvrtc_tool")
QUICK, ALL = bool(os.environ.get("TAPERC_QUICK")), os.environ.get("TAPERC_GATE") == "all"
ONLY = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
ARCHS = ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"]
REGISTERS, SHARED = 128, 48 << 10  # the most of a kernel
MEMORY = os.path.join(ROOT, "build", "tests", "cuda-gate")  # what was compiled before, by hash

bad = 0


def say(name, problems):
    global bad
    bad += bool(problems)
    sys.stdout.write("not ok %s: %s\n" % (name, "; ".join(problems)[:1500]) if problems else "ok %s\n" % name)  # one call: two threads print
    sys.stdout.flush()


def missing(name, why):
    if os.environ.get("CI") == "true":
        say(name, [why])
    else:
        print("skip %s: %s" % (name, why), flush=True)


# ---- NVRTC ----------------------------------------------------------------------------------------------------------


def nvrtcs():
    """[(version, path or None for what taperc finds itself)], the newest first."""
    found = []
    for part, version in (("cu13/lib/libnvrtc.so.13", "13"), ("cuda_nvrtc/lib/libnvrtc.so.12", "12.9")):
        paths = glob.glob(os.path.join(ROOT, "build/venv/lib/python3*/site-packages/nvidia", part))
        if paths:
            found.append((version, paths[0]))
        else:
            missing("NVRTC %s" % version, "it is not in build/venv; run make setup-check with PyPI in reach")
    if not found:
        out = json.loads(subprocess.run([TAPERC, "doctor", "--json"], capture_output=True, text=True).stdout)
        if out["nvrtc"]["version"]:
            found.append((out["nvrtc"]["version"], None))
    return found


def compiled(source, arch, nvrtc):
    """(cubin, PTX, log); raises ValueError with what was said."""
    version, library = nvrtc
    size = os.path.getsize(library) if library else 0
    options = re.search(r"#define NVRTC_OPTIONS (.*)", open(os.path.join(ROOT, "cuda/nvrtc.h")).read()).group(1)
    key = hashlib.sha256(("1|%s|%s|%d|%s|%s" % (arch, version, size, options, source)).encode()).hexdigest()[:32]
    kept = os.path.join(MEMORY, key)
    if not os.path.exists(kept + ".log"):
        with tempfile.TemporaryDirectory(dir=MEMORY) as work:
            paths = [os.path.join(work, n) for n in ("source", "image", "ptx", "log")]
            with open(paths[0], "w") as f:
                f.write(source)
            env = dict(os.environ, **({"TAPER_LIBNVRTC": library} if library else {}))
            p = subprocess.run([TOOL, paths[0], arch] + paths[1:], capture_output=True, text=True, env=env)
            if p.returncode:
                raise ValueError(p.stderr.strip()[-900:])
            for path in paths[1:]:  # the log last
                os.rename(path, kept + "." + os.path.basename(path))
    return open(kept + ".image", "rb").read(), open(kept + ".ptx").read(), open(kept + ".log").read()


# ---- what is asked of an image --------------------------------------------------------------------------------------


def check_log(log, names, arch):
    """Problems in the words of ptxas -v."""
    out, seen = [], set()
    for entry in re.split(r"(?=Compiling entry function)", log)[1:]:
        name, built_for = re.match(r"Compiling entry function '(\w+)' for '(\w+)'", entry).groups()
        seen.add(name)
        stack, stores, loads = map(int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", entry).groups())
        registers, shared = int(re.search(r"Used (\d+) registers", entry).group(1)), re.search(r"(\d+) bytes smem", entry)
        if registers > REGISTERS:
            out.append("%s uses %d registers, at most %d" % (name, registers, REGISTERS))
        if stack or stores or loads:
            out.append("%s has %d bytes of stack, spills %d and loads %d" % (name, stack, stores, loads))
        if shared and int(shared.group(1)) > SHARED:
            out.append("%s uses %s bytes of shared memory" % (name, shared.group(1)))
        if built_for != arch:
            out.append("%s is built for %s" % (name, built_for))
    if seen != names:
        out.append("the log is of %s, not of %s" % (sorted(seen), sorted(names)))
    if re.search(r"warning|error", log):
        out.append("ptxas or NVRTC warns: " + re.search(r".*(?:warning|error).*", log).group(0))
    return out


def entries(ptx):
    """{kernel: its instructions and declarations, a line each, without predicates}"""
    out = {}
    for m in re.finditer(r"\.entry (\w+)\s*\((.*?)\n\}", ptx, re.S):
        lines = [re.sub(r"^@!?%\w+\s+", "", line.split("//")[0].strip()) for line in m.group(2).split("\n")]
        out[m.group(1)] = "\n".join(line for line in lines if line)
    return out


def check_ptx(ptx, names, arch, claims):
    """Problems in PTX. claims: {kernel: a regular expression that some instruction matches}"""
    out, found = [], entries(ptx)
    if set(found) != names:
        out.append("the PTX is of %s, not of %s" % (sorted(found), sorted(names)))
    if not re.search(r"^\.target %s$" % arch, ptx, re.M):
        out.append("the PTX is not for " + arch)
    if re.search(r"\.extern|\bcall\b|\.func", ptx):
        out.append("a call: " + re.search(r".*(?:\.extern|\bcall\b|\.func).*", ptx).group(0).strip())
    if ".loc" not in ptx:
        out.append("no line information")
    waits = int(arch[3:]) >= 90
    for name, text in found.items():
        for what, pattern in [("local memory", r".*(?:\.local\b).*"), ("a narrow load past L1", r"ld\.global\.nc\.L1::no_allocate(?!.*\.v4\.[ubf]32).*"),
                              ("arithmetic of --use_fast_math", r"^(?:div\.(?:approx|full)|sqrt\.approx|sin|cos|(?:add|sub|mul|fma|mad)\S*\.ftz)\b.*"), ("an atomic on floats", r"(?:atom|red)\S*\.add\S*\.f(?:16|32|64)\b.*")]:
            hit = re.search(pattern, text, re.M)
            if hit:
                out.append("%s has %s: %s" % (name, what, hit.group(0).strip()[:120]))
        if name in claims and not re.search(claims[name], text, re.M):
            out.append("%s has no %s" % (name, claims[name]))
        if waits != ("griddepcontrol.wait" in text):
            out.append("%s %s griddepcontrol.wait in %s" % (name, "lacks" if waits else "has", arch))
    return out


def claims_of(names, dtype):
    """Kernels that read matrices do it 16 bytes at a time; tiled products of 16-bit numbers are the tensor cores'."""
    out = {n: r"^ld\.global\.nc\.L1::no_allocate\.v4\.[ubf]32\b" for n in names if n.startswith("linear")}
    for n in names:
        if n.startswith("gemm"):
            out[n] = r"^fma\.rn\.f32\b" if dtype == "f32" else r"^mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.%s\.%s\.f32\b" % (dtype, dtype)
    return out


# ---- models ---------------------------------------------------------------------------------------------------------


SOME = ("gpt2_live", "dims20", "dims172", "one_position", "window")  # of the test models, where not all are compiled


def models(root):
    """[(name, model, options)]"""
    out = [("kjv-all", "examples/models/kjv-all", []), ("kjv-ln kernels", "examples/models/kjv-ln", ["--norms=kernel"]), ("kjv-internal deferred", "examples/models/kjv-internal", ["--norms=deferred"])]
    out += [(os.path.basename(p)[:-7], os.path.relpath(p, ROOT), []) for p in sorted(glob.glob(os.path.join(ROOT, "examples/*.tmodel"))) if not p.endswith("mlp.tmodel")]
    out += [("kjv-all bf16", "examples/models/kjv-all", ["--dtype=bf16"]), ("kjv-ln f16", "examples/models/kjv-ln", ["--dtype=f16"])]
    if ALL:
        out += [("kjv-all f16", "examples/models/kjv-all", ["--dtype=f16"]), ("kjv-all explicit", "examples/models/kjv-all", ["--fold=explicit"]), ("kjv-ln -O0", "examples/models/kjv-ln", ["-O0"])]
    try:
        sys.path.insert(0, os.path.join(ROOT, "tests", "numerics"))
        import lib_oracle as oracle
    except ImportError:
        missing("test models", "NumPy and safetensors are not there; run make setup-check with PyPI in reach")
        return out
    cases = re.search(r"^CASES = \{.*?^\}", open(os.path.join(ROOT, "tests/numerics/models.py")).read(), re.S | re.M).group(0)
    space = {}
    exec(cases, {}, space)  # its literal, not its main()
    for i, (name, changes) in enumerate(space["CASES"].items()):
        if not ALL and name not in SOME:
            continue
        c = oracle.config(**changes)
        folder = os.path.join(root, name)
        oracle.write(folder, c, oracle.weights(c, i))
        if ALL or name != "dims172":
            out.append((name, folder, []))
        if name == "dims172" or ALL and i % 3 == 1:
            out.append((name + " bf16", folder, ["--dtype=bf16"]))
    return out


def emitted(model, options):
    with tempfile.TemporaryDirectory(dir=MEMORY) as work:
        path = os.path.join(work, "model.cu")
        p = subprocess.run([TAPERC, "compile", model, "--target=cuda", "--emit=source", "-o", path] + options, cwd=ROOT, capture_output=True, text=True)
        if p.returncode:
            raise ValueError("exit %d: %s" % (p.returncode, p.stderr.strip()[-600:]))
        return open(path).read()


def kernels_of(source):
    return set(re.findall(r"^KERNEL_OF\([^\n]*?\) (\w+)\(const", source, re.M)) | set(re.findall(r'^extern "C" __global__ void (?:__\w+\([^\n]*\) )?(\w+)\(', source, re.M))


def gate(name, model, options, jobs):
    dtype = next((o[8:] for o in options if o.startswith("--dtype=")), "f32")
    try:
        source = emitted(model, options)
    except ValueError as e:
        if "not built yet" in str(e):
            return print("skip %s: %s" % (name, e), flush=True)
        return say(name, [str(e).replace("\n", " | ")])
    if re.search(r"^\s*#\s*include\s*[<]", source, re.M) and not re.search(r"#ifdef __CUDACC_RTC__", source):
        say(name + " includes", ["the source includes a header"])
    names = kernels_of(source)
    for nvrtc, arch in jobs:
        label = "%s, %s by NVRTC %s" % (name, arch, nvrtc[0])
        try:
            image, ptx, log = compiled(source, arch, nvrtc)
        except ValueError as e:
            say(label, [str(e)])
            continue
        problems = check_log(log, names, arch) + check_ptx(ptx, names, arch, claims_of(names, dtype)) + simulated(ptx, arch)
        say(label, problems + ([] if image[:4] == b"\x7fELF" else ["the image is no ELF file"]))


# ---- does the toolkit's own compiler? ---


def by_nvcc(name, model, options):
    """The source of a package stands alone: nvcc, with its headers, takes it as it is."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        return print("skip %s by nvcc: it is not here" % name, flush=True)
    source = emitted(model, options)
    kept = os.path.join(MEMORY, hashlib.sha256((nvcc + source).encode()).hexdigest()[:32] + ".nvcc")
    if not os.path.exists(kept):
        with tempfile.TemporaryDirectory(dir=MEMORY) as work:
            with open(os.path.join(work, "model.cu"), "w") as f:
                f.write(source)
            p = subprocess.run([nvcc, "-c", "-std=c++17", "-arch=sm_80", "model.cu", "-o", "model.o"], cwd=work, capture_output=True, text=True)
            if p.returncode or "warning" in p.stderr:
                return say("%s by nvcc" % name, [p.stderr.strip()[-900:].replace("\n", " | ")])
            open(kept, "w").close()
    say("%s by nvcc" % name, [])


# ---- does our simulator take it? ------------------------------------------------------------------------------------


def simulated(ptx, arch):
    """[] or what the simulator says of PTX that it cannot load. In a process of its own, by this program."""
    library = os.path.join(BUILD, "libtaper-sim.so")
    if not os.path.exists(library):
        return []
    env = dict(os.environ, TAPER_SIM_CAPABILITY=arch.split("_")[1])
    p = subprocess.run([sys.executable, os.path.abspath(__file__), BUILD, "--load", library], input=ptx.encode() + b"\0", capture_output=True, env=env, timeout=120)
    return [] if p.returncode == 0 else ["the simulator: " + (p.stdout + p.stderr).decode("utf-8", "replace").strip()[-500:]]


def load(library):
    sim, ptx = ctypes.CDLL(library), sys.stdin.buffer.read()
    if not hasattr(sim, "cuModuleLoadDataEx"):
        return
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    log = ctypes.create_string_buffer(4096)
    options, values = (ctypes.c_int * 2)(5, 6), (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    for call, arguments in [("cuInit", (0,)), ("cuDeviceGet", (ctypes.byref(device), 0)), ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)), ("cuCtxPushCurrent_v2", (context,)),
                            ("cuModuleLoadDataEx", (ctypes.byref(module), ptx, 2, options, values))]:
        result = getattr(sim, call)(*arguments)
        if result:
            print("%s: %d %s" % (call, result, log.value.decode("utf-8", "replace")))
            sys.exit(1)


# ---- the gate's own test --------------------------------------------------------------------------------------------

HEAD = "extern \"C\" __global__ void __launch_bounds__(256) linear_0(const float4 *w, float *y, int n) {\n"
WAIT = "#if __CUDA_ARCH__ >= 900\nasm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n#endif\n"
READ = "float4 v; asm(\"ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];\" : \"=f\"(v.x), \"=f\"(v.y), \"=f\"(v.z), \"=f\"(v.w) : \"l\"(w + threadIdx.x));\n"
SEEDED = [  # (what, source, what must be said; None: nothing)
    ("a sound kernel", HEAD + WAIT + READ + "y[threadIdx.x] = v.x + v.y + v.z + v.w; }", None),
    ("no wait", HEAD + READ + "y[threadIdx.x] = v.x; }", "lacks griddepcontrol.wait"),
    ("narrow weights", HEAD + WAIT + READ + "float q; asm(\"ld.global.nc.L1::no_allocate.f32 %0, [%1];\" : \"=f\"(q) : \"l\"(w + n)); y[threadIdx.x] = v.x + q; }", "a narrow load"),
    ("no wide load", HEAD + WAIT + "y[threadIdx.x] = ((const float *)w)[threadIdx.x]; }", "has no ^ld"),
    ("local memory", HEAD + WAIT + READ + "float t[64]; for (int i = 0; i < 64; i++) t[i * n & 63] = v.x * i; y[threadIdx.x] = t[n & 63]; }", "local memory"),
    ("a stack", HEAD + WAIT + READ + "float t[64]; for (int i = 0; i < 64; i++) t[i * n & 63] = v.x * i; y[threadIdx.x] = t[n & 63]; }", "bytes of stack"),
    ("many registers", HEAD.replace("(256)", "(256, 1)") + WAIT + READ + "float t[150];\n_Pragma(\"unroll\") for (int i = 0; i < 150; i++) t[i] = y[i * n + threadIdx.x];\n__syncthreads();\n"
     + "_Pragma(\"unroll\") for (int i = 0; i < 150; i++) y[i * 7 * n] = t[149 - i] * v.x; }", "registers, at most"),
    ("spills", HEAD.replace("(256)", "(1024, 2)") + WAIT + READ + "float t[90];\n_Pragma(\"unroll\") for (int i = 0; i < 90; i++) t[i] = y[i * n + threadIdx.x];\n__syncthreads();\n"
     + "_Pragma(\"unroll\") for (int i = 0; i < 90; i++) y[i * 7 * n] = t[89 - i] * v.x; }", "spills"),
    ("fast arithmetic", HEAD + WAIT + READ + "y[threadIdx.x] = __fdividef(v.x, v.y); }", "--use_fast_math"),
    ("float atomics", HEAD + WAIT + READ + "atomicAdd(y, v.x); }", "an atomic on floats"),
]


def own_test(nvrtc):
    for what, source, expected in SEEDED:
        arch, label = "sm_90", "the gate sees: " + what
        try:
            image, ptx, log = compiled(source, arch, nvrtc)
        except ValueError as e:
            say(label, [str(e)])
            continue
        found = check_log(log, {"linear_0"}, arch) + check_ptx(ptx, {"linear_0"}, arch, claims_of({"linear_0"}, "f32"))
        fine = any(expected in f for f in found) if expected else not found
        say(label, [] if fine else ["found %r, expected %r" % (found, expected)])


def main():
    if "--load" in sys.argv:
        return load(sys.argv[-1])
    os.makedirs(MEMORY, exist_ok=True)
    there = nvrtcs()
    if not there:
        missing("cuda_gate", "no NVRTC is there")
        sys.exit(1 if bad else 0)
    root = os.path.join(MEMORY, "models")  # its path stands in the sources
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(own_test, there[0])]
        for i, (name, model, options) in enumerate(models(root)):
            if QUICK and i % 4 or ONLY and ONLY not in name:
                continue
            arch = ARCHS[i // len(there) % len(ARCHS)]
            jobs = [(n, a) for n in there for a in ARCHS] if ALL else [(there[i % len(there)], arch)]
            waiting.append(pool.submit(gate, name, model, options, jobs))
            if name == "kjv-all bf16" or ALL and i % 5 == 0:
                waiting.append(pool.submit(by_nvcc, name, model, options))
        for w in waiting:
            w.result()
    sys.exit(1 if bad else 0)


main()

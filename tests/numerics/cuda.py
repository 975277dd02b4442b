#!/usr/bin/python3
"""Whole models of target cuda on the simulator against NumPy float64: forms and shapes, every path of the products - a step, up to eight rows, more rows by the stand-in of
cuBLAS and by the generated kernel; in 16 bits the paths against each other. Generated ids against the CPU's."""
import os
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lib_oracle as oracle  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")

# name: (changes, options of compile, 16-bit types)
CASES = {
    "llama_live": (dict(internal=1.0, final=1.0, kv=2), [], ["bf16"]),
    "gpt2_head_bias": (dict(norm="ln", act="gelu", bias=True, rope=False, tied=False, head_bias=True, internal=0.25, final=1.0), ["--norms=kernel"], []),
    "qwen3": (dict(kv=1, hd=24, qk_norm=True, taper=False, eps=1e-6), [], ["f16"]),
    "dims20": (dict(d=20, heads=1, hd=20, ff=28, vocab=33, layers=1), [], ["bf16"]),
    "odd": (dict(d=54, heads=3, hd=18, ff=45, vocab=257, layers=1, internal=1.0), ["-O0"], []),
    "one_position": (dict(context=1, d=8, heads=2, ff=8, vocab=5, layers=1), [], []),
    "window": (dict(window=5, softcap=3.0, kv=2), [], []),
}


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def taperc(*args):
    p = subprocess.run([TAPERC] + list(args), capture_output=True)
    if p.returncode:
        raise RuntimeError("taperc %s: exit %d: %s" % (" ".join(args), p.returncode, p.stderr.decode().strip()[-500:].replace("\n", " | ")))
    return p.stdout


def logits(package, tokens, extra):
    out = package + ".safetensors"
    taperc("logits", package, "--device=sim", "--tokens", ",".join(map(str, tokens)), "-o", out, *extra)
    return load_file(out)


def error(got, want):
    return float(np.abs(got - want).max() / np.abs(want).max()) if got.shape == want.shape else np.inf


def run_paths(name, folder, c, w, switches):
    package = os.path.join(folder, "f32.tpack")
    taperc("compile", folder, "--target", "cuda", "--arch", "compute_90", "-o", package, *switches)
    tokens = np.random.default_rng(5).integers(0, c["vocab"], min(c["context"], 21))
    exact, streams = oracle.Model(c, w)(tokens)
    tol, layer_tol = oracle.tolerance(c, w, tokens, exact, streams)
    for path, n, extra in (("few rows", 7, ["--layers"]), ("cublas", 21, ["--gemm=cublas", "--layers"]), ("generated", 21, ["--gemm=generated"])):
        got = logits(package, tokens[:n], extra)
        e = error(got["logits"], exact[:n])
        layer = max([0.0] + [error(got["layers.%d" % i], s[:n]) for i, s in enumerate(streams) if "layers.%d" % i in got])
        bad = not e <= tol or not layer <= layer_tol or ("--layers" in extra and "layers.0" not in got)
        say("%sok %s, %s (error %.2g, layers %.2g of %.2g)" % ("not " if bad else "", name, path, e, layer, tol))
    return package


def run_halves(name, folder, c, dtype):
    package = os.path.join(folder, dtype + ".tpack")
    taperc("compile", folder, "--target", "cuda", "--arch", "compute_90", "--dtype", dtype, "-o", package)
    tokens = np.random.default_rng(6).integers(0, c["vocab"], min(c["context"], 19))
    few = logits(package, tokens[:8], [])["logits"]
    limit = 2e-2 if dtype == "bf16" else 3e-3  # one operand that lies on the other side of a half step
    for gemm in ("cublas", "generated"):
        e = error(logits(package, tokens, ["--gemm=" + gemm])["logits"][:8], few)
        say("%sok %s %s, %s (%.2g)" % ("" if e <= limit else "not ", name, dtype, gemm, e))


def run_ids(name, folder, package):
    cpu = os.path.join(folder, "cpu.tpack")
    taperc("compile", folder, "-o", cpu)
    for options in (["--temp", "0", "--repeat-penalty", "1.3"], ["--temp", "0.8", "--seed", "4", "--top-p", "0.9"]):
        args = ["--print-tokens", "-n", "9", "--tokens", "1,2,3,4,5,6,7,8,9,10,11"] + options
        want, got = taperc("run", cpu, *args), taperc("run", package, "--device=sim", *args)
        say("ok %s, ids %s" % (name, options[1]) if got == want else "not ok %s: ids %r, not %r" % (name, got, want))


def main():
    if subprocess.run([TAPERC, "compile", os.path.join(ROOT, "examples/models/kjv-all"), "--target", "cuda", "--emit=ptx", "-o", os.devnull], capture_output=True).returncode == 3:
        say("skip models of target cuda: no NVRTC here")
        return
    for i, (name, (changes, switches, dtypes)) in enumerate(CASES.items()):
        c = oracle.config(**changes)
        w = oracle.weights(c, 2000 + i)
        folder = os.path.join(ROOT, "build/numerics/cuda", name)
        oracle.write(folder, c, w)
        try:
            package = run_paths(name, folder, c, w, switches)
            for dtype in dtypes:
                run_halves(name, folder, c, dtype)
            if i == 0:
                run_ids(name, folder, package)
        except RuntimeError as e:
            say("not ok %s: %s" % (name, e))


main()

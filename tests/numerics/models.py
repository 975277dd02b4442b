#!/usr/bin/python3
"""Whole models against NumPy float64: random shapes and forms, every level and switch, threads, prefill against step, layer streams."""
import concurrent.futures
import os
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lib_oracle as oracle  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
QUICK = bool(os.environ.get("TAPERC_QUICK"))

def say(line):
    sys.stdout.write(line + "\n")  # one call: two threads print


CASES = {
    "llama_folded": dict(),
    "llama_live": dict(internal=1.0, final=1.0),
    "llama_internal": dict(final=1.0, kv=2),
    "llama_half_gate": dict(internal=0.25, final=0.5),
    "llama_gate_array": dict(layers=3, gate_array=True, internal=[0.0, 1.0, 0.3], final=1.0),
    "llama_untied": dict(tied=False, vocab=257, negative=True),
    "gpt2_folded": dict(norm="ln", act="gelu_tanh", bias=True, rope=False),
    "gpt2_live": dict(norm="ln", act="gelu_tanh", bias=True, rope=False, internal=1.0, final=1.0),
    "gpt2_untied_head_bias": dict(norm="ln", act="gelu", bias=True, rope=False, tied=False, head_bias=True, final=1.0),
    "ln_no_bias": dict(norm="ln", act="relu", tied=False),
    "neox": dict(norm="ln", act="gelu", bias=True, parallel=True, rope_dims=4, tied=False, internal=0.0, final=1.0),
    "qwen3": dict(kv=1, hd=24, qk_norm=True, taper=False, eps=1e-6),
    "dims20": dict(d=20, heads=1, hd=20, ff=28, vocab=33, layers=1),
    "dims172": dict(d=172, heads=4, hd=12, ff=172, vocab=51, interleaved=True, theta=500.0),
    "one_position": dict(context=1, d=8, heads=2, ff=8, vocab=5, layers=1),
    "window": dict(window=5, softcap=3.0, kv=2),
    "llama3_scaling": dict(llama3=(8.0, 1.0, 4.0, 16)),
    "dyt": dict(dyt=True, act="relu", bias=True),
    "tiny_variance": dict(norm="rms", internal=1.0, final=1.0, eps=1e-12, embed_scale=1e-5),
    "big_vocab": dict(vocab=5003, d=36, heads=3, hd=12, ff=44, layers=1),
    "deep_wide": dict(norm="ln", act="gelu_tanh", bias=True, rope=False, d=256, heads=8, ff=1024, layers=6),  # long sums, errors that grow
    "parallel_live_rms": dict(parallel=True, internal=1.0, final=0.0, kv=2),
}
SWITCHES = [[], ["-O0"], ["-O1"], ["--norms=kernel"], ["--fold=explicit"], ["--fold=none"], ["--untie"], ["-t", "1"], ["-t", "3"]]


def logits(folder, tokens, out, extra):
    p = subprocess.run([TAPERC, "logits", folder, "--tokens", ",".join(map(str, tokens)), "--layers", "-o", out] + extra, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError("exit %d: %s" % (p.returncode, p.stderr.strip()[-500:]))
    return load_file(out)


def run_case(name, changes, root, seed):
    c = oracle.config(**changes)
    w = oracle.weights(c, seed)
    folder = os.path.join(root, name)
    oracle.write(folder, c, w)
    tokens = np.random.default_rng(seed + 1).integers(0, c["vocab"], min(c["context"], 37))
    exact, streams = oracle.Model(c, w)(tokens)
    tol, layer_tol = oracle.tolerance(c, w, tokens, exact, streams)
    by_threads = []
    for extra in SWITCHES[:1] + SWITCHES[-1:] if QUICK else SWITCHES:
        label = name + " " + " ".join(extra)
        try:
            got = logits(folder, tokens, os.path.join(folder, "out.safetensors"), extra)
        except RuntimeError as e:
            say("not ok %s: %s" % (label, str(e).replace("\n", " | ")))
            continue
        error = np.abs(got["logits"] - exact).max() / np.abs(exact).max()
        layer = max(np.abs(got["layers.%d" % i] - s).max() / np.abs(s).max() for i, s in enumerate(streams))
        if got["logits"].shape != exact.shape or not error <= tol or not layer <= layer_tol:
            say("not ok %s: error %.3g, layers %.3g, tolerance %.3g" % (label, error, layer, tol))
        else:
            say("ok %s (%.2g of %.2g)" % (label, error, tol))
        if not extra or extra[0] == "-t":
            by_threads.append(got["logits"])
    same = all(np.array_equal(by_threads[0], b) for b in by_threads)
    say("%sok %s thread counts bit-equal" % ("" if same else "not ", name))


def main():
    cases = [(name, changes, 1000 + i) for i, (name, changes) in enumerate(CASES.items()) if not QUICK or i % 4 == 0]
    root = os.path.join(ROOT, "build/numerics/models")  # the same folder in every build: images come from the cache
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda case: run_case(case[0], case[1], root, case[2]), cases))


main()

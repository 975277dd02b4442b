#!/usr/bin/python3
"""Every op that a source may call, through the whole compiler and generated kernels, against NumPy float64 on nasty shapes and values.

The model is: rows of a table -> the op -> a head whose matrix is the identity, so the logits are the op's result, element by element.
"""
import concurrent.futures
import os
import subprocess
import sys

import numpy as np
from lib_kernels import CASES, table
from safetensors.numpy import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
QUICK = bool(os.environ.get("TAPERC_QUICK"))
np.seterr(over="ignore")


def say(line):
    sys.stdout.write(line + "\n")  # one call: two threads print


def run(name, case, d, root, rng):
    expression, truth = case[0], case[1]
    shapes = case[2] if len(case) > 2 and case[2] else {}
    size = {"d": d, "1": 1, "7": 7, "h": d // 2}
    w = {n: (rng.standard_normal([size[c] for c in s]) * 0.7 + (0.5 if len(s) == 1 else 0)).astype(np.float32) for n, s in shapes.items()}
    rows = 12
    x = table(d, rows, rng, name)
    gate = "  gate g;\n" if "gate = g" in expression else "  gate z;\n" if "gate = z" in expression else ""
    text = ("model one(vocab = %d, context = 40, d = %d) {\n%s  param table: [vocab, d] init normal(0.02);\n  forward(tokens) {\n    let x = embed(tokens, table);\n"
            '    let y = %s;\n    return linear(y, vocab, name = "head");\n  }\n}\n' % (max(d, rows), d, gate, expression))
    full = np.zeros((max(d, rows), d), np.float32)
    full[:rows] = x
    with open(root + "/model.tmodel", "w") as f:
        f.write(text)
    save_file(dict(w, **{"table": full, "head.weight": np.eye(max(d, rows), d, dtype=np.float32)}), root + "/weights.safetensors",
              metadata={"taper.gates": '{"g": 0.3}' if "gate = g" in expression else '{"z": 0}' if "gate = z" in expression else "{}"})
    tokens = np.concatenate([np.arange(rows), rng.integers(0, rows, 17)])
    t = x[tokens].astype(np.float64)
    exact = truth(t, {k: v.astype(np.float64) for k, v in w.items()})
    plain = truth(t.astype(np.float32), w).astype(np.float64)
    plain_factor = 16 if name == "layer_norm_offset" else 4  # a mean of 50 sigma: each program's rounding of x + 100 is amplified by its luck
    tol = max(2e-5, plain_factor * np.abs(plain - exact).max() / np.abs(exact).max())
    for extra in [[]] if QUICK else [[], ["-O0"]]:
        label = "%s d=%d %s" % (name, d, " ".join(extra))
        p = subprocess.run([TAPERC, "logits", root, "--tokens", ",".join(map(str, tokens)), "-o", root + "/out.safetensors"] + extra, capture_output=True, text=True)
        if p.returncode:
            say("not ok %s: exit %d: %s" % (label, p.returncode, p.stderr.strip().replace("\n", " | ")[-300:]))
            continue
        got = load_file(root + "/out.safetensors")["logits"][:, :d]
        error = np.abs(got - exact).max() / np.abs(exact).max()
        # a row is also compared with its own size, so that a wild row does not hide a tiny one
        own = (np.abs(got - exact).max(-1) / np.maximum(np.abs(exact).max(-1), 1e-30)).max()
        own_plain = (np.abs(plain - exact).max(-1) / np.maximum(np.abs(exact).max(-1), 1e-30)).max()
        good = error <= tol and own <= max(1e-4, 2 * plain_factor * own_plain)
        say("%s %s%s" % ("ok" if good else "not ok", label, "" if good else ": error %.3g, tolerance %.3g; by rows %.3g (float32 %.3g)" % (error, tol, own, own_plain)))


def main():
    jobs = [(name, case, d) for i, (name, case) in enumerate(CASES.items()) for d in ((20,) if QUICK else (4, 20, 172) if len(case) > 3 else (3, 17, 172))
            if not QUICK or i % 3 == 0]
    root = os.path.join(ROOT, "build/numerics/kernels")  # the same folder in every build: images come from the cache
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def one(number):
            folder = os.path.join(root, "%s.%d" % (jobs[number][0], jobs[number][2]))
            os.makedirs(folder, exist_ok=True)
            run(*jobs[number], folder, np.random.default_rng(number))

        list(pool.map(one, range(len(jobs))))


main()

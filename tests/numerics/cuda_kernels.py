#!/usr/bin/python3
"""Every op of kernels.py by CUDA kernels on the simulator, against NumPy float64: one model has them all side by side, since NVRTC takes seconds a model.

The model is: rows of a table -> each op -> concat -> a head whose matrix is the identity, so the logits are the results, element by element. Few rows, many rows.
"""
import os
import re
import subprocess
import sys

import numpy as np
from lib_kernels import CASES, table
from safetensors.numpy import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
LONG, QUICK = bool(os.environ.get("TAPERC_LONG")), bool(os.environ.get("TAPERC_QUICK"))
ROWS = 12
WHOLE_HEADS = [name for name, case in CASES.items() if len(case) > 3]  # widths that are multiples of 4
np.seterr(all="ignore")


def write(folder, names, d, rng):
    """-> {name: weights of the op alone}, the table"""
    size, own, stored, lines = {"d": d, "1": 1, "7": 7, "h": d // 2}, {}, {}, []
    for name in names:
        expression, shapes = CASES[name][0], CASES[name][2] if len(CASES[name]) > 2 and CASES[name][2] else {}
        own[name] = {n: (rng.standard_normal([size[c] for c in s]) * 0.7 + (0.5 if len(s) == 1 else 0)).astype(np.float32) for n, s in shapes.items()}
        stored.update({"%s.%s" % (name, n): w for n, w in own[name].items()})
        lines.append("    let y_%s = %s;" % (name, re.sub(r'name = "', 'name = "%s.' % name, expression)))
    total = d * len(names)
    rows = np.zeros((total, d), np.float32)
    rows[:ROWS] = table(d, ROWS, rng, "gelu")
    stored.update({"table": rows, "head.weight": np.eye(total, dtype=np.float32)})
    with open(os.path.join(folder, "model.tmodel"), "w") as f:
        f.write("model all(vocab = %d, context = 40, d = %d) {\n  gate g;\n  gate z;\n  param table: [vocab, d];\n  forward(tokens) {\n    let x = embed(tokens, table);\n%s\n"
                '    return linear(concat(%s), vocab, name = "head");\n  }\n}\n' % (total, d, "\n".join(lines), ", ".join("y_" + n for n in names)))
    save_file(stored, os.path.join(folder, "weights.safetensors"), metadata={"taper.gates": '{"g": 0.3, "z": 0}'})
    return own, rows


def taperc(*args):
    p = subprocess.run([TAPERC] + list(args), capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError("exit %d: %s" % (p.returncode, p.stderr.strip().replace("\n", " | ")[-400:]))


def check(label, name, got, x, own):
    """As kernels.py: the op's own error in float32 is the measure, for all rows and for each by its own size."""
    truth = CASES[name][1]
    exact = truth(x.astype(np.float64), {k: v.astype(np.float64) for k, v in own.items()})
    plain = truth(x, own).astype(np.float64)
    factor = 16 if name == "layer_norm_offset" else 4
    size = np.maximum(np.abs(exact).max(-1), 1e-30)
    tolerance = max(2e-5, factor * np.abs(plain - exact).max() / np.abs(exact).max())
    error, row = np.abs(got - exact).max() / np.abs(exact).max(), (np.abs(got - exact).max(-1) / size).max()
    row_tolerance = max(1e-4, 2 * factor * (np.abs(plain - exact).max(-1) / size).max())
    good = error <= tolerance and row <= row_tolerance
    return None if good else "%s %s: error %.3g, tolerance %.3g; by rows %.3g of %.3g" % (name, label, error, tolerance, row, row_tolerance)


def run(d, switches, root, seed):
    names = [n for n in CASES if d % 4 == 0 or n not in WHOLE_HEADS]
    label = "d=%d %s" % (d, " ".join(switches))
    folder = os.path.join(root, "%d%s" % (d, "".join(switches)))
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(seed)
    own, rows = write(folder, names, d, rng)
    tokens = np.concatenate([np.arange(ROWS), rng.integers(0, ROWS, 17)])
    package, out = folder + "/m.tpack", folder + "/out.safetensors"
    try:
        taperc("compile", folder, "--target", "cuda", "--arch", "compute_90", "-o", package, *switches)
        for n, gemm in ((7, "cublas"), (len(tokens), "cublas"), (len(tokens), "generated")):
            taperc("logits", package, "--device=sim", "--gemm=" + gemm, "--tokens", ",".join(map(str, tokens[:n])), "-o", out)
            got = load_file(out)["logits"].astype(np.float64)
            bad = [check(label, name, got[:, i * d:(i + 1) * d], rows[tokens[:n]], own[name]) for i, name in enumerate(names)]
            bad = [b for b in bad if b]
            print("not ok %d rows, %s: %s" % (n, gemm, "; ".join(bad)[:1500]) if bad else "ok %d ops, %s, %d rows, %s" % (len(names), label, n, gemm), flush=True)
    except RuntimeError as e:
        print("not ok %s: %s" % (label, e), flush=True)


def main():
    if subprocess.run([TAPERC, "compile", os.path.join(ROOT, "examples/models/kjv-all"), "--target", "cuda", "--emit=ptx", "-o", os.devnull], capture_output=True).returncode == 3:
        return print("skip ops by CUDA kernels: no NVRTC here")
    root = os.path.join(ROOT, "build/numerics/cuda_kernels")  # the same folder in every build: images come from the cache
    jobs = [(20, []), (17, ["-O0"])]
    if LONG:
        jobs += [(3, []), (4, []), (172, []), (17, []), (20, ["-O0"]), (20, ["--norms=kernel"]), (33, ["--fold=none"])]
    for i, (d, switches) in enumerate(jobs[:1] if QUICK else jobs):
        run(d, switches, root, i)


main()

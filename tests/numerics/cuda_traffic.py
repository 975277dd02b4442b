#!/usr/bin/python3
"""What a token reads of the weights at odd widths, by `bench --device=sim`: every row of a matrix once, padded to 16 bytes, and nearly all of each sector of 32 bytes.
And how many instructions of warps a token takes for each byte of weights: a written bound for two models."""
import json
import os
import subprocess
import sys

import lib_oracle as oracle

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
SHAPES = [(dict(d=257, heads=3, kv=1, hd=34, ff=101, vocab=257, layers=2), "f32"), (dict(d=100, heads=2, hd=50, ff=133, vocab=259, layers=2, norm="ln", internal=1.0), "bf16"),
          (dict(d=76, heads=2, hd=38, ff=31, vocab=33, layers=1, tied=False), "f32"), (dict(d=132, heads=4, hd=34, ff=300, vocab=501, layers=2, final=1.0), "f16"),
          (dict(d=20, heads=1, hd=20, ff=28, vocab=33, layers=1), "f32"), (dict(d=172, heads=4, hd=46, ff=59, vocab=5003, layers=1, act="gelu", bias=True), "bf16")]


def padded(c, w, dtype):
    """Bytes of the matrices, each row a multiple of 16 bytes; of vectors."""
    size, matrices, vectors = 4 if dtype == "f32" else 2, 0, 0
    for name, t in w.items():
        if t.ndim == 2:
            matrices += t.shape[0] * -(-t.shape[1] * size // 16) * 16
        else:
            vectors += t.size * 4
    return matrices - (0 if c["tied"] else w["wte"].shape[0] * -(-c["d"] * size // 16) * 16), vectors  # an untied table: one row


def run(shape, dtype):
    c = oracle.config(context=16, **shape)
    w, label = oracle.weights(c, c["d"]), "d = %d, ff = %d, vocab %d, %s" % (shape["d"], shape["ff"], shape["vocab"], dtype)
    folder = os.path.join(ROOT, "build/numerics/cuda_traffic", "%d.%s" % (c["d"], dtype))
    oracle.write(folder, c, w)
    for args in (["compile", folder, "--target", "cuda", "--arch", "compute_90", "--dtype", dtype, "-o", folder + "/m.tpack"],
                 ["bench", folder + "/m.tpack", "--device=sim", "-p", "2", "-n", "2", "-r", "1", "--json"]):
        p = subprocess.run([TAPERC] + args, capture_output=True, text=True)
        if p.returncode:
            return print("not ok %s: exit %d: %s" % (label, p.returncode, p.stderr.strip()[-300:].replace("\n", " | ")))
    told = json.loads(p.stdout)
    read, sectors = told["weight_read_bytes_per_token"], told["weight_sectors_per_token"]
    least, vectors = padded(c, w, dtype)
    problems = []
    if not read >= 0.95 * 32 * sectors:
        problems.append("%.2f of each sector is used" % (read / 32 / sectors))
    if not least <= read <= 1.02 * least + 3 * vectors + 4096:
        problems.append("%d bytes are read, the matrices have %d, vectors %d" % (read, least, vectors))
    print("not ok %s: %s" % (label, "; ".join(problems)) if problems else "ok %s: %d bytes of %d, %.3f of %d sectors" % (label, read, least, read / 32 / sectors, sectors), flush=True)


# model: instructions of warps for a byte of weights, at most (before products were made by teams of lanes: 0.75 and 0.14)
BOUNDS = [("examples/models/kjv-all", None, 0.095), ("d = 288", dict(d=288, heads=6, ff=768, vocab=4096, layers=1), 0.05)]


def bound(model, shape, most):
    path = os.path.join(ROOT, model)
    if shape:
        c = oracle.config(context=64, **shape)
        path = os.path.join(ROOT, "build/numerics/cuda_traffic/bound")
        oracle.write(path, c, oracle.weights(c, 3))
    p = subprocess.run([TAPERC, "bench", path, "--device=sim", "-p", "2", "-n", "8", "-r", "1", "--json"], capture_output=True, text=True)
    if p.returncode:
        return print("not ok instructions of %s: exit %d: %s" % (model, p.returncode, p.stderr.strip()[-300:].replace("\n", " | ")))
    told = json.loads(p.stdout)
    each, parts = told["instructions_per_token"] / told["bytes_per_token"], sum(k["instructions_per_token"] for k in told["kernels"])
    good = each <= most and abs(parts - told["instructions_per_token"]) < 1 and told["launches_per_token"] > 5
    print("%s instructions of %s: %.4f for a byte of weights, at most %g; %d by kernels, %d in all" % ("ok" if good else "not ok", model, each, most, parts, told["instructions_per_token"]), flush=True)


def main():
    if subprocess.run([TAPERC, "compile", os.path.join(ROOT, "examples/models/kjv-all"), "--target", "cuda", "--emit=ptx", "-o", os.devnull], capture_output=True).returncode == 3:
        return print("skip traffic of weights: no NVRTC here")
    for shape, dtype in SHAPES if os.environ.get("TAPERC_LONG") else SHAPES[:1] if os.environ.get("TAPERC_QUICK") else SHAPES[:2]:
        run(shape, dtype)
    for model, shape, most in BOUNDS:
        bound(model, shape, most)


main()

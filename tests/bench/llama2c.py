#!/usr/bin/python3
"""Decode speed beside llama2.c in one interleaved run: llama2c.py BUILD --peer PATH/run [--shapes s15M,...] [--rounds 5] [-n 200] [-t 2]

Random weights, fp32, greedy, the same shapes and the same weights on both sides (interleaved rope, eps 1e-5). PATH/run is llama2.c built with its best flags
(gcc -Ofast -fopenmp -march=native run.c -lm); the better of its medians with 1 and with -t threads counts. Ours: live norms (engine gain: ours / theirs) and folded (folding gain: folded / live).
Prints one markdown row a shape: medians with min..max.
"""
import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import save_file

SHAPES = {  # dim, layers, heads, kv heads, hidden, vocab
    "s260K": (64, 5, 8, 4, 172, 512), "tv1M": (128, 4, 4, 4, 352, 4096), "tv8M": (256, 8, 8, 8, 704, 4096), "s15M": (288, 6, 6, 6, 768, 32000),
    "tv27M": (512, 8, 8, 8, 1376, 4096), "s42M": (512, 8, 8, 8, 1376, 32000), "s110M": (768, 12, 12, 12, 2048, 32000),
}
SOURCE = """model %s(vocab = %d, context = 256, d = %d, layers = %d, heads = %d, kv = %d, ff = %d) {
  gate internal; gate final;
  param wte: [vocab, d] init normal(0.02);
  block layer(x) {
    let h = taper_rms_norm(x, name = "attn_norm", gate = internal, eps = 1e-5);
    let q = rope(split_heads(linear(h, d, name = "attn.q"), heads), theta = 10000, style = "interleaved");
    let k = rope(split_heads(linear(h, kv * (d / heads), name = "attn.k"), kv), theta = 10000, style = "interleaved");
    let v = split_heads(linear(h, kv * (d / heads), name = "attn.v"), kv);
    let y = x + linear(merge_heads(attention(q, k, v, causal = true)), d, name = "attn.o");
    let m = taper_rms_norm(y, name = "mlp_norm", gate = internal, eps = 1e-5);
    return y + linear(silu(linear(m, ff, name = "mlp.gate")) * linear(m, ff, name = "mlp.up"), d, name = "mlp.down");
  }
  forward(tokens) {
    let x = embed(tokens, wte);
    repeat layers as "layers" { x = layer(x); }
    return linear(taper_rms_norm(x, name = "norm", gate = final, eps = 1e-5), weight = wte);
  }
}
"""


def make(name, folder):
    d, L, heads, kv, ff, V = SHAPES[name]
    r = np.random.default_rng(0)
    kvd = kv * (d // heads)
    shapes = {"attn.q": (d, d), "attn.k": (kvd, d), "attn.v": (kvd, d), "attn.o": (d, d), "mlp.gate": (ff, d), "mlp.down": (d, ff), "mlp.up": (ff, d)}
    w = {"wte": (r.standard_normal((V, d)) * 0.5).astype(np.float32)}
    for i in range(L):
        for n, (o, k) in shapes.items():
            w["layers.%d.%s.weight" % (i, n)] = (r.standard_normal((o, k)) / np.sqrt(k)).astype(np.float32)
    for n in ["layers.%d.%s" % (i, m) for i in range(L) for m in ("attn_norm", "mlp_norm")] + ["norm"]:
        w[n + ".weight"] = (1 + 0.1 * r.standard_normal(d)).astype(np.float32)
        w[n + ".taper_weight"] = w[n + ".weight"].copy()
        w[n + ".taper_c"] = np.array([0.2], np.float32)
    os.makedirs(folder)
    with open(folder + "/model.tmodel", "w") as f:
        f.write(SOURCE % (name, V, d, L, heads, kv, ff))
    save_file(w, folder + "/weights.safetensors", metadata={"taper.gates": json.dumps({"internal": 1.0, "final": 1.0})})
    with open(folder + "/model.bin", "wb") as f:
        f.write(struct.pack("7i", d, ff, L, heads, kv, V, 256))
        w["wte"].tofile(f)
        for n in ("attn_norm", "attn.q", "attn.k", "attn.v", "attn.o", "mlp_norm", "mlp.gate", "mlp.down", "mlp.up"):
            for i in range(L):
                w["layers.%d.%s.weight" % (i, n)].tofile(f)
        w["norm.weight"].tofile(f)
        np.zeros(256 * (d // heads), np.float32).tofile(f)
    with open(folder + "/tokenizer.bin", "wb") as f:
        f.write(struct.pack("i", 8))
        for i in range(V):
            piece = b" %d" % i if i > 2 else b"<%d>" % i
            f.write(struct.pack("fi", 0.0, len(piece)) + piece)


def peer(binary, folder, n, threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    p = subprocess.run([binary, folder + "/model.bin", "-z", folder + "/tokenizer.bin", "-t", "0", "-n", str(n)], capture_output=True, env=env, check=True)
    ids = [int(i) for i in re.findall(rb"(?<![<\d])\d+", p.stdout)]
    return float(re.search(rb"achieved tok/s: ([\d.]+)", p.stderr).group(1)), ids


def ours(taperc, package, n, threads):
    p = subprocess.run([taperc, "bench", package, "-p", "1", "-n", str(n), "-r", "1", "-t", str(threads), "--json"], capture_output=True, text=True, check=True)
    r = json.loads(p.stdout.strip().split("\n")[0])
    return r["decode_tok_s"]["median"], r


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--peer", required=True)
    a.add_argument("--shapes", default="s260K,tv1M,tv8M,s15M,tv27M,s42M,s110M")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("-n", type=int, default=200)
    a.add_argument("-t", type=int, default=2)
    o = a.parse_args()
    taperc = os.path.abspath(o.build) + "/taperc"
    print("| shape | llama2.c tok/s | ours, live norms | ours, folded | engine gain | folding gain | folded share of bandwidth |\n|---|---|---|---|---|---|---|")
    for name in o.shapes.split(","):
        with tempfile.TemporaryDirectory() as root:
            folder = root + "/" + name
            make(name, folder)
            for kind, gate in (("live", "1"), ("folded", "0")):
                subprocess.run([taperc, "compile", folder, "--gate", "internal=" + gate, "--gate", "final=" + gate, "--arch", "native", "-o", "%s/%s.tpack" % (root, kind)], check=True)
            n = o.n if SHAPES[name][0] < 512 else min(o.n, 100)
            rows = {"peer": [], "peer1": [], "live": [], "folded": []}
            share = []
            for _ in range(o.rounds):
                rows["peer1"].append(peer(os.path.abspath(o.peer), folder, n, 1)[0])
                speed, ids = peer(os.path.abspath(o.peer), folder, n, o.t)
                rows["peer"].append(speed)
                for kind in ("live", "folded"):
                    speed, r = ours(taperc, "%s/%s.tpack" % (root, kind), n, o.t)
                    rows[kind].append(speed)
                share.append((r.get("limit_share") or {}).get("median") or 0)
            p = subprocess.run([taperc, "run", root + "/live.tpack", "--tokens", "1", "-n", "24", "--temp", "0", "--print-tokens"], capture_output=True, text=True)
            mine = [int(i) for i in p.stdout.strip().split(",") if i]
            same = next((i for i, (x, y) in enumerate(zip(mine, ids[-len(ids):])) if x != y), min(len(mine), len(ids)))
            m = {k: float(np.median(v)) for k, v in rows.items()}
            if m["peer1"] > m["peer"]:
                m["peer"], rows["peer"] = m["peer1"], rows["peer1"]
            cell = lambda k: "%.4g (%.4g..%.4g)" % (m[k], min(rows[k]), max(rows[k]))  # noqa: E731
            print("| %s | %s | %s | %s | %.2fx | %.3fx | %.0f %% |" % (name, cell("peer"), cell("live"), cell("folded"), m["live"] / m["peer"], m["folded"] / m["live"], 100 * float(np.median(share))), flush=True)
            print("%s: greedy ids agree for %d of %d" % (name, same, min(len(mine), len(ids))), file=sys.stderr)


main()

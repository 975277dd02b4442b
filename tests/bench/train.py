#!/usr/bin/python3
"""Training speed beside PyTorch in one interleaved run: train.py BUILD [--torch PYTHON] [--preload LIB] [--shape gpt2-12M] [--rounds 5] [--steps 6] [-t 2]

fp32, the same shape, batch and windows on both sides (train_peer.py is the other one; PYTHON has torch, LIB may be tcmalloc; without --torch only ours runs). Rounds are
A/B/A/B: the peer waits while ours runs. Rows: ours with live norms (engine gain: ours / theirs) and, once every gate is closed, norm-free (gain of the zero program: / live).
Share: (6 N + 12 L T d) flops a token by the fused multiply-add peak that `taperc bench` measures in the same run. Prints one markdown table: medians with min..max.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHAPES = {  # form, d, layers, heads, vocab, batch, time
    "gpt2-12M": ("gpt2", 384, 6, 6, 4096, 8, 256), "gpt2-1M": ("gpt2", 128, 4, 4, 1024, 8, 128), "llama-9M": ("llama", 256, 8, 16, 10000, 16, 512),
}
RECIPE = {"gpt2": "taperln-s", "llama": "pretrain"}


def parameters(shape):
    """Elements of the matrices that multiply (the tied table once)."""
    form, d, layers, _, vocab, _, _ = SHAPES[shape]
    ff = 4 * d * 2 if form == "gpt2" else 8 * ((d + 2) // 3) * 3
    return layers * (4 * d * d + ff * d) + vocab * d


class Ours:
    def __init__(self, build, shape, threads, root):
        form, d, layers, heads, vocab, batch, time = SHAPES[shape]
        self.taperc, self.threads, self.root, self.runs = os.path.join(build, "taperc"), threads, root, 0
        self.sizes = ["-D", "d=%d" % d, "-D", "layers=%d" % layers, "-D", "heads=%d" % heads, "-D", "vocab=%d" % vocab, "-D", "context=%d" % time]
        self.rest = ["--batch", str(batch), "--seq", str(time), "--accumulate", "1", "-t", str(threads)]
        self.data = os.path.join(root, "ids.u16")
        np.random.default_rng(0).integers(0, vocab, 400000).astype("<u2").tofile(self.data)
        source = open(os.path.join(ROOT, "examples/recipes/%s.tmodel" % RECIPE[form])).read()
        model = source[: source.index("\ntrain {")]
        self.models = {}
        for kind, taper in (("live", ""), ("zero", "taper internal(start = 0, end = 1); taper final(start = 0, end = 1);")):
            self.models[kind] = os.path.join(root, kind + ".tmodel")
            with open(self.models[kind], "w") as f:
                f.write(model + "\ntrain { optimizer adamw(lr = 3e-4); schedule constant(warmup = 0); %s }\n" % taper)

    def __call__(self, kind, steps):
        """tokens/s of each step but the first two."""
        self.runs += 1
        out = os.path.join(self.root, "run%d" % self.runs)
        p = subprocess.run([self.taperc, "train", self.models[kind], "--data", self.data, "-o", out, "--steps", str(steps + 2), "--no-stress", "--eval-windows", "8"] + self.sizes + self.rest, capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError("taperc train: exit %d: %s" % (p.returncode, p.stderr.strip()[-600:]))
        lines = [json.loads(x) for x in open(os.path.join(out, "metrics.jsonl"))]
        return [x["tokens_per_s"] for x in lines if "loss" in x][2:]

    def peak(self):
        """GFLOP/s of fused multiply-adds on the threads in use."""
        package = os.path.join(self.root, "any.tpack")
        if not os.path.exists(package):
            subprocess.run([self.taperc, "compile", os.path.join(ROOT, "examples/models/kjv-all"), "--arch", "native", "-o", package], check=True)
        p = subprocess.run([self.taperc, "bench", package, "-p", "8", "-n", "8", "-r", "1", "-t", str(self.threads), "--json"], capture_output=True, text=True, check=True)
        return json.loads(p.stdout.strip().split("\n")[0])["fma_gflop_s"]


class Peer:
    def __init__(self, python, preload, shape, threads):
        _, d, layers, heads, vocab, batch, time = SHAPES[shape]
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), **({"LD_PRELOAD": preload} if preload else {}))
        args = [threads, batch, time, vocab, d, layers, heads]
        self.tokens = batch * time
        self.p = subprocess.Popen([python, os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_peer.py")] + list(map(str, args)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        word = self.p.stdout.readline().split()
        if not word or word[0] != "ready":
            raise RuntimeError("the peer did not start")
        self.version = word[1]

    def __call__(self, steps):
        self.p.stdin.write("%d\n" % steps)
        self.p.stdin.flush()
        return [self.tokens / float(x) for x in self.p.stdout.readline().split()]

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("build")
    a.add_argument("--torch", help="a python that has torch")
    a.add_argument("--preload", help="LD_PRELOAD of the peer")
    a.add_argument("--shape", default="gpt2-12M", choices=sorted(SHAPES))
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--steps", type=int, default=6, help="of a round")
    a.add_argument("-t", type=int, default=2)
    o = a.parse_args()
    form, d, layers, _, _, _, time = SHAPES[o.shape]
    flops = 6 * parameters(o.shape) + 12 * layers * time * d
    peer = None
    if o.torch and form == "gpt2":
        peer = Peer(o.torch, o.preload, o.shape, o.t)
    else:
        print("skip PyTorch: %s" % ("the peer is of the GPT-2 form" if o.torch else "no --torch PYTHON"), file=sys.stderr)
    rows, peaks = {"live": [], "zero": [], "peer": []}, []
    with tempfile.TemporaryDirectory() as root:
        ours = Ours(os.path.abspath(o.build), o.shape, o.t, root)
        for _ in range(o.rounds):
            peaks.append(ours.peak())
            if peer:
                rows["peer"].append(float(np.median(peer(o.steps))))
            for kind in ("live", "zero"):
                rows[kind].append(float(np.median(ours(kind, o.steps))))
    if peer:
        peer.close()
    peak = float(np.median(peaks))
    print("%s, %d threads, fused multiply-add peak %.0f (%.0f..%.0f) GFLOP/s, %.1f Mflop a token%s\n" % (o.shape, o.t, peak, min(peaks), max(peaks), flops / 1e6, ", PyTorch " + peer.version if peer else ""))
    print("| training | tokens/s | share of peak | ratio |\n|---|---|---|---|")
    median = {k: float(np.median(v)) for k, v in rows.items() if v}
    for kind, name, against in (("peer", "PyTorch, torch.compile", None), ("live", "ours, live norms", "peer"), ("zero", "ours, norm-free (gates 0)", "live")):
        if kind not in median:
            continue
        ratio = "%.2fx %s" % (median[kind] / median[against], {"peer": "PyTorch", "live": "live"}[against]) if against in median else ""
        print("| %s | %.0f (%.0f..%.0f) | %.0f %% | %s |" % (name, median[kind], min(rows[kind]), max(rows[kind]), 100 * median[kind] * flops / peak / 1e9, ratio))


main()

#!/usr/bin/python3
"""taperc scan against an independent NumPy program in fp64: spread of r and sigma, calibrated c, KL and loss when a norm, or all up to it, become linear."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lib_oracle as oracle  # noqa: E402

TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
QUICK = bool(os.environ.get("TAPERC_QUICK"))

FORMS = {
    "rms": dict(taper=False, vocab=257),
    "gpt-2": dict(norm="ln", taper=False, rope=False, bias=True, act="gelu_tanh", d=36, heads=3, ff=50),
    "1 layer, 1 head": dict(layers=1, heads=1, d=20, ff=28, taper=False, tied=False, context=17),
    "parallel, q/k norms": dict(parallel=True, qk_norm=True, taper=False, kv=2),
    "open gates": dict(internal=1.0, final=1.0, norm="ln", tied=False, head_bias=True),
    "final norm left": dict(internal=0.0, final=1.0, d=24, heads=2),
    "some layers left": dict(gate_array=True, internal=[0.0, 1.0, 0.25], layers=3, final=1.0),
    "nothing left": dict(internal=0.0, final=0.0),
    "context 1": dict(context=1, taper=False, d=16, heads=2),
}


class Scanned(oracle.Model):
    """The norms named in self.linear_norms are c h gamma (+ beta), with c from self.scale; what enters each is kept."""

    def __init__(self, c, w):
        super().__init__(c, w)
        self.linear_norms, self.scale, self.seen = set(), {}, {}

    def is_live(self, gate, layer):
        g = oracle.gates(self.c).get(gate, 1.0)
        return (g if np.isscalar(g) else g[layer]) == 1

    def norm(self, x, name, gate, layer):
        if not self.is_live(gate, layer):
            return super().norm(x, name, gate, layer)
        h = x - x.mean(-1, keepdims=True) if self.c["norm"] == "ln" else x
        r = np.sqrt((h * h).mean(-1) + self.c["eps"])
        self.seen.setdefault(name, []).append((h, r))
        y = h * self.w[name + ".weight"] * (self.scale[name] if name in self.linear_norms else 1 / r[:, None])
        return y + self.w[name + ".bias"] if self.c["norm"] == "ln" else y


def log_softmax(x):
    m = x.max(-1, keepdims=True)
    return x - m - np.log(np.exp(x - m).sum(-1, keepdims=True))


def windows_of(ids, span):
    n = (len(ids) - 1) // span
    last = len(ids) - 1 - span
    starts = [w * last // (n - 1) if n > 1 else 0 for w in range(n)]
    return [(ids[s : s + span], ids[s + 1 : s + span + 1]) for s in starts]


def expected(c, w, ids):
    m = Scanned(c, w)
    data = windows_of(ids, min(c["context"], 256, len(ids) - 1))
    base = [log_softmax(m(t)[0]) for t, _ in data]
    names = list(m.seen)
    out = []
    for name in names:
        h, r = (np.concatenate(x) for x in zip(*m.seen[name]))
        square = ((h * m.w[name + ".weight"]) ** 2).sum(-1)
        m.scale[name] = (square / r).mean() / square.mean()
        s = np.sort(r)
        out.append(dict(name=name, c=m.scale[name], **{"r_p%d" % p: s[max(0, int(np.ceil(p * len(s) / 100)) - 1)] for p in (5, 50, 95)}))

    def differ(norms):
        m.linear_norms = set(norms)
        kl = loss = n = 0
        for (t, y), b in zip(data, base):
            got = log_softmax(m(t)[0])
            kl += (np.exp(b) * (b - got)).sum()
            loss += (b - got)[np.arange(len(y)), y].sum()
            n += len(y)
        return kl / n, loss / n

    for i, name in enumerate(names):
        out[i]["kl_one"], out[i]["dloss_one"] = differ([name])
        out[i]["kl_upto"], out[i]["dloss_upto"] = differ(names[: i + 1])
    ce = -sum(b[np.arange(len(y)), y].sum() for (_, y), b in zip(data, base)) / sum(len(y) for _, y in data)
    return out, ce


def main():
    with tempfile.TemporaryDirectory() as root:
        for k, (name, changes) in enumerate(FORMS.items()):
            if QUICK and k > 2:
                break
            c = oracle.config(**changes)
            w = oracle.weights(c, 70 + k)
            folder = os.path.join(root, "m%d" % k)
            oracle.write(folder, c, w)
            ids = np.random.default_rng(k).integers(0, c["vocab"], c["context"] * 9 + 5)
            data = os.path.join(root, "data%d.ids" % k)
            with open(data, "w") as f:
                f.write(" ".join(map(str, ids)))
            p = subprocess.run([TAPERC, "scan", folder, "--data", data, "--json"], capture_output=True, text=True)
            if p.returncode:
                print("not ok %s: exit %d: %s" % (name, p.returncode, p.stderr.strip().replace("\n", " | ")[-300:]))
                continue
            got = json.loads(p.stdout)
            want, ce = expected(c, w, ids)
            fine = [n["name"] for n in got["norms"]] == [n["name"] for n in want]
            worst, where = 0.0, ""
            for g, n in zip(got["norms"], want):
                for key in n:
                    if key == "name":
                        continue
                    scale = max(abs(n[key]), 1e-2 if key.startswith(("kl", "dloss")) else 0)
                    error = abs(g[key] - n[key]) / scale if g[key] is not None else np.inf
                    worst, where = max((worst, where), (error, "%s.%s: %r, not %r" % (g["name"], key, g[key], n[key])))
            fine = fine and worst < 1e-3 and (not want or abs(got["ce"] - ce) < 1e-4 * ce)
            print("%s %s: %d norms, worst %.1e %s" % ("ok" if fine else "not ok", name, len(want), worst, "" if fine else where))


main()

#!/usr/bin/python3
"""`taperc train` against an independent float64 program (lib_train.py), step by step: losses, norms, gates, learning rate, c, the anchor's target, final weights.

Both start from one set of weights and read the same windows (docs/data.md). The models are small and odd: no dimension is a multiple of 16, 1 to 5 heads, 1 layer, T = 1,
vocab 257, ids from files. Tolerance: max(2e-5, 8 x what a plain float32 run of lib_train.py is off), relative.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lib_train  # noqa: E402
from lib_oracle import config, source, weights, write  # noqa: E402

TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
QUICK = bool(os.environ.get("TAPERC_QUICK"))
PHILOX_DATA = 5


def ramp(start, end, **more):
    return dict(lib_train.RAMP, start=start, end=end, **more)


def switch(step, every=0, **more):
    return dict(dict(step=step, every=every, ema=0.01, inv_sigma=False), **more)


SMALL = dict(d=20, layers=2, heads=5, ff=36, vocab=257, context=9)
CASES = [  # name, model, recipe, batch, time, accumulate
    ("llama, all and anchor", dict(SMALL), dict(steps=24, lr=3e-3, warmup=3, gates=dict(internal=ramp(3, 18), final=ramp(3, 18)), anchor=0.1), 3, 7, 2),
    ("llama, internal and anchor", dict(SMALL, heads=2), dict(steps=20, lr=3e-3, warmup=2, gates=dict(internal=ramp(2, 20, ema=0.1)), anchor=0.1), 4, 7, 1),
    ("baseline, linear schedule, decay", dict(SMALL, heads=1, layers=1, act="relu"), dict(steps=16, lr=2e-3, warmup=4, schedule="linear", floor=0.25, decay=0.1, clip=0.3), 2, 7, 3),
    ("GPT-2, from step 0 to the end", dict(SMALL, norm="ln", rope=False, bias=True, act="gelu_tanh"),
     dict(steps=20, lr=2e-3, warmup=5, decay=0.1, gates=dict(internal=ramp(0, 20, ema=0.1), final=ramp(0, 20, ema=0.1)), anchor=0.1), 2, 9, 1),
    ("arrays of gates, inv_sigma, untied", dict(SMALL, norm="ln", layers=3, heads=5, bias=True, gate_array=True, tied=False, head_bias=True, act="gelu"),
     dict(steps=24, lr=2e-3, warmup=2, schedule="constant", clip=0, gates=dict(internal=switch(4, 5, ema=0.1, inv_sigma=True), final=switch(20, ema=0.1, inv_sigma=True)), anchor=0.05), 3, 7, 2),
    ("q/k norms, grouped heads, window, cap", dict(SMALL, d=24, heads=4, kv=2, hd=6, qk_norm=True, window=3, softcap=5.0, interleaved=True, parallel=True, eps=1e-5),
     dict(steps=16, lr=3e-3, warmup=1, gates=dict(internal=ramp(2, 9), final=ramp(5, 16)), anchor=0.1), 2, 8, 1),
    ("DyT, final norm tapered", dict(SMALL, dyt=True, heads=5), dict(steps=16, lr=3e-3, warmup=2, gates=dict(final=ramp(4, 12))), 3, 7, 1),
    ("T = 1, one layer, one head", dict(SMALL, layers=1, heads=1, context=1, norm="ln", rope=False), dict(steps=12, lr=3e-3, warmup=1, gates=dict(internal=ramp(1, 6), final=ramp(3, 4)), anchor=0.1), 5, 1, 2),
    ("one step", dict(SMALL), dict(steps=1, lr=3e-3, gates=dict(internal=ramp(0, 1), final=ramp(0, 1)), anchor=0.1), 2, 7, 1),
    ("kinds of gate apart", dict(SMALL, gate_array=True, layers=3), dict(steps=20, lr=3e-3, warmup=3, gates=dict(internal=switch(3, 6), final=ramp(0, 5)), anchor=0.1), 2, 7, 1),
]


def train_section(r, batch, time, accumulate):
    """The recipe in words of the language."""
    s = ["optimizer adamw(lr = %r, betas = (%r, %r), eps = %r, weight_decay = %r, clip = %r);" % tuple(float(r[k]) for k in ("lr", "beta1", "beta2", "eps", "decay", "clip")),
         "schedule %s(warmup = %d%s);" % (r["schedule"], r["warmup"], "" if r["schedule"] == "constant" else ", floor = %r" % float(r["floor"]))]
    for name, g in r["gates"].items():
        when = "step = %d%s" % (g["step"], ", every = %d" % g["every"] if g.get("every") else "") if "step" in g else "start = %d, end = %d" % (g["start"], g["end"])
        s.append("taper %s(%s, ema = %r, calibration = %s);" % (name, when, g["ema"], "inv_sigma" if g.get("inv_sigma") else "least_squares"))
    if r["anchor"]:
        s.append("anchor fixed_target(weight = %r);" % r["anchor"])
    s.append("steps %d; batch %d; accumulate %d; sequence %d; seed %d;" % (r["steps"], batch, accumulate, time, r["seed"]))
    return "train {\n  %s\n}\n" % "\n  ".join(s)


def batch_of(ids, seed, step, accumulate, batch, time, first=0):
    """Window `index` of micro-batch `micro` begins at floor(draw * places / 2^64)."""
    x = np.empty((accumulate, batch, time), np.int64)
    y = np.empty_like(x)
    for micro in range(accumulate):
        for index in range(batch):
            r = lib_train.philox(seed, PHILOX_DATA, first + micro, step, index)
            at = ((r[0] << 32 | r[1]) * (len(ids) - time)) >> 64
            x[micro, index], y[micro, index] = ids[at:at + time], ids[at + 1:at + time + 1]
    return x, y


def reference(c, w, r, ids, batch, time, accumulate, dtype):
    t = lib_train.Trainer(c, w, r, dtype)
    if 0 in t.starts():
        for i in range(8):
            t.calibrate(*batch_of(ids, r["seed"], 0, accumulate, batch, time, i * accumulate))
        t.begin()
    lines = [t.step(*batch_of(ids, r["seed"], k, accumulate, batch, time)) for k in range(1, r["steps"] + 1)]
    return t, lines


def taperc(*args):
    p = subprocess.run([TAPERC] + [str(a) for a in args], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError("taperc %s: exit %d: %s" % (" ".join(map(str, args[:2])), p.returncode, p.stderr.strip()[-500:]))
    return p.stdout


SCALARS = ("loss", "ce", "aux", "grad_norm", "logit_norm", "residual_scale")


def no_gradient(c, name):
    """Exactly zero in exact arithmetic: a shift of all keys, without rope, moves all scores of a row alike. Adam then blows up rounding."""
    return name.endswith("attn.k.bias") and not c["rope"]


def case(name, model, recipe, batch, time, accumulate, root, seed):
    c = config(**dict(model, internal=1.0, final=1.0))
    r = dict(lib_train.RECIPE, **dict(recipe, seed=seed))
    w = weights(c, seed)
    folder = os.path.join(root, "init%d" % seed)
    write(folder, c, w)
    path = os.path.join(root, "m%d.tmodel" % seed)
    with open(path, "w") as f:
        f.write(source(c) + train_section(r, batch, time, accumulate))
    ids = np.random.default_rng(seed).integers(0, c["vocab"], 400).astype("<u2")
    data, val, run = (os.path.join(root, "%s%d" % (n, seed)) for n in ("data", "val", "run"))
    ids.tofile(data + ".u16")
    ids[:50].tofile(val + ".u16")
    taperc("train", path, "--init", folder, "--data", data + ".u16", "--val", val + ".u16", "-o", run, "-t", 1 + seed % 2)
    lines = [json.loads(x) for x in open(os.path.join(run, "metrics.jsonl"))]
    got = [x for x in lines if "loss" in x]
    exact, want = reference(c, w, r, ids, batch, time, accumulate, np.float64)
    plain, rough = reference(c, w, r, ids, batch, time, accumulate, np.float32)
    worst = []

    def compare(what, a, b, by, base=None):
        """a: taperc's, b: float64's, by: float32's."""
        scale = max(float(np.abs(np.asarray(b)).max()) if base is None else base, 1e-30)
        error = float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max()) / scale
        limit = max(2e-5, 8 * float(np.abs(np.asarray(by, np.float64) - np.asarray(b, np.float64)).max()) / scale)
        worst.append((error / limit, "%s: off by %.2g, limit %.2g" % (what, error, limit)))

    if len(got) != r["steps"] or [x["step"] for x in got] != list(range(1, r["steps"] + 1)):
        return "steps %r" % [x["step"] for x in got]
    for key in SCALARS:
        base = max(abs(x["loss"]) for x in want) if key == "aux" else max(abs(x[key]) for x in want)
        for a, b, by in zip(got, want, rough):
            compare("%s of step %d" % (key, b["step"]), a[key], b[key], by[key], base)
    for a, b in zip(got, want):
        compare("lr of step %d" % b["step"], a["lr"], b["lr"], b["lr"], r["lr"])
        for gate in b["g"]:
            compare("gate %s of step %d" % (gate, b["step"]), a["g"][gate], b["g"][gate], b["g"][gate])
            if any((x == 0) != (y == 0) for x, y in zip(np.atleast_1d(a["g"][gate]), np.atleast_1d(b["g"][gate]))):
                return "gate %s of step %d is %r, not %r" % (gate, b["step"], a["g"][gate], b["g"][gate])
    started = {}
    for x in lines:
        if x.get("event") == "taper_start":
            for n, v in x["c"].items():
                started.setdefault(n, (x["step"], v))
    for n, v in exact.c_of.items():
        if n not in started or started[n][0] != exact.start_of(*exact.norms[n]):
            return "no taper_start of %s at step %r" % (n, exact.start_of(*exact.norms[n]))
        compare("c of %s" % n, started[n][1], v, plain.c_of[n])
    if r["anchor"]:
        target = [x["s_tgt"] for x in lines if x.get("event") == "taper_start"][0]
        compare("s_tgt", target, exact.s_tgt, plain.s_tgt)
    final = load_file(os.path.join(run, "checkpoint-%d" % r["steps"], "weights.safetensors"))
    for n, v in exact.p.items():
        if no_gradient(c, n) or n.endswith("taper_weight") and n[:-13] not in exact.c_of or n.endswith("taper_c") and n[:-8] not in exact.c_of:
            continue
        compare("final %s" % n, final[n], v, plain.p[n])
    bad = sorted((x for x in worst if not x[0] <= 1), reverse=True)
    print("%s: %s" % (name, max(worst)[1]), file=sys.stderr)
    return "; ".join(x[1] for x in bad[:4])


def self_check():
    """The reference's own gradients against central differences."""
    r = np.random.default_rng(1)
    for i, (name, model, _, batch, time, _) in enumerate(CASES):
        c = config(**model)
        x, y = r.integers(0, c["vocab"], (2, 2, time))
        y[0, 0] = -1 if time > 1 else y[0, 0]
        worst = max(lib_train.check_gradients(c, weights(c, i), {"internal": [g] * c["layers"] if c["gate_array"] else g, "final": g}, x, y) for g in (1.0, 0.4, 0.0))
        print("%s reference gradients, %s: %.2g" % ("ok" if worst < 1e-5 else "not ok", name, worst))


def main():
    if not QUICK and not sys.argv[2:]:
        self_check()
    with tempfile.TemporaryDirectory() as root:
        for i, (name, *rest) in enumerate(CASES):
            if QUICK and i > 4 or sys.argv[2:] and name not in sys.argv[2:]:
                continue
            try:
                problem = case(name, *rest, root, i + 1)
            except RuntimeError as e:
                problem = str(e).replace("\n", " | ")
            print(("not ok %s: %s" % (name, problem)) if problem else "ok %s" % name, flush=True)


main()

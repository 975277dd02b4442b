#!/usr/bin/python3
"""The shipped models against the references of the independent PyTorch program: logits, layer streams, validation loss, greedy ids."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
QUICK = bool(os.environ.get("TAPERC_QUICK"))


def taperc(*args):
    p = subprocess.run([TAPERC] + list(args), capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError("taperc %s: exit %d: %s" % (" ".join(args), p.returncode, p.stderr.strip()[-400:]))
    return p.stdout


def verdict(ok, name, detail):
    print("%s %s%s" % ("ok" if ok else "not ok", name, ": " + detail), flush=True)


def logits(model, folder, reference, root):
    tokens = ",".join(map(str, reference["tokens"]))
    out = os.path.join(root, "logits.safetensors")
    for extra in [[], ["--norms=kernel"], ["--fold=explicit"], ["--fold=none"], ["-O0"]] + ([["--untie"], ["--split-scale"]] if model == "kjv-all" else []):
        taperc("logits", folder, "--tokens", tokens, "--layers", "-o", out, *extra)
        got = load_file(out)
        error = np.abs(got["logits"] - reference["logits"]).max() / np.abs(reference["logits"]).max()
        layer = max(np.abs(got[n] - reference[n]).max() / np.abs(reference[n]).max() for n in reference if n.startswith("layers."))
        verdict(error <= 2e-5 and layer <= 2e-5, "%s logits %s" % (model, " ".join(extra)), "%.2g, layers %.2g" % (error, layer))
        if QUICK:
            break


def live(folder, reference, root):
    """The LayerNorm model with its gates at 1: writers centred, streams reported with what they lost, against the norms as written."""
    tokens, out = ",".join(map(str, reference["tokens"])), os.path.join(root, "live.safetensors")
    gates = ["--gate", "internal=1", "--gate", "final=1"]
    taperc("logits", folder, "--tokens", tokens, "--layers", "-o", out, "--norms=kernel", "--fold=none", *gates)
    written = load_file(out)
    for extra in [["--layers"], ["--layers", "-t", "2"], []]:
        taperc("logits", folder, "--tokens", tokens, "-o", out, *gates, *extra)
        got = load_file(out)
        worst = max(np.abs(got[n] - written[n]).max() / np.abs(written[n]).max() for n in got if n != "tokens")
        verdict(worst <= 2e-5 and len(got) == (len(written) if extra else 2), "kjv-ln live %s" % " ".join(extra), "%.2g" % worst)


def greedy(model, folder, info):
    gap = info["greedy_top2_gap"]
    sure = next((i for i, g in enumerate(gap) if g < 1e-3), len(gap))
    prompt = ",".join(map(str, info["prompt"]))
    for extra in [["-t", "1"], ["-t", "2"], ["-t", "2", "--norms=kernel"], ["-t", "1", "--fold=none"]]:
        ids = taperc("run", folder, "--tokens", prompt, "-n", str(len(info["greedy"])), "--temp", "0", "--print-tokens", *extra)
        ids = [int(i) for i in ids.strip().split(",")]
        verdict(ids[:sure] == info["greedy"][:sure], "%s greedy %s" % (model, " ".join(extra)), "%d sure ids" % sure)


def validation(model, folder, info, reference, root):
    text = open(os.path.join(ROOT, "examples/data/kjv.txt"), "rb").read()[-206893:][:206849]
    data = os.path.join(root, "validation.txt")
    with open(data, "wb") as f:
        f.write(text)
    for extra in [[]] if QUICK else [[], ["--fold=explicit"], ["--fold=none"]]:
        r = json.loads(taperc("eval", folder, "--data", data, "--json", *extra))
        mean, median = info["val_ce_mean_nats_per_byte"], info["val_ce_median_window"]
        ok = abs(r["ce"] / mean - 1) < 2e-5 and abs(r["median_window_ce"] / median - 1) < 2e-5 and r["tokens"] == 206848
        verdict(ok, "%s validation loss %s" % (model, " ".join(extra)), "%.6f (%.6f), median %.6f (%.6f)" % (r["ce"], mean, r["median_window_ce"], median))


def clamped(model, folder, info, reference, root):
    """--clamp-rows: validation losses that an independent PyTorch program measured with its looked-up rows clamped."""
    table = {"kjv-all": {"2": 1.2884, "1.5": 1.2866, "1.2": 1.2862, "1": 1.2936}, "kjv-internal": {"2": 1.2849, "1.5": 1.2845, "1.2": 1.2844, "1": 1.3017}}.get(model, {})
    for k, wanted in list(table.items())[: 1 if QUICK else 4]:
        got = json.loads(taperc("eval", folder, "--data", os.path.join(root, "validation.txt"), "--json", "--clamp-rows=" + k))["ce"]
        verdict(abs(got - wanted) < 1.5e-4, "%s --clamp-rows=%s" % (model, k), "%.5f (%.4f)" % (got, wanted))


def main():
    with tempfile.TemporaryDirectory() as root:
        for model in ("kjv-all", "kjv-internal", "kjv-ln"):
            folder = os.path.join(ROOT, "examples/models", model)
            reference = load_file(os.path.join(folder, "reference.safetensors"))
            info = json.load(open(os.path.join(folder, "reference.json")))
            for part in (lambda: logits(model, folder, reference, root), lambda: greedy(model, folder, info), lambda: validation(model, folder, info, reference, root),
                         lambda: clamped(model, folder, info, reference, root)):
                try:
                    part()
                except RuntimeError as e:
                    print("not ok %s: %s" % (model, str(e).replace("\n", " | ")))
            if model == "kjv-ln":
                live(folder, reference, root)


main()

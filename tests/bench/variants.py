#!/usr/bin/python3
"""The six variants in the setting of the independent PyTorch twin (tapernorm.md 8), beside its losses: variants.py BUILD --runs DIR --data KJV [--seeds 1,2,3] [--variants ...] [-t 1]

KJV: the whole King James text that the twin read, 4,137,850 bytes (examples/data/kjv.txt is its last million; sha256: examples/models/kjv-all/reference.json).
Trains examples/models/kjv-all's model on it, 2000 steps each (a run that is complete in DIR is not repeated), and evaluates the last checkpoint by NumPy
(lib_train.py, float32) at its own gates on the twin's windows: 100 batches of 16 from the last 5 %, drawn by default_rng(123). Prints one markdown table: every seed, medians, the ratio of
medians, the mean logit norm over the last training batch.
"""
import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np  # noqa: E402
from safetensors import safe_open  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "numerics"))
from lib_oracle import config  # noqa: E402
from lib_train import Pass  # noqa: E402

TWIN = {  # seeds 1, 2, 3: validation losses and logit norms
    "baseline": ([1.3230, 1.3197, 1.3085], [227, 207, 212]), "internal": ([1.3073, 1.3007, 1.2994], [215, 199, 198]), "internal-aux": ([1.2956, 1.2977, 1.2926], [227, 203, 214]),
    "final": ([1.3222, 1.3171], [372, 361]), "all": ([1.3108, 1.3081, 1.3038], [366, 337, 344]), "all-aux": ([1.3013, 1.2985, 1.4200], [262, 229, 250]),
}


def evaluate(checkpoint, text):
    with safe_open(os.path.join(checkpoint, "weights.safetensors"), "np") as f:
        w = {k: f.get_tensor(k) for k in f.keys()}
        gates = json.loads(f.metadata()["taper.gates"])
    c = config(d=64, layers=4, heads=4, ff=176, vocab=256, context=128)
    held = np.frombuffer(text, np.uint8)[int(len(text) * 0.95):].astype(np.int64)
    r, total = np.random.default_rng(123), 0.0
    for _ in range(100):
        at = r.integers(0, len(held) - 129, 16)
        x = np.stack([held[i:i + 129] for i in at])
        p = Pass(c, w, gates, x[:, :-1], x[:, 1:], 1 / (16 * 128))
        total += p.result["ce"]
        p.steps.clear()  # what a backward pass would need
    return total / 100


def run(taperc, folder, variant, seed, threads, data):
    metrics = os.path.join(folder, "metrics.jsonl")
    done = os.path.exists(metrics) and '"end"' in open(metrics).read()
    if not done:
        shutil.rmtree(folder, ignore_errors=True)
        model = os.path.join(ROOT, "examples/models/kjv-all/model.tmodel")
        subprocess.run([taperc, "train", model, "--data", data, "--variant", variant, "--seed", str(seed), "-o", folder, "-t", str(threads)], check=True)
    last = [x for x in map(json.loads, open(metrics)) if "loss" in x][-1]
    return os.path.join(folder, "checkpoint-%d" % last["step"]), last["logit_norm"]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("build")
    a.add_argument("--runs", required=True)
    a.add_argument("--data", required=True)
    a.add_argument("--seeds", default="1,2,3")
    a.add_argument("--variants", default=",".join(TWIN))
    a.add_argument("-t", type=int, default=1)
    o = a.parse_args()
    text = open(o.data, "rb").read()
    if hashlib.sha256(text).hexdigest() != json.load(open(os.path.join(ROOT, "examples/models/kjv-all/reference.json")))["corpus_sha256"]:
        print("this is not the text of the twin: the columns cannot be compared\n")
    print("| variant | loss by seed | median | twin's median | ratio | logit norm by seed | twin's |\n|---|---|---|---|---|---|---|", flush=True)
    norms = {}
    for variant in o.variants.split(","):
        losses, norms[variant] = [], []
        for seed in o.seeds.split(","):
            checkpoint, norm = run(os.path.join(os.path.abspath(o.build), "taperc"), os.path.join(o.runs, "%s-%s" % (variant, seed)), variant, seed, o.t, o.data)
            losses.append(evaluate(checkpoint, text))
            norms[variant].append(norm)
        twin = float(np.median(TWIN[variant][0]))
        best = sorted(losses)[:2] if variant == "all-aux" and len(losses) == 3 else losses
        print("| %s | %s | %.4f | %.4f | %.4f | %s | %s |" % (variant, " ".join("%.4f" % x for x in losses), np.median(losses), twin, np.median(best) / twin,
                                                             " ".join("%.0f" % x for x in norms[variant]), " ".join(map(str, TWIN[variant][1]))), flush=True)
    if "all" in norms and "all-aux" in norms:
        print("\nmedian logit norm of All-Taper / All-Taper(+aux): %.2f" % (np.median(norms["all"]) / np.median(norms["all-aux"])))


main()

#!/usr/bin/python3
"""The recipes: each compiles, those of one kind differ where they should, each trains a few steps at a tiny size."""
import glob
import json
import os
import re
import shutil
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

RECIPES = os.path.join(cli.ROOT, "examples", "recipes")
SHAPE = {"taperln-s": (768, 12, 12), "taperln-m": (1024, 24, 16), "taperln-l": (1280, 36, 20), "taperln-xl": (1600, 48, 25)}
SCHEDULE = {"taperln-s": (300, 25, 100, 25, "0.1"), "taperln-m": (500, 20, 200, 10, "0.1"), "taperln-l": (600, 30, 500, 30, "0.1"), "taperln-xl": (800, 50, 700, 20, "0.01")}


def name_of(path):
    return os.path.basename(path)[:-7]


def taperln():
    """The four sizes are one model, with the paper's shapes and schedules (tapernorm.md 3)."""
    bodies = {}
    for name in SHAPE:
        text = open(os.path.join(RECIPES, name + ".tmodel")).read()
        model, train = text.split("\ntrain {")
        head = re.search(r"d = (\d+), layers = (\d+), heads = (\d+)", model)
        shape = tuple(map(int, head.groups()))
        found = re.search(r"warmup = (\d+).*?internal\(start = (\d+), end = (\d+), ema = 0\.1\).*?final\(start = (\d+), end = (\d+), ema = 0\.1\).*?weight = ([0-9.]+)\).*?steps (\d+);", train, re.S)
        warmup, start, end, start2, end2, weight, steps = found.groups()
        got = (int(steps), int(start), int(end), int(warmup), weight)
        bodies[name] = model[model.index("{"):]
        cli.report("%s is the paper's" % name, "" if shape == SHAPE[name] and got == SCHEDULE[name] and (start, end) == (start2, end2) else "%r %r" % (shape, got))
    cli.report("the four bodies are one", "" if len(set(bodies.values())) == 1 else "they differ")


TINY = ["-D", "d=20", "-D", "layers=2", "-D", "heads=5", "-D", "context=12", "--batch", "2", "--seq", "12", "--accumulate", "1", "-t", "1"]
# Of two arrays of gates norms read some elements only, and not in order of declaration.
SPARSE = """model sparse(vocab = 257, d = 20, layers = 3, heads = 1, context = 16) {
  gate a[3]; gate b[3];
  param wte: [vocab, d] init normal(0.02);
  forward(tokens) {
    let x = embed(tokens, wte);
    repeat 3 as "layers" with i {
      if i % 2 == 0 { x = x + linear(silu(taper_rms_norm(x, name = "n", gate = a[i])), d, name = "l"); }
      else { x = x + linear(silu(taper_rms_norm(x, name = "m", gate = b[i])), d, name = "k"); }
    }
    return linear(rms_norm(x, name = "norm"), weight = wte);
  }
}
train { optimizer adamw(lr = 1e-3); taper a(step = 1, every = 2); taper b(start = 0, end = 5); }
"""
RUNS = [  # recipe, steps, options, gates at the end; a few steps behind the last taper. taperln's four sizes are one body: the shortest and the longest schedule run
    ("pretrain", 6, ["--variant", "baseline"], {"internal": 1, "final": 1}), ("pretrain", 6, ["--variant", "internal-aux"], {"internal": 0, "final": 1}),
    ("pretrain", 6, ["--variant", "final"], {"internal": 1, "final": 0}), ("pretrain", 6, ["--variant", "all-aux"], {"internal": 0, "final": 0}),
    ("pretrain", 6, [], {"internal": 0, "final": 1}), ("taperln-s", 102, [], {"internal": 0, "final": 0}), ("taperln-xl", 702, [], {"internal": 0, "final": 0}),
    ("fakeln", 50, [], {"attn": [0, 0], "mlp": [0, 0], "final": 0}), ("dyt", 6, [], {}), ("gpt2-small", 10, [], {"internal": 0, "final": 0}),
]


def trains(root):
    """Each recipe at a tiny size, to the end of its tapers; the checkpoint is a model for the other commands."""
    ids, text = os.path.join(root, "ids.u16"), os.path.join(root, "text.txt")
    with open(ids, "wb") as f:
        f.write(b"".join(struct.pack("<H", int((x + 0.5) * 256) % 256) for x in cli.floats(2000, 1)))
    with open(text, "wb") as f:
        f.write(open(os.path.join(cli.ROOT, "examples", "data", "kjv.txt"), "rb").read(60000))
    sparse = os.path.join(root, "sparse.tmodel")
    with open(sparse, "w") as f:
        f.write(SPARSE)
    quick = [r for r in RUNS if r[0] in ("fakeln", "gpt2-small")] if os.environ.get("TAPERC_QUICK") else RUNS
    for i, (name, steps, options, gates) in enumerate(quick + [(sparse, 8, [], {"a": [0, 0, 0], "b": [0, 0, 0]})]):
        what = " ".join([os.path.basename(name)] + options) + " trains"
        path = name if name == sparse else os.path.join(RECIPES, name + ".tmodel")
        learned = "sentencepiece(" in open(path).read()
        if learned and not shutil.which("spm_train"):
            print("skip %s: spm_train is not installed" % what)
            continue
        out = os.path.join(root, "run%d" % i)
        data = ["--data", text if learned else ids, "-D", "vocab=%d" % (400 if learned else 257)] + (["--no-stress"] if i else [])
        code, _, err = cli.run(["train", path] + data + ["-o", out, "--steps", steps] + TINY + options, seconds=300)
        if code:
            cli.report(what, "exit %d: %s" % (code, err.strip()[-500:]))
            continue
        lines = [x for x in map(json.loads, open(os.path.join(out, "metrics.jsonl"))) if "loss" in x]
        left = [x for x in lines if not x["loss"] < 30]
        if len(lines) != steps or left or lines[-1]["g"] != gates:
            cli.report(what, "%d steps, odd losses %r, gates %r, not %r" % (len(lines), left[:1], lines[-1]["g"], gates))
            continue
        code, _, err = cli.run(["logits", out, "--tokens", "1,2,255", "-o", os.path.join(root, "l.safetensors")])
        cli.report(what, "" if code == 0 else "its checkpoint is no model: exit %d: %s" % (code, err.strip()[-500:]))


def main():
    files = sorted(glob.glob(os.path.join(RECIPES, "*.tmodel")))
    cli.report("recipes are there", "" if len(files) >= 8 else "%d of them" % len(files))
    readme = open(os.path.join(RECIPES, "README.md")).read()
    for path in files:
        name = name_of(path)
        code, out, err = cli.run(["compile", path, "--emit=ir"])
        cli.report("%s compiles" % name, "" if code == 0 and not err.strip() else "exit %d: %s" % (code, err[-400:]))
        cli.report("%s is in the README" % name, "" if name in readme or name.startswith("taperln") and "`-%s`" % name[8:] in readme else "it is not")
    taperln()
    with tempfile.TemporaryDirectory() as root:
        trains(root)


main()
sys.exit(1 if cli.failed else 0)

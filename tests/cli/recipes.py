#!/usr/bin/python3
"""The recipes: each compiles, those of one kind differ where they should, each trains a few steps at a tiny size."""
import glob
import os
import re
import sys

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


main()
sys.exit(1 if cli.failed else 0)

#!/usr/bin/python3
"""report.py [DIR]: the results of run.sh -> docs/performance-gpu.md on stdout (`make gpu-report DIR=...`). Without DIR, and for what DIR
does not have, the page says "not measured". Results of a dry run are refused: a simulator has no speed.
"""
import json
import os
import re
import sys

VARIANTS = ("kernel", "deferred", "explicit", "folded")
SIZES = ("1M", "5M", "15M", "30M", "124M", "135M")
BASELINES = ("eager", "graph", "compile", "compile graph")
NONE = "not measured"
RULES = """# Performance on GPUs

Written by `make gpu-report DIR=RESULTS` from what `cuda/gpu/run.sh` brought back ([cuda.md](cuda.md#measuring-on-a-gpu)); not edited by hand. Medians with
(least..most) of interleaved rounds in one process. Two gains are never mixed: **engine gain** is the best of PyTorch's medians, which has live norms, over ours with live
norms deferred; **folding gain** is ours deferred over ours folded. Both are ratios of times: above 1 ours, or folding, is faster.
"""


def lines(folder, name):
    try:
        with open(os.path.join(folder or os.devnull, name), encoding="utf-8", errors="replace") as f:
            return f.read().split("\n")
    except OSError:
        return []


def rows(folder, name):
    """One JSON object a line; a line that a time limit has cut is passed over."""
    out = []
    for line in lines(folder, name):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            out.append(value)
    return out


def number(x):
    return "%.3g" % x if x < 1000 else "%.4g" % x if x < 10000 else "%d" % x


def spread(row, unit=""):
    keys = ("median" + unit, "min" + unit, "max" + unit)
    return "%s (%s..%s)" % tuple(number(row[k]) for k in keys) if all(isinstance(row.get(k), (int, float)) for k in keys) else NONE


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")[:200]


def table(head, body):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(map(cell, r)) + " |" for r in body]) + "\n"


def calibration_of(folder):
    try:
        return json.loads("\n".join(lines(folder, "calibration.json")))
    except ValueError:
        return {}


def steps_table(folder):
    found = dict(re.findall(r"^# (\w+): (.*)$", "\n".join(lines(folder, "commands.txt")), re.M))
    names = ("environment", "conformance", "numerics", "calibration", "decode", "baselines", "sanitizer")
    return "## Steps\n" + table(("step", "outcome"), [(n, found.get(n, NONE)) for n in names])


def device_text(folder, c):
    env = "\n".join(lines(folder, "environment.txt"))
    out = ["Device: %s" % NONE]
    if c.get("device"):
        out = ["Device: %s, compute capability %s, %s multiprocessors, L2 %s MiB; driver %s; kernels of the calibration: %s." % (
            c["device"], c.get("capability"), c.get("multiprocessors"), c.get("l2_bytes", 0) >> 20, c.get("driver"), c.get("image"))]
        out += ["Host: " + m for m in re.findall(r"\d+ (cpu: .*)", env)[:1]]
        out += ["PyTorch: " + m for m in re.findall(r"^torch (\S.*)$", env, re.M)[:1]]
        out += [m for m in lines(folder, "commands.txt")[:2] if m.startswith("# ")]
    return "\n".join(line.lstrip("# ") + "  " for line in out) + "\n"


def correctness_table(folder):
    text = "\n".join(lines(folder, "conformance.txt"))
    passed, failed = len(re.findall(r"^\[       OK \]", text, re.M)), len(re.findall(r"^\[  FAILED  \] \w+$", text, re.M))
    body = [("device conformance", "%d passed, %d failed" % (passed, failed) if passed + failed else NONE)]
    numerics = rows(folder, "numerics.json")
    for kind in ("logits", "ids"):
        some = [r for r in numerics if r.get("kind") == kind]
        bad = [r["name"] for r in some if not r.get("ok")]
        worst = max((r["max_rel"] / r["tol"] for r in some if r.get("tol") and isinstance(r.get("max_rel"), float)), default=None)
        words = "%d of %d ok%s%s" % (len(some) - len(bad), len(some), "; largest share of a tolerance %.2f" % worst if worst is not None else "", "; not ok: " + ", ".join(bad) if bad else "")
        body.append(({"logits": "logits against fp64", "ids": "greedy and sampled ids against the CPU"}[kind], words if some else NONE))
    sanitizer = "\n".join(lines(folder, "sanitizer.txt"))
    runs = re.findall(r"^\$ compute-sanitizer --tool (\w+)[\s\S]*?^exit (\d+)", sanitizer, re.M)
    body.append(("compute-sanitizer", ", ".join("%s %s" % (t, "clean" if s == "0" else "exit " + s) for t, s in runs) or (NONE if not sanitizer.strip() else NONE + ": " + sanitizer.strip().split("\n")[-1])))
    return "## Correctness\n" + table(("what", "result"), body)


def calibration_table(c):
    body = [(r["what"], spread(r) + " " + r["unit"] if r.get("n") else NONE + (": " + (r.get("error") or r.get("not_possible") or "") if r.get("error") or r.get("not_possible") else ""), r.get("n", 0))
            for r in c.get("rows", [])]
    return "## What a step is made of\n" + table(("measured", "median (least..most)", "rounds"), body or [(NONE, NONE, 0)])


def bandwidth_for(c, size):
    """GB/s that the calibration read a buffer of nearly `size` bytes with."""
    best = None
    for r in c.get("rows", []):
        m = re.match(r"read_(\d+)_mib$", r.get("name", ""))
        if m and r.get("median"):
            far = abs((int(m.group(1)) << 20) / max(size, 1) - 1)
            if best is None or far < best[0]:
                best = (far, r["median"])
    return best[1] if best else None


def decode_row(c, entry, torch_us):
    by = {r["label"]: r for r in entry.get("rows", [])}
    us = {v: by[v]["median_us"] for v in VARIANTS if by.get(v, {}).get("median_us")}
    cells = [entry["size"], entry["dtype"], entry["batch"]]
    cells += [spread(by[v], "_us") if v in us else NONE + (": " + by[v]["error"] if by.get(v, {}).get("error") else "") for v in VARIANTS]
    cells.append(number(entry["batch"] * 1e6 / us["folded"]) if us.get("folded") else NONE)
    limit = bandwidth_for(c, by["folded"]["bytes_per_token"]) if us.get("folded") and by["folded"].get("bytes_per_token") else None
    cells.append("%.0f %%" % (by["folded"]["bytes_per_token"] / us["folded"] * 1e-3 / limit * 100) if limit else NONE)
    cells.append("%.2fx" % (torch_us / us["deferred"]) if torch_us and us.get("deferred") else NONE)
    cells.append("%.3fx" % (us["deferred"] / us["folded"]) if us.get("deferred") and us.get("folded") else NONE)
    return cells


def decode_table(folder, c, baselines):
    found = {(r.get("size"), r.get("dtype"), r.get("batch")): r for r in rows(folder, "decode.jsonl") if r.get("rows")}
    best = {}
    for r in baselines:
        key = (r.get("size"), r.get("dtype"), r.get("batch"))
        if r.get("median_us"):
            best[key] = min(r["median_us"], best.get(key, r["median_us"]))
    body = []
    for dtype in ("f32", "bf16"):
        for size in SIZES:
            for batch in (1, 8):
                key = (size, dtype, batch)
                body.append(decode_row(c, found[key], best.get(key)) if key in found else list(key) + [NONE] * 8)
    head = ("size", "type", "batch", "us a step: norms as kernels", "live, deferred", "explicit scales", "folded", "tok/s folded", "share of read bandwidth", "engine gain", "folding gain")
    return ("## Decode\nMicroseconds of a step, 128 greedy tokens from an empty state, random weights; the share is that of the rate at which the calibration reads a buffer of about the size "
            "of the weights.\n\n" + table(head, body))


def baseline_table(baselines):
    found = {(r.get("size"), r.get("dtype"), r.get("batch"), r.get("how")): r for r in baselines}
    body = []
    for dtype in ("f32", "bf16"):
        for size in SIZES:
            for batch in (1, 8):
                some = [found.get((size, dtype, batch, how), {}) for how in BASELINES]
                body.append([size, dtype, batch] + [spread(r, "_us") + (": " + r["error"] if r.get("error") else "") for r in some])
    return "## PyTorch\nMicroseconds of a step of the same shapes with live norms and a static cache of 256 positions.\n\n" + table(("size", "type", "batch", "eager", "CUDA graph", "torch.compile", "torch.compile in a CUDA graph"), body)


def page(folder):
    c = calibration_of(folder)
    first = (lines(folder, "commands.txt") or [""])[0]
    if c.get("simulated") or ", dry" in first:
        raise SystemExit("report.py: error: %s: a dry run on the simulator, whose figures mean nothing; give the results of a GPU" % folder)
    baselines = rows(folder, "baselines.jsonl")
    return "\n".join([RULES, device_text(folder, c), steps_table(folder), correctness_table(folder), calibration_table(c), decode_table(folder, c, baselines), baseline_table(baselines)])


def main():
    if len(sys.argv) > 2 or (len(sys.argv) == 2 and not os.path.exists(os.path.join(sys.argv[1], "commands.txt"))):
        raise SystemExit("report.py: error: %s: no commands.txt there; give the folder that run.sh wrote" % " ".join(sys.argv[1:]))
    sys.stdout.write(page(sys.argv[1] if len(sys.argv) == 2 else None))


main()

#!/usr/bin/python3
"""The GPU bundle, made small and run dry on the simulator: every step of run.sh, its limits and its failures; the report refuses the figures."""
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1])
FILES = {"environment.txt", "conformance.txt", "numerics.json", "calibration.json", "decode.jsonl", "baselines.jsonl", "sanitizer.txt", "commands.txt"}


def run(command, **env):
    p = subprocess.run(command, env=dict(os.environ, **env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=500)
    return p.returncode, p.stdout


def expect(name, good, why=""):
    print("ok %s" % name if good else "not ok %s: %s" % (name, str(why).replace("\n", " | ")[-900:]))


def read(*parts):
    with open(os.path.join(*parts), errors="replace") as f:
        return f.read()


def rows(*parts):
    return [json.loads(line) for line in read(*parts).split("\n") if line.strip()]


def dry_run(bundle, folder):
    out = os.path.join(folder, "out")
    status, text = run(["sh", os.path.join(bundle, "run.sh"), out, "--dry"])
    expect("every step passes", status == 0 and text.count("passed") >= 6, text + read(out, "commands.txt"))
    expect("eight files", set(os.listdir(out)) == FILES and sum(os.path.getsize(os.path.join(out, f)) for f in FILES) < 1 << 20, os.listdir(out))
    commands = read(out, "commands.txt")
    expect("command lines, no folder of this machine", all(w in commands for w in ("gpu-calibrate", "gpu-decode", "gpu-fill", "taperc check", "taperc run", "# decode: passed")) and bundle not in commands, commands)
    calibration = json.loads(read(out, "calibration.json"))
    measured = {r["name"]: r for r in calibration["rows"]}
    expect("exchanges agree with the host", calibration["simulated"] and all(measured[n].get("n") == 1 for n in measured if n.startswith("exchange_")), measured)
    expect("launches and reads", all(measured[n].get("n") == 1 for n in ("read_1_mib", "launch", "launch_sync", "graph_node", "graph_pdl_edge", "graph_launch_sync")), measured)
    decoded = rows(out, "decode.jsonl")
    by = {(r["batch"], v["label"]): v for r in decoded for v in r["rows"]}
    expect("decode: two batches, two variants", len(by) == 4 and all(v["n"] == 1 and len(v["ids"]) == 32 for v in by.values()), by)
    numerics = rows(out, "numerics.json")
    expect("numerics: logits and ids", {r["kind"] for r in numerics} == {"logits", "ids"} and all(r["ok"] for r in numerics), numerics)
    expect("conformance", "[       OK ]" in read(out, "conformance.txt") and "FAILED" not in read(out, "conformance.txt"))
    expect("skips say why", "not there" in read(out, "baselines.jsonl") + "no GPU here" and "sanitizer: skipped: " in commands, commands)
    status, text = run(["/usr/bin/python3", os.path.join(ROOT, "cuda/gpu/report.py"), out])
    expect("the report refuses a dry run", status == 1 and "dry run" in text, text)


def broken_runs(bundle, folder):
    out = os.path.join(folder, "broken")
    model = os.path.join(bundle, "models", "dims20-f32.tpack.gz")
    with gzip.open(model, "rb") as f:
        data = f.read()
    with gzip.open(model, "wb") as f:
        f.write(data[:-100] + b"damaged!" + data[-92:])
    status, text = run(["sh", os.path.join(bundle, "run.sh"), out, "--dry"])
    expect("a failure stops no other step", status == 1 and "numerics: failed" in text and "calibration: passed" in text and "decode: passed" in text, text)
    out = os.path.join(folder, "short")
    status, text = run(["sh", os.path.join(bundle, "run.sh"), out, "--dry"], TAPER_GPU_SECONDS="1")
    expect("the time is over: said at each step", status == 1 and text.count("skipped, ") >= 5, text)
    status, text = run(["sh", os.path.join(bundle, "run.sh")])
    expect("no folder: usage", status == 2 and "no folder" in text, text)
    status, text = run(["sh", os.path.join(bundle, "run.sh"), out, "--wet"])
    expect("unknown option: usage", status == 2 and "--wet" in text, text)


def main():
    if os.environ.get("TAPERC_QUICK"):
        print("skip gpu_bundle: a bundle is made and run: not in the quick suite")
        return
    try:
        import numpy  # noqa: F401
        import safetensors  # noqa: F401
    except ImportError:
        print("skip gpu_bundle: NumPy and safetensors are not there; run make setup-check with PyPI in reach")
        return
    with tempfile.TemporaryDirectory() as folder:
        status, text = run([os.path.join(BUILD, "gpu-calibrate"), "--build", os.path.join(ROOT, "cuda/gpu/calibrate.cu"), folder, "compute_90"])
        if status == 3:
            print("skip gpu_bundle: %s" % text.strip().split("\n")[-1])
            return
        bundle = os.path.join(folder, "bundle")
        status, text = run([sys.executable, os.path.join(ROOT, "cuda/gpu/bundle.py"), BUILD, bundle, "--small"])
        expect("made", status == 0 and "MiB" in text, text)
        if status == 0:
            dry_run(bundle, folder)
            broken_runs(bundle, folder)
        shutil.rmtree(bundle, ignore_errors=True)


main()

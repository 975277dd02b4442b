#!/usr/bin/python3
"""make gpu-report: the page from made-up results (they are no measurements, and stand here only), from damaged ones, from none."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REPORT = os.path.join(ROOT, "cuda/gpu/report.py")


def report(*words):
    p = subprocess.run(["/usr/bin/python3", REPORT] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    return p.returncode, p.stdout, p.stderr


def expect(name, good, why=""):
    print("ok %s" % name if good else "not ok %s: %s" % (name, str(why).replace("\n", " | ")[:400]))


def write(folder, name, text):
    with open(os.path.join(folder, name), "w") as f:
        f.write(text)


def made_up(folder, simulated=False):
    calibration = {"device": "Made-up GPU", "simulated": simulated, "capability": "9.0", "multiprocessors": 4, "driver": 13000, "l2_bytes": 50 << 20, "image": "sm_90.cubin", "rows": [
        {"name": "read_4_mib", "unit": "GB/s", "what": "reading 4 MiB", "n": 3, "median": 8000.0, "min": 7000.0, "max": 9000.0},
        {"name": "read_64_mib", "unit": "GB/s", "what": "reading 64 MiB", "n": 3, "median": 4000.0, "min": 3900.0, "max": 4100.0},
        {"name": "exchange_flag", "unit": "us", "what": "flags", "n": 0, "error": "a block waited | in vain"}]}
    write(folder, "calibration.json", json.dumps(calibration))
    write(folder, "commands.txt", "# begun 2000-01-01 00:00:00 UTC; device cuda, 590 s\n# taperc 0.1.0, commit 0; glibc 2.34 or newer\n\n$ sh steps.sh environment\n# environment: passed, 2 s\n# decode: cut off after 200 s, 200 s\n# sanitizer: skipped: compute-sanitizer is not there, 0 s\n")
    write(folder, "environment.txt", "Linux\n     16 cpu: Made-up CPU\ntorch 9.9.9 13.2 True\n")
    write(folder, "conformance.txt", "[       OK ] logits_are_numbers\n[  FAILED  ] layers_agree\n[  FAILED  ] 1 test(s), listed below:\n")
    write(folder, "numerics.json", json.dumps({"name": "a f32", "kind": "logits", "ok": True, "max_rel": 2e-5, "tol": 1e-4}) + "\n" + json.dumps({"name": "b greedy", "kind": "ids", "ok": False}) + "\n")
    variants = [("kernel", 40.0), ("deferred", 30.0), ("explicit", 26.0), ("folded", 25.0)]
    row = {"size": "15M", "dtype": "f32", "batch": 1, "rows": [{"label": v, "median_us": t, "min_us": t - 1, "max_us": t + 1, "n": 5, "bytes_per_token": 60000000} for v, t in variants]}
    other = {"size": "1M", "dtype": "f32", "batch": 8, "rows": [{"label": "folded", "n": 0, "error": "row 0 made 3 tokens of 128"}]}
    write(folder, "decode.jsonl", json.dumps(row) + "\n" + json.dumps(other) + "\n" + json.dumps(row)[:50])
    torch = [{"size": "15M", "dtype": "f32", "batch": 1, "how": how, "median_us": t, "min_us": t, "max_us": t, "n": 3} for how, t in (("eager", 900.0), ("graph", 60.0))]
    write(folder, "baselines.jsonl", "\n".join(map(json.dumps, torch)) + "\n")


def row_of(text, *cells):
    for line in text.split("\n"):
        if line.startswith("| " + " | ".join(cells) + " |"):
            return line
    return ""


def main():
    status, text, err = report()
    with open(os.path.join(ROOT, "docs/performance-gpu.md")) as f:
        committed = f.read()
    expect("no results: every table says so", status == 0 and text.count("## ") == 5 and all("not measured" in part for part in text.split("## ")[1:]), err)
    expect("no results: no figure", "us (" not in text and "x |" not in text and "GB/s" not in text)
    # once there are results the page holds them; until then it is this one
    expect("the committed page", committed == text or "Device: not measured" not in committed, "docs/performance-gpu.md is not what make gpu-report writes")
    p = subprocess.run(["make", "-s", "-C", ROOT, "gpu-report", "DIR="], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    with open(os.path.join(ROOT, "docs/performance-gpu.md")) as f:
        expect("no folder given: nothing is written", p.returncode != 0 and "give DIR=" in p.stdout and f.read() == committed, p.stdout)
    with tempfile.TemporaryDirectory() as folder:
        made_up(folder)
        status, text, err = report(folder)
        expect("device", status == 0 and "Made-up GPU, compute capability 9.0, 4 multiprocessors" in text and "Made-up CPU" in text and "9.9.9" in text, err or text[:400])
        expect("steps", row_of(text, "environment", "passed, 2 s") and row_of(text, "decode", "cut off after 200 s, 200 s") and row_of(text, "baselines", "not measured"), text)
        expect("correctness", row_of(text, "device conformance", "1 passed, 1 failed") and "largest share of a tolerance 0.20" in text and "0 of 1 ok; not ok: b greedy" in text, text)
        line = row_of(text, "15M", "f32", "1", "40 (39..41)")
        # 60 MB in 25 us is 2400 GB/s of 4000; 60 us of PyTorch over 30; 30 over 25
        expect("decode: gains and share", line.endswith("| 40000 | 60 % | 2.00x | 1.200x |"), line)
        expect("decode: a failure is named", "row 0 made 3 tokens" in row_of(text, "1M", "f32", "8", "not measured"), text)
        expect("decode: what is missing", row_of(text, "135M", "bf16", "8", "not measured"), text)
        expect("calibration", row_of(text, "reading 64 MiB", "4000 (3900..4100) GB/s", "3") and "in vain" in text and "waited | in" not in text, text)
        made_up(folder, simulated=True)
        status, text, err = report(folder)
        expect("a dry run is refused", status == 1 and not text and "dry run" in err, err)
        os.unlink(os.path.join(folder, "calibration.json"))
        status, text, err = report(folder)
        expect("a missing file leaves its table empty", status == 0 and "| not measured | not measured | 0 |" in text and row_of(text, "15M", "f32", "1", "40 (39..41)"), err)
        os.unlink(os.path.join(folder, "commands.txt"))
        status, text, err = report(folder)
        expect("a folder without results", status == 1 and "commands.txt" in err, err)


main()

#!/usr/bin/python3
"""make check-long: lint to the analyzer's full depth, the whole compile gate, the suite under ASan+UBSan, the quick one by clang, and by gcc in
another locale with its coverage counted, kills, fuzzing.

Writes its summary to docs/check-long.md, after each row: a run that was stopped shows what it had come to. The sanitizers' suite leaves out what
tests text that NVRTC made, not our C (the gate, the mutants). Larger samples of random models, graphs and mutants are taken by hand, with
TAPERC_LONG=1 (CONTRIBUTING.md).
"""
import concurrent.futures
import datetime
import glob
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FUZZ_SECONDS = int(os.environ.get("TAPERC_FUZZ_SECONDS", "45"))
BEGIN = time.time()
rows = []


def row(name, ok, detail, start):
    rows.append((name, "ok" if ok else "FAILED", detail, "%.0f" % (time.time() - start)))
    print("%-22s %-6s %s (%s s)" % rows[-1], flush=True)
    write("so far, of a run that goes on or was stopped")


def write(state):
    with open("/proc/cpuinfo") as f:
        cpu = re.search(r"model name\s*: (.*)", f.read()).group(1)
    commit = run(["git", "rev-parse", "--short", "HEAD"])[1].strip()
    with open(os.path.join(ROOT, "docs/check-long.md"), "w") as f:
        f.write("# The last `make check-long`\n\n%s, commit %s, %s, %d CPUs, %.0f minutes, %s\n\n| what | result | detail | seconds |\n|---|---|---|---|\n" % (
            datetime.date.today(), commit, cpu, os.cpu_count(), (time.time() - BEGIN) / 60, state))
        f.writelines("| %s | %s | %s | %s |\n" % r for r in rows)


def run(command, env=None, seconds=3000):
    try:
        p = subprocess.run(command, cwd=ROOT, env=dict(os.environ, **(env or {})), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
        return p.returncode, p.stdout.decode("utf-8", "replace")
    except subprocess.TimeoutExpired as e:
        return 124, (e.stdout or b"").decode("utf-8", "replace") + "\nstopped after %d s" % seconds


def lint():
    start = time.time()
    status, text = run(["make", "-s", "lint"], {"TIDY_NODES": "225000"})
    if status:
        print(text[-4000:])
    row("lint, full depth", status == 0, "", start)


def suite(what, slow, env=None, without=""):
    start, variant = time.time(), what.split(",")[0]
    status, text = run(["make", "-s", "-j2", "VARIANT=" + variant, "all", "unit"])
    if status:
        print(text[-4000:])
        return row("suite " + what, False, "does not build", start)
    status, text = run(["/usr/bin/python3", "tests/run.py", "--build", "build/" + variant, "--slow-factor", str(slow), "--without", without], env)
    line = (re.findall(r"^\d+ passed.*$", text, re.M) or ["no result"])[-1]
    if status:
        print(text[-6000:])
    row("suite " + what, status == 0, line, start)


def fuzz():
    names = sorted(os.path.basename(t)[:-2] for t in glob.glob(os.path.join(ROOT, "tests/fuzz/fuzz_*.c")))
    built = []
    for name in names:
        start = time.time()
        status, text = run(["make", "-s", "-j2", "fuzz/" + name])
        if status:
            print(text[-3000:])
            row(name, False, "does not build", start)
        else:
            built.append(name)

    def one(name):
        start = time.time()
        work = os.path.join(ROOT, "build/fuzz", name + ".corpus")
        os.makedirs(work, exist_ok=True)
        seeds = os.path.join(ROOT, "tests/fuzz/seeds", name[5:])
        command = [os.path.join(ROOT, "build/fuzz", name), "-max_total_time=%d" % FUZZ_SECONDS, "-rss_limit_mb=2048", "-timeout=20", "-max_len=65536",
                   "-artifact_prefix=build/fuzz/", work] + ([seeds] if os.path.isdir(seeds) else [])
        status, text = run(command)
        runs = (re.findall(r"Done (\d+) runs", text) or ["?"])[-1]
        if status:
            print(text[-3000:])
        row(name, status == 0, "%s runs, %d s" % (runs, FUZZ_SECONDS), start)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, built))


def coverage():
    start = time.time()
    run(["find", "build/coverage", "-name", "*.gcda", "-delete"])
    suite("coverage, quick, de_DE", 4, {"TAPERC_QUICK": "1", "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"})
    status, text = run(["gcovr", "-r", ".", "--object-directory", "build/coverage", "-e", "tests/", "-e", "build/", "-e", "examples/", "--gcov-ignore-parse-errors"])
    total = (re.findall(r"^TOTAL\s+(\d+)\s+(\d+)\s+(\d+%)", text, re.M) or [("?", "?", "?")])[-1]
    row("coverage of quick suite", status == 0, "%s of %s lines (%s)" % (total[1], total[0], total[2]), start)


def gate():
    start = time.time()
    status, text = run(["make", "-s", "-j2", "all", "unit"])
    if status:
        print(text[-4000:])
        return row("compile gate, all", False, "does not build", start)
    status, text = run(["build/venv/bin/python", "tests/emit/cuda_gate.py", os.path.join(ROOT, "build/release")], {"TAPERC_GATE": "all"})
    row("compile gate, all", status == 0, "%d images" % len(re.findall("^ok ", text, re.M)), start)
    if status:
        print("\n".join(re.findall("^not ok .*", text, re.M))[:3000])


def kills():
    """Both at a time: each is one thread."""
    def one(job):
        name, script, count = job
        start = time.time()
        status, text = run(["/usr/bin/python3", "tests/fault/" + script, "build/release"], {"TAPERC_KILLS": count})
        row(name, status == 0, (text.strip().split("\n") or [""])[-1][:100], start)
        if status:
            print(text[-3000:])

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(one, (("kills of training", "train_kills.py", "100"), ("kills", "kills.py", "200"))))


def main():
    lint()
    gate()
    suite("asan", 6, {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1"}, "emit/cuda_gate,sim/mutate")
    suite("clang, quick", 3, {"TAPERC_QUICK": "1"})
    kills()
    fuzz()
    coverage()
    bad = [r for r in rows if r[1] != "ok"]
    write("whole")
    print("%d passed, %d failed, 0 skipped" % (len(rows) - len(bad), len(bad)))
    sys.exit(1 if bad else 0)


main()

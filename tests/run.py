#!/usr/bin/python3
"""Runs the test groups and counts: the last line is `N passed, N failed, N skipped`.

A group is a command; it prints lines `ok NAME`, `not ok NAME: why`, `skip NAME: why` (the project's own scripts), cmocka's or lit's words.
Two groups run at a time: most of the time is that of compilers, one thread each; the group named first begins first.
A group that needs a missing tool or oracle is skipped with one line (in CI, where CI=true, that fails).
"""
import argparse
import concurrent.futures
import ctypes
import glob
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIT = "/usr/lib/llvm-14/build/utils/lit/lit.py"
LONGEST = ("unit/test_train_plan", "cli/recipes", "cli/train", "numerics/train", "numerics/models", "numerics/kernels", "numerics/kjv", "numerics/cuda")  # begin first


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.bad = []

    def add(self, passed, failed, skipped, bad):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        self.bad += bad


def count_cmocka(text):
    passed = len(re.findall(r"^\[       OK \]", text, re.M))
    bad = sorted(set(re.findall(r"^\[  FAILED  \] ([\w./ -]+)$", text, re.M)))
    bad = [b for b in bad if not re.match(r"\d+ test", b) and b.strip() != "tests"]
    skipped = len(re.findall(r"^\[  SKIPPED \] \w", text, re.M)) // 2
    return passed, len(bad), skipped, bad


def count_lit(text):
    def number(word):
        m = re.search(r"^\s*" + word + r"\s*:\s*(\d+)", text, re.M)
        return int(m.group(1)) if m else 0

    bad = re.findall(r"^(?:FAIL|XPASS|TIMEOUT|UNRESOLVED): taperc :: (\S+)", text, re.M)
    failed = sum(number(w) for w in ("Failed", "Unexpectedly Passed", "Timed Out", "Unresolved"))
    return number("Passed"), failed, number("Unsupported") + number("Skipped"), bad


def count_lines(text):
    bad = re.findall(r"^not ok (.*)", text, re.M)
    return len(re.findall(r"^ok ", text, re.M)), len(bad), len(re.findall(r"^skip ", text, re.M)), bad


def run_group(name, command, counter, env, seconds):
    """(its lines, what counter found); runs in a thread of its own."""
    start = time.time()
    try:
        p = subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
        text, status = p.stdout.decode("utf-8", "replace"), p.returncode
    except subprocess.TimeoutExpired as e:
        text, status = (e.stdout or b"").decode("utf-8", "replace") + "\nhang guard: %d s\n" % seconds, -1
    passed, failed, skipped, bad = counter(text)
    if status != 0 and failed == 0:
        failed, bad = 1, ["%s (exit %d)" % (name, status)]
    if status == 0 and passed + failed + skipped == 0:
        failed, bad = 1, [name + ": ran no test"]
    lines = ["%-28s %5d passed %3d failed %3d skipped %6.1f s" % (name, passed, failed, skipped, time.time() - start)]
    lines += ["    " + line for line in re.findall(r"^skip .*", text, re.M)]
    if failed:
        lines += ["    " + line for line in text.splitlines()[-120:]]
    return lines, (passed, failed, skipped, ["%s: %s" % (name, b) for b in bad])


def run_groups(groups, env, jobs, count):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run_group, name, command, counter, env, seconds) for name, command, counter, seconds in groups]):
            lines, found = done.result()
            print("\n".join(lines), flush=True)
            count.add(*found)


def nvrtc_of_setup(env):
    """TAPER_LIBNVRTC for machines without a toolkit: what setup.sh brought."""
    if "TAPER_LIBNVRTC" in env:
        return
    for name in ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "/usr/local/cuda/lib64/libnvrtc.so"):
        try:
            ctypes.CDLL(name)
            return
        except OSError:
            pass
    found = sorted(glob.glob(os.path.join(ROOT, "build/venv/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1*")))
    if found:
        env["TAPER_LIBNVRTC"] = max(found, key=lambda path: int(path.rsplit(".", 1)[1]))


def skip_group(name, why, count):
    if os.environ.get("CI") == "true":
        count.add(0, 1, 0, ["%s: %s" % (name, why)])
    else:
        count.add(0, 0, 1, [])
    print("%-28s skipped: %s" % (name, why), flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", default="build/release")
    a.add_argument("--quick", action="store_true")
    a.add_argument("-j", "--jobs", type=int, default=2, help="groups at a time")
    a.add_argument("--only", help="run groups whose name holds this")
    a.add_argument("--without", default="", help="names, with commas: not the groups whose name holds one of them")
    a.add_argument("--slow-factor", type=float, default=1.0, help="for sanitizer builds: multiplies the hang guards")
    o = a.parse_args()
    build = os.path.abspath(o.build)
    venv = os.path.join(ROOT, "build", "venv", "bin", "python")
    has_numpy = os.path.exists(venv) and subprocess.run([venv, "-c", "import numpy, safetensors"], stderr=subprocess.DEVNULL).returncode == 0
    python = venv if has_numpy else "/usr/bin/python3"
    env = dict(os.environ, TAPERC_BUILD=build, TAPERC=os.path.join(build, "taperc"), TAPERC_PYTHON=python, PYTHONDONTWRITEBYTECODE="1")
    env.setdefault("TAPER_CACHE_DIR", os.path.join(ROOT, "build", "cache"))
    nvrtc_of_setup(env)
    env.pop("TAPER_DEVICE", None)  # a test says itself which device it means
    if o.quick:
        env["TAPERC_QUICK"] = "1"
    count, guard = Count(), 600 * o.slow_factor
    os.makedirs(os.path.join(build, "tests"), exist_ok=True)
    packages = [os.path.join(build, "tests", m + ".tpack") for m in ("kjv-all", "kjv-internal", "kjv-ln")]
    if not o.only or "device" in o.only or "unit" in o.only:
        for package in packages:
            model = os.path.join(ROOT, "examples/models", os.path.basename(package)[:-6])
            subprocess.run([env["TAPERC"], "compile", model, "-o", package], env=env, cwd=ROOT, check=False)
    env["TAPER_TEST_PACKAGES"] = ":".join(packages)

    def wanted(name):
        return (not o.only or o.only in name) and not any(w in name for w in o.without.split(",") if w)

    groups = []
    for test in sorted(glob.glob(os.path.join(ROOT, "tests/unit/test_*.c"))):
        name = os.path.basename(test)[:-2]
        program = os.path.join(build, "tests/unit", name)
        if not wanted("unit/" + name):
            continue
        if os.path.exists(program):
            groups.append(("unit/" + name, [program], count_cmocka, guard))
        else:
            count.add(0, 1, 0, ["unit/%s: is not built; run make all unit" % name])
    if wanted("lit"):
        if os.path.exists(LIT):
            rooms = [os.path.join("tests", d) for d in ("front", "ir", "passes", "schedule", "emit", "cli")]
            groups.append(("lit", ["/usr/bin/python3", LIT, "-v", "-j2", "--timeout=%d" % (120 * o.slow_factor)] + [r for r in rooms if glob.glob(os.path.join(ROOT, r, "**", "*.t*"), recursive=True)], count_lit, guard * 3))
        else:
            skip_group("lit", "llvm-14-tools is not installed; run make setup-check", count)
    for room in ("cli", "front", "emit", "fault", "device", "sim", "numerics", "formats"):
        for script in sorted(glob.glob(os.path.join(ROOT, "tests", room, "*.py"))):
            name = os.path.relpath(script, os.path.join(ROOT, "tests"))[:-3]
            if not wanted(name) or os.path.basename(script).startswith("lib_"):
                continue
            if has_numpy or room not in ("numerics", "formats"):
                groups.append((name, [python, script, build], count_lines, guard * 3))
            else:
                skip_group(name, "NumPy and safetensors are not there; run make setup-check with PyPI in reach", count)
    run_groups(sorted(groups, key=lambda group: group[0] not in LONGEST), env, o.jobs, count)
    for b in count.bad:
        print("FAILED " + b)
    print("%d passed, %d failed, %d skipped" % (count.passed, count.failed, count.skipped))
    sys.exit(1 if count.failed or count.passed == 0 else 0)


main()

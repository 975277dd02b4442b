#!/usr/bin/python3
"""The kernels that test the interpreter of PTX, made anew by each NVRTC that is here, for old and new archs: the same tests must pass."""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/release")
TESTS = ("test_ptx_flow", "test_ptx_faults", "test_ptx_warp", "test_ptx_parse")


def libraries():
    found = sorted(glob.glob(os.path.join(ROOT, "build/venv/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1*")))
    return [os.environ.get("TAPER_LIBNVRTC", "libnvrtc.so")] + found


def main():
    archs, made, passed = ("compute_80", "compute_120", "compute_100"), 0, True
    for k, library in enumerate(dict.fromkeys(libraries())):
        for arch in archs[:1] if os.environ.get("TAPERC_QUICK") else (archs[k % 3], archs[(k + 1) % 3]):
            with tempfile.TemporaryDirectory(prefix="taper-ptx-") as folder:
                p = subprocess.run([sys.executable, "tests/sim/lib_ptx.py", "--nvrtc=" + library, "--arch=" + arch, "--out=" + folder], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                if p.returncode and "no NVRTC" in p.stdout:
                    continue
                version = re.search(r"release ([\d.]+)", open(os.path.join(folder, "flow.ptx")).read()) if p.returncode == 0 else None
                name = "NVRTC %s, %s" % (version.group(1) if version else library, arch)
                made += 1
                if p.returncode:
                    print("not ok %s: %s" % (name, p.stdout.strip()))
                    continue
                for test in TESTS:
                    t = subprocess.run([os.path.join(BUILD, "tests/unit", test)], cwd=ROOT, env=dict(os.environ, TEST_PTX_DIR=folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    passed &= t.returncode == 0
                    print("ok %s: %s" % (name, test) if t.returncode == 0 else "not ok %s: %s: %s" % (name, test, t.stdout[-800:].replace("\n", " | ")))
    if not made:
        print("skip kernels of the interpreter's tests: no NVRTC; run make setup-check, or set TAPER_LIBNVRTC")
    sys.exit(not passed)


main()

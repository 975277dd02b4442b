#!/usr/bin/python3
"""Kills `taperc compile` and `taperc opt -o` at random moments: the output is always the old file or the new one, whole, and no half file is taken for a whole."""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
KILLS = int(os.environ.get("TAPERC_KILLS", "6"))
MODEL = os.path.join(ROOT, "examples/models/kjv-all")


def main():
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:  # a compiler may outlive the kill
        env = dict(os.environ, TAPER_CACHE_DIR=os.path.join(root, "cache"), TMPDIR=root)
        package = os.path.join(root, "m.tpack")
        start = time.time()
        subprocess.run([TAPERC, "compile", MODEL, "-o", package], env=env, check=True, capture_output=True)
        whole = time.time() - start
        same, torn = 0, []
        for k in range(KILLS):
            cold = k % 3 == 0
            e = dict(env, TAPER_CACHE_DIR=os.path.join(root, "cache%d" % k)) if cold else env
            p = subprocess.Popen([TAPERC, "compile", MODEL, "-o", package], env=e, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0, whole * (1.0 if cold else 0.15)))
            p.send_signal(signal.SIGKILL)
            p.wait()
            r = subprocess.run([TAPERC, "run", package, "--prompt", "A", "-n", "2", "--temp", "0"], env=env, capture_output=True, text=True)
            if r.returncode:
                torn.append(r.stderr.strip())
            else:
                same += 1
        print("%s %d kills of compile: %d packages whole%s" % ("ok" if not torn else "not ok", KILLS, same, (": " + torn[0]) if torn else ""))


main()

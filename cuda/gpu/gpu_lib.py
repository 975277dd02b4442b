"""What the scripts of the bundle share: where they are, how they run a program, when to stop. Standard library only, Python 3.6."""
import json
import os
import shlex
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BEGAN = time.time()
SECONDS = float(os.environ.get("STEP_SECONDS", "60"))  # run.sh's, a little less than the limit
DRY = bool(os.environ.get("dry"))
DEVICE = os.environ.get("TAPER_DEVICE", "cuda")


def left():
    return SECONDS - (time.time() - BEGAN)


def manifest():
    with open(os.path.join(HERE, "manifest.json")) as f:
        return json.load(f)


def path(*parts):
    return os.path.join(HERE, *parts)


def package(name):
    """Where run.sh has unpacked it."""
    return os.path.join(os.environ.get("work", "."), "models", name)


def run(command, seconds):
    """(exit status, stdout, stderr); 124 where the time was over. The command line goes to stderr, which run.sh keeps."""
    sys.stderr.write("$ %s\n" % " ".join(map(shlex.quote, command)))
    sys.stderr.flush()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    try:
        out, err = p.communicate(timeout=max(seconds, 1))
        return p.returncode, out, err
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
        return 124, out, err + "no end after %d s\n" % seconds


def put(value):
    sys.stdout.write(json.dumps(value, sort_keys=True) + "\n")
    sys.stdout.flush()

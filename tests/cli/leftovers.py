#!/usr/bin/python3
"""What a signal leaves behind: nothing in TMPDIR and nothing half written, whatever the command waits for when it comes."""
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

SLEEPER = "#!/bin/sh\necho begun >> \"$BEGUN\"\nexec sleep 30\n"
COMPILER = "#!/bin/sh\nfor a; do case $a in -o) echo begun >> \"$BEGUN\"; exec sleep 30; esac; done\nexec gcc \"$@\"\n"  # as soon as it compiles


def program(root, name, text=SLEEPER):
    path = os.path.join(root, "bin", name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o755)
    return path


def end_of(process, group, begun, number, patience, seconds=30):
    """Its status once it was sent the signal; it waits for a program that writes to `begun`."""
    until = time.time() + seconds
    while not os.path.exists(begun) and process.poll() is None and time.time() < until:
        time.sleep(0.01)
    if process.poll() is not None or not os.path.exists(begun):
        process.kill()
        return "it did not come so far: " + process.communicate()[1].decode()[-300:]
    (os.killpg if group else os.kill)(process.pid, number)
    try:
        process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return "it goes on"
    return process.returncode


def case(root, name, args, number, group=True, ignored=False):
    folder, begun, out = os.path.join(root, "tmp"), os.path.join(root, "begun"), os.path.join(root, "out")
    for path in (folder, out):
        os.makedirs(path, exist_ok=True)
    if os.path.exists(begun):
        os.unlink(begun)
    env = dict(os.environ, TMPDIR=folder, BEGUN=begun, PATH=os.path.join(root, "bin") + ":" + os.environ["PATH"], TAPER_CACHE_DIR=os.path.join(root, "cache"))

    def begin():
        os.setsid()
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)

    p = subprocess.Popen([cli.TAPERC] + args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, cwd=out, preexec_fn=begin)
    status, label = end_of(p, group, begun, number, 0.3 if ignored else 10), "%s, %s" % (name, signal.Signals(number).name)
    left = sorted(os.listdir(folder)) + sorted(os.listdir(out))
    try:
        os.killpg(p.pid, signal.SIGKILL)  # the sleeper
    except ProcessLookupError:
        pass
    if ignored:
        cli.report(label + ", ignored", "" if status != -number else "it ended")
    else:
        cli.report(label, "status %s" % status if status != -number else "left: %s" % left if left else "")
    for name in os.listdir(folder):
        subprocess.run(["rm", "-rf", os.path.join(folder, name)], check=True)


def main():
    with tempfile.TemporaryDirectory() as root:
        model, cc = cli.write_model(os.path.join(root, "m")), program(root, "cc-that-sleeps", COMPILER)
        program(root, "gnuplot"), program(root, "spm_train")
        text = os.path.join(root, "text")
        with open(text, "w") as f:
            f.write("some words\n" * 1000)
        learned = os.path.join(root, "learned.tmodel")
        with open(learned, "w") as f:
            f.write(cli.SOURCE.replace("vocab = 256", "vocab = 300").replace("tokenizer bytes", "tokenizer sentencepiece(vocab = vocab)"))
        compile_args = ["compile", model, "--no-cache", "--cc=" + cc, "-o", "m.tpack"]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            case(root, "compile", compile_args, number)
        case(root, "compile, the compiler goes on", compile_args, signal.SIGTERM, group=False)
        case(root, "compile", compile_args, signal.SIGHUP, group=False, ignored=True)
        case(root, "run of a folder", ["run", model, "--no-cache", "--cc=" + cc, "--tokens", "1", "-n", "1"], signal.SIGINT)
        case(root, "report", ["report", model, "-o", "r.html"], signal.SIGTERM)
        case(root, "train, learning its tokenizer", ["train", learned, "--data", text, "-o", "run", "--steps", "2"], signal.SIGINT)
        stub = os.path.join(root, "nvrtc.so")
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", stub, '-DSTUB_COMPILE=fclose(fopen(getenv("BEGUN"), "w")); for (;;) pause();',
                        os.path.join(cli.ROOT, "tests/unit/stubs/nvrtc_stub.c")], check=True)
        os.environ["TAPER_LIBNVRTC"] = stub
        case(root, "compile by NVRTC", ["compile", model, "--target", "cuda", "--arch=sm_80", "-o", "m.tpack"], signal.SIGTERM, group=False)
        case(root, "run on the simulator", ["run", model, "--device=sim", "--tokens", "1", "-n", "1"], signal.SIGINT)
    sys.exit(1 if cli.failed else 0)


main()

#!/usr/bin/python3
"""The C and C++ programs of examples/: each is built against libtaper.so and does what its head says."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

EXAMPLES = os.path.join(cli.ROOT, "examples")


def build(root, name, compiler, flags):
    program = os.path.join(root, name.split(".")[0])
    sanitized = b"__asan_init" in open(os.path.join(cli.BUILD, "libtaper.so"), "rb").read()  # the library is a build with sanitizers: so must the program be
    done = subprocess.run([compiler] + flags + (["-fsanitize=address,undefined"] if sanitized else []) + ["-Wall", "-Wextra", "-Werror", "-I", os.path.join(cli.ROOT, "runtime"), "-o", program, os.path.join(EXAMPLES, name),
                           "-L", cli.BUILD, "-ltaper", "-Wl,-rpath," + cli.BUILD], stderr=subprocess.PIPE)
    cli.report(name + " is built", done.returncode and done.stderr.decode())
    return program


def expect(name, args, pattern, code=0):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    ok = done.returncode == code and re.search(pattern, done.stdout, re.S)
    cli.report(name, not ok and "exit %d, %r, %r" % (done.returncode, done.stdout[-500:], done.stderr[-500:]))
    return done.stdout


def main():
    root = tempfile.mkdtemp(prefix="taperc-examples-")
    env = {"TAPER_CACHE_DIR": os.environ.get("TAPER_CACHE_DIR", os.path.join(root, "cache"))}
    try:
        package = os.path.join(root, "kjv.tpack")
        cli.expect("a package", ["compile", os.path.join(cli.MODELS, "kjv-all"), "-o", package], 0, env=env)
        generate = build(root, "generate.c", "gcc", ["-std=c99"])
        expect("generate", [generate, package, "And God said, Let", "20"], rb"^[^\n].{10,}")
        expect("generate without a package", [generate, package + "x", "In", "20"], rb"^$", 1)
        if shutil.which("g++"):
            embed = build(root, "embed.cpp", "g++", ["-std=c++11", "-pthread"])
            expect("embed", [embed, package, "And God said", "In the beginning"], rb"And God said.+In the beginning|In the beginning.+And God said")
        else:
            print("skip embed.cpp: g++ is not installed")

        mlp, run, text = os.path.join(root, "mlp.tpack"), os.path.join(root, "run"), os.path.join(root, "text.txt")
        with open(os.path.join(EXAMPLES, "data", "kjv.txt"), "rb") as f, open(text, "wb") as t:
            t.write(f.read(20000))
        os.mkdir(run)
        cli.expect("a training package", ["compile", os.path.join(EXAMPLES, "mlp.tmodel"), "--for", "train", "-D", "context=16", "-D", "d=16", "-o", mlp], 0, env=env)
        train = build(root, "train.c", "gcc", ["-std=c99"])
        whole = expect("train", [train, mlp, text, run], rb"^step 100: ce \d.*\nstep 1000: ce ")
        rest = expect("train goes on", [train, mlp, text, run, os.path.join(run, "checkpoint-500")], rb"^step 600: ")
        cli.report("to the same end", not whole.endswith(rest) and "%r is no end of %r" % (rest, whole))
        cli.expect("its run is a MODEL", ["run", run, "--prompt", "In the", "-n", "4"], 0, env=env)
        expect("train without a text", [train, mlp, text + "x", run], rb"^$", 2)
    finally:
        shutil.rmtree(root)
    return 1 if cli.failed else 0


if __name__ == "__main__":
    sys.exit(main())

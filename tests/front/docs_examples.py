#!/usr/bin/python3
"""docs_examples.py BUILD - every `tmodel` example of docs/language.md compiles, and every op that a .tmodel can call stands there.

A fence says what it holds: `tmodel` a whole file, `tmodel declarations` items of a model, `tmodel forward` statements, `tmodel train` a train section.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = "model example(vocab = 256, d = 64, layers = 4, heads = 4, ff = 176, context = 128) {\n  param wte: [vocab, d];\n"
GATES = "  gate internal;\n  gate per_layer[layers];\n  gate final;\n"
OPEN, CLOSE = "  forward(tokens) {\n    let x = embed(tokens, wte);\n", "    return linear(x, weight = wte);\n  }\n}\n"
WRAP = {
    "": "%s",
    "declarations": HEAD + "%s" + OPEN + "    x = adapted(x, norms[0]);\n" + CLOSE,
    "forward": HEAD + GATES + OPEN + "%s" + CLOSE,
    "train": HEAD + GATES + OPEN + CLOSE + "%s",
}


def compile_one(taperc, source, folder):
    path = os.path.join(folder, "example.tmodel")
    with open(path, "w", encoding="utf-8") as f:
        f.write(source)
    p = subprocess.run([taperc, "opt", path, "--passes=verify"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60)
    return p.returncode, p.stderr


def callable_ops():
    text = open(os.path.join(ROOT, "compiler/ir/op.def"), encoding="utf-8").read()
    for name, flags in re.findall(r'^OP\(\w+, "(\w+)", "[^"]*", "[^"]*", ([^,]*),', text, re.M):
        if "OPF_INTERNAL" not in flags and "OPF_TRAIN" not in flags:
            yield name


def main():
    taperc = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
    page = open(os.path.join(ROOT, "docs/language.md"), encoding="utf-8").read()
    fences = [(page.count("\n", 0, m.start()) + 1, m.group(1).strip(), m.group(2)) for m in re.finditer(r"^```tmodel([^\n]*)\n(.*?)^```", page, re.M | re.S)]
    failed = not fences
    with tempfile.TemporaryDirectory() as folder:
        for line, kind, text in fences:
            name = "docs/language.md:%d" % line
            status, messages = compile_one(taperc, WRAP[kind] % text, folder)
            failed |= status != 0
            print("ok " + name if status == 0 else "not ok %s: %s" % (name, messages.strip()))
    missing = [op for op in callable_ops() if "`%s(" % op not in page]
    failed |= bool(missing)
    print("not ok ops that docs/language.md lacks: " + ", ".join(missing) if missing else "ok every op is in docs/language.md")
    sys.exit(1 if failed else 0)


main()

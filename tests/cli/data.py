#!/usr/bin/python3
"""Data and tokenizers on the command line: SentencePiece in every command, kept tokens, tokenizers learned from the data, id files, refusals."""
import json
import os
import re
import shutil
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

TEXT = os.path.join(cli.ROOT, "examples", "data", "kjv.txt")
SEED = os.path.join(cli.ROOT, "tests", "fuzz", "seeds", "sentencepiece", "seed_bpe.model")  # 90 pieces, made by spm_train
WORDS = cli.SOURCE.replace("vocab = 256", "vocab = 90").replace("tokenizer bytes;", "tokenizer sentencepiece(vocab = 90);")
TINY = ["--steps", "2", "--batch", "1", "--seq", "8", "--variant", "baseline", "-t", "1"]


def model(root, name, source=WORDS, seed=SEED):
    folder = os.path.join(root, name)
    items = dict(cli.tensors(), wte=("F32", [90, 16], struct.pack("<1440f", *cli.floats(1440, 3))))
    cli.write_model(folder, source=source, items=items)
    if seed:
        shutil.copy(seed, os.path.join(folder, "tokenizer.model"))
    return folder


def write(root, name, data):
    with open(os.path.join(root, name), "wb") as f:
        f.write(data)
    return os.path.join(root, name)


def commands(root, env):
    m = model(root, "m")
    out, _ = cli.expect("tokenize", ["tokenize", m, "the LORD God"], 0, "^$", re.compile(rb"^\d+(,\d+)*\n$"), env=env)
    ids = out.decode().strip()
    cli.expect("tokenize --special", ["tokenize", m, "the LORD God", "--special"], 0, "^$", b"1," + out, env=env)
    cli.expect("tokenize --json", ["tokenize", m, "the LORD God", "--json"], 0, "^$", b'{"tokens": [' + ids.encode() + b"]}\n", env=env)
    cli.expect("detokenize", ["detokenize", m, ids], 0, "^$", b"the LORD God\n", env=env)
    cli.expect("--parse-special", ["tokenize", m, "</s><sep>", "--parse-special"], 0, "^$", re.compile(rb"^2,\d+,3\n$"), env=env)
    plain, _ = cli.expect("special symbols are text", ["tokenize", m, "</s>"], 0, "^$", re.compile(rb"^\d+"), env=env)
    cli.report("special symbols are text: no id 2", "2" in plain.decode().strip().split(",") and plain)
    pack = os.path.join(root, "m.tpack")
    cli.expect("compile", ["compile", m, "-o", pack], 0, env=env)
    cli.expect("tokenize by a package", ["tokenize", pack, "the LORD God"], 0, "^$", out, env=env)
    cli.expect("run", ["run", pack, "--prompt", "the LORD", "-n", "4", "--temp", "0", "-v"], 0, "tokenizer sentencepiece", env=env)
    cli.expect("inspect", ["inspect", pack], 0, None, re.compile(rb"tokenizer sentencepiece"), env=env)
    text = write(root, "psalm.txt", b"The LORD is my shepherd; I shall not want.\n" * 3)
    out, _ = cli.expect("eval of a text", ["eval", pack, "--data", text, "--json"], 0, None, re.compile(rb'"bytes": 12[0-9],'), env=env)
    kept = [n for n in os.listdir(root) if n.endswith(".tokens")]
    cli.report("eval writes nothing beside the data", kept)
    # what must be refused
    cli.expect("another vocabulary", ["tokenize", model(root, "v", cli.SOURCE.replace("vocab = 256", "vocab = 91").replace("tokenizer bytes;", 'tokenizer sentencepiece(model = "tokenizer.model");')), "a"], 1,
               "tokenizer.model: error: the tokenizer has 90 ids, the model's vocab is 91", b"", env=env)
    cli.expect("no such file", ["tokenize", model(root, "n", WORDS.replace("sentencepiece(vocab = 90)", 'sentencepiece(model = "of/mine.model")'), None), "a"], 1,
               "of/mine.model: error: cannot open", b"", env=env)
    cli.expect("no file at all", ["tokenize", model(root, "f", WORDS, None), "a"], 1, "the tokenizer 'sentencepiece' has no file; put tokenizer.model beside", b"", env=env)
    bad = model(root, "bad")
    write(bad, "tokenizer.model", open(SEED, "rb").read()[:500])
    cli.expect("a damaged file", ["tokenize", bad, "a"], 1, r"tokenizer.model: error: byte \d+: ", b"", env=env)
    write(bad, "tokenizer.model", b"version https://git-lfs.github.com/spec/v1\n")
    cli.expect("a pointer instead of the file", ["tokenize", bad, "a"], 1, "tokenizer.model: error: ", b"", env=env)


def training(root, env):
    text = write(root, "some, text.txt", open(TEXT, "rb").read()[:150000])
    source = write(root, "learn.tmodel", cli.SOURCE.replace("vocab = 256", "vocab = 320").replace("tokenizer bytes;", "tokenizer sentencepiece(vocab = 320);").encode())
    base = ["train", source, "--data", text] + TINY
    if not shutil.which("spm_train"):
        print("skip learning a tokenizer: spm_train is not there; run make setup-check")
    else:
        run = os.path.join(root, "RUN")
        cli.expect("a tokenizer is learned", base + ["-o", run, "-v"], 0, "the tokenizer is kept in it(.|\n)*ids are kept in it", env=env)
        ours = os.path.join(run, "checkpoint-2", "tokenizer.model")
        cli.report("the checkpoint holds it", not os.path.exists(ours) and "no tokenizer.model")
        cli.expect("a run of the checkpoint", ["run", run, "--prompt", "the LORD", "-n", "2", "--temp", "0"], 0, env=env)
        cli.expect("the next run takes what was kept", base + ["-o", run + "2", "-v"], 0, "the kept tokenizer is used(.|\n)*ids are used", env=env)
        cli.report("the same tokenizer", open(ours, "rb").read() != open(os.path.join(run + "2", "checkpoint-2", "tokenizer.model"), "rb").read() and "it differs")
        for name in os.listdir(root):
            if re.search(r"\.[0-9a-f]{16}\.(model|tokens)$", name):
                os.remove(os.path.join(root, name))
        programs = os.path.join(root, "programs")  # all that is needed but spm_train
        os.mkdir(programs)
        for name in ("gcc", "as", "ld"):
            os.symlink(shutil.which(name), os.path.join(programs, name))
        cli.expect("a resumed run takes the checkpoint's", base + ["-o", run, "--resume"], 0, env=dict(env, PATH=programs))
        cli.expect("too little text", ["train", source, "--data", write(root, "short.txt", b"a b c d\n" * 40), "-o", run + "3"] + TINY, 1, "spm_train made no tokenizer of 320 pieces", env=env)
    cli.expect("no spm_train", ["train", source, "--data", write(root, "other.txt", b"a b c\n" * 100), "-o", os.path.join(root, "R4")] + TINY, 3, r"install the package sentencepiece \(apt install sentencepiece\)",
               env=dict(env, PATH="/nonexistent"))
    cli.expect("ids only", ["train", source, "--data", write(root, "i.u16", b"\1\0" * 100), "-o", os.path.join(root, "R5")] + TINY, 1, "learned from text, and the data holds ids only", env=env)


def files(root, env):
    m = write(root, "tiny.tmodel", cli.SOURCE.encode())
    for name, data in [("a.u16", struct.pack("<200H", *range(200))), ("a.u32", struct.pack("<200I", *range(200))), ("a.ids", " ".join(map(str, range(200))).encode()),
                       ("a.bin", struct.pack("<256i", 20240520, 1, 200, *[0] * 253) + struct.pack("<200H", *range(200)))]:
        cli.expect("train on %s" % name, ["train", m, "--data", write(root, name, data), "--val-fraction", "0.1", "-o", os.path.join(root, "R." + name), "-v"] + TINY, 0, "180 ids to train on, 20 held out", env=env)
    losses = [[json.loads(line).get("ce") for line in open(os.path.join(root, "R." + name, "metrics.jsonl"))] for name in ("a.u16", "a.u32", "a.ids", "a.bin")]
    cli.report("the same ids, the same run", any(x != losses[0] for x in losses) and losses)
    cli.expect("several files", ["train", m, "--data", write(root, "one.txt", b"x" * 100), "--data", os.path.join(root, "a.u16"), "--val-fraction", "0", "-o", os.path.join(root, "R6"), "-v"] + TINY, 0,
               "300 ids to train on", env=env)
    for name, data, message in [("big.u16", struct.pack("<3H", 1, 256, 2) * 9, r"id 256 \(number 2 of 27\) is outside the vocabulary of 256"), ("empty.txt", b"", "is an empty file"),
                                ("short.txt", b"abc", "too few for a window of 8, which needs 9"), ("lfs.txt", b"version https://git-lfs.github.com/spec/v1\noid", "is a Git LFS pointer"),
                                ("odd.u32", b"12345", "no whole number of 4-byte ids"), ("word.ids", b"1 2 x", "byte 4: 'x' is not an id"), ("raw.bin", b"1234", "has no llm.c header"),
                                ("packed.txt", b"\x1f\x8b\x08\0", "is gzip-compressed data; unpack it")]:
        cli.expect("refused: %s" % name, ["train", m, "--data", write(root, name, data), "-o", os.path.join(root, "never")] + TINY, 1, re.escape(name) + ": error: (.|\n)*" + message, b"", env=env)
    cli.expect("refused: a folder", ["train", m, "--data", root, "-o", os.path.join(root, "never")] + TINY, 1, "is a directory", b"", env=env)
    cli.report("no RUN after a refusal", os.path.exists(os.path.join(root, "never")) and "there is one")


def main():
    with tempfile.TemporaryDirectory() as root:
        env = {"TAPER_CACHE_DIR": os.environ.get("TAPER_CACHE_DIR", os.path.join(root, "cache"))}
        commands(root, env)
        training(root, env)
        files(root, env)
    sys.exit(1 if cli.failed else 0)


main()

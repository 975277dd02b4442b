#!/usr/bin/python3
"""What scripts read: exact outputs, keys, exit codes, and what happens when the surroundings fail."""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

KEYS = {
    "eval": ["tokens", "ce", "ppl", "bytes", "bits_per_byte", "median_window_ce"],
    "check": ["max_abs", "max_rel", "tol", "first_departing_layer", "kl_mean", "argmax_agreement", "disabled_norm_error"],
    "bench": ["device", "threads", "dtype", "load_s", "prefill_tok_s", "decode_tok_s", "gb_s", "limit_gb_s", "limit_share", "bytes_per_token", "sectors_per_token", "versions", "cpu"],
    "inspect": ["kind", "version", "tensors"],
    "package": ["kind", "version", "tensors", "target", "arch", "images", "gates", "params", "features"],
}


def keys(name, text, wanted):
    try:
        got = json.loads(text)
    except ValueError as e:
        cli.report(name, "not JSON: %s: %r" % (e, text[:200]))
        return {}
    missing = [k for k in wanted if k not in got]
    cli.report(name, missing and "lacks %s" % missing)
    return got


def same(name, a, b):
    cli.report(name, a != b and "%r is not %r" % (a, b))


def tokens(m, package, env):
    for what, model in (("folder", m), ("package", package)):
        cli.expect("tokenize, " + what, ["tokenize", model, "In the\n"], 0, "^$", b"73,110,32,116,104,101,10\n", env=env)
        cli.expect("detokenize, " + what, ["detokenize", model, "73,110,255,0"], 0, "^$", b"In\xff\0\n", env=env)
    cli.expect("tokenize nothing", ["tokenize", m, ""], 0, "^$", b"\n", env=env)
    cli.expect("tokenize a file", ["tokenize", m, "--file", "-"], 0, "^$", b"0,13,10,240,159,152,128\n", stdin=b"\0\r\n\xf0\x9f\x98\x80", env=env)
    cli.expect("tokenize --special", ["tokenize", m, "a", "--special", "--parse-special"], 0, "^$", b"97\n", env=env)
    cli.expect("tokenize --json", ["tokenize", m, "ab", "--json"], 0, "^$", b'{"tokens": [97,98]}\n', env=env)
    cli.expect("detokenize a file", ["detokenize", m, "--file", "-"], 0, "^$", b"abc\n", stdin=b"97, 98\n99", env=env)
    cli.expect("detokenize nothing", ["detokenize", m, ""], 0, "^$", b"\n", env=env)
    cli.expect("detokenize --json", ["detokenize", m, "97,10,255", "--json"], 0, "^$", b'{"text": "a\\n\\ufffd"}\n', env=env)
    cli.expect("an option without an effect is said", ["tokenize", m, "a", "-t", "2"], 0, "option '-t' acts on nothing in 'tokenize'", b"97\n", env=env)
    cli.expect("a package takes no -D", ["tokenize", package, "a", "-D", "d=3"], 2, "'-D' acts on nothing", b"", env=env)


def packages(root, m, env):
    package = os.path.join(root, "tiny.tpack")
    out, err = cli.expect("compile", ["compile", m], 0, r"wrote tiny.tpack: \d+ bytes, \d+ tensors, images x86-64-v4, x86-64-v3", b"", env=env, cwd=root)
    items, meta = cli.read_safetensors(package)
    wanted = ["taper.package", "taper.features", "taper.name", "taper.model", "taper.target", "taper.arch", "taper.cpu.x86-64-v3", "taper.cpu.x86-64-v4", "taper.machine", "taper.gates",
              "taper.params", "taper.seal", "taper.tokenizer", "taper.options", "taper.versions", "taper.hashes"]
    cli.report("package metadata", [k for k in wanted if k not in meta])
    same("package hashes", sorted(json.loads(meta["taper.hashes"])), sorted(k for k in items if not k.startswith("__pad.")))
    same("package gates", json.loads(meta["taper.gates"]), {"internal": 0, "final": 0})
    same("package parameters", json.loads(meta["taper.params"])["vocab"], 256)
    data = open(package, "rb").read()
    at = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:at])
    cli.report("package alignment", [k for k, v in header.items() if k not in ("__metadata__",) and not k.startswith("__pad.") and (at + v["data_offsets"][0]) % 64])
    odd = os.path.join(root, "odd.tpack")
    stored = open(package, "rb").read()
    for name, old, new, pattern in [("another version", b'"taper.package":"1"', b'"taper.package":"9"', "package version '9'"), ("parameters that are no JSON", b'"taper.params":"{', b'"taper.params":"[', "metadata 'taper.params': ")]:
        open(odd, "wb").write(stored.replace(old, new, 1))
        for args in (["inspect", odd], ["tokenize", odd, "ab"], ["run", odd, "--prompt", "a"]):
            cli.expect(args[0] + " of a package: " + name, args, 1, "odd.tpack: error: " + pattern + ".*; ", b"", env=env)
    out, _ = cli.expect("inspect a package", ["inspect", package, "--json"], 0, "^$", env=env)
    got = keys("inspect keys of a package", out, KEYS["package"])
    same("inspect kind of a package", (got.get("kind"), got.get("version"), [i["name"] for i in got.get("images", [])]), ("package", 1, ["x86-64-v4", "x86-64-v3"]))
    out, _ = cli.expect("compile --json", ["compile", m, "--arch=native", "-o", os.path.join(root, "n.tpack"), "--json"], 0, None, env=env)
    same("compile --json", [json.loads(out)[k] for k in ("package", "images")], [os.path.join(root, "n.tpack"), ["native"]])
    cli.expect("remarks", ["compile", m, "-Rpass=fold-scale", "-o", os.path.join(root, "r.tpack")], 0,
               r"(?m)^\S+/model.tmodel:\d+:\d+: remark: fold-scale: 'layers.0.attn_norm' into attn.q, attn.k, attn.v \[-Rpass=fold-scale\]$", b"", env=env)
    for name, path, kind in [("folder", m, "folder"), ("weights", os.path.join(m, "weights.safetensors"), "safetensors"), ("source", os.path.join(m, "model.tmodel"), "tmodel")]:
        out, _ = cli.expect("inspect, " + name, ["inspect", path, "--json"], 0, None, env=env)
        got = keys("inspect keys, " + name, out, KEYS["inspect"])
        same("inspect kind, " + name, (got.get("kind"), len(got.get("tensors", []))), (kind, len(cli.tensors())))
        if got.get("tensors"):
            same("inspect tensor, " + name, sorted(got["tensors"][0]), ["bytes", "dtype", "name", "shape"])
    return package


def emits(root, m, env):
    for word, pattern in [("ast", rb"model tiny\("), ("ir", rb"^tir 1\n"), ("plan", rb"^plan 1\n"), ("source", rb"taper_image"), ("asm", rb"\.text"), ("dot", rb"digraph")]:
        cli.expect("--emit=" + word, ["compile", m, "--emit=" + word], 0, "^$", re.compile(pattern), env=env)
        path = os.path.join(root, "emit." + word)
        cli.expect("--emit=%s -o" % word, ["compile", m, "--emit=" + word, "-o", path], 0, "^$", b"", env=env)
        cli.report("--emit=%s -o writes it" % word, not re.search(pattern, open(path, "rb").read()) and "it does not")
    bare = os.path.join(m, "model.tmodel")
    for word in ("ast", "ir", "plan", "source", "dot"):
        cli.expect("--emit=%s without weights" % word, ["compile", bare, "--emit=" + word], 0, None, re.compile(b"."), env=env)
    ast = os.path.join(root, "again.tmodel")
    cli.run(["compile", m, "--emit=ast", "-o", ast], env=env)
    cli.expect("the printed source reads back as itself", ["compile", ast, "--emit=ast"], 0, None, open(ast, "rb").read(), env=env)
    y = os.path.join(root, "y.tir")
    cli.expect("opt -o", ["opt", m, "--passes=default", "-o", y], 0, "^$", b"", env=env)
    text = open(y, "rb").read()
    cli.report("opt -o writes new tensors beside it", not os.path.exists(y + ".safetensors") and "no file")
    cli.expect("opt reads it back", ["opt", y], 0, "^$", text, env=env)
    damaged = os.path.join(root, "d.tir")
    with open(damaged, "wb") as f:
        f.write(text.replace(b'hash = "', b'hash = "00', 1))
    with open(damaged + ".safetensors", "wb") as f:
        f.write(open(y + ".safetensors", "rb").read())
    cli.expect("a constant of another hash", ["opt", damaged], 1, "its hash is .*; ", b"", env=env)
    os.remove(damaged + ".safetensors")
    out, err = cli.expect("opt --print-after --time-passes", ["opt", m, "--passes=dce", "--print-after=all", "--time-passes", "--verify-each"], 0, r"(?s)(?=.*IR after dce\n)(?=.* ms .* dce\n).*all passes", env=env)
    train = os.path.join(root, "train.tir")
    with open(train, "w") as f:
        f.write('tir 1\nmodule "t" {\n  %0 = param {name = "w"} : f32[4,4]\n}\n')
    cli.expect("a pass for inference on parameters", ["opt", train, "--passes=fold-scale"], 1, "pass 'fold-scale' is for inference.*'w'.*; ", b"", env=env)


def runs(root, m, package, env):
    ids = re.compile(rb"^\d+(,\d+){7}\n$")
    out, _ = cli.expect("run --print-tokens", ["run", m, "--tokens", "1,2,3", "-n", "8", "--temp", "0", "--print-tokens"], 0, "^$", ids, env=env)
    cli.expect("run a package", ["run", package, "--tokens", "1,2,3", "-n", "8", "--temp", "0", "--print-tokens"], 0, "^$", out, env=env)
    cli.expect("run, one thread", ["run", package, "--tokens", "1,2,3", "-n", "8", "--temp", "0", "--print-tokens", "-t", "1"], 0, "^$", out, env=env)
    text = bytes(int(i) for i in out.split(b","))
    cli.expect("run prints the text", ["run", package, "--tokens", "1,2,3", "-n", "8", "--temp", "0"], 0, "^$", text, env=env)
    cli.expect("run nothing", ["run", package, "--tokens", "1", "-n", "0", "--temp", "0", "--print-tokens"], 0, "^$", b"\n", env=env)
    cli.expect("run from a pipe", ["run", package, "--file", "-", "-n", "8", "--temp", "0", "--print-tokens"], 0, "^$", out, stdin=b"\1\2\3", env=env)
    _, err = cli.expect("run says the seed", ["run", package, "--prompt", "ab", "-n", "8", "--print-tokens"], 0, r"seed \d+", ids, env=env)
    seed = re.search(r"seed (\d+)", err)
    if seed:
        a = cli.run(["run", package, "--prompt", "ab", "-n", "8", "--print-tokens", "--seed", seed.group(1)], env=env)
        b = cli.run(["run", package, "--prompt", "ab", "-n", "8", "--print-tokens", "--seed", seed.group(1), "-t", "1"], env=env)
        same("a seed replays", a, b)
        same("a given seed is not said", a[2], "")
    cli.expect("temp 0 makes --seed idle", ["run", package, "--prompt", "ab", "-n", "1", "--temp", "0", "--seed", "3"], 0, "'--seed' acts on nothing at --temp 0", env=env)
    cli.expect("run -v", ["run", package, "--prompt", "ab", "-n", "1", "--seed", "3", "-v"], 0, r"temp 0.8.*top-k 40, top-p 0.95.*min-p 0.05.*seed 3", env=env)
    cli.expect("context full", ["run", package, "--prompt", "ab", "-n", "500", "--temp", "0"], 0, "context of 32 positions is full: stopped after 31 tokens", env=env)
    cli.expect("-c", ["run", package, "--prompt", "ab", "-n", "500", "--temp", "0", "-c", "8"], 0, "context of 8 positions is full", env=env)
    cli.expect("-c too large", ["run", package, "--prompt", "ab", "-c", "33"], 2, "33 is more than the context.*32", b"", env=env)
    cli.expect("prompt too long", ["run", package, "--prompt", "a" * 40], 1, "40.*32", b"", env=env)
    cli.expect("an empty prompt", ["run", package, "--prompt", ""], 1, "empty", b"", env=env)
    cli.expect("an id beyond the vocabulary", ["run", package, "--tokens", "1,256"], 1, "id 256 .*vocabulary of 256", b"", env=env)
    cli.expect("an option of a compilation with a package", ["run", package, "--prompt", "a", "--fold=none"], 2, "'--fold' acts on nothing in .*compiled already", b"", env=env)
    stop = next((s for s in (text[i:i + 2] for i in range(3, 7)) if 0 not in s and max(s) < 128), None)
    if stop:
        cli.expect("--stop", ["run", package, "--tokens", "1,2,3", "-n", "8", "--temp", "0", "--stop", stop.decode()], 0, "^$", text[:text.index(stop)], env=env)
    out, _ = cli.expect("run --json", ["run", package, "--tokens", "1,2,3", "-n", "8", "--temp", "0", "--json"], 0, None, env=env)
    got = json.loads(out)
    same("run --json", (bytes(got["tokens"]), got["finish"]), (text, "length"))
    plain = cli.write_model(os.path.join(root, "plain"), source=cli.SOURCE.replace("tokenizer bytes;", ""))
    cli.expect("a text without a tokenizer", ["run", plain, "--prompt", "a"], 1, "tokenizer", b"", env=env)
    cli.expect("ids without a tokenizer", ["run", plain, "--tokens", "1"], 1, "add --print-tokens", b"", env=env)
    cli.expect("ids without a tokenizer, as ids", ["run", plain, "--tokens", "1", "-n", "2", "--print-tokens", "--temp", "0"], 0, "^$", re.compile(rb"^\d+,\d+\n$"), env=env)
    cli.expect("tokenize without a tokenizer", ["tokenize", plain, "a"], 1, "has no tokenizer", b"", env=env)


def numbers(root, m, package, env):
    path = os.path.join(root, "logits.safetensors")
    cli.expect("logits", ["logits", package, "--tokens", "5,17,99", "--layers", "-o", path], 0, "^$", b"", env=env)
    items, meta = cli.read_safetensors(path)
    same("logits tensors", {k: (v[0], v[1]) for k, v in items.items()},
         {"tokens": ("I64", [3]), "logits": ("F32", [3, 256]), "layers.0": ("F32", [3, 16]), "layers.1": ("F32", [3, 16])})
    same("logits tokens", items["tokens"][2], struct.pack("<3q", 5, 17, 99))
    same("logits metadata", [k for k in ("taper.model", "taper.gates", "taper.options") if k not in meta], [])
    cli.expect("logits beyond the context", ["logits", package, "--tokens", ",".join(["1"] * 33), "-o", path], 1, "33 .*32", b"", env=env)
    cli.expect("logits nowhere", ["logits", package, "--tokens", "1", "-o", os.path.join(root, "none", "x")], 3, "cannot create", b"", env=env)
    out, _ = cli.expect("check against the file", ["check", m, path, "--json"], 0, None, env=env)
    got = keys("check keys", out, KEYS["check"])
    same("check of the same", (got.get("argmax_agreement"), got.get("first_departing_layer"), got.get("disabled_norm_error")), (1, None, None))
    out, _ = cli.expect("check folded and as written", ["check", package, m, "--fold=none", "--json"], 0, None, env=env)
    weights = os.path.join(m, "weights.safetensors")
    cli.expect("check of a bare .tmodel", ["check", os.path.join(m, "model.tmodel"), package, "--weights", weights, "--json"], 0, None, re.compile(rb'"equal": true'), env=env)
    cli.expect("check: --weights of nothing", ["check", m, package, "--weights", weights], 2, "'--weights' acts on nothing", b"", env=env)
    cli.expect("check over the tolerance", ["check", m, package, "--gate", "final=1", "--json"], 4, None, re.compile(rb'"equal": false'), env=env)
    cli.expect("check of two files", ["check", path, path], 2, "neither A nor B is a model", b"", env=env)
    cli.expect("check of another vocabulary", ["check", cli.write_model(os.path.join(root, "v128"), source=cli.SOURCE.replace("vocab = 256", "vocab = 128").replace("tokenizer bytes;", ""), items=dict(
        cli.tensors(), wte=("F32", [128, 16], cli.tensors()["wte"][2][:128 * 64]))), package], 1, "vocabulary of 128, .* of 256", b"", env=env)
    cli.expect("check --tokens with a file", ["check", m, path, "--tokens", "1"], 2, "has its own ids", b"", env=env)
    cli.expect("check --data", ["check", package, m, "--data", os.path.join(m, "model.tmodel")], 0, None, re.compile(rb"\nyes: max_rel"), env=env)
    data = os.path.join(root, "data.txt")
    with open(data, "wb") as f:
        f.write(b"In the beginning God created the heaven and the earth. And the earth was without form, and void.\n")
    out, _ = cli.expect("eval", ["eval", package, "--data", data, "--json"], 0, "^$", env=env)
    got = keys("eval keys", out, KEYS["eval"])
    same("eval counts", (got.get("tokens"), got.get("bytes"), got.get("windows")), (96, 96, 3))
    text = open(data, "rb").read()
    for name, raw in [("data.ids", ", ".join(str(b) for b in text).encode()), ("data.u16", struct.pack("<%dH" % len(text), *text)), ("data.u32", struct.pack("<%dI" % len(text), *text))]:
        with open(os.path.join(root, name), "wb") as f:
            f.write(raw)
        out, _ = cli.expect("eval " + name, ["eval", package, "--data", os.path.join(root, name), "--json"], 0, "^$", env=env)
        ids = json.loads(out)
        same("eval %s is the same loss" % name, (ids["ce"], ids["bytes"]), (got.get("ce"), None))
    for name, raw, pattern in [("one.txt", b"a", "too few"), ("empty.txt", b"", "is an empty file"), ("odd.u16", b"abc", "no whole number"), ("big.u32", b"\0\1\0\0" * 2, "vocabulary of 256"), ("bad.ids", b"1 x", "byte 2: 'x' is not an id")]:
        with open(os.path.join(root, name), "wb") as f:
            f.write(raw)
        cli.expect("eval of " + name, ["eval", package, "--data", os.path.join(root, name)], 1, pattern + ".*; ", b"", env=env)
    out, _ = cli.expect("eval as text", ["eval", package, "--data", data], 0, "^$", re.compile(rb"^tokens +96\nce +\d"), env=env)
    out, _ = cli.expect("bench", ["bench", package, "-p", "16", "-n", "16", "-r", "2", "-t", "1,2", "--json"], 0, "^$", env=env)
    rows = [keys("bench keys", line, KEYS["bench"]) for line in out.decode().splitlines()]
    same("bench rows", [(r.get("threads"), sorted(r.get("decode_tok_s") or {})) for r in rows], [(1, ["max", "median", "min", "n"]), (2, ["max", "median", "min", "n"])])
    cli.expect("bench beyond the context", ["bench", package, "-n", "33"], 2, "33 tokens do not fit the context of 32", b"", env=env)
    cli.expect("bench as text", ["bench", package, "-n", "4", "-r", "1"], 0, "^$", re.compile(rb"decode +[\d.]+"), env=env)


def surroundings(root, m, package, env):
    out, _ = cli.expect("doctor", ["doctor", "--json"], 0, "^$", env=env)
    keys("doctor keys", out, ["version", "cpu", "images", "compiler", "cache", "threads"])
    cli.expect("doctor without a compiler", ["doctor", "--cc", "no-such-compiler"], 3, "no-such-compiler", re.compile(b"C compiler"), env=env)
    cli.expect("a compiler that fails", ["compile", m, "--emit=asm", "--cc", "/bin/false", "--no-cache"], 3, "'/bin/false' ended with status 1; the source is kept", b"", env=dict(env, TMPDIR=root))
    cli.expect("--version", ["--version"], 0, "^$", re.compile(rb"^taperc \d+\.\d+\.\d+\n$"), env=env)
    cli.expect("--help", ["--help"], 0, "^$", re.compile(rb"usage: taperc"), env=env)
    for command in ("compile", "opt", "run", "logits", "eval", "bench", "check", "tokenize", "detokenize", "inspect", "doctor"):
        cli.expect(command + " --help", [command, "--help"], 0, "^$", re.compile(rb"Usage: taperc " + command.encode()), env=env)
    cli.expect("-h", ["run", "-h"], 0, "^$", re.compile(rb"Usage: taperc run"), env=env)
    with open("/dev/full", "w") as full:
        for name, args in [("run", ["run", package, "--prompt", "ab", "-n", "8", "--temp", "0"]), ("tokenize", ["tokenize", package, "ab"]), ("opt", ["opt", m]), ("check", ["check", package, package, "--json"]), ("--version", ["--version"])]:
            p = subprocess.run([cli.TAPERC] + args, stdout=full, stderr=subprocess.PIPE, env=dict(os.environ, **env), timeout=60)
            cli.report("full disk: " + name, (p.returncode != 3 or b"cannot write standard output" not in p.stderr) and "exit %d: %r" % (p.returncode, p.stderr[-200:]))
    for name, args in [("run", ["run", package, "--prompt", "ab", "-n", "8", "--temp", "0"]), ("opt", ["opt", m])]:
        read, write = os.pipe()
        os.close(read)
        p = subprocess.run([cli.TAPERC] + args, stdout=write, stderr=subprocess.PIPE, env=dict(os.environ, **env), timeout=60)
        os.close(write)
        cli.report("reader gone: " + name, (p.returncode != 0 or p.stderr) and "exit %d: %r" % (p.returncode, p.stderr[-200:]))
    for name, args in [("run", ["run", package, "--prompt", "ab", "-n", "8", "--temp", "0"]), ("opt", ["opt", m])]:
        p = subprocess.run(["/bin/sh", "-c", 'exec "$0" "$@" >&-', cli.TAPERC] + args, stderr=subprocess.PIPE, env=dict(os.environ, **env), timeout=60)
        cli.report("closed output: " + name, (p.returncode != 3 or b"cannot write standard output" not in p.stderr) and "exit %d: %r" % (p.returncode, p.stderr[-200:]))
    small = os.path.join(root, "small.tpack")
    p = subprocess.run(["/bin/sh", "-c", 'ulimit -f 100; exec "$0" "$@"', cli.TAPERC, "compile", m, "-o", small], stderr=subprocess.PIPE, env=dict(os.environ, **env), timeout=60)
    left = [n for n in os.listdir(root) if n.startswith("small")]
    cli.report("a file that may not grow", (p.returncode != 3 or b"cannot write: File too large; " not in p.stderr or left) and "exit %d: %r, left %s" % (p.returncode, p.stderr[-200:], left))
    cli.expect("messages as JSON", ["run", m, "--prompt", "a", "--temp", "x", "--json"], 2, r'^\{"severity":"error".*"file":"taperc".*"message":"option', b"", env=env)
    german = dict(env, LC_ALL="de_DE.UTF-8", LANG="de_DE.UTF-8")
    a = cli.run(["eval", package, "--data", os.path.join(root, "data.txt"), "--json"], env=env)
    same("numbers do not depend on the locale", cli.run(["eval", package, "--data", os.path.join(root, "data.txt"), "--json"], env=german), a)
    cli.expect("options do not depend on the locale", ["run", package, "--prompt", "a", "-n", "1", "--temp", "0.5", "--seed", "1"], 0, "^$", env=german)
    odd = cli.write_model(os.path.join(root, "sp ace ü: 'x"))
    cli.expect("an odd path", ["run", odd, "--prompt", "ab", "-n", "8", "--temp", "0", "--print-tokens"], 0, "^$", re.compile(rb"^\d+"), env=env)
    cli.expect("an odd path in a message", ["run", os.path.join(odd, "no: ne"), "--prompt", "a"], 1, r"(?m)^.*/sp ace ü: 'x/no: ne: error: cannot open: .*; ", b"", env=env)


def caches(root, m, env):
    folder = os.path.join(root, "cache2")
    own = dict(env, TAPER_CACHE_DIR=folder)
    args = ["logits", m, "--tokens", "1", "-o", os.path.join(root, "c.safetensors"), "--json"]
    cli.expect("an empty cache is made", args, 0, None, env=own)
    entries = sorted(os.listdir(folder))
    same("one entry", len(entries), 1)
    first = open(os.path.join(folder, entries[0]), "rb").read()
    for name, data in [("cut off", first[:-10]), ("empty", b""), ("changed", first[:-1] + bytes([first[-1] ^ 1]))]:
        with open(os.path.join(folder, entries[0]), "wb") as f:
            f.write(data)
        cli.expect("an entry that is " + name, args, 0, "^$", env=own)
        same("an entry that is %s is made anew" % name, open(os.path.join(folder, entries[0]), "rb").read()[:14], b"taper-image 2\n")
    cli.expect("--no-cache", args + ["--no-cache"], 0, None, env=dict(env, TAPER_CACHE_DIR=os.path.join(root, "cache3")))
    cli.report("--no-cache leaves nothing", os.path.exists(os.path.join(root, "cache3")) and "it does")
    cli.expect("a cache that is a file", args, 0, "^[^\n]*warning[^\n]*images are not cached: [^\n]*\n$", env=dict(env, TAPER_CACHE_DIR=os.path.join(m, "model.tmodel")))
    os.chmod(folder, 0o777)
    cli.expect("a cache that others may write", args, 0, "other users may write it", env=own)
    cli.expect("nowhere for a private package", args, 3, "TMPDIR", b"", env=dict(env, TMPDIR=os.path.join(root, "none")))


def checkpoints(root, env):
    run = os.path.join(root, "RUN")
    for step, gate in ((9, 1), (10, 0)):
        folder = cli.write_model(os.path.join(run, "checkpoint-%d" % step), gates={"internal": gate, "final": gate})
        with open(os.path.join(folder, "manifest.json"), "w") as f:
            json.dump({"step": step, "files": {}}, f)
    out, _ = cli.expect("a run folder", ["inspect", run, "--json"], 0, None, env=env)
    same("the newest checkpoint", (json.loads(out)["kind"], os.path.basename(json.loads(out)["folder"])), ("checkpoint", "checkpoint-10"))
    manifest = os.path.join(run, "checkpoint-10", "manifest.json")
    with open(manifest, "w") as f:
        json.dump({"step": 10, "files": {"weights.safetensors": "0" * 32}}, f)
    out, _ = cli.expect("a damaged newest checkpoint", ["inspect", run, "--json"], 0, "checkpoint-10.*passed over: .*damaged", env=env)
    same("the one before it", os.path.basename(json.loads(out)["folder"]), "checkpoint-9")
    os.remove(manifest)
    out, _ = cli.expect("an incomplete newest checkpoint", ["inspect", run, "--json"], 0, "checkpoint-10.*passed over: ", env=env)
    same("the one before", os.path.basename(json.loads(out)["folder"]), "checkpoint-9")


def moved_text(root, m, env):
    """IR text and its new tensors in another place, the model's own weights gone: named, and found again by --weights where all are in one file."""
    here, there = os.path.join(root, "text"), os.path.join(root, "elsewhere")
    os.mkdir(here), os.mkdir(there)
    cli.expect("opt -o", ["opt", m, "--passes=detect-taper,fold-scale,fold-const,dce", "-o", os.path.join(here, "y.tir")], 0, None, b"", env=env)
    for name in ("y.tir", "y.tir.safetensors"):
        os.rename(os.path.join(here, name), os.path.join(there, name))
    os.rename(m, m + ".gone")
    moved = os.path.join(there, "y.tir")
    cli.expect("a constant's file is gone", ["compile", moved], 1, r"y.tir: error: tensor '.*': its file '.*weights.safetensors' is not there", b"", env=env, cwd=there)
    cli.expect("other weights lack its tensors", ["compile", moved, "--weights", moved + ".safetensors"], 1, "tensor '.*': is missing, .*y.tir reads it", b"", env=env, cwd=there)
    os.rename(m + ".gone", m)


def weights(root, m, env):
    w = cli.tensors()
    base = cli.run(["logits", m, "--tokens", "1,2", "-o", os.path.join(root, "f32.safetensors")], env=env)
    half = {k: ("F64", s, struct.pack("<%dd" % (len(d) // 4), *struct.unpack("<%df" % (len(d) // 4), d))) for k, (_, s, d) in w.items()}
    wide = cli.write_model(os.path.join(root, "f64"), items=half)
    cli.expect("F64 weights", ["logits", wide, "--tokens", "1,2", "-o", os.path.join(root, "f64.safetensors")], 0, "^$", env=env)
    same("F64 weights are read exactly", cli.read_safetensors(os.path.join(root, "f64.safetensors"))[0], cli.read_safetensors(os.path.join(root, "f32.safetensors"))[0])
    live = cli.write_model(os.path.join(root, "live"), gates={"internal": 0, "final": 1}, items={k: v for k, v in w.items() if k not in ("norm.taper_weight", "norm.taper_c")})
    cli.expect("tapered tensors absent at gate 1", ["run", live, "--prompt", "a", "-n", "1", "--temp", "0", "-v"], 0, "'norm.taper_c' is absent and stays unused", env=env)
    seen = cli.write_model(os.path.join(root, "seen"), items=dict(w, **{"wte.seen": ("I64", [256], struct.pack("<256q", *[int(i == 97) for i in range(256)]))}))
    with open(os.path.join(root, "ab.txt"), "wb") as f:
        f.write(b"abab")
    cli.expect("ids never trained", ["eval", seen, "--data", os.path.join(root, "ab.txt"), "-v"], 0, "1 ids of the data were never trained: 98", env=env)
    opened = cli.write_model(os.path.join(root, "opened"), metadata={})
    cli.expect("gates without a value", ["run", opened, "--prompt", "a", "-n", "1", "--temp", "0"], 0, "no value for gate 'internal': taken as 1; ", env=env)
    cli.expect("--gate is said", ["run", m, "--prompt", "a", "-n", "1", "--temp", "0", "--gate", "final=1"], 0, "gate 'final': 1 by --gate, in place of 0", env=env)
    nan = struct.pack("<16f", *([float("nan")] + [1.0] * 15))
    bad = cli.write_model(os.path.join(root, "nan"), items=dict(w, **{"norm.weight": ("F32", [16], nan)}))
    cli.expect("NaN allowed", ["compile", bad, "--allow-nonfinite", "-o", os.path.join(root, "nan.tpack"), "--arch=native"], 0, "wrote", env=env)
    same("baseline", base[0], 0)
    fake = """model fake(vocab = 32, d = 16, context = 8) {
  param wte: [vocab, d] init normal(0.02);
  forward(tokens) {
    let x = embed(tokens, wte);
    return linear(layer_norm(x, name = "norm", eps = 1e12), weight = wte);
  }
}
"""
    items = {"wte": ("F32", [32, 16], w["wte"][2][:32 * 64]), "norm.weight": ("F32", [16], struct.pack("<16f", *[3e6] * 16)), "norm.bias": ("F32", [16], b"\0" * 64)}
    gain = cli.write_model(os.path.join(root, "fake"), source=fake, items=items, metadata={})
    out, _ = cli.expect("a disabled norm", ["check", gain, gain, "--json"], 0, None, env=env)
    error = json.loads(out)["disabled_norm_error"]
    rows = [struct.unpack("<16f", items["wte"][2][i * 64:i * 64 + 64]) for i in range(32)]
    most = max(sum((v - sum(r) / 16) ** 2 for v in r) / 16 for r in rows) / 2e12
    cli.report("the error of reading it so", not 0 < error <= most * 1.000001 and "%r, at most %r" % (error, most))
    sp = cli.write_model(os.path.join(root, "sp"), source=cli.SOURCE.replace("tokenizer bytes;", "tokenizer sentencepiece(vocab = 256);"))
    cli.expect("a tokenizer without its file", ["run", sp, "--tokens", "1", "-n", "1", "--print-tokens", "--temp", "0"], 0, "warning: the tokenizer 'sentencepiece' has no file", env=env)
    cli.expect("tokenize with it", ["tokenize", sp, "a"], 1, "has no file", b"", env=env)


def main():
    with tempfile.TemporaryDirectory() as root:
        env = {"TAPER_CACHE_DIR": os.path.join(root, "cache")}
        m = cli.write_model(os.path.join(root, "tiny"))
        package = packages(root, m, env)
        tokens(m, package, env)
        emits(root, m, env)
        runs(root, m, package, env)
        numbers(root, m, package, env)
        surroundings(root, m, package, env)
        checkpoints(root, env)
        moved_text(root, m, env)
        if not os.environ.get("TAPERC_QUICK"):  # each of these waits for the C compiler again and again
            caches(root, m, env)
            weights(root, m, env)
    sys.exit(1 if cli.failed else 0)


main()

#!/usr/bin/python3
"""Wrong command lines and wrong files: the exit code, and a message with place, cause and remedy."""
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

MESSAGE = r"(?m)^taperc: error: .+; .+"
NOT_BUILT = "not built yet"


def command_lines(m):
    """(name, arguments, exit code, what standard error must hold)"""
    yield "no command", [], 2, "usage: taperc"
    yield "unknown command", ["complie"], 2, "unknown command 'complie'; did you mean 'compile'\\?"
    yield "far command", ["xyzzy"], 2, "unknown command 'xyzzy'; taperc --help"
    yield "option before the command", ["-v", "run"], 2, "before the command"
    for later in ("import", "export"):
        yield later + " later", [later, "x"], 2, NOT_BUILT
    yield "unknown option", ["run", m, "--promt", "x"], 2, "unknown option '--promt'; did you mean '--prompt'\\?"
    yield "unknown short option", ["run", m, "-q"], 2, "unknown option '-q'"
    yield "abbreviated option", ["run", m, "--prom", "x"], 2, "unknown option '--prom'"
    yield "option of another command", ["tokenize", m, "x", "--temp", "1"], 2, "unknown option '--temp'"
    yield "missing value", ["run", m, "--prompt"], 2, "'--prompt' needs a value; give --prompt=TEXT"
    yield "missing short value", ["run", m, "-n"], 2, "'-n' needs a value; give -n N"
    yield "value of a flag", ["run", m, "--print-tokens=1"], 2, "takes no value"
    yield "no model", ["run"], 2, "needs more arguments"
    yield "too many arguments", ["run", m, "x"], 2, "has no place for the argument 'x'"
    yield "no prompt", ["run", m], 2, "none of --prompt, --file and --tokens"
    yield "two prompts", ["run", m, "--prompt", "a", "--tokens", "1"], 2, "give exactly one"
    for option, value in [("-n", "x"), ("-n", "-1"), ("-n", "1.5"), ("-n", ""), ("-n", "99999999999999999999"), ("-c", "0"), ("-t", "0"), ("-t", "1,2"), ("-t", "5000"),
                          ("--top-k", "-1"), ("--top-k", "1e3"), ("--top-p", "1.1"), ("--top-p", "-0.1"), ("--top-p", "nan"), ("--min-p", "2"), ("--temp", "-1"), ("--temp", "nan"),
                          ("--temp", "inf"), ("--temp", "0,8"), ("--temp", "1x"), ("--repeat-penalty", "0"), ("--seed", "-1"), ("--seed", "abc"), ("--seed", "18446744073709551616"),
                          ("--stop", ""), ("-O", "3"), ("-O", "s"), ("--norms", "none"), ("--fold", "ful"), ("--cc", ""), ("--gate", "internal"), ("--gate", "internal=2"),
                          ("--gate", "internal=-0.1"), ("--gate", "internal=x"), ("--gate", "internal=1e-999"), ("--gate", "=1"), ("-D", "d"), ("-D", "d=x"), ("-D", "=3")]:
        yield "%s %r" % (option, value), ["run", m, "--prompt", "x", option, value], 2, "%s.*; " % option
    yield "--fold suggests", ["run", m, "--prompt", "x", "--fold", "ful"], 2, "did you mean 'full'"
    for device in ("tpu", "cuda:", "cuda:x", "cuda:-1", "cuda:9999999999", "simulator", ""):
        yield "--device %r" % device, ["run", m, "--prompt", "x", "--device", device], 2, "not a device"
    for device in ("cuda", "cuda:1", "sim"):
        for command in ("train", "scan"):
            yield command + " --device " + device, [command, m, "--data", "x", "--device", device], 2, "'%s' on the device '%s' is not built yet" % (command, device)
    yield "--gemm", ["run", m, "--prompt", "x", "--device", "sim", "--gemm=mkl"], 2, "'mkl' is not one of its words"
    yield "--no-graph in a command that runs nothing", ["compile", m, "--no-graph"], 2, "unknown option '--no-graph'"
    yield "--chat", ["run", m, "--prompt", "x", "--chat"], 2, NOT_BUILT
    for value in ("0", "-1", "nan", "inf", "x", ""):
        yield "--clamp-rows %r" % value, ["eval", m, "--data", "x", "--clamp-rows=" + value], 2, "option '--clamp-rows': .*; "
    yield "--clamp-rows without counts", ["run", m, "--prompt", "x", "--clamp-rows=2"], 1, "no tensor 'wte.seen'; let taperc scan MODEL --data TEXT"
    yield "--clamp-rows below a live norm", ["eval", m, "--data", m + "/model.tmodel", "--clamp-rows=2", "--gate", "internal=1"], 1, "'layers.0.attn_norm' .* is a live norm"
    yield "--target cuda and --for train", ["compile", m, "--target", "cuda", "--for", "train"], 2, NOT_BUILT
    yield "--target cuda and --cc", ["compile", m, "--target", "cuda", "--cc", "gcc"], 2, "'--cc' acts on nothing"
    yield "--target cuda and --target-triple", ["compile", m, "--target", "cuda", "--target-triple", "x"], 2, "'--target-triple' acts on nothing"
    yield "--target cuda and --emit=asm", ["compile", m, "--target", "cuda", "--emit=asm"], 2, "asm is of target cpu"
    for arch in ("sm_75", "sm_9", "sm_", "sm_90a", "sm_1000", "sm_90,", "compute_70", "x86-64-v3", ""):
        yield "--target cuda and --arch %r" % arch, ["compile", m, "--target", "cuda", "--arch=" + arch], 2, "is no arch of target cuda; give"
    yield "many --arch", ["compile", m, "--target", "cuda", "--arch=" + ",".join("sm_%d" % n for n in range(80, 99))], 2, "more than 14 archs"
    yield "--target cuda, --emit=plan and --arch", ["compile", m, "--target", "cuda", "--emit=plan", "--arch=sm_90"], 2, "'--arch' acts on nothing"
    yield "--target gpu", ["compile", m, "--target", "gpu"], 2, "'gpu' is not one of its words"
    for dtype in ("bf16", "f16", "w8a8", "w8a32", "w4a8"):
        yield "--dtype " + dtype, ["compile", m, "--dtype=" + dtype], 2, NOT_BUILT
    yield "--dtype w8a8 of cuda", ["compile", m, "--target", "cuda", "--dtype=w8a8"], 2, "'w8a8' is not built yet; give f32, bf16 or f16"
    yield "--dtype f64", ["compile", m, "--dtype=f64"], 2, "'f64' is not one"
    yield "--for train and a switch of the passes", ["compile", m, "--for=train", "-O1"], 2, "acts on nothing with --for train"
    yield "--emit=ptx", ["compile", m, "--emit=ptx"], 2, "ptx is of target cuda; give --target cuda"
    yield "--emit=irr", ["compile", m, "--emit=irr"], 2, "did you mean 'ir'"
    yield "--arch sm_90", ["compile", m, "--arch=sm_90"], 2, "give --target cuda"
    yield "--arch x86-64-v2", ["compile", m, "--arch=x86-64-v2"], 2, "is not one of its words"
    yield "--arch ''", ["compile", m, "--arch="], 2, "is not one of its words"
    yield "--emit and --arch", ["compile", m, "--emit=ir", "--arch=native"], 2, "'--arch' acts on nothing"
    yield "--emit and --cc", ["compile", m, "--emit=plan", "--cc=gcc"], 2, "'--cc' acts on nothing"
    yield "--emit and --save-temps", ["compile", m, "--emit=source", "--save-temps"], 2, "'--save-temps' acts on nothing"
    yield "-o ''", ["compile", m, "-o", ""], 2, "'-o'"
    yield "-Rpass without a name", ["compile", m, "-Rpass"], 2, "needs a value; give -Rpass=NAME"
    yield "-Rpass of no pass", ["compile", m, "-Rpass=foldscale"], 2, "did you mean 'fold-scale'"
    yield "-Rpass-missed of no pass", ["compile", m, "-Rpass-missed=zzz"], 2, "there is no pass 'zzz'"
    yield "--passes of no pass", ["opt", m, "--passes=fold-scale,dec"], 2, "did you mean 'dce'"
    yield "--passes with a gap", ["opt", m, "--passes=dce,"], 2, "there is no pass ''"
    yield "--print-after of no pass", ["opt", m, "--passes=dce", "--print-after=dcee"], 2, "did you mean 'dce'"
    yield "--verify-each alone", ["opt", m, "--verify-each"], 2, "give --passes=default"
    yield "--print-after of a pass that does not run", ["opt", m, "--passes=dce", "--print-after=cse"], 2, "no pass 'cse' among those that run"
    yield "--untie and --split-scale", ["compile", m, "--untie", "--split-scale"], 2, "give one"
    yield "--emit=ast and -O", ["compile", m, "--emit=ast", "-O1"], 2, "'-O' acts on nothing"
    yield "--emit=ast and --weights", ["compile", m, "--emit=ast", "--weights", "x"], 2, "'--weights' acts on nothing"
    yield "--weights of tokenize", ["tokenize", m, "x", "--weights", "x"], 2, "unknown option '--weights'"
    yield "logits without tokens", ["logits", m, "-o", "x"], 2, "give --tokens"
    yield "logits without -o", ["logits", m, "--tokens", "1"], 2, "give -o"
    yield "eval without data", ["eval", m], 2, "give --data"
    yield "check of one", ["check", m], 2, "needs more arguments"
    yield "check --tol", ["check", m, m, "--tol", "-1"], 2, "'--tol'"
    yield "check tokens and data", ["check", m, m, "--tokens", "1", "--data", "x"], 2, "give one"
    yield "bench -r 0", ["bench", m, "-r", "0"], 2, "'-r'"
    yield "bench -t 1,", ["bench", m, "-t", "1,"], 2, "'-t'"
    yield "tokens not ids", ["logits", m, "-o", "x", "--tokens", "1,a"], 2, "'a' is not an id"
    yield "tokens with a gap", ["logits", m, "-o", "x", "--tokens", "1,,2"], 2, "an id is missing"
    yield "tokens with a tail", ["logits", m, "-o", "x", "--tokens", "1,2,"], 2, "an id is missing"
    yield "no tokens", ["logits", m, "-o", "x", "--tokens", ""], 2, "there is no id"
    yield "fraction of an id", ["logits", m, "-o", "x", "--tokens", "1.5"], 2, "'1.5' is not an id"
    yield "negative id", ["logits", m, "-o", "x", "--tokens=-1"], 1, "id -1"
    yield "huge id", ["logits", m, "-o", "x", "--tokens", "99999999999999999999999"], 1, "outside every vocabulary"
    yield "tokenize nothing", ["tokenize", m], 2, "give exactly one"
    yield "tokenize twice", ["tokenize", m, "x", "--file", "y"], 2, "give exactly one"
    yield "detokenize no ids", ["detokenize", m, "a b"], 2, "is not an id"
    yield "detokenize beyond the vocabulary", ["detokenize", m, "65,256"], 1, "id 256.*vocabulary of 256"
    yield "--version alone", ["--version", "x"], 2, "stands alone"


def files(root, m):
    def put(name, data):
        path = os.path.join(root, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def model(name, **changes):
        return cli.write_model(os.path.join(root, name), **changes)

    w = cli.tensors()

    def without(*names):
        return {k: v for k, v in w.items() if k not in names}

    yield "no such file", ["compile", os.path.join(root, "none")], 1, "none: error: cannot open: .*; "
    yield "empty folder", ["compile", os.makedirs(os.path.join(root, "empty")) or os.path.join(root, "empty")], 1, "neither model.tmodel nor a checkpoint"
    yield "empty file", ["compile", put("empty.tmodel", b"")], 1, "empty.tmodel: error: is an empty file"
    yield "a picture", ["compile", put("a.tmodel", b"\x89PNG\r\n\x1a\n" + b"\0" * 64)], 1, "PNG"
    yield "a pointer of Git LFS", ["compile", put("lfs.tpack", b"version https://git-lfs.github.com/spec/v1\n" * 3)], 1, ""
    yield "weights as a model", ["compile", os.path.join(m, "weights.safetensors")], 1, "weights alone are no model"
    yield "a bare .tmodel", ["compile", os.path.join(m, "model.tmodel")], 1, "has no weights; give --weights"
    yield "wrong source", ["compile", model("syntax", source="model x( {")], 1, r"model.tmodel:1:\d+: error: "
    yield "unknown gate", ["compile", m, "--gate", "internall=0"], 1, "no gate 'internall'; did you mean 'internal'"
    yield "unknown parameter", ["compile", m, "-D", "layerz=2"], 1, "layerz"
    yield "a tensor too few", ["compile", model("few", items=without("layers.0.mlp.up.weight"))], 1, r"weights.safetensors: error: tensor 'layers.0.mlp.up.weight': is missing.*; "
    yield "a tensor too many", ["compile", model("many", items=dict(w, extra=("F32", [1], b"\0\0\0\0")))], 1, "error: tensor 'extra': nothing in the model reads it; "
    for what, item in (("type", ("F64", [2], b"\0" * 16)), ("shape", ("F32", [1], b"\0" * 4)), ("sign", ("F32", [2], struct.pack("<2f", -1, 1))), ("NaN", ("F32", [2], struct.pack("<2f", 1, float("nan")))), ("order", ("F32", [2], struct.pack("<2f", 2, 1)))):
        yield "taper.scale of the wrong " + what, ["compile", model("scale" + what, items=dict(w, **{"taper.scale": item}))], 1, r"tensor 'taper.scale': must be F32 \[2\], .*positive and rising; remove it"
    rows = w["wte"][1][0]
    for what, item in (("type", ("I32", [rows], b"\0" * 4 * rows)), ("shape", ("I64", [rows - 1], b"\0" * 8 * (rows - 1))), ("sign", ("I64", [rows], b"\xff" * 8 * rows))):
        yield "wte.seen of the wrong " + what, ["compile", model("seen" + what, items=dict(w, **{"wte.seen": item}))], 1, r"tensor 'wte.seen': must be I64 \[%d\], .*none below 0; remove it" % rows
    yield "a wrong shape", ["compile", model("shape", items=dict(w, **{"norm.taper_c": ("F32", [2], b"\0" * 8)}))], 1, r"tensor 'norm.taper_c': shape \[2\] in the file, \[1\] in the model; "
    yield "integers as weights", ["compile", model("ints", items=dict(w, **{"norm.taper_c": ("I32", [1], b"\0" * 4)}))], 1, "tensor 'norm.taper_c'"
    nan = struct.pack("<16f", *([1.0] * 3 + [float("nan")] * 2 + [float("inf")] + [1.0] * 10))
    bad = model("nan", items=dict(w, **{"norm.weight": ("F32", [16], nan)}))
    yield "NaN in weights", ["compile", bad, "-o", os.path.join(root, "nan.tpack")], 1, "tensor 'norm.weight': holds 2 NaN and 1 infinite values, the first at element 3; "
    yield "tapered tensors missing at gate 0", ["compile", model("taper0", items=without("norm.taper_weight"))], 1, "tensor 'norm.taper_weight': is missing"
    yield "tapered tensors missing at gate 0.5", ["compile", model("taper5", items=without("norm.taper_c"), gates={"internal": 0, "final": 0.5})], 1, "tensor 'norm.taper_c': is missing"
    yield "a gate's value", ["compile", model("gate2", gates={"internal": 2, "final": 0})], 1, "weights.safetensors"
    yield "gates not JSON", ["compile", model("gatej", metadata={"taper.gates": "{"})], 1, "taper.gates"
    yield "a gate of the weights that the model lacks", ["compile", model("gatex", gates={"internal": 0, "final": 0, "other": 1})], 1, "other"
    yield "a cut-off package", ["run", put("cut.tpack", struct.pack("<Q", 1000) + b'{"a":'), "--prompt", "x"], 1, "cut.tpack: error: "
    yield "a package without a body", ["run", put("short.tpack", b"\x01"), "--prompt", "x"], 1, "short.tpack: error: "
    yield "a module of IR that is none", ["opt", put("bad.tir", b"tir 1\nmodule {")], 1, r"bad.tir:\d+:\d+: error: "
    yield "IR of another version", ["opt", put("v9.tir", b"tir 9\nmodule \"x\" {}\n")], 1, r"v9.tir:1"
    yield "-D on IR", ["opt", put("ok.tir", b'tir 1\nmodule "x" {\n}\n'), "-D", "d=1"], 1, "acts on nothing"
    yield "no cc", ["compile", m, "--cc", "no-such-compiler", "-o", os.path.join(root, "x.tpack")], 3, "C compiler 'no-such-compiler' cannot be run: .*; "
    yield "nowhere to write", ["compile", m, "--emit=ast", "-o", os.path.join(root, "none", "x")], 3, "cannot create: .*; "
    yield "a folder to write", ["compile", m, "--emit=ast", "-o", root], 3, "is a directory"
    yield "ast of IR", ["compile", put("ast.tir", b'tir 1\nmodule "x" {\n}\n'), "--emit=ast"], 1, "has no syntax tree"
    yield "inspect of nothing known", ["inspect", put("noise", bytes(range(256)))], 1, "no file that is known"
    yield "a cut-off weights file", ["compile", cut(root, m)], 1, "weights.safetensors: error: "
    yield "damaged checkpoint", ["compile", checkpoint(root, "ck/checkpoint-3", manifest='{"step": 3, "files": {"model.tmodel": "00"}}')], 1, "damaged"
    yield "empty manifest", ["compile", checkpoint(root, "ck1/checkpoint-3", manifest="{}")], 1, "'step' is missing"
    yield "manifest without files", ["compile", checkpoint(root, "ck4/checkpoint-3", manifest='{"step": 3}')], 1, "'files' is missing"
    yield "incomplete checkpoint", ["compile", checkpoint(root, "ck2/checkpoint-3", manifest=None)], 1, "manifest.json is missing"
    yield "a run without a whole checkpoint", ["compile", os.path.join(root, "ck2")], 1, "none of its 1 checkpoints is complete"


def cut(root, m):
    folder = cli.write_model(os.path.join(root, "cut"))
    path = os.path.join(folder, "weights.safetensors")
    data = open(path, "rb").read()
    with open(path, "wb") as f:
        f.write(data[:-100])
    return folder


def checkpoint(root, name, manifest):
    folder = cli.write_model(os.path.join(root, name))
    if manifest is not None:
        with open(os.path.join(folder, "manifest.json"), "w") as f:
            f.write(manifest)
    return folder


def main():
    with tempfile.TemporaryDirectory() as root:
        m = cli.write_model(os.path.join(root, "tiny"))
        env = {"TAPER_CACHE_DIR": os.path.join(root, "cache")}
        for name, args, code, pattern in list(command_lines(m)) + list(files(root, m)):
            cli.expect(name, args, code, pattern, stdout=b"", env=env, cwd=root)
        for value, code, pattern in [("abc", 2, "TAPER_DEVICE: 'abc' is not a device")]:
            cli.expect("TAPER_DEVICE=" + value, ["run", m, "--prompt", "x"], code, pattern, stdout=b"", env=dict(env, TAPER_DEVICE=value))
    sys.exit(1 if cli.failed else 0)


main()

#!/usr/bin/python3
"""The simulated GPU against the CPU: the conformance suite over emitted kernels, logits and layers, losses, generations that stop anywhere; what is said where a
device, a library or the right package is missing. On a machine with a GPU the suite runs there too."""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli", "lib"))
import lib_cli as cli  # noqa: E402

# one head of 20, odd widths, one layer, a vocabulary that no tile divides; its norms are live
ODD = """model odd(vocab = 257, d = 20, heads = 1, ff = 23, context = 24) {
  param wte: [vocab, d] init normal(0.02);
  param head: [vocab, d] init normal(0.02);
  block layer(x) {
    let h = rms_norm(x, name = "attn_norm", eps = 1e-6);
    let q = rope(split_heads(linear(h, d, name = "attn.q"), heads), theta = 100);
    let k = rope(split_heads(linear(h, d, name = "attn.k"), heads), theta = 100);
    let v = split_heads(linear(h, d, name = "attn.v"), heads);
    let y = x + linear(merge_heads(attention(q, k, v, causal = true)), d, name = "attn.o");
    return y + linear(gelu(linear(rms_norm(y, name = "mlp_norm", eps = 1e-6), ff, name = "up")), d, name = "down");
  }
  forward(tokens) {
    let x = embed(tokens, wte);
    repeat 1 as "layers" { x = layer(x); }
    return linear(rms_norm(x, name = "norm", eps = 1e-6), weight = head);
  }
}
"""
ODD_SHAPES = {"wte": [257, 20], "head": [257, 20], "norm.weight": [20]}
for tensor, size in (("attn_norm", [20]), ("mlp_norm", [20]), ("attn.q", [20, 20]), ("attn.k", [20, 20]), ("attn.v", [20, 20]), ("attn.o", [20, 20]), ("up", [23, 20]), ("down", [20, 23])):
    ODD_SHAPES["layers.0.%s.weight" % tensor] = size


def odd_model(folder):
    items = {}
    for i, (name, shape) in enumerate(sorted(ODD_SHAPES.items())):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        items[name] = ("F32", shape, struct.pack("<%df" % count, *[1 + v if "norm" in name else 2 * v for v in cli.floats(count, i + 9)]))
    return cli.write_model(folder, source=ODD, items=items, metadata={})


def package(root, name, model, *options):
    path = os.path.join(root, name + ".tpack")
    cli.expect("compile " + name, ["compile", model, "-o", path] + list(options), 0)
    return path


def conformance(name, device, path):
    program = os.path.join(cli.BUILD, "tests", "unit", "test_device")
    p = subprocess.run([program, path], env=dict(os.environ, TAPER_TEST_DEVICE=device), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cli.ROOT, timeout=900)
    for test in re.findall(r"^\[       OK \] (\w+)", p.stdout, re.M):
        print("ok conformance of %s on %s: %s" % (name, device, test))
    if p.returncode != 0 or "PASSED" not in p.stdout:
        cli.report("conformance of %s on %s" % (name, device), p.stdout[-1200:])


def numbers_agree(root, name, model, cuda, tolerance, extra=()):
    """Logits and layers of the CPU are the reference; 21 ids are two groups of rows and a torn one, so the products run too."""
    reference = os.path.join(root, name + ".safetensors")
    ids = ",".join(str(b) for b in b"And God said, Let the")
    cli.expect("reference of " + name, ["logits", model, "--tokens", ids, "--layers", "-o", reference], 0)
    for gemm in ("cublas", "generated"):
        cli.expect("logits and layers of %s, %s" % (name, gemm), ["check", cuda, reference, "--device=sim", "--gemm=" + gemm, "--tol", tolerance] + list(extra), 0)


def losses_agree(root, model, cuda):
    text = os.path.join(root, "text")
    with open(text, "w") as f:
        f.write("And God said, Let there be light: and there was light.")
    loss = {}
    for device, path in (("cpu", model), ("sim", cuda)):
        out, _ = cli.expect("eval on " + device, ["eval", path, "--data", text, "-c", "32", "--json", "--device", device], 0)
        loss[device] = json.loads(out)["ce"]
    cli.report("losses agree", None if abs(loss["cpu"] - loss["sim"]) < 1e-4 else str(loss))


def texts_agree(cpu, cuda):
    """A stop string that ends within what the device has chosen ahead; an end by length in the middle of it."""
    for name, options in (("stop string", ["--stop", "e", "-n", "40"]), ("two stops", ["--stop", ", and", "--stop", "the s", "-n", "30"]), ("length", ["-n", "18"]), ("one token", ["-n", "1"])):
        base = ["run", "--prompt", "And the ", "--temp", "0.6", "--seed", "5"] + options
        want, _ = cli.expect(name + " on the CPU", base + [cpu], 0)
        cli.expect(name + ": the CPU's text", base + ["--device=sim", cuda], 0, stdout=want)


def failures(root, cpu, cuda):
    folder = cli.write_model(os.path.join(root, "tiny"))
    run = ["--prompt", "x", "-n", "2"]
    none = {"TAPER_LIBCUDA": "/nowhere/libcuda.so.1"}
    cli.expect("no driver", ["run", cuda, "--device=cuda"] + run, 3, "cannot open the NVIDIA driver named by TAPER_LIBCUDA: /nowhere/libcuda.so.1.*--device=sim or --device=cpu", b"", env=none)
    cli.expect("no driver, a model that would be compiled", ["run", folder, "--device=cuda"] + run, 3, "NVIDIA driver", b"", env=none)
    cli.expect("a package of the CPU", ["run", cpu, "--device=sim"] + run, 1, "target 'cpu', which the device 'sim' does not run; compile with --target cuda", b"")
    cli.expect("a package of CUDA on the CPU", ["run", cuda] + run, 1, "target 'cuda', which the device 'cpu' does not run; choose the device cuda or sim", b"")
    cli.expect("TAPER_DEVICE", ["run", cuda] + run, 0, env={"TAPER_DEVICE": "sim"})
    cli.expect("the option wins over TAPER_DEVICE", ["run", cpu, "--device=cpu"] + run, 0, env={"TAPER_DEVICE": "cuda"})
    cli.expect("compiled in passing", ["run", folder, "--device=sim", "-v"] + run, 0, "device sim, image compute_90")
    cli.expect("an image that is not there", ["run", cuda, "--device=sim"] + run, 1, "no image for taper simulator .*, a GPU of sm_80 that executes PTX only: the package has compute_90; compile it with --arch compute_80 or lower",
               b"", env={"TAPER_SIM_CAPABILITY": "80"})
    cli.expect("PTX newer than the driver", ["run", cuda, "--device=sim"] + run, 1, "the driver is for CUDA 11.8", b"", env={"TAPER_SIM_DRIVER": "11080"})
    cli.expect("--gemm on the CPU", ["run", cpu, "--gemm=generated", "--no-graph"] + run, 0, "'--gemm' acts on nothing on the device cpu")
    alone = os.path.join(root, "alone")
    os.mkdir(alone)
    shutil.copy(cli.TAPERC, alone)
    p = subprocess.run([os.path.join(alone, "taperc"), "run", cuda, "--device=sim"] + run, capture_output=True, text=True)
    cli.report("taperc without libtaper-cuda.so", None if p.returncode == 3 and "libtaper-cuda.so" in p.stderr and "install it" in p.stderr else p.stderr)


def libtaper_alone():
    """A program that needs no GPU carries none of it."""
    library = os.path.join(cli.BUILD, "libtaper.so")
    needed = re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-d", library], capture_output=True, text=True).stdout)
    allowed = ("libc.so", "libm.so", "libpthread.so", "ld-linux", "libgcov", "libasan", "libubsan", "libgcc_s")
    cli.report("libtaper needs libc, libm, pthreads", [n for n in needed if not n.startswith(allowed)] or (None if needed else "readelf says nothing"))
    for name, wanted in (("libtaper-cuda.so", {"taper_cuda_device"}),):
        got = subprocess.run(["nm", "-D", "--defined-only", os.path.join(cli.BUILD, name)], capture_output=True, text=True).stdout
        symbols = {line.split()[-1] for line in got.splitlines() if line and not line.split()[-1].startswith("_")}  # those are the sanitizers'
        cli.report(name + " exports one symbol", None if symbols == wanted else sorted(symbols)[:5])


def main():
    libtaper_alone()
    with tempfile.TemporaryDirectory() as root:
        odd, kjv = odd_model(os.path.join(root, "odd")), os.path.join(cli.MODELS, "kjv-ln")
        if cli.run(["compile", odd, "--target", "cuda", "--arch", "compute_90", "-o", os.path.join(root, "x.tpack")])[0] == 3:
            print("skip the simulated GPU: no NVRTC here")
            sys.exit(1 if cli.failed else 0)
        ptx = ["--target", "cuda", "--arch", "compute_90"]
        small, small_cpu, cuda, cpu = package(root, "odd", odd, *ptx), package(root, "odd-cpu", odd), package(root, "kjv-ln", kjv, *ptx), package(root, "kjv-ln-cpu", kjv)
        conformance("odd", "sim", small)
        numbers_agree(root, "odd", small_cpu, small, "2e-5")
        numbers_agree(root, "kjv-ln", cpu, cuda, "2e-5")
        numbers_agree(root, "kjv-ln in bf16", cpu, package(root, "kjv-bf16", kjv, "--dtype", "bf16", *ptx), "0.03")
        if not os.environ.get("TAPERC_QUICK"):
            losses_agree(root, cpu, cuda)
        texts_agree(cpu, cuda)
        failures(root, cpu, cuda)
        if cli.run(["run", cuda, "--device=cuda", "--prompt", "x", "-n", "1"])[0] == 3:
            print("skip conformance on a GPU: no NVIDIA driver here")
        else:
            for name, path in (("odd", small), ("kjv-ln", cuda)):
                conformance(name, "cuda", path)
    sys.exit(1 if cli.failed else 0)


main()

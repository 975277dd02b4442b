#!/usr/bin/python3
"""compile --target cuda: what is in the package, which images, what is said where there is no NVRTC. Executes no kernel."""
import json
import os
import re
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

KEYS = {"abi", "vocab", "context", "width", "max_batch", "dtype", "row_floats", "logits", "split_floats", "key_heads", "pdl", "kernels", "stages", "gemm", "sample", "weights", "states", "rotary", "probes"}


def without_nvrtc(root, model):
    path = os.path.join(root, "none.tpack")
    env = {"TAPER_LIBNVRTC": "/nowhere/libnvrtc.so", "TAPER_CACHE_DIR": os.path.join(root, "cache")}
    cli.expect("no NVRTC", ["compile", model, "--target", "cuda", "-o", path], 3, "TAPER_LIBNVRTC: /nowhere/libnvrtc.so: .*; install it", env=env)
    cli.expect("no NVRTC, --emit=ptx", ["compile", model, "--target", "cuda", "--emit=ptx"], 3, "; install it", env=env)
    cli.expect("the source needs none", ["compile", model, "--target", "cuda", "--emit=source"], 0, stdout=re.compile(rb'KERNEL_OF\(32\) rows_0'), env=env)
    cli.report("nothing is written", os.path.exists(path) and "it is")


def check_package(path, images):
    tensors, meta = cli.read_safetensors(path)
    problem = []
    if meta["taper.target"] != "cuda" or meta["taper.arch"].split(",") != images:
        problem.append("target %s, arch %s" % (meta["taper.target"], meta["taper.arch"]))
    for image in images:
        data = tensors["taper.image." + image][2]
        if not re.fullmatch(r"NVRTC \d+\.\d+", meta["taper.cuda." + image]):
            problem.append("maker " + meta["taper.cuda." + image])
        text = image.startswith("compute_")
        if (text and (not data.endswith(b"\0") or b".target sm_" + image[8:].encode() not in data)) or (not text and data[:4] != b"\x7fELF"):
            problem.append("image " + image)
    table = json.loads(tensors["taper.launch"][2])
    if set(table) != KEYS:
        problem.append("keys of the table: %s" % sorted(set(table) ^ KEYS))
    for w in table["weights"]:
        dtype, shape, _ = tensors[w["tensor"]]
        rows, columns = (shape if len(shape) == 2 else [1, shape[0]])
        if w["row0"] + w["rows"] > rows or w["cols"] != columns or w["pitch"] % 4 or w["pitch"] < columns or dtype.lower() != w["dtype"]:
            problem.append("weight %s" % w)
    source = tensors["taper.source"][2].decode()
    for k in table["kernels"]:
        if not re.search(r"\b%s\(const __grid_constant__ taper_cuda_call" % k["name"], source):
            problem.append("no kernel %s in the source" % k["name"])
    for stage in table["stages"]:
        name = table["kernels"][stage["kernel"]]["name"]
        members = re.search(r"struct %s_args \{(.*?)\};" % name, source, re.S).group(1)
        if len(re.findall(r"\b[bwstg]\d+", members)) != len(stage["args"]):
            problem.append("arguments of %s" % stage["name"])
    return tensors, table, problem


def packages(root, model):
    env = {"TAPER_CACHE_DIR": os.path.join(root, "cache")}
    path = os.path.join(root, "m.tpack")
    out, _ = cli.expect("a package", ["compile", model, "--target", "cuda", "--arch=sm_90", "-o", path, "--json", "-v"], 0, "NVRTC [0-9.]+ makes sm_90,compute_90", env=env)
    facts = json.loads(out)
    cli.report("JSON names the images", facts["images"] != ["sm_90", "compute_90"] and facts["images"])
    tensors, table, problem = check_package(path, ["sm_90", "compute_90"])
    cli.report("what is in it", problem)
    cli.report("its numbers", [table[k] for k in ("abi", "vocab", "context", "width", "dtype")] != [1, 256, 32, 16, "f32"] and table)
    wanted = struct.unpack("<%df" % (16 * 16), cli.tensors()["layers.0.attn.o.weight"][2])
    cli.report("its weights", struct.unpack("<256f", tensors["layers.0.attn.o.weight"][2]) != wanted and "they differ")
    cli.expect("inspect", ["inspect", path], 0, stdout=re.compile(rb"image     sm_90: \d+ bytes, made by NVRTC"))
    out, _ = cli.expect("from the cache", ["compile", model, "--target", "cuda", "--arch=compute_90,sm_90", "-o", path, "--json"], 0, env=env)
    cli.report("both of them", json.loads(out)["images_from_cache"] != 2 and out)
    temps = os.path.join(root, "temps")
    cli.expect("--save-temps", ["compile", model, "--target", "cuda", "--arch=compute_80", "-o", path, "--save-temps=" + temps], 0, env=env)
    cli.report("source and PTX", sorted(os.listdir(temps)) != ["model-compute_80.ptx", "model.cu"] and os.listdir(temps))
    cli.report("PTX alone", check_package(path, ["compute_80"])[2])
    cli.expect("--emit=ptx", ["compile", model, "--target", "cuda", "--arch=sm_80", "--emit=ptx"], 0, stdout=re.compile(rb"\.target sm_80\n"), env=env)
    cli.expect("archs one by one are all of them", ["compile", model, "--target", "cuda", "--arch=compute_90", "--arch", "compute_80", "-o", path], 0, "images compute_90, compute_80", env=env)
    made = []
    for name, given in (("one", model), ("another", os.path.relpath(model, os.path.join(root, "another")))):
        os.makedirs(os.path.join(root, name), exist_ok=True)
        cli.expect("compiled in folder '%s'" % name, ["compile", given, "--target", "cuda", "--arch=compute_90", "--no-cache", "-o", os.path.join(root, name + ".tpack")], 0, env=env, cwd=os.path.join(root, name))
        tensors, meta = cli.read_safetensors(os.path.join(root, name + ".tpack"))
        made.append((meta["taper.model"], root.encode() in tensors["taper.image.compute_90"][2]))
    cli.report("the hash of the model and its PTX know no folder", (made[0] != made[1] or made[0][1]) and made)
    cli.expect("an arch that is none", ["compile", model, "--target", "cuda", "--arch=sm_99", "-o", path], 1, "does not know sm_99; it compiles for .*sm_90", env=env)


def main():
    with tempfile.TemporaryDirectory() as root:
        model = cli.write_model(os.path.join(root, "m"))
        without_nvrtc(root, model)
        if cli.run(["compile", model, "--target", "cuda", "--emit=ptx"])[0] == 3:
            print("skip packages: no NVRTC here")
        else:
            packages(root, model)
    sys.exit(1 if cli.failed else 0)


main()

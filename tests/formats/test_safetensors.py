#!/usr/bin/env python3
"""Our safetensors reader and writer against the reference implementation (PyPI safetensors): test_safetensors.py BUILD_DIR.

Prints `ok NAME` or `not ok NAME` for every check; exit status 1 on a failure."""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import safetensors
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print("skip safetensors: %s" % missing)
    sys.exit(0)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
results = []


def check(name, good, why=""):
    results.append(bool(good))
    print(ascii(("ok %s" if good else "not ok %s %s") % ((name,) if good else (name, why)))[1:-1])


def build_tool(build):
    tool = os.path.join(build, "tests", "formats", "st_tool")
    os.makedirs(os.path.dirname(tool), exist_ok=True)
    sources = sorted(glob.glob(os.path.join(ROOT, "runtime/base/*.c"))) + [os.path.join(ROOT, "tests/formats/st_tool.c")]
    subprocess.run([os.environ.get("CC", "gcc"), "-std=c11", "-D_GNU_SOURCE", "-O1", "-I", ROOT, "-o", tool] + sources + ["-lm"], check=True)
    return tool


def tensors():
    rng = np.random.default_rng(5)
    out = {}
    for dtype in ("bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        low, high = (0, 2) if dtype == "bool" else (max(np.iinfo(dtype).min, -2 ** 52), min(np.iinfo(dtype).max, 2 ** 52))
        out["int/" + dtype] = rng.integers(low, high, (3, 5)).astype(dtype)
    special = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 5e-324, 1e-45, 6e-8, 65504.0, 3.4028235e38]
    with np.errstate(over="ignore"):
        for dtype in ("float16", "float32", "float64"):
            out["float." + dtype] = np.concatenate([np.array(special).astype(dtype), rng.standard_normal(38).astype(dtype)]).reshape(7, 7)
    out["scalar"] = np.array(2.5, dtype=np.float32)
    out["zero elements"] = np.zeros((0, 4), dtype=np.float64)
    out["odd"] = np.arange(3, dtype=np.uint8)
    out["gr\u00fc\u00dfe \U0001f600 \"quoted\" \\ back"] = rng.standard_normal((1, 2, 1, 3)).astype(np.float32)
    return out


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def dump(tool, path):
    lines = subprocess.run([tool, "dump", path], stdout=subprocess.PIPE, check=True).stdout.decode("utf-8").splitlines()
    return {t["name"]: t for t in map(json.loads, lines)}


def test_reader(tool, folder):
    path = os.path.join(folder, "theirs.safetensors")
    data = tensors()
    save_file(data, path, metadata={"k": "v", "\u00fc": "line\nline \"q\""})
    ours = dump(tool, path)
    check("names", sorted(ours) == sorted(data))
    for name, array in data.items():
        values = np.array([float.fromhex(v) for v in ours[name]["values"]])
        check("shape of " + name, ours[name]["shape"] == list(array.shape))
        with np.errstate(invalid="ignore"):
            wanted = array.astype(np.float64).ravel()
        both_nan = np.isnan(values) & np.isnan(wanted)
        check("values of " + name, np.all((values == wanted) & (np.signbit(values) == np.signbit(wanted)) | both_nan))
    bf16 = np.arange(65536, dtype=np.uint16)
    path = os.path.join(folder, "bf16.safetensors")
    with open(path, "wb") as f:
        header = b'{"b":{"dtype":"BF16","shape":[65536],"data_offsets":[0,131072]}}'
        f.write(len(header).to_bytes(8, "little") + header + bf16.tobytes())
    with open(path, "rb") as f:
        check("BF16 file is legal", len(safetensors.deserialize(f.read())) == 1)
    values = np.array([float.fromhex(v) for v in dump(tool, path)["b"]["values"]])
    with np.errstate(invalid="ignore"):
        wanted = (bf16.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    check("every BF16", np.all((values == wanted) | (np.isnan(values) & np.isnan(wanted))))


def test_writer(tool, folder):
    data = tensors()
    theirs = os.path.join(folder, "theirs.safetensors")
    for align in (1, 8, 64):
        ours = os.path.join(folder, "ours-%d.safetensors" % align)
        subprocess.run([tool, "copy", theirs, ours, str(align)], check=True)
        back = load_file(ours)
        check("names, align %d" % align, sorted(n for n in back if not n.startswith("__pad.")) == sorted(data))
        for name, array in data.items():
            check("%s, align %d" % (name, align), name in back and same(back[name], array))
        with safetensors.safe_open(ours, "np") as f:
            check("metadata, align %d" % align, f.metadata() == {"k": "v", "\u00fc": "line\nline \"q\""})
        check("offsets, align %d" % align, all(t["offset"] % align == 0 for n, t in dump(tool, ours).items() if not n.startswith("__pad.")))


def mutate(rng, header):
    data = bytearray(header)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.choice(b"0123456789{}[]:,\"\\u aF\x00\xff")
        elif kind == 1:
            del data[at]
        elif kind == 2:
            data.insert(at, rng.choice(b"0123456789{}[]:,\"- "))
        else:
            end = min(len(data), at + rng.randint(1, 60))
            data[at:at] = data[at:end]
    return bytes(data)


def test_agreement(tool, folder):
    """Whatever we accept the reference accepts: we are never the laxer of the two."""
    rng = random.Random(7)
    header = json.dumps({"__metadata__": {"k": "v"}, "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
                         "b": {"dtype": "U8", "shape": [3], "data_offsets": [8, 11]}, "c": {"dtype": "F16", "shape": [0, 7], "data_offsets": [11, 11]},
                         "d": {"dtype": "I64", "shape": [], "data_offsets": [11, 19]}}, separators=(",", ":")).encode()
    paths, laxer, accepted, refused_by_both = [], [], 0, 0
    for i in range(3000):
        text = header if i == 0 else mutate(rng, header)
        size = len(text) if rng.randrange(20) else max(0, len(text) + rng.randint(-3, 3))
        paths.append(os.path.join(folder, "m%04d" % i))
        with open(paths[-1], "wb") as f:
            f.write(size.to_bytes(8, "little") + text + bytes(range(19)))
    ours = subprocess.run([tool, "accept"] + paths, stdout=subprocess.PIPE, check=True).stdout.decode("utf-8").splitlines()
    for path, answer in zip(paths, ours):
        try:
            with open(path, "rb") as f:
                safetensors.deserialize(f.read())
            theirs = True
        except Exception:
            theirs = False
        accepted += answer == "yes"
        refused_by_both += answer != "yes" and not theirs
        if answer == "yes" and not theirs:
            laxer.append(path)
    check("one answer a file", len(ours) == len(paths))
    check("never laxer", not laxer, " ".join(open(p, "rb").read().decode("latin-1") for p in laxer[:3]))
    check("both kinds were seen", accepted > 20 and refused_by_both > 500, "%d accepted, %d refused" % (accepted, refused_by_both))


def main():
    tool = build_tool(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        test_reader(tool, folder)
        test_writer(tool, folder)
        test_agreement(tool, folder)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

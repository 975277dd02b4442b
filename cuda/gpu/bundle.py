#!/usr/bin/python3
"""bundle.py BUILD OUT [--small]: a folder of at most 50 MiB that carries run.sh and all it needs to a machine with a GPU (`make gpu-bundle`).

Needs NVRTC, and NumPy for the references of the odd models. Packages with weights: small models with references (fp64). The decode tables' packages
travel without weights: compiled from random ones here, and filled again there. --small: few models and one tiny decode size, for tests.
"""
import argparse
import gzip
import json
import lzma
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIMIT = 50 << 20
ARCHS = os.environ.get("GPU_ARCHS") or "sm_90,compute_90,compute_80"  # others through PTX; sm_100 where the machine has one: GPU_ARCHS=sm_100,compute_90
SHAPES = {  # dim, layers, heads, kv heads, hidden, vocab
    "tiny": (20, 1, 2, 1, 28, 64), "1M": (128, 4, 4, 4, 352, 2048), "5M": (256, 6, 8, 8, 688, 2048), "15M": (288, 6, 6, 6, 768, 32000),
    "30M": (512, 9, 8, 8, 1376, 4096), "124M": (768, 12, 12, 12, 3072, 50257), "135M": (576, 30, 9, 3, 1536, 49152),
}
GPT2 = ("124M",)  # GPT-2's form, the others Llama's
VARIANTS = {  # gates, options
    "kernel": (1, ["--norms=kernel"]), "deferred": (1, []), "explicit": (0, ["--fold=explicit"]), "folded": (0, []),
}
KJV = ("kjv-all", "kjv-internal", "kjv-ln")
ODD = {  # tests/numerics/lib_oracle.py
    "dims20": dict(d=20, heads=1, hd=20, ff=28, vocab=33, layers=1), "one_position": dict(context=1, d=8, heads=2, ff=8, vocab=5, layers=1),
    "gpt2_live": dict(norm="ln", act="gelu_tanh", bias=True, rope=False, internal=1.0, final=1.0), "half_gate": dict(internal=0.25, final=0.5),
    "window": dict(window=5, softcap=3.0, kv=2), "qwen3": dict(kv=1, hd=24, qk_norm=True, taper=False, eps=1e-6), "untied": dict(tied=False, vocab=257, negative=True),
    "neox": dict(norm="ln", act="gelu", bias=True, parallel=True, rope_dims=4, tied=False, internal=0.0, final=1.0),
}
TOLERANCE = {"f32": 1e-4, "bf16": 6e-2, "f16": 1e-2}  # of the largest logit, against fp64 of the unrounded weights
GREEDY = ["--tokens", "7,11,3", "-n", "24", "--temp", "0", "--print-tokens"]
SAMPLED = ["--tokens", "7,11,3", "-n", "24", "--seed", "7", "--print-tokens"]


class Bundle:
    def __init__(self, build, out, small):
        self.build, self.out, self.small = build, out, small
        self.taperc = os.path.join(build, "taperc")
        self.archs = "compute_90" if small else ARCHS
        self.manifest = {"models": [], "ids": [], "decode": []}
        self.began = time.time()

    def run(self, command, **more):
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, **more)
        if p.returncode:
            raise SystemExit("bundle.py: error: exit %d of %s\n%s" % (p.returncode, " ".join(command), p.stderr[-3000:]))
        return p.stdout

    def say(self, text):
        sys.stderr.write("bundle: %4d s: %s\n" % (time.time() - self.began, text))

    def compile(self, model, out, dtype, extra=()):
        self.run([self.taperc, "compile"] + list(model) + ["--target", "cuda", "--arch", self.archs, "--dtype", dtype, "-o", out] + list(extra))

    # ---- programs and scripts ----

    def programs(self):
        for folder in ("bin", "lib", "images", "models", "decode"):
            os.makedirs(os.path.join(self.out, folder))
        names = ["taperc", "gpu-calibrate", "gpu-decode", "gpu-fill", "libtaper.so", "libtaper-cuda.so", "libtaper-sim.so", "tests/unit/test_device"]
        needs = set()
        for name in names:
            source, to = os.path.join(self.build, name), os.path.join(self.out, "bin", os.path.basename(name))
            self.run(["strip", "-o", to, source])
            needs |= set(re.findall(r"GLIBC_(\d+\.\d+)", self.run(["objdump", "-T", to])))
            for library, path in re.findall(r"(lib(?:jansson|cmocka)\S*) => (\S+)", self.run(["ldd", source])):
                shutil.copy(path, os.path.join(self.out, "lib", library))
        os.symlink("libtaper.so", os.path.join(self.out, "bin", "libtaper.so.0"))
        for name in ("run.sh", "steps.sh", "gpu_lib.py", "numerics.py", "decode.py", "baseline.py"):
            shutil.copy(os.path.join(HERE, name), self.out)
        shutil.copy(os.path.join(HERE, "calibrate.cu"), os.path.join(self.out, "images"))
        self.run([os.path.join(self.build, "gpu-calibrate"), "--build", os.path.join(HERE, "calibrate.cu"), os.path.join(self.out, "images"), self.archs])
        newest = max(needs, key=lambda v: tuple(map(int, v.split("."))))
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True).stdout.strip()
        with open(os.path.join(self.out, "version.txt"), "w") as f:
            f.write("# %s, commit %s; glibc %s or newer; images %s\n" % (self.run([self.taperc, "--version"]).split("\n")[0], commit or "unknown", newest, self.archs))
        self.say("programs")

    # ---- models with references ----

    def add_model(self, name, folder, reference, dtype, tol, dry):
        package = "%s-%s.tpack" % (name, dtype)
        path = os.path.join(self.out, "models", package)
        self.compile([folder], path, dtype)
        with open(path, "rb") as f, gzip.GzipFile(path + ".gz", "wb", 9, mtime=0) as o:
            shutil.copyfileobj(f, o)
        os.unlink(path)
        self.manifest["models"].append({"name": "%s %s" % (name, dtype), "package": package, "reference": reference, "dtype": dtype, "tol": tol, "dry": dry})
        return package

    def kjv(self):
        for name in KJV:
            folder = os.path.join(ROOT, "examples/models", name)
            shutil.copy(os.path.join(folder, "reference.safetensors"), os.path.join(self.out, "models", name + ".reference.safetensors"))
            for dtype in ("f32", "bf16", "f16"):
                package = self.add_model(name, folder, name + ".reference.safetensors", dtype, TOLERANCE[dtype], False)
                if dtype == "f32":
                    self.add_ids(name, folder, package, False)
        self.say("trained models")

    def add_ids(self, name, folder, package, dry):
        """What the CPU target says."""
        for kind, arguments in (("greedy", GREEDY), ("sampled", SAMPLED)):
            ids = self.run([self.taperc, "run", folder, "--device", "cpu"] + arguments).strip()
            self.manifest["ids"].append({"name": "%s %s" % (name, kind), "package": package, "dtype": "f32", "arguments": arguments, "ids": ids, "dry": dry})

    def odd(self, work):
        sys.path.insert(0, os.path.join(ROOT, "tests/numerics"))
        try:
            import lib_oracle as oracle
            import numpy as np
            from safetensors.numpy import save_file
        except ImportError as e:
            raise SystemExit("bundle.py: error: %s; the references of the odd models need NumPy and safetensors: run make setup-check" % e)
        for i, (name, changes) in enumerate(sorted(ODD.items())):
            if self.small and name not in ("dims20", "one_position"):
                continue
            c = oracle.config(**changes)
            w = oracle.weights(c, 100 + i)
            folder = os.path.join(work, name)
            oracle.write(folder, c, w)
            tokens = np.random.default_rng(i).integers(0, c["vocab"], min(c["context"], 37))
            exact, streams = oracle.Model(c, w)(tokens)
            tol, _ = oracle.tolerance(c, w, tokens, exact, streams)
            reference = name + ".reference.safetensors"
            save_file({"tokens": np.asarray(tokens, np.int64), "logits": np.asarray(exact, np.float32)}, os.path.join(self.out, "models", reference))
            package = self.add_model(name, folder, reference, "f32", max(float(tol), 1e-5), name in ("dims20", "one_position"))
            if name == "dims20":
                self.add_ids(name, folder, package, True)
        self.say("odd models")

    # ---- decode tables ----

    def weights(self, size, path):
        """Random weights of deviation 0.02 by a block that repeats: what is folded into what does not depend on them."""
        d, layers, heads, kv, ff, vocab = SHAPES[size]
        kvd, gpt2 = kv * (d // heads), size in GPT2
        shapes = {"wte": (vocab, d)}
        if gpt2:
            shapes["wpe"] = (1024, d)
        for i in range(layers):
            p = "%s.%d." % ("h" if gpt2 else "layers", i)
            mats = {"attn.q": (d, d), "attn.k": (kvd, d), "attn.v": (kvd, d), "attn.o": (d, d)}
            mats.update({"mlp.fc": (ff, d), "mlp.proj": (d, ff)} if gpt2 else {"mlp.gate": (ff, d), "mlp.up": (ff, d), "mlp.down": (d, ff)})
            for n, s in mats.items():
                shapes[p + n + ".weight"] = s
                if gpt2:
                    shapes[p + n + ".bias"] = s[:1]
            for n in ("ln_1", "ln_2") if gpt2 else ("attn_norm", "mlp_norm"):
                self.norm_shapes(shapes, p + n, d, gpt2)
        self.norm_shapes(shapes, "ln_f" if gpt2 else "norm", d, gpt2)
        r = random.Random(0)
        block = struct.pack("<65536f", *(r.gauss(0, 0.02) for _ in range(65536)))
        ones = struct.pack("<%df" % d, *([1.0] * d))
        header, at = {}, 0
        for name, shape in shapes.items():
            n = 4
            for s in shape:
                n *= s
            header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + n]}
            at += n
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for name, t in header.items():
                n = t["data_offsets"][1] - t["data_offsets"][0]
                if name.endswith("taper_c"):
                    f.write(struct.pack("<f", 0.2))
                elif "norm." in name or "ln_" in name:
                    f.write(block[:n] if name.endswith("bias") else ones)
                else:
                    for _ in range(n // len(block)):
                        f.write(block)
                    f.write(block[: n % len(block)])
        return at // 4

    @staticmethod
    def norm_shapes(shapes, name, d, layer_norm):
        shapes.update({name + ".weight": (d,), name + ".taper_weight": (d,), name + ".taper_c": (1,)})
        if layer_norm:
            shapes[name + ".bias"] = (d,)

    def skeleton(self, package, out):
        """The header of a package and its `taper.*` tensors, packed; decode.py's unpack is the other way."""
        with open(package, "rb") as f, lzma.open(out, "wb") as o:
            (size,) = struct.unpack("<Q", f.read(8))
            header = f.read(size)
            o.write(struct.pack("<Q", size) + header)
            tensors = {k: v["data_offsets"] for k, v in json.loads(header.decode()).items() if k != "__metadata__"}
            for name, (begin, end) in sorted(tensors.items(), key=lambda t: t[1]):
                if name.startswith("taper."):
                    f.seek(8 + size + begin)
                    o.write(f.read(end - begin))

    def decode_size(self, size, work):
        weights, package = os.path.join(work, "weights.safetensors"), os.path.join(work, "package.tpack")
        parameters = self.weights(size, weights)
        gpt2 = size in GPT2
        source = os.path.join(ROOT, "examples/gpt2.tmodel") if gpt2 else os.path.join(HERE, "llama.tmodel")
        model = [source, "--weights", weights]
        if not gpt2:
            for key, value in zip(("d", "layers", "heads", "kv", "ff", "vocab"), SHAPES[size]):
                model += ["-D", "%s=%d" % (key, value)]
        for dtype in ("f32",) if self.small else ("f32", "bf16"):
            entry = {"size": size, "dtype": dtype, "shape": SHAPES[size], "parameters": parameters, "ln": gpt2, "variants": {}}
            for variant, (gate, options) in VARIANTS.items():
                if self.small and variant not in ("deferred", "folded"):
                    continue
                name = "%s-%s-%s.skeleton.xz" % (size, dtype, variant)
                self.compile(model, package, dtype, ["--gate", "internal=%d" % gate, "--gate", "final=%d" % gate] + options)
                self.skeleton(package, os.path.join(self.out, "decode", name))
                entry["variants"][variant] = name
            self.manifest["decode"].append(entry)
            self.say("%s %s: %.1fM parameters" % (size, dtype, parameters / 1e6))

    def make(self):
        if os.path.exists(self.out):
            if not os.path.exists(os.path.join(self.out, "version.txt")):
                raise SystemExit("bundle.py: error: '%s' exists and is no bundle; name another folder" % self.out)
            shutil.rmtree(self.out)
        self.programs()
        with tempfile.TemporaryDirectory() as work:
            if not self.small:
                self.kjv()
            self.odd(work)
            for size in SHAPES:
                if not self.small or size == "tiny":
                    self.decode_size(size, work)
        self.manifest["decode"].sort(key=lambda e: e["dtype"] != "f32")  # f32 first
        with open(os.path.join(self.out, "conformance.list"), "w") as f:
            f.write("\n".join(m["package"][:-6] for m in self.manifest["models"] if m["name"].split()[0] in KJV + ("dims20", "one_position", "gpt2_live")) + "\n")
        with open(os.path.join(self.out, "manifest.json"), "w") as f:
            json.dump(self.manifest, f, indent=1)
        size = sum(os.path.getsize(os.path.join(d, n)) for d, _, names in os.walk(self.out) for n in names)
        print("%s: %.1f MiB; there: sh run.sh OUT" % (self.out, size / (1 << 20)))
        if size > LIMIT:
            raise SystemExit("bundle.py: error: %d bytes, at most %d" % (size, LIMIT))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("out")
    a.add_argument("--small", action="store_true")
    o = a.parse_args()
    Bundle(os.path.abspath(o.build), os.path.abspath(o.out), o.small).make()


main()

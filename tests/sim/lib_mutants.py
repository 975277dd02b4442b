"""Small models of every form that kernels are made for, and who judges changed kernels of theirs on the simulator."""
import json
import os
import random
import re
import struct
import subprocess
import sys

SOURCE = """model mutated(vocab = %(vocab)d, context = 140, d = %(d)d, layers = %(layers)d, heads = %(heads)d, kv = %(kv)d, dim = %(dim)d, ff = %(ff)d) {
  gate internal; gate final;
  param wte: [vocab, d] init normal(0.02);
  param head: [vocab, d] init normal(0.02);
  block layer(x) {
    let h = %(norm)s(x, name = "attn_norm", gate = internal, eps = 0.05);
    let q = rope(split_heads(linear(h, heads * dim, name = "attn.q"%(bias)s), heads), theta = 100);
    let k = rope(split_heads(linear(h, kv * dim, name = "attn.k"%(bias)s), kv), theta = 100);
    let v = split_heads(linear(h, kv * dim, name = "attn.v"%(bias)s), kv);
    let y = x + linear(merge_heads(attention(q, k, v, causal = true%(attention)s)), d, name = "attn.o"%(bias)s);
    let m = %(norm)s(y, name = "mlp_norm", gate = internal, eps = 0.05);
    return y + linear(%(mlp)s, d, name = "mlp.down"%(bias)s);
  }
  forward(tokens) {
    let x = embed(tokens, wte);
    repeat layers as "layers" { x = layer(x); }
    return linear(%(norm)s(x, name = "norm", gate = final, eps = 0.05), weight = head);
  }
}
"""
SWIGLU = 'silu(linear(m, ff, name = "mlp.gate")) * linear(m, ff, name = "mlp.up")'
GELU = 'gelu_tanh(linear(m, ff, name = "mlp.gate", bias = true))'
RMS, LAYER, LOUD = "taper_rms_norm", "taper_layer_norm", 7
PLAIN = dict(vocab=301, layers=1, heads=2, kv=1, bias="", attention="", mlp=SWIGLU, norm=RMS, logit=0.3, loud=1)
MODELS = {  # text, gates, options. Widths are no multiples of 16 or 32; head widths of 4, of 2 and of neither
    "live": (dict(PLAIN, d=72, ff=84, heads=4, dim=18, kv=2), 1, []),
    "folded-bf16": (dict(PLAIN, d=88, ff=104, heads=4, dim=22, kv=2, bias=", bias = true", attention=", window = 5", mlp=GELU, loud=100), 0, ["--dtype", "bf16"]),
    "kernels": (dict(PLAIN, d=132, ff=136, heads=3, dim=44, attention=", softcap = 2.0"), 1, ["--norms=kernel"]),
    "layers-f16": (dict(PLAIN, d=70, ff=90, heads=5, dim=14, layers=2, norm=LAYER), 0.5, ["--dtype", "f16"]),
    "wide": (dict(PLAIN, vocab=67, d=1700, ff=44, dim=20), 1, ["--norms=kernel"]),  # loops of many steps, rows that shared memory holds 4 of
    "flat": (dict(PLAIN, vocab=2500, d=20, ff=22, kv=2, dim=10, logit=0.003), 1, []),  # thousands of candidates in a bin, ties
}


def shapes_of(t):
    d, qd, kvd = t["d"], t["heads"] * t["dim"], t["kv"] * t["dim"]
    mats = {"attn.q": (qd, d), "attn.k": (kvd, d), "attn.v": (kvd, d), "attn.o": (d, qd), "mlp.gate": (t["ff"], d), "mlp.down": (d, t["ff"])}
    if t["mlp"] is SWIGLU:
        mats["mlp.up"] = (t["ff"], d)
    shapes = {"wte": (t["vocab"], d), "head": (t["vocab"], d)}
    norms = ["norm"]
    for i in range(t["layers"]):
        p = "layers.%d." % i
        norms += [p + "attn_norm", p + "mlp_norm"]
        for n, s in mats.items():
            shapes[p + n + ".weight"] = s
            if t["bias"] or t["mlp"] is GELU and n == "mlp.gate":
                shapes[p + n + ".bias"] = s[:1]
    for n in norms:
        shapes.update({n + ".weight": (d,), n + ".taper_weight": (d,), n + ".taper_c": (1,)})
        if t["norm"] is LAYER:
            shapes[n + ".bias"] = (d,)
    return shapes


def numbers_of(name, shape, t, r):
    """Deviation 0.3 and gains about 1: every number matters. Three rows from LOUD on may be long; in the head rows stand twice, so that logits tie."""
    n = 1
    for s in shape:
        n *= s
    norm = "norm" in name
    mean, deviation = (0.8, 0) if name.endswith("taper_c") else (0 if name.endswith("bias") else 1, 0.2) if norm else (0, 1.2 / (shape[-1]) ** 0.5)
    if name in ("wte", "head"):
        deviation = 0.3 if name == "wte" else t["logit"]
    values = [r.gauss(mean, deviation) for _ in range(n)]
    d = t["d"]
    if name == "wte":
        values[LOUD * d:LOUD * d + 3 * d] = [t["loud"] * v for v in values[LOUD * d:LOUD * d + 3 * d]]
    for i in range(1, shape[0] if name == "head" else 0, 3):
        values[i * d:i * d + d] = values[i * d - d:i * d]
    return values


def weights(path, t):
    r = random.Random(3)
    header, data, at = {}, b"", 0
    for name, shape in shapes_of(t).items():
        values = numbers_of(name, shape, t, r)
        data += struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, len(data)]}
        at = len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def make_package(build, name, folder):
    text, gate, options = MODELS[name]
    source, file, package = (os.path.join(folder, name + end) for end in (".tmodel", ".safetensors", ".tpack"))
    with open(source, "w") as f:
        f.write(SOURCE % text)
    weights(file, text)
    command = [os.path.join(build, "taperc"), "compile", source, "--weights", file, "--target", "cuda", "--arch", "compute_90", "-o", package] + options
    command += ["--gate", "internal=%g" % gate, "--gate", "final=%g" % gate]
    p = subprocess.run(command, stderr=subprocess.PIPE, universal_newlines=True)
    if p.returncode == 3:  # no NVRTC
        print("skip mutants: " + p.stderr.strip().split("\n")[-1])
        sys.exit(0)
    if p.returncode:
        raise SystemExit("not ok mutants: %s: exit %d: %s" % (name, p.returncode, p.stderr.strip()[-400:]))
    return package


def text_of(package, prefix):
    with open(package, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size).decode())
        name = next(k for k in header if k.startswith(prefix))
        begin, end = header[name]["data_offsets"]
        f.seek(8 + size + begin)
        return f.read(end - begin).rstrip(b"\0").decode()


def instructions(ptx):
    """Without the lines that say where it came from."""
    ptx = re.sub(r"\$L__BB\d+_", "$L__BB_", ptx)
    return re.sub(r"^\s*(?:\.loc|//)[^\n]*\n|_\d{8}_\d+_\w*", "", ptx, flags=re.M)


FUNCTION = re.compile(r"^(?:template <[^\n]*> struct (\w+) \{\n(?:[^\n]*\n)*?\};\n|(?:(?:template <[^\n]*>\s)?INLINE [^;{]*?\b(\w+)\(|KERNEL_OF\([^\n]*?\) (\w+)\()[^\n]*(?:\}\n|\n(?:[^\n]*\n)*?\}\n))", re.M)
ENTRY = re.compile(r"^\.visible \.entry (\w+)\(.*?^\}\n", re.M | re.S)


class Compiler:
    """Compiles changed forms of a source: only the kernels that the change can reach; the other ones' PTX stays."""

    def __init__(self, build, text, folder):
        self.build, self.text, self.folder = build, text, folder
        self.parts = [(m.start(), m.end(), m.group(1) or m.group(2) or m.group(3), bool(m.group(3))) for m in FUNCTION.finditer(text)]
        self.plain = self.compile(text)

    def compile(self, text):
        path = os.path.join(self.folder, "mutant.cu")
        with open(path, "w") as f:
            f.write(text)
        p = subprocess.run([os.path.join(self.build, "gpu-calibrate"), "--build", path, self.folder, "compute_90"], stderr=subprocess.PIPE)
        if p.returncode:
            return None
        with open(os.path.join(self.folder, "compute_90.ptx"), "rb") as f:
            ptx = f.read().rstrip(b"\0").decode()
        ptx = re.sub(r"^\s*\.section[^{]*\{.*?^\s*\}\n", "", ptx, flags=re.S | re.M)  # tables of debug information
        return re.sub(r"function_name \$L__info_string\d+", "function_name $L__info", ptx)

    def reached(self, begin, end):
        """Names of the kernels that what stands in text[begin, end) can reach; None: all, as far as can be told."""
        parts = [p for p in self.parts if p[0] < end and begin < p[1]]
        if not parts or begin < parts[0][0] or end > parts[-1][1]:
            return None
        names = {p[2] for p in parts}
        while True:
            callers = {p[2] for p in self.parts if names & set(re.findall(r"\w+", self.text[p[0]:p[1]]))} | names
            if callers == names:
                return {p[2] for p in self.parts if p[3] and p[2] in names}
            names = callers

    def ptx(self, changed):
        """PTX of a changed form, or None where NVRTC refuses it."""
        n = min(len(changed), len(self.text))
        first = next((i for i in range(n) if changed[i] != self.text[i]), n)
        last = next((i for i in range(n - first) if changed[-1 - i] != self.text[-1 - i]), n - first)
        kernels = self.reached(first, max(len(self.text) - last, first + 1))
        if kernels is None:
            return self.compile(changed)
        pieces, at, shift = [], 0, len(changed) - len(self.text)
        for begin, end, name, is_kernel in self.parts:
            if is_kernel and name not in kernels:
                begin, end = (begin, end) if end <= first else (begin + shift, end + shift)
                pieces += [changed[at:begin], "\n" * changed.count("\n", begin, end)]
                at = end
        part = self.compile("".join(pieces) + changed[at:])
        made = {m.group(1): m.group(0) for m in ENTRY.finditer(part or "")}
        if part is None or ".func" in part or set(made) != kernels:
            return None if part is None else self.compile(changed)
        known = set(re.findall(r"^\.(?:global|const) [^\n]*?(\w+)(?:\[\d+\])?(?: =[^\n]*)?;$", self.plain, re.M))
        new = [m.group(0) for m in re.finditer(r"^\.(?:global|const) [^\n]*?(\w+)(?:\[\d+\])?(?: =[^\n]*)?;$", part, re.M) if m.group(1) not in known]
        out = ENTRY.sub(lambda m: made.get(m.group(1), m.group(0)), self.plain)
        at = out.index(".visible .entry")
        return out[:at] + "".join(line + "\n" for line in new) + out[at:]


class Judge:
    def __init__(self, build, package, folder):
        self.command = [os.path.join(build, "sim-mutants"), package, os.path.join(folder, "mutant.tpack")]
        self.start()

    def start(self):
        env = dict(os.environ, TAPER_SIM_BUDGET=str(1 << 20), TAPER_SIM_SEED="1", TAPER_SIM_THREADS="1")
        self.p = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        line = self.p.stdout.readline().decode("utf-8", "replace").strip()
        if line != "ready":
            raise SystemExit("not ok mutants: the package as it is: %s" % (line or "no answer"))

    def ask(self, text):
        data = text.encode()
        try:
            self.p.stdin.write(b"%d\n" % len(data) + data)
            self.p.stdin.flush()
            answer = self.p.stdout.readline().decode("utf-8", "replace").strip()
        except BrokenPipeError:
            answer = ""
        if not answer:
            status = self.p.wait()
            self.start()
            return "crash %d" % status
        return answer

    def close(self):
        self.p.stdin.close()
        self.p.wait()

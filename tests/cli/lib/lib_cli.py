"""What the command line tests share: running taperc, small models and safetensors files with no more than the standard library."""
import json
import os
import re
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MODELS = os.path.join(ROOT, "examples", "models")
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
TAPERC = os.environ.get("TAPERC", os.path.join(BUILD, "taperc"))

SOURCE = """model tiny(vocab = 256, d = 16, layers = 1, heads = 2, ff = 24, context = 32) {
  gate internal;
  gate final;
  param wte: [vocab, d] init normal(0.02);
  block layer(x) {
    let h = taper_rms_norm(x, name = "attn_norm", gate = internal, eps = 1e-6);
    let q = rope(split_heads(linear(h, d, name = "attn.q"), heads), theta = 10000);
    let k = rope(split_heads(linear(h, d, name = "attn.k"), heads), theta = 10000);
    let v = split_heads(linear(h, d, name = "attn.v"), heads);
    let y = x + linear(merge_heads(attention(q, k, v, causal = true)), d, name = "attn.o");
    let m = taper_rms_norm(y, name = "mlp_norm", gate = internal, eps = 1e-6);
    return y + linear(silu(linear(m, ff, name = "mlp.gate")) * linear(m, ff, name = "mlp.up"), d, name = "mlp.down");
  }
  forward(tokens) {
    let x = embed(tokens, wte);
    repeat layers as "layers" { x = layer(x); }
    return linear(taper_rms_norm(x, name = "norm", gate = final, eps = 1e-6), weight = wte);
  }
}
train { tokenizer bytes; }
"""


def floats(n, seed):
    """n reproducible numbers in [-0.5, 0.5)."""
    out, x = [], (seed * 2654435761 + 1) % 2**32
    for _ in range(n):
        x = (1664525 * x + 1013904223) % 2**32
        out.append(x / 2**32 - 0.5)
    return out


def tensors():
    shapes = {"wte": [256, 16], "norm": None}
    for n, s in {"attn.q": [16, 16], "attn.k": [16, 16], "attn.v": [16, 16], "attn.o": [16, 16], "mlp.gate": [24, 16], "mlp.up": [24, 16], "mlp.down": [16, 24]}.items():
        shapes["layers.0.%s.weight" % n] = s
    for n in ("layers.0.attn_norm", "layers.0.mlp_norm", "norm"):
        shapes.pop(n, None)
        shapes[n + ".weight"] = shapes[n + ".taper_weight"] = [16]
        shapes[n + ".taper_c"] = [1]
    out = {}
    for i, (n, s) in enumerate(sorted(shapes.items())):
        count = 1
        for k in s:
            count *= k
        out[n] = ("F32", s, struct.pack("<%df" % count, *[1.0 + v if "norm" in n else v for v in floats(count, i + 1)]))
    return out


def write_safetensors(path, items, metadata=None):
    header, at = ({"__metadata__": metadata} if metadata is not None else {}), 0
    for name, (dtype, shape, data) in items.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(d for _, _, d in items.values()))


def read_safetensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    meta = header.pop("__metadata__", {})
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in header.items()}, meta


def write_model(folder, gates={"internal": 0, "final": 0}, source=SOURCE, items=None, metadata=None):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.tmodel"), "w") as f:
        f.write(source)
    if metadata is None:
        metadata = {"taper.gates": json.dumps(gates)}
    write_safetensors(os.path.join(folder, "weights.safetensors"), tensors() if items is None else items, metadata)
    return folder


def run(args, stdin=b"", env=None, cwd=None, seconds=120):
    p = subprocess.run([TAPERC] + [str(a) for a in args], input=stdin, capture_output=True, env=dict(os.environ, **(env or {})), cwd=cwd, timeout=seconds)
    return p.returncode, p.stdout, p.stderr.decode("utf-8", "replace")


failed = 0


def report(name, problem):
    global failed
    failed += bool(problem)
    print("not ok %s: %s" % (name, str(problem).replace("\n", " | ")[:1500]) if problem else "ok %s" % name, flush=True)


def expect(name, args, code, stderr=None, stdout=None, **keywords):
    """stderr: a regular expression that must be found; stdout: exact bytes or a compiled regular expression."""
    try:
        got, out, err = run(args, **keywords)
    except subprocess.TimeoutExpired:
        return report(name, "hangs")
    problem = ""
    if got != code:
        problem = "exit %d, expected %d: %s" % (got, code, err.strip()[-600:])
    elif stderr is not None and not re.search(stderr, err):
        problem = "standard error lacks %r: %r" % (stderr, err[-600:])
    elif isinstance(stdout, bytes) and out != stdout:
        problem = "standard output is %r, expected %r" % (out[:300], stdout[:300])
    elif stdout is not None and not isinstance(stdout, bytes) and not stdout.search(out):
        problem = "standard output lacks %r: %r" % (stdout.pattern, out[:300])
    elif code and b"Traceback" in out:
        problem = "strange output"
    report(name, problem)
    return out, err

"""An independent NumPy program for pre-norm transformers: makes a random model (its .tmodel and weights) and evaluates it in any float type.

It shares nothing with the compiler: formulas are from tapernorm.md 1, the papers and the model families' published definitions.
"""
import json
import math
import os

import numpy as np
from safetensors.numpy import save_file

DEFAULT = dict(d=64, layers=2, heads=4, kv=None, hd=None, ff=96, vocab=97, context=48, norm="rms", eps=None, act="swiglu", bias=False, rope=True,
               rope_dims=None, interleaved=False, theta=10000.0, llama3=None, parallel=False, qk_norm=False, tied=True, head_bias=False, window=0,
               softcap=0.0, internal=0.0, final=0.0, gate_array=False, embed_scale=0.3, gain=1.0, dyt=False, taper=True, negative=False)


def config(**changes):
    c = dict(DEFAULT, **changes)
    c["kv"] = c["kv"] or c["heads"]
    c["hd"] = c["hd"] or c["d"] // c["heads"]
    c["eps"] = c["eps"] if c["eps"] is not None else (1e-6 if c["norm"] == "rms" else 1e-5)
    return c


def norm_call(c, x, name, gate):
    if c["dyt"] and gate == "internal":
        return 'dyt(%s, name = "%s")' % (x, name)
    kind = {"rms": "rms_norm", "ln": "layer_norm"}[c["norm"]]
    if not c["taper"]:
        return '%s(%s, name = "%s", eps = %r)' % (kind, x, name, c["eps"])
    g = "g" if gate == "internal" and c["gate_array"] else gate
    return 'taper_%s(%s, name = "%s", gate = %s, eps = %r)' % (kind, x, name, g, c["eps"])


def source(c):
    bias = ", bias = true" if c["bias"] else ""
    out = ["model random(vocab = %d, context = %d, d = %d, layers = %d, heads = %d, kv = %d, hd = %d, ff = %d) {"
           % (c["vocab"], c["context"], c["d"], c["layers"], c["heads"], c["kv"], c["hd"], c["ff"])]
    if c["taper"]:
        if not c["dyt"]:
            out.append("  gate internal[layers];" if c["gate_array"] else "  gate internal;")
        out.append("  gate final;")
    out.append("  param wte: [vocab, d] init normal(0.02);")
    if not c["rope"]:
        out.append("  param wpe: [context, d] init normal(0.02);")

    def head(name, which):
        e = 'split_heads(linear(h, %s * hd, name = "attn.%s"%s), %s)' % (which, name, bias, which)
        if name == "v":
            return e
        if c["qk_norm"]:
            e = 'rms_norm(%s, name = "attn.%s_norm", eps = 1e-6)' % (e, name)
        if c["rope"]:
            extra = ""
            if c["rope_dims"]:
                extra += ", dims = %d" % c["rope_dims"]
            if c["interleaved"]:
                extra += ', style = "interleaved"'
            if c["llama3"]:
                extra += ", scaling = llama3(factor = %r, low = %r, high = %r, original = %d)" % tuple(c["llama3"])
            e = "rope(%s, theta = %r%s)" % (e, c["theta"], extra)
        return e

    attention = "attention(q, k, v, causal = true"
    if c["window"]:
        attention += ", window = %d" % c["window"]
    if c["softcap"]:
        attention += ", softcap = %r" % c["softcap"]
    attention += ")"
    args = "x, g" if c["gate_array"] and c["taper"] and not c["dyt"] else "x"
    call = args.replace("g", "internal[i]")
    out += ["  block attend(h) {", "    let q = %s;" % head("q", "heads"), "    let k = %s;" % head("k", "kv"), "    let v = %s;" % head("v", "kv"),
            '    return linear(merge_heads(%s), d, name = "attn.o"%s);' % (attention, bias), "  }", "  block mlp(h) {"]
    if c["act"] == "swiglu":
        out.append('    return linear(silu(linear(h, ff, name = "mlp.gate"%s)) * linear(h, ff, name = "mlp.up"%s), d, name = "mlp.down"%s);' % (bias, bias, bias))
    else:
        out.append('    return linear(%s(linear(h, ff, name = "mlp.fc"%s)), d, name = "mlp.down"%s);' % (c["act"], bias, bias))
    out += ["  }", "  block layer(%s) {" % args]
    if c["parallel"]:
        out += ["    return x + attend(%s) + mlp(%s);" % (norm_call(c, "x", "attn_norm", "internal"), norm_call(c, "x", "mlp_norm", "internal"))]
    else:
        out += ["    let y = x + attend(%s);" % norm_call(c, "x", "attn_norm", "internal"),
                "    return y + mlp(%s);" % norm_call(c, "y", "mlp_norm", "internal")]
    out += ["  }", "  forward(tokens) {",
            "    let x = embed(tokens, wte)%s;" % ("" if c["rope"] else " + embed(positions(tokens), wpe)"),
            '    repeat layers as "layers" with i { x = layer(%s); }' % call,
            "    let h = %s;" % norm_call(c, "x", "norm", "final"),
            "    return linear(h, weight = wte);" if c["tied"] else
            '    return linear(h, vocab, name = "head"%s);' % (", bias = true" if c["head_bias"] else ""), "  }", "}"]
    return "\n".join(out) + "\n"


def weights(c, seed):
    """float32 tensors by their names on disk; taper vectors far from 1."""
    r = np.random.default_rng(seed)
    d, w = c["d"], {}

    def normal(*shape, s=0.02):
        return (r.standard_normal(shape) * s).astype(np.float32)

    def linear(name, o, i):
        w[name + ".weight"] = normal(o, i, s=c["gain"] / math.sqrt(i))
        if c["bias"] and not name.startswith("head") or name.startswith("head") and c["head_bias"]:
            w[name + ".bias"] = normal(o, s=0.3)

    def norm(name, gate, dim=d, taper=True):
        w[name + ".weight"] = (1 + 0.3 * r.standard_normal(dim)).astype(np.float32)
        if c["dyt"] and gate == "internal":
            w[name + ".bias"] = normal(dim, s=0.2)
            w[name + ".alpha"] = np.array([0.7], np.float32)
            return
        if c["norm"] == "ln" and taper:
            w[name + ".bias"] = normal(dim, s=0.2)
        if c["taper"] and taper:
            t = 1 + 0.4 * r.standard_normal(dim)
            w[name + ".taper_weight"] = (t if c["negative"] else np.abs(t) + 0.05).astype(np.float32)
            w[name + ".taper_c"] = np.array([r.uniform(0.4, 3)], np.float32)

    w["wte"] = normal(c["vocab"], d, s=c["embed_scale"])
    if not c["rope"]:
        w["wpe"] = normal(c["context"], d, s=0.1)
    for i in range(c["layers"]):
        p = "layers.%d." % i
        norm(p + "attn_norm", "internal")
        norm(p + "mlp_norm", "internal")
        linear(p + "attn.q", c["heads"] * c["hd"], d)
        linear(p + "attn.k", c["kv"] * c["hd"], d)
        linear(p + "attn.v", c["kv"] * c["hd"], d)
        linear(p + "attn.o", d, c["heads"] * c["hd"])
        if c["qk_norm"]:
            for n in ("q", "k"):
                w[p + "attn.%s_norm.weight" % n] = (1 + 0.3 * r.standard_normal(c["hd"])).astype(np.float32)
        for n in ("gate", "up") if c["act"] == "swiglu" else ("fc",):
            linear(p + "mlp." + n, c["ff"], d)
        linear(p + "mlp.down", d, c["ff"])
    norm("norm", "final")
    if not c["tied"]:
        linear("head", c["vocab"], d)
    return w


def gates(c):
    g = {}
    if c["taper"]:
        if not c["dyt"]:
            g["internal"] = c["internal"] if not c["gate_array"] else ([c["internal"]] * c["layers"] if np.isscalar(c["internal"]) else list(c["internal"]))
        g["final"] = c["final"]
    return g


def write(folder, c, w):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.tmodel"), "w") as f:
        f.write(source(c))
    save_file({k: np.ascontiguousarray(v) for k, v in w.items()}, os.path.join(folder, "weights.safetensors"), metadata={"taper.gates": json.dumps(gates(c))})


# ---- evaluation -----------------------------------------------------------------------------------------------------


def erf(x):
    return np.vectorize(math.erf)(x.astype(np.float64)).astype(x.dtype)


ACT = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: x * x.dtype.type(0.5) * (1 + np.tanh(x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x * x * x))),
    "gelu": lambda x: x * x.dtype.type(0.5) * (1 + erf(x / x.dtype.type(math.sqrt(2)))),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


class Model:
    def __init__(self, c, w, dtype=np.float64):
        self.c, self.t = c, dtype
        self.w = {k: v.astype(dtype) for k, v in w.items()}

    def norm(self, x, name, gate, layer):
        c, w, t = self.c, self.w, self.t
        if c["dyt"] and gate == "internal":
            return np.tanh(w[name + ".alpha"] * x) * w[name + ".weight"] + w[name + ".bias"]
        if c["norm"] == "ln":
            x = x - x.mean(-1, keepdims=True)
        live = x / np.sqrt((x * x).mean(-1, keepdims=True) + t(c["eps"])) * w[name + ".weight"]
        y = live
        if c["taper"]:
            g = gates(c)[gate]
            g = t(g if np.isscalar(g) else g[layer])
            tapered = w[name + ".taper_c"] * x * w[name + ".taper_weight"] if g != 1 else 0
            y = live if g == 1 else tapered if g == 0 else g * live + (1 - g) * tapered
        return y + w[name + ".bias"] if c["norm"] == "ln" else y

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def rope(self, x):  # [T, h, hd]
        c = self.c
        n = c["rope_dims"] or c["hd"]
        inv = c["theta"] ** (-np.arange(0, n, 2, dtype=np.float64) / n)
        if c["llama3"]:
            factor, low, high, original = c["llama3"]
            wavelength = 2 * np.pi / inv
            smooth = (original / wavelength - low) / (high - low)
            inv = np.where(wavelength > original / low, inv / factor, np.where(wavelength < original / high, inv, (1 - smooth) * inv / factor + smooth * inv))
        angle = np.arange(x.shape[0])[:, None] * inv[None]
        cos, sin = np.cos(angle)[:, None].astype(self.t), np.sin(angle)[:, None].astype(self.t)
        a, b = (x[..., 0:n:2], x[..., 1:n:2]) if c["interleaved"] else (x[..., :n // 2], x[..., n // 2:n])
        y = x.copy()
        if c["interleaved"]:
            y[..., 0:n:2], y[..., 1:n:2] = a * cos - b * sin, a * sin + b * cos
        else:
            y[..., :n // 2], y[..., n // 2:n] = a * cos - b * sin, a * sin + b * cos
        return y

    def attend(self, h, p):
        c, T = self.c, h.shape[0]
        q = self.linear(h, p + "attn.q").reshape(T, c["heads"], c["hd"])
        k = self.linear(h, p + "attn.k").reshape(T, c["kv"], c["hd"])
        v = self.linear(h, p + "attn.v").reshape(T, c["kv"], c["hd"])
        if c["qk_norm"]:
            q, k = [x / np.sqrt((x * x).mean(-1, keepdims=True) + self.t(1e-6)) * self.w[p + "attn.%s_norm.weight" % n] for x, n in ((q, "q"), (k, "k"))]
        if c["rope"]:
            q, k = self.rope(q), self.rope(k)
        k, v = [np.repeat(x, c["heads"] // c["kv"], axis=1) for x in (k, v)]
        s = np.einsum("thd,shd->hts", q, k) / self.t(math.sqrt(c["hd"]))
        if c["softcap"]:
            s = self.t(c["softcap"]) * np.tanh(s / self.t(c["softcap"]))
        i, j = np.arange(T)[:, None], np.arange(T)[None]
        seen = (j <= i) & ((j > i - c["window"]) if c["window"] else True)
        s = np.where(seen, s, self.t(-np.inf))
        e = np.exp(s - s.max(-1, keepdims=True))
        y = np.einsum("hts,shd->thd", e / e.sum(-1, keepdims=True), v)
        return self.linear(y.reshape(T, -1), p + "attn.o")

    def mlp(self, h, p):
        if self.c["act"] == "swiglu":
            a = ACT["silu"](self.linear(h, p + "mlp.gate")) * self.linear(h, p + "mlp.up")
        else:
            a = ACT[self.c["act"]](self.linear(h, p + "mlp.fc"))
        return self.linear(a, p + "mlp.down")

    def __call__(self, tokens):
        """-> logits [T, V], streams [layers + 1][T, d]"""
        c, w = self.c, self.w
        x = w["wte"][tokens]
        if not c["rope"]:
            x = x + w["wpe"][: len(tokens)]
        streams = [x]
        for i in range(c["layers"]):
            p = "layers.%d." % i
            if c["parallel"]:
                x = x + self.attend(self.norm(x, p + "attn_norm", "internal", i), p) + self.mlp(self.norm(x, p + "mlp_norm", "internal", i), p)
            else:
                x = x + self.attend(self.norm(x, p + "attn_norm", "internal", i), p)
                x = x + self.mlp(self.norm(x, p + "mlp_norm", "internal", i), p)
            streams.append(x)
        h = self.norm(x, "norm", "final", 0)
        return (h @ w["wte"].T if c["tied"] else self.linear(h, "head")), streams


def tolerance(c, w, tokens, exact, streams):
    """Contract 9, of the logits and of the streams: max(2e-5, 4 x the error of a plain float32 evaluation)."""
    plain, plain_streams = Model(c, w, np.float32)(tokens)

    def of(a, b):
        return float(np.abs(a - b).max() / np.abs(b).max())

    return max(2e-5, 4 * of(plain, exact)), max(2e-5, 4 * max(of(a, b) for a, b in zip(plain_streams, streams)))

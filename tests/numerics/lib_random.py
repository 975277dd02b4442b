"""Random models of the language: a .tmodel and, beside each line, the same in NumPy. Formulas are from docs/language.md and the papers; nothing is shared with the compiler.

A model is a list of statements over named values; a value is computed by a function of (place, prefix), where place holds the rows by name and the weights by name.
"""
import json
import math
import os

import numpy as np
from safetensors.numpy import save_file

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# name: (text over x, NumPy)
UNARY = {
    "gelu": ("gelu({0})", lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)).astype(x.dtype))),
    "gelu_tanh": ("gelu_tanh({0})", lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))),
    "silu": ("silu({0})", lambda x: x * sigmoid(x)),
    "sigmoid": ("sigmoid({0})", sigmoid),
    "relu": ("relu({0})", lambda x: np.maximum(x, 0)),
    "tanh": ("tanh({0})", np.tanh),
    "exp": ("exp(tanh({0}))", lambda x: np.exp(np.tanh(x))),
    "sqrt": ("sqrt({0} * {0} + 1)", lambda x: np.sqrt(x * x + 1)),
    "neg": ("-{0}", lambda x: -x),
    "softcap": ("softcap({0}, cap = 1.5)", lambda x: 1.5 * np.tanh(x / 1.5)),
    "rational": ("({0} * 2 - 3) / ({0} * {0} + 1)", lambda x: (x * 2 - 3) / (x * x + 1)),
    "left": ("(1 - {0} * 0.5)", lambda x: 1 - x * x.dtype.type(0.5)),
}
GATES = {"off": 0.0, "on": 1.0, "some": 0.3}


def rotated(x, dims, theta, interleaved, scaling):
    """x [T, heads, hd]"""
    inv = theta ** (-np.arange(0, dims, 2) / dims)
    if scaling and scaling[0] == "linear":
        inv = inv / scaling[1]
    if scaling and scaling[0] == "llama3":
        _, factor, low, high, original = scaling
        wave = 2 * np.pi / inv
        smooth = (original / wave - low) / (high - low)
        inv = np.where(wave > original / low, inv / factor, np.where(wave < original / high, inv, (1 - smooth) * inv / factor + smooth * inv))
    angle = np.arange(len(x))[:, None, None] * inv
    c, s, y = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype), x.copy()
    i, j = (slice(0, dims, 2), slice(1, dims, 2)) if interleaved else (slice(0, dims // 2), slice(dims // 2, dims))
    y[..., i], y[..., j] = x[..., i] * c - x[..., j] * s, x[..., i] * s + x[..., j] * c
    return y


def attended(q, k, v, scale, window, cap):
    k, v = [np.repeat(t, q.shape[1] // t.shape[1], axis=1) for t in (k, v)]
    s = np.einsum("thd,shd->hts", q, k) * q.dtype.type(scale)
    s = cap * np.tanh(s / cap) if cap else s
    i, j = np.arange(len(q))[:, None], np.arange(len(q))[None]
    s = np.where((j <= i) & ((j > i - window) if window else True), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hts,shd->thd", e / e.sum(-1, keepdims=True), v)


class Value:
    def __init__(self, text, width, f, heads=0):
        self.text, self.width, self.f, self.heads = text, width, f, heads  # width: of the last axis


class Program:
    """A random model. seed: everything of it."""

    def __init__(self, seed, **fixed):
        self.r = np.random.default_rng(seed)
        r = self.r
        self.fixed = fixed
        self.seed, self.number, self.lines, self.weight_of, self.prefix = seed, 0, [], {}, ""
        self.vocab = int(fixed.get("vocab") or r.choice([2, 3, 17, 33, 64, 97, 257]))
        self.context = int(fixed.get("context") or r.choice([1, 2, 9, 24, 40, 70]))
        self.d = int(fixed.get("d") or r.choice([1, 2, 3, 4, 6, 7, 12, 16, 20, 33, 54, 64, 76, 100, 132]))
        self.layers = int(fixed.get("layers", r.choice([0, 1, 1, 2, 3, 12] if self.d < 40 else [0, 1, 2, 3])))
        self.wte = self.weight("wte", (self.vocab, self.d), 0.6)
        self.steps = []  # (name, function)
        self.forward()

    # ---- pieces ----
    def pick(self, *choices):
        return choices[int(self.r.integers(len(choices)))]

    def chance(self, p):
        return bool(self.r.random() < p)

    def label(self, what):
        self.number += 1
        return "%s%d" % (what, self.number)

    def weight(self, name, shape, scale, around=0.0):
        name = self.prefix + name
        assert name not in self.weight_of
        self.weight_of[name] = (around + self.r.standard_normal(shape) * scale).astype(np.float32)
        return name

    def let(self, value):
        name = self.label("v")
        self.lines.append("let %s = %s;" % (name, value.text))
        self.steps.append((name, value.f))
        return Value(name, value.width, lambda p: p[name], value.heads)

    def norm(self, x):
        kind, name = self.pick("taper_rms_norm", "taper_layer_norm", "taper_rms_norm", "taper_layer_norm", "rms_norm", "layer_norm", "dyt", "center", "none"), self.label("n")
        eps = self.pick(1e-5, 1e-6, 1e-12)
        if kind == "none":
            return x
        if kind == "center":
            return self.let(Value("center(%s)" % x.text, x.width, lambda p: x.f(p) - x.f(p).mean(-1, keepdims=True), x.heads))
        if kind == "dyt":
            a, w, b = self.weight(name + ".alpha", (1,), 0.2, 0.6), self.weight(name + ".weight", (x.width,), 0.3, 1), self.weight(name + ".bias", (x.width,), 0.3)
            return self.let(Value('dyt(%s, name = "%s")' % (x.text, name), x.width, lambda p: np.tanh(p[a] * x.f(p)) * p[w] + p[b], x.heads))
        layer, taper = "layer" in kind, "taper" in kind
        gate = self.pick(*GATES)
        g = GATES[gate] if taper else 1.0
        args, w, b, t, c = "", None, None, None, None
        if not taper and self.chance(0.15):
            args += ", weight = false"
        else:
            w = self.weight(name + ".weight", (x.width,), 0.3, 1)
        if layer:
            if self.chance(0.2):
                args += ", bias = false"
            else:
                b = self.weight(name + ".bias", (x.width,), 0.3)
        if taper:
            args += ", gate = " + gate
            t, c = self.weight(name + ".taper_weight", (x.width,), 0.4, self.pick(1, 0)), self.weight(name + ".taper_c", (1,), 0.2, 0.8)

        def f(p):
            y = x.f(p)
            y = y - y.mean(-1, keepdims=True) if layer else y
            out = 0
            if g:
                live = y / np.sqrt((y * y).mean(-1, keepdims=True) + y.dtype.type(eps))
                out = g * (live * p[w] if w else live)
            if g != 1:
                out = out + (1 - g) * (p[c] * y * p[t])
            return (out + p[b] if b else out).astype(y.dtype)

        return self.let(Value('%s(%s, name = "%s", eps = %r%s)' % (kind, x.text, name, eps, args), x.width, f, x.heads))

    def linear(self, x, out):
        name = self.label("l")
        w = self.weight(name + ".weight", (out, x.width), 1.0 / math.sqrt(x.width))
        b = self.weight(name + ".bias", (out,), 0.3) if self.chance(0.3) else None
        return self.let(Value('linear(%s, %d, name = "%s"%s)' % (x.text, out, name, ", bias = true" if b else ""), out,
                              lambda p: x.f(p) @ p[w].T + (p[b] if b else 0), x.heads))

    def unary(self, x):
        text, f = UNARY[self.pick(*UNARY)]
        return self.let(Value(text.format(x.text), x.width, lambda p: f(x.f(p)), x.heads))

    def binary(self, x, y):
        op = self.pick("*", "+", "-", "/")
        if op == "/":
            return self.let(Value("%s / (%s * %s + 0.5)" % (x.text, y.text, y.text), x.width, lambda p: x.f(p) / (y.f(p) * y.f(p) + x.f(p).dtype.type(0.5)), x.heads))
        f = {"*": np.multiply, "+": np.add, "-": np.subtract}[op]
        return self.let(Value("%s %s %s" % (x.text, op, y.text), x.width, lambda p: f(x.f(p), y.f(p)), x.heads))

    def vector(self, x):
        name = self.label("s")
        if self.chance(0.5):
            w = self.weight(name + ".weight", (x.width,), 0.3, 1)
            return self.let(Value('scale(%s, name = "%s")' % (x.text, name), x.width, lambda p: x.f(p) * p[w], x.heads))
        b = self.weight(name + ".bias", (x.width,), 0.3)
        return self.let(Value('shift(%s, name = "%s")' % (x.text, name), x.width, lambda p: x.f(p) + p[b], x.heads))

    def slice(self, x, size=None):
        size = size or int(self.r.integers(1, x.width + 1))
        start = int(self.r.integers(0, x.width - size + 1))
        return self.let(Value("slice(%s, start = %d, size = %d)" % (x.text, start, size), size, lambda p: x.f(p)[..., start:start + size], x.heads))

    def concat(self, *xs):
        return self.let(Value("concat(%s)" % ", ".join(x.text for x in xs), sum(x.width for x in xs), lambda p: np.concatenate([x.f(p) for x in xs], -1), xs[0].heads))

    def split(self, x, heads):
        return self.let(Value("split_heads(%s, %d)" % (x.text, heads), x.width // heads, lambda p: x.f(p).reshape(len(x.f(p)), heads, -1), heads))

    def merge(self, x):
        return self.let(Value("merge_heads(%s)" % x.text, x.width * x.heads, lambda p: x.f(p).reshape(len(x.f(p)), -1)))

    def rope(self, x, like):
        if not like:
            like += [self.pick(True, True, False), self.pick(100, 10000, 500000.0), self.chance(0.3), self.pick(None, None, ("linear", 2.0), ("llama3", 8.0, 1.0, 4.0, 16)),
                     int(self.r.integers(1, x.width // 2 + 1)) * 2 if x.width > 1 and self.chance(0.3) else x.width // 2 * 2]
        use, theta, inter, scaling, dims = like
        if not use or not dims:
            return x
        extra = {None: "", "linear": ", scaling = linear(factor = %r)", "llama3": ", scaling = llama3(factor = %r, low = %r, high = %r, original = %r)"}[scaling and scaling[0]] % (scaling[1:] if scaling else ())
        return self.let(Value('rope(%s, theta = %r, dims = %d%s%s)' % (x.text, theta, dims, ', style = "interleaved"' if inter else "", extra), x.width,
                              lambda p: rotated(x.f(p), dims, theta, inter, scaling), x.heads))

    def attention(self, h):
        kv, group = self.pick(1, 1, 2, 3), self.pick(1, 1, 2, 3, 4, 7)
        heads, hd = kv * group, int(self.fixed.get("hd") or self.pick(1, 2, 3, 4, 6, 8, 12, 16, 20, 32, 33, 64, 80, 128, 256))
        vd = hd if self.chance(0.8) else self.pick(1, 3, 8, 12)
        if hd > 40:
            heads = kv * min(group, 2)
        if self.chance(0.15):  # one product, sliced
            all3 = self.linear(h, (heads + kv) * hd + kv * vd)
            cut = [(0, heads * hd), (heads * hd, kv * hd), ((heads + kv) * hd, kv * vd)]
            q, k, v = [self.let(Value("slice(%s, start = %d, size = %d)" % (all3.text, a, n), n, lambda p, a=a, n=n: all3.f(p)[:, a:a + n])) for a, n in cut]
        else:
            q, k, v = self.linear(h, heads * hd), self.linear(h, kv * hd), self.linear(h, kv * vd)
        q, k, v, like = self.split(q, heads), self.split(k, kv), self.split(v, kv), []
        if self.chance(0.3):
            q, k = self.norm(q), self.norm(k)
        q, k = self.rope(q, like), self.rope(k, like)
        window, cap, scale = self.pick(0, 0, 1, 5, 16), self.pick(0, 0, 0, 2.5), self.pick(None, None, 0.3)
        args = (", window = %d" % window if window else "") + (", softcap = %r" % cap if cap else "") + (", scale = %r" % scale if scale else "") + self.pick("", ", causal = true")
        y = self.let(Value("attention(%s, %s, %s%s)" % (q.text, k.text, v.text, args), vd,
                           lambda p: attended(q.f(p), k.f(p), v.f(p), scale or 1 / math.sqrt(hd), window, cap), heads))
        if self.chance(0.15):
            y = self.norm(y)
        return self.linear(self.merge(y), self.d)

    def mlp(self, h):
        ff = int(self.fixed.get("ff") or self.pick(1, 2, 5, 12, 31, 64, 99, 128))
        kind = self.pick("gated", "gated", "plain", "plain", "fused", "odd", "deep")
        if kind == "gated":
            y = self.binary(self.unary(self.linear(h, ff)), self.linear(h, ff))
        elif kind == "plain":
            y = self.unary(self.linear(h, ff))
        elif kind == "fused":
            u = self.linear(h, 2 * ff)
            a, b = [self.let(Value("slice(%s, start = %d, size = %d)" % (u.text, at, ff), ff, lambda p, at=at: u.f(p)[:, at:at + ff])) for at in (0, ff)]
            y = self.binary(self.unary(a), b)
        elif kind == "odd":
            u = self.linear(h, ff)
            y = self.concat(self.unary(self.slice(u)), self.slice(u), self.unary(h))
        else:
            y = self.norm(self.unary(self.linear(self.unary(self.linear(h, ff)), ff)))
        if self.chance(0.1):
            y = self.vector(y)
        return self.linear(y, self.d)

    def add(self, x, y):
        return self.let(Value("%s + %s" % (x.text, y.text), x.width, lambda p: x.f(p) + y.f(p)))

    def branch(self, x, body):
        y = body(self.norm(x))
        if self.chance(0.2):
            y = self.norm(y)
        if self.chance(0.1):
            y = self.vector(y)
        return y

    def layer(self, x):
        form = self.pick("both", "both", "both", "parallel", "mlp", "attention", "post", "other")
        if form == "parallel":
            return self.add(self.add(x, self.branch(x, self.attention)), self.branch(x, self.mlp))
        if form == "post":
            x = self.norm(self.add(x, self.attention(x)))
            return self.norm(self.add(x, self.mlp(x)))
        if form == "other":
            y = self.pick(self.unary, self.vector, lambda v: self.binary(v, self.norm(v)), lambda v: self.concat(self.slice(v, self.d - self.d // 2), self.slice(v, self.d // 2)) if self.d > 1 else v)(x)
            return self.add(x, y) if self.chance(0.6) else y
        if form in ("both", "attention"):
            x = self.add(x, self.branch(x, self.attention))
        return x if form == "attention" else self.add(x, self.branch(x, self.mlp))

    def forward(self):
        scale = self.pick(None, None, 2.5)
        x = Value("embed(tokens, wte)" + (" * %r" % scale if scale else ""), self.d, lambda p: p["wte"][p["tokens"]] * p["wte"].dtype.type(scale or 1))
        if self.chance(0.3):
            self.weight("wpe", (self.context, self.d), 0.4)
            first = x
            x = Value(first.text + " + embed(positions(tokens), wpe)", self.d, lambda p: first.f(p) + p["wpe"][: len(p["tokens"])])
        x = self.let(x)
        for _ in range(self.layers):
            x = self.layer(x)
        self.x = x = self.norm(x)
        if self.chance(0.5):
            y = self.let(Value("linear(%s, weight = wte)" % x.text, self.vocab, lambda p: x.f(p) @ p["wte"].T))
        else:
            y = self.linear(x, self.vocab)
        if self.chance(0.1):
            logits = y
            y = self.let(Value("softcap(%s, cap = 8)" % y.text, self.vocab, lambda p: 8 * np.tanh(logits.f(p) / 8)))
        self.out = y

    # ---- what it is for ----
    def source(self):
        body = "\n".join("    " + line for line in self.lines + ["return %s;" % self.out.text])
        used = [g for g in GATES if "gate = %s" % g in body]
        tables = "  param wte: [vocab, %d];\n" % self.d + ("  param wpe: [context, %d];\n" % self.d if "wpe" in self.weight_of else "")
        return "model random(vocab = %d, context = %d) {\n%s%s  forward(tokens) {\n%s\n  }\n}\n" % (self.vocab, self.context, "".join("  gate %s;\n" % g for g in used), tables, body)

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        text = self.source()
        with open(os.path.join(folder, "model.tmodel"), "w") as f:
            f.write(text)
        gates = {g: v for g, v in GATES.items() if "  gate %s;" % g in text}
        save_file(self.weight_of, os.path.join(folder, "weights.safetensors"), metadata={"taper.gates": json.dumps(gates)})

    def __call__(self, tokens, dtype=np.float64):
        """logits [T, V]"""
        p = {n: w.astype(dtype) for n, w in self.weight_of.items()}
        p["tokens"] = np.asarray(tokens)
        with np.errstate(over="ignore"):
            for name, f in self.steps:
                p[name] = np.asarray(f(p), dtype)
        return p[self.out.text]

#!/usr/bin/python3
"""Every op that a source may call, through the whole compiler and generated kernels, against NumPy float64 on nasty shapes and values.

The model is: rows of a table -> the op -> a head whose matrix is the identity, so the logits are the op's result, element by element.
"""
import concurrent.futures
import math
import os
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
QUICK = bool(os.environ.get("TAPERC_QUICK"))
erfc = np.vectorize(math.erfc)


np.seterr(over="ignore")


def say(line):
    sys.stdout.write(line + "\n")  # one call: two threads print


def rms(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def center(x):
    return x - x.mean(-1, keepdims=True)


def heads(x, n):
    return x.reshape(x.shape[0], n, -1)


def rope(x, dims, theta, interleaved=False):
    inv = theta ** (-np.arange(0, dims, 2) / dims)
    angle = np.arange(x.shape[0])[:, None, None] * inv
    c, s, y = np.cos(angle), np.sin(angle), x.copy()
    i, j = (slice(0, dims, 2), slice(1, dims, 2)) if interleaved else (slice(0, dims // 2), slice(dims // 2, dims))
    y[..., i], y[..., j] = x[..., i] * c - x[..., j] * s, x[..., i] * s + x[..., j] * c
    return y


def attention(q, k, v, scale=None, window=0, cap=0):
    k, v = [np.repeat(t, q.shape[1] // t.shape[1], axis=1) for t in (k, v)]
    s = np.einsum("thd,shd->hts", q, k) * (scale or 1 / math.sqrt(q.shape[-1]))
    s = cap * np.tanh(s / cap) if cap else s
    i, j = np.arange(len(q))[:, None], np.arange(len(q))[None]
    s = np.where((j <= i) & ((j > i - window) if window else True), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hts,shd->thd", e / e.sum(-1, keepdims=True), v)


# name -> (expression over x, NumPy of it given x and the weights, weights by shape letter: d = width of x)
CASES = {
    "gelu": ("gelu(x)", lambda x, w: 0.5 * x * erfc(-x / math.sqrt(2))),
    "gelu_tanh": ("gelu_tanh(x)", lambda x, w: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),  # 1 + tanh would cancel
    "silu": ("silu(x)", lambda x, w: x / (1 + np.exp(-x))),
    "sigmoid": ("sigmoid(x)", lambda x, w: 1 / (1 + np.exp(-x))),
    "relu": ("relu(x)", lambda x, w: np.maximum(x, 0)),
    "tanh": ("tanh(x)", lambda x, w: np.tanh(x)),
    "exp": ("exp(x / 3)", lambda x, w: np.exp(x / 3)),
    "sqrt": ("sqrt(x * x)", lambda x, w: np.abs(x)),
    "neg": ("-x", lambda x, w: -x),
    "softcap": ("softcap(x, cap = 5)", lambda x, w: 5 * np.tanh(x / 5)),
    "arithmetic": ("(x * 2 - 3) / (x * x + 1) + x", lambda x, w: (x * 2 - 3) / (x * x + 1) + x),
    "constant_left": ("1 - x * 0.5", lambda x, w: 1 - x * 0.5),
    "scale": ('scale(x, name = "s")', lambda x, w: x * w["s.weight"], {"s.weight": "d"}),
    "center": ("center(x)", lambda x, w: center(x)),
    "shift": ('shift(x, name = "s")', lambda x, w: x + w["s.bias"], {"s.bias": "d"}),
    "dyt": ('dyt(x, name = "n")', lambda x, w: np.tanh(w["n.alpha"] * x) * w["n.weight"] + w["n.bias"], {"n.alpha": "1", "n.weight": "d", "n.bias": "d"}),
    "rms_norm": ('rms_norm(x, name = "n", eps = 1e-6)', lambda x, w: rms(x, 1e-6) * w["n.weight"], {"n.weight": "d"}),
    "layer_norm": ('layer_norm(x, name = "n", eps = 1e-5)', lambda x, w: rms(center(x), 1e-5) * w["n.weight"] + w["n.bias"], {"n.weight": "d", "n.bias": "d"}),
    "layer_norm_offset": ('layer_norm(x + 100, name = "n", eps = 1e-5)', lambda x, w: rms(center(x + x.dtype.type(100)), 1e-5) * w["n.weight"] + w["n.bias"], {"n.weight": "d", "n.bias": "d"}),
    "norm_no_reader_linear": ('silu(rms_norm(x, name = "n", eps = 1e-6))', lambda x, w: (lambda y: y / (1 + np.exp(-y)))(rms(x, 1e-6) * w["n.weight"]), {"n.weight": "d"}),
    "norm_two_readers": ('tanh(rms_norm(x, name = "n", eps = 1e-6)) + linear(rms_norm(x * 2, name = "m", eps = 1e-6), d, name = "l")',
                         lambda x, w: np.tanh(rms(x, 1e-6) * w["n.weight"]) + (rms(2 * x, 1e-6) * w["m.weight"]) @ w["l.weight"].T, {"n.weight": "d", "m.weight": "d", "l.weight": "dd"}),
    "linear_bias": ('linear(x, d, name = "l", bias = true)', lambda x, w: x @ w["l.weight"].T + w["l.bias"], {"l.weight": "dd", "l.bias": "d"}),
    "linear_chain": ('linear(linear(x, 7, name = "a"), d, name = "b")', lambda x, w: x @ w["a.weight"].T @ w["b.weight"].T, {"a.weight": "7d", "b.weight": "d7"}),
    "linear_one_out": ('x * 0.5 + linear(relu(linear(x, 1, name = "a")), d, name = "b")', lambda x, w: x * 0.5 + np.maximum(x @ w["a.weight"].T, 0) @ w["b.weight"].T, {"a.weight": "1d", "b.weight": "d1"}),
    "concat_slice": ("concat(slice(x, start = 1, size = d - 1), slice(x, start = 0, size = 1))", lambda x, w: np.concatenate([x[:, 1:], x[:, :1]], -1)),
    "rope_half": ("merge_heads(rope(split_heads(x, 2), theta = 100))", lambda x, w: rope(heads(x, 2), x.shape[1] // 2, 100).reshape(x.shape), None, 4),
    "rope_interleaved": ('merge_heads(rope(split_heads(x, 2), theta = 100, style = "interleaved"))', lambda x, w: rope(heads(x, 2), x.shape[1] // 2, 100, True).reshape(x.shape), None, 4),
    "rope_partial": ("merge_heads(rope(split_heads(x, 1), theta = 100, dims = 2))", lambda x, w: rope(heads(x, 1), 2, 100).reshape(x.shape), None, 4),
    "head_norm": ('merge_heads(rms_norm(split_heads(x, 2), name = "n", eps = 1e-6))', lambda x, w: (rms(heads(x, 2), 1e-6) * w["n.weight"]).reshape(x.shape), {"n.weight": "h"}, 4),
    "attention_self": ("merge_heads(attention(split_heads(x, 2), split_heads(x, 2), split_heads(x * 0.5, 2), causal = true))", lambda x, w: attention(heads(x, 2), heads(x, 2), heads(x * 0.5, 2)).reshape(x.shape), None, 4),
    "attention_scale_window_cap": ("merge_heads(attention(split_heads(x, 2), split_heads(x, 2), split_heads(x, 2), causal = true, scale = 0.3, window = 3, softcap = 2))",
                                   lambda x, w: attention(heads(x, 2), heads(x, 2), heads(x, 2), 0.3, 3, 2).reshape(x.shape), None, 4),
    "taper_rms_half": ('taper_rms_norm(x, name = "n", gate = g, eps = 1e-6)', lambda x, w: 0.3 * rms(x, 1e-6) * w["n.weight"] + 0.7 * w["n.taper_c"] * x * w["n.taper_weight"],
                       {"n.weight": "d", "n.taper_c": "1", "n.taper_weight": "d"}),
    "taper_ln_half": ('taper_layer_norm(x, name = "n", gate = g, eps = 1e-5)',
                      lambda x, w: w["n.bias"] + 0.3 * rms(center(x), 1e-5) * w["n.weight"] + 0.7 * w["n.taper_c"] * center(x) * w["n.taper_weight"],
                      {"n.weight": "d", "n.bias": "d", "n.taper_c": "1", "n.taper_weight": "d"}),
    "taper_rms_zero_blocked": ('relu(taper_rms_norm(x, name = "n", gate = z, eps = 1e-6))', lambda x, w: np.maximum(w["n.taper_c"] * x * w["n.taper_weight"], 0),
                               {"n.weight": "d", "n.taper_c": "1", "n.taper_weight": "d"}),
    "taper_ln_zero_folded": ('linear(taper_layer_norm(x, name = "n", gate = z, eps = 1e-5), d, name = "l")',
                             lambda x, w: (w["n.bias"] + w["n.taper_c"] * center(x) * w["n.taper_weight"]) @ w["l.weight"].T,
                             {"n.weight": "d", "n.bias": "d", "n.taper_c": "1", "n.taper_weight": "d", "l.weight": "dd"}),
}


def table(d, rows, rng, name):
    x = rng.standard_normal((rows, d)) * 2
    x[1] *= 1e-4  # a tiny row
    x[2] *= 20  # a wild row
    if name in ("gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "softcap", "relu"):
        x[3] = rng.choice([-90, -30, -0.0, 0.0, 1e-30, 30, 88, 100], d)
    return x.astype(np.float32)


def run(name, case, d, root, rng):
    expression, truth = case[0], case[1]
    shapes = case[2] if len(case) > 2 and case[2] else {}
    size = {"d": d, "1": 1, "7": 7, "h": d // 2}
    w = {n: (rng.standard_normal([size[c] for c in s]) * 0.7 + (0.5 if len(s) == 1 else 0)).astype(np.float32) for n, s in shapes.items()}
    rows = 12
    x = table(d, rows, rng, name)
    gate = "  gate g;\n" if "gate = g" in expression else "  gate z;\n" if "gate = z" in expression else ""
    text = ("model one(vocab = %d, context = 40, d = %d) {\n%s  param table: [vocab, d] init normal(0.02);\n  forward(tokens) {\n    let x = embed(tokens, table);\n"
            '    let y = %s;\n    return linear(y, vocab, name = "head");\n  }\n}\n' % (max(d, rows), d, gate, expression))
    full = np.zeros((max(d, rows), d), np.float32)
    full[:rows] = x
    with open(root + "/model.tmodel", "w") as f:
        f.write(text)
    save_file(dict(w, **{"table": full, "head.weight": np.eye(max(d, rows), d, dtype=np.float32)}), root + "/weights.safetensors",
              metadata={"taper.gates": '{"g": 0.3}' if "gate = g" in expression else '{"z": 0}' if "gate = z" in expression else "{}"})
    tokens = np.concatenate([np.arange(rows), rng.integers(0, rows, 17)])
    t = x[tokens].astype(np.float64)
    exact = truth(t, {k: v.astype(np.float64) for k, v in w.items()})
    plain = truth(t.astype(np.float32), w).astype(np.float64)
    plain_factor = 16 if name == "layer_norm_offset" else 4  # a mean of 50 sigma: each program's rounding of x + 100 is amplified by its luck
    tol = max(2e-5, plain_factor * np.abs(plain - exact).max() / np.abs(exact).max())
    for extra in [[]] if QUICK else [[], ["-O0"]]:
        label = "%s d=%d %s" % (name, d, " ".join(extra))
        p = subprocess.run([TAPERC, "logits", root, "--tokens", ",".join(map(str, tokens)), "-o", root + "/out.safetensors"] + extra, capture_output=True, text=True)
        if p.returncode:
            say("not ok %s: exit %d: %s" % (label, p.returncode, p.stderr.strip().replace("\n", " | ")[-300:]))
            continue
        got = load_file(root + "/out.safetensors")["logits"][:, :d]
        error = np.abs(got - exact).max() / np.abs(exact).max()
        # a row is also compared with its own size, so that a wild row does not hide a tiny one
        own = (np.abs(got - exact).max(-1) / np.maximum(np.abs(exact).max(-1), 1e-30)).max()
        own_plain = (np.abs(plain - exact).max(-1) / np.maximum(np.abs(exact).max(-1), 1e-30)).max()
        good = error <= tol and own <= max(1e-4, 2 * plain_factor * own_plain)
        say("%s %s%s" % ("ok" if good else "not ok", label, "" if good else ": error %.3g, tolerance %.3g; by rows %.3g (float32 %.3g)" % (error, tol, own, own_plain)))


def main():
    jobs = [(name, case, d) for i, (name, case) in enumerate(CASES.items()) for d in ((20,) if QUICK else (4, 20, 172) if len(case) > 3 else (3, 17, 172))
            if not QUICK or i % 3 == 0]
    root = os.path.join(ROOT, "build/numerics/kernels")  # the same folder in every build: images come from the cache
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def one(number):
            folder = os.path.join(root, "%s.%d" % (jobs[number][0], jobs[number][2]))
            os.makedirs(folder, exist_ok=True)
            run(*jobs[number], folder, np.random.default_rng(number))

        list(pool.map(one, range(len(jobs))))


main()

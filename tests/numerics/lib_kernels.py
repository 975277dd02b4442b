"""Every op that a source may call, as an expression over x, and the same in NumPy."""
import math

import numpy as np

erfc = np.vectorize(math.erfc)


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

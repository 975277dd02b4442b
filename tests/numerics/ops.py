"""Every op of the IR against NumPy in float64, on nasty shapes: one .tir a case, evaluated by tests/unit/eval_tir, compared to 1e-12 relative.

Formulas here are from tapernorm.md 1 and the papers, not from the compiler. Constants are float32, as stored; arithmetic is float64.
"""
import math
import os
import sys

import numpy as np
from lib_ops import TOLERANCE, TOOL, Case, compare, counts, dims, report, tested

erf = np.vectorize(math.erf)


# ---- norms ----
def center(x):
    return x - x.mean(-1, keepdims=True)


def r_of(x, eps):
    return np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def norms():
    for shape in ((1, 1), (1, 20), (7, 20), (2, 3, 5), (2, 3, 2, 12), (3, 257)):
        d = shape[-1]
        for kind, eps, scale, mean in (("plain", 1e-6, 1.0, 0.0), ("tiny variance", 1e-12, 1e-7, 0.0), ("large mean", 1e-5, 1.0, 1000.0)):
            c = Case("norms %s %s" % (dims(shape), kind))
            xv, x = c.normal(*shape, scale=scale, mean=mean)
            wv, w = c.normal(d)
            tv, t = c.normal(d, scale=3.0)
            bv, b = c.normal(d)
            cv, k = c.normal(1, scale=0.1, mean=18.0)
            av, a = c.normal(1)
            e = "eps = %s" % eps.hex()
            want = [(c.op("rms_norm", [xv, wv], shape, e), x / r_of(x, eps) * w),
                    (c.op("layer_norm", [xv, wv, bv], shape, e), center(x) / r_of(center(x), eps) * w + b),
                    (c.op("inv_rms", [xv], shape[:-1] + (1,), e), 1 / r_of(x, eps)),
                    (c.op("inv_std", [xv], shape[:-1] + (1,), e), 1 / r_of(center(x), eps)),
                    (c.op("dyt", [xv, av, wv, bv], shape), w * np.tanh(a * x) + b),
                    (c.op("scale", [xv, wv], shape), x * w),
                    (c.op("shift", [xv, bv], shape), x + b),
                    (c.op("center", [xv], shape), center(x))]
            for g in (0.0, 1.0, 0.3125, 0.0009765625):
                gv, _ = c.gate(g)
                want.append((c.op("taper_rms_norm", [xv, wv, tv, cv, gv], shape, e), g * x / r_of(x, eps) * w + (1 - g) * k * x * t))
                want.append((c.op("taper_layer_norm", [xv, wv, bv, tv, cv, gv], shape, e),
                             b + g * center(x) / r_of(center(x), eps) * w + (1 - g) * k * center(x) * t))
            s = c.op("inv_rms", [xv], shape[:-1] + (1,), e)
            want.append((c.op("row_scale", [xv, s], shape), x / r_of(x, eps)))
            want.append((c.op("row_shift", [xv, s], shape), x + 1 / r_of(x, eps)))
            want.append((c.op("row_mean", [xv], shape[:-1] + (1,)), x.mean(-1, keepdims=True)))
            # the mean is subtracted in another order: digits that a large mean costs are lost on either side
            c.check(want, tolerance=TOLERANCE if kind != "large mean" else 1e-10)
    for rows, d in ((5, 3), (1, 7), (172, 20)):
        c = Case("axis 0 [%d,%d]" % (rows, d))
        xv, x = c.normal(rows, d)
        wv, w = c.normal(rows)
        c.check([(c.op("scale", [xv, wv], (rows, d), "axis = 0"), x * w[:, None]), (c.op("center", [xv], (rows, d), "axis = 0"), x - x.mean(0)),
                 (c.op("center", [xv], (rows, d), "axis = -1"), center(x)),
                 (c.op("row_mean", [xv], (1, d), "axis = 0"), x.mean(0, keepdims=True)), (c.op("row_mean", [xv], (rows, 1)), x.mean(-1, keepdims=True)),
                 (c.op("row_mean", [wv], (1,)), [w.mean()]), (c.op("row_mean", [wv], (1,), "axis = 0"), [w.mean()])])
    branches()
    defaults()


def branches():
    """At g = 0 the live branch is not looked at, at g = 1 the tapered one, be it NaN or absent."""
    for g in (0.0, 1.0):
        for how in ("nan", "absent"):
            for kind in ("rms", "ln"):
                c = Case("branch g=%g %s %s" % (g, kind, how))
                xv, x = c.normal(3, 8)
                wv, w = c.normal(8)
                tv, t = c.normal(8)
                bv, b = c.normal(8)
                cv, k = c.normal(1)
                gv, _ = c.gate(g)
                for key in (["c1"] if g == 0 else ["c2", "c4"]):
                    if how == "nan":
                        c.tensors[key][...] = np.nan
                    else:
                        del c.tensors[key]
                if kind == "rms":
                    y = c.op("taper_rms_norm", [xv, wv, tv, cv, gv], (3, 8))
                    want = k * x * t if g == 0 else x / r_of(x, 1e-6) * w
                else:
                    y = c.op("taper_layer_norm", [xv, wv, bv, tv, cv, gv], (3, 8))
                    want = b + (k * center(x) * t if g == 0 else center(x) / r_of(center(x), 1e-5) * w)
                c.check([(y, want)])
    c = Case("a zero row at g = 0 and eps = 0")
    xv, x = c.const(np.zeros((2, 4), np.float32))
    wv, w = c.normal(4)
    kv, _ = c.const(np.ones(1, np.float32))
    gv, _ = c.gate(0)
    c.check([(c.op("taper_rms_norm", [xv, wv, wv, kv, gv], (2, 4), "eps = 0x0p+0"), x)])
    c = Case("a gate between needs both branches")
    xv, _ = c.normal(2, 4)
    wv, _ = c.normal(4)
    kv, _ = c.normal(1)
    gv, _ = c.gate(0.5)
    del c.tensors["c1"]
    _, error = c.run([c.op("taper_rms_norm", [xv, wv, wv, kv, gv], (2, 4))])
    report(c.name, None if error and "'c1' has no data" in error else "expected an error that names the tensor, got %r" % error)


def defaults():
    c = Case("default eps")
    xv, x = c.normal(3, 20, scale=1e-3)
    wv, w = c.const(np.ones(20, np.float32))
    bv, b = c.const(np.zeros(20, np.float32))
    c.check([(c.op("rms_norm", [xv, wv], (3, 20)), x / r_of(x, 1e-6)), (c.op("layer_norm", [xv, wv, bv], (3, 20)), center(x) / r_of(center(x), 1e-5)),
             (c.op("inv_std", [xv], (3, 1)), 1 / r_of(center(x), 1e-5)), (c.op("inv_rms", [xv], (3, 1)), 1 / r_of(x, 1e-6))])


# ---- elementwise ----
def elementwise():
    c = Case("elementwise")
    values = np.concatenate([np.linspace(-12, 12, 401), [-700.0, -40.0, -1e-8, 0.0, 1e-8, 40.0, 700.0]]).astype(np.float32)
    xv, x = c.const(values)
    n = (len(values),)
    sig = np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))
    gelu = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x])
    want = {"gelu": gelu, "gelu_tanh": 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))), "silu": x * sig, "sigmoid": sig,
            "relu": np.maximum(x, 0), "tanh": np.tanh(x), "neg": -x}
    checks = [(c.op(o, [xv], n), w) for o, w in want.items()]
    checks.append((c.op("softcap", [xv], n, "cap = 0x1.ep+4"), 30 * np.tanh(x / 30)))
    c.check(checks)
    c = Case("casts round to nearest, ties to even")
    ties = [1 + k / 256 for k in range(8)] + [1 + k / 2048 for k in range(8)] + [6e-8, 2.98e-8, 8.95e-8, 65504, 6.1e-5, 0, -0.0, -1.00390625]
    xv, x = c.const(np.concatenate([np.float32(ties), (c.rng.standard_normal(200) * 10.0 ** c.rng.integers(-6, 4, 200)).astype(np.float32)]))
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    bf16 = (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        f16 = x.astype(np.float16)
    c.check([(c.op("cast", [xv], x.shape, 'to = "bf16"', dtype="bf16"), bf16), (c.op("cast", [xv], x.shape, 'to = "f16"', dtype="f16"), f16), (c.op("cast", [xv], x.shape, 'to = "f32"'), x)], tolerance=0)
    c = Case("exact gelu keeps its digits far out")
    xv, x = c.const(np.array([-9.0, -20.0, -30.0], np.float32))
    got = c.check([(c.op("gelu", [xv], (3,)), [0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x])])
    if got:
        want = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x])
        report(c.name + ", each", None if np.all(np.abs(got["out.0"] / want - 1) < 1e-12) else "%s" % got["out.0"])
    c = Case("exp sqrt")
    xv, x = c.const(np.linspace(0, 50, 99).astype(np.float32))
    c.check([(c.op("exp", [xv], (99,)), np.exp(x)), (c.op("sqrt", [xv], (99,)), np.sqrt(x))])
    for shape in ((1,), (20,), (3, 7), (2, 3, 5)):
        c = Case("binary " + dims(shape))
        xv, x = c.normal(*shape)
        yv, y = c.normal(*shape, mean=5.0)
        ov, o = c.normal(1, mean=4.0)
        ops = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
        c.check([(c.op(n, [xv, yv], shape), f(x, y)) for n, f in ops.items()] + [(c.op(n, [xv, ov], shape), f(x, o)) for n, f in ops.items()]
                + [(c.op(n, [ov, yv], shape), f(o, y)) for n, f in ops.items()])


# ---- linear algebra ----
def linear_algebra():
    for rows, i, o in ((1, 1, 1), (1, 20, 3), (5, 7, 172), (3, 257, 1)):
        c = Case("linear %d x %d -> %d" % (rows, i, o))
        xv, x = c.normal(rows, i)
        wv, w = c.normal(o, i)
        bv, b = c.normal(o)
        vv, v = c.normal(i)
        c.check([(c.op("linear", [xv, wv], (rows, o)), x @ w.T), (c.op("linear", [xv, wv, bv], (rows, o)), x @ w.T + b),
                 (c.op("linear", [vv, wv, bv], (o,)), w @ v + b)], tolerance=1e-11 if i > 100 else TOLERANCE)
        c2 = Case("linear global %d x %d -> %d" % (rows, i, o))
        vv, v = c2.normal(i)
        wv, w = c2.normal(o, i)
        y = c2.op("linear", [vv, wv], (o,))
        c2.globals += c2.body
        c2.body = []
        c2.check([(y, w @ v)], options=["--global"])
    c = Case("concat slice heads")
    av, a = c.normal(2, 3, 4)
    bv, b = c.normal(2, 3, 1)
    mv, m = c.normal(5, 7)
    nv, n = c.normal(2, 7)
    both = c.op("concat", [av, bv, av], (2, 3, 9))
    rows = c.op("concat", [mv, nv], (7, 7), "axis = 0")
    split = c.op("split_heads", [av], (2, 3, 2, 2), "heads = 2")
    c.check([(both, np.concatenate([a, b, a], -1)), (rows, np.concatenate([m, n], 0)), (c.op("concat", [av, av], (2, 6, 4), "axis = 1"), np.concatenate([a, a], 1)),
             (c.op("slice", [both], (2, 3, 3), "size = 3, start = 4"), np.concatenate([a, b, a], -1)[..., 4:7]), (split, a.reshape(2, 3, 2, 2)),
             (c.op("merge_heads", [split], (2, 3, 4)), a), (c.op("probe", [av], (2, 3, 4), 'name = "p"'), a)])


# ---- attention ----
def inv_freq(dims_, theta, scaling=None, factor=1.0, low=1.0, high=4.0, original=8192):
    f = theta ** (-2 * np.arange(dims_ // 2) / dims_)
    if scaling == "linear":
        return f / factor
    if scaling == "llama3":
        wave = 2 * math.pi / f
        smooth = (original / wave - low) / (high - low)
        return np.where(wave < original / high, f, np.where(wave > original / low, f / factor, (1 - smooth) * f / factor + smooth * f))
    return f


def rope(x, position, f, interleaved):
    n = len(f)
    angle = position[:, :, None, None] * f
    cos, sin = np.cos(angle), np.sin(angle)
    y = x.copy()
    a, b = (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if interleaved else (slice(0, n), slice(n, 2 * n))
    y[..., a], y[..., b] = x[..., a] * cos - x[..., b] * sin, x[..., b] * cos + x[..., a] * sin
    return y


def ropes():
    for heads, hd, rotated in ((1, 2, 2), (3, 12, 12), (2, 20, 6), (1, 20, 20), (4, 7, 4)):
        for interleaved in (0, 1):
            for scaling in (None, "linear", "llama3"):
                c = Case("rope %d heads of %d, %d rotated, interleaved %d, %s" % (heads, hd, rotated, interleaved, scaling))
                xv, x = c.normal(2, 5, heads, hd)
                pv, p = c.const(np.array([[0, 1, 2, 3, 4], [100, 101, 8192, 3, 131071]], np.int32))
                attrs, f = ["theta = 0x1.e848p+18", "interleaved = %d" % interleaved], None
                if rotated != hd:
                    attrs.append("dims = %d" % rotated)
                if scaling:
                    attrs += ['scaling = "%s"' % scaling, "scaling_factor = 8"]
                if scaling == "llama3":
                    attrs += ["scaling_low = 1", "scaling_high = 4", "scaling_original = 8192"]
                f = inv_freq(rotated, 500000.0, scaling, 8.0)
                # an angle of 1e5 radians carries an error of 1e5 x 2^-53 from the product alone
                c.check([(c.op("rope", [xv, pv], x.shape, ", ".join(attrs)), rope(x, p.astype(float), f, interleaved))], tolerance=1e-10)
    c = Case("rope, theta 10000 by default")
    xv, x = c.normal(1, 3, 2, 8)
    pv, p = c.const(np.array([[5, 6, 7]], np.int32))
    c.check([(c.op("rope", [xv, pv], x.shape), rope(x, p.astype(float), inv_freq(8, 10000.0), 0))])


def attend(q, k, v, first, last, scale, cap):
    s = k[first:last + 1] @ q * scale
    if cap:
        s = cap * np.tanh(s / cap)
    e = np.exp(s - s.max())
    return e / e.sum() @ v[first:last + 1]


def attention(q, k, v, scale=None, cap=0.0, window=0):
    batch, time, heads, hd = q.shape
    group = heads // k.shape[2]
    y = np.zeros(q.shape[:3] + v.shape[3:])
    for b in range(batch):
        for t in range(time):
            for h in range(heads):
                y[b, t, h] = attend(q[b, t, h], k[b, :, h // group], v[b, :, h // group], max(0, t - window + 1) if window else 0, t,
                                    scale or 1 / math.sqrt(hd), cap)
    return y


def attentions():
    for heads, kv, hd, hdv, time in ((1, 1, 20, 20, 1), (1, 1, 1, 1, 4), (6, 2, 12, 12, 5), (4, 4, 3, 7, 6), (8, 1, 5, 5, 3)):
        for attrs, options in (("", {}), ("window = 2", {"window": 2}), ("window = 1", {"window": 1}), ("cap = 0x1.4p+1", {"cap": 2.5}),
                               ("scale = 0x1.8p-2, window = 3, cap = 50", {"scale": 0.375, "window": 3, "cap": 50.0})):
            c = Case("attention %d/%d heads of %d/%d, T %d {%s}" % (heads, kv, hd, hdv, time, attrs))
            qv, q = c.normal(2, time, heads, hd, scale=3.0)
            kv_, k = c.normal(2, time, kv, hd, scale=3.0)
            vv, v = c.normal(2, time, kv, hdv)
            c.check([(c.op("attention", [qv, kv_, vv], (2, time, heads, hdv), attrs), attention(q, k, v, **options))])


def caches():
    """Chunks at different positions, ragged: the same as attention over the whole sequence."""
    heads, kv, hd, hdv, context, time = 6, 2, 5, 3, 9, 4
    for attrs, options in (("", {}), ("window = 3, cap = 2", {"window": 3, "cap": 2.0})):
        c = Case("cache {%s}" % attrs)
        rng = c.rng
        pos, length = np.array([0, 5, 2], np.int32), np.array([4, 4, 1], np.int32)
        q, k, v = (rng.standard_normal((3, context, n, d)).astype(np.float32) for n, d in ((heads, hd), (kv, hd), (kv, hdv)))
        states = [np.zeros((3, kv, context, d)) for d in (hd, hdv)]
        chunk = {n: np.zeros((3, time) + a.shape[2:], np.float32) for n, a in (("q", q), ("k", k), ("v", v))}
        want = np.zeros((3, time, heads, hdv))
        after = [s.copy() for s in states]
        for b in range(3):
            p, n = pos[b], length[b]
            whole = attention(*(a[b:b + 1].astype(float) for a in (q, k, v)), **options)[0]
            want[b, :n] = whole[p:p + n]
            for name, a in (("q", q), ("k", k), ("v", v)):
                chunk[name][b] = rng.standard_normal(a.shape[2:])  # rows beyond len: anything
                chunk[name][b, :n] = a[b, p:p + n]
            for s, end, a in ((states, p, None), (after, p + n, None)):
                s[0][b, :, :end], s[1][b, :, :end] = k[b, :end].swapaxes(0, 1), v[b, :end].swapaxes(0, 1)
        args = [c.arg("pos", "i32[B]"), c.arg("len", "i32[B]")]
        k0, v0 = c.arg("k0", "state f32[B,%d,%d,%d]" % (kv, context, hd)), c.arg("v0", "state f32[B,%d,%d,%d]" % (kv, context, hdv))
        # a batch given by pos and len alone: q, k, v come as embeddings of row numbers
        tv = c.arg("tokens", "i32[B,T]")

        def stream(name, n, d):
            table, _ = c.const(chunk[name].reshape(3 * time, n * d))
            x = c.op("embed", [tv, table], ("B", "T", n * d))
            return c.op("split_heads", [x], ("B", "T", n, d), "heads = %d" % n)

        qv, kv_, vv = stream("q", heads, hd), stream("k", kv, hd), stream("v", kv, hdv)
        k1 = c.op("cache_append", [k0, kv_] + args, ("B", kv, context, hd), dtype="state f32")
        v1 = c.op("cache_append", [v0, vv] + args, ("B", kv, context, hdv), dtype="state f32")
        y = c.op("cache_attention", [qv, k1, v1] + args, ("B", "T", heads, hdv), attrs)
        inputs = {"tokens": np.arange(3 * time, dtype=np.int32).reshape(3, time), "pos": pos, "len": length, "state.0": states[0], "state.1": states[1]}
        got, error = c.run([y, k1, v1], inputs, ["--batch", "3", "--time", str(time)])
        if got is None:
            report(c.name, error)
            continue
        for b in range(3):
            compare(c.name + " sequence %d" % b, got["out.0"][b, :length[b]], want[b, :length[b]])
        for i in range(2):
            compare(c.name + " state %d" % i, got["out.%d" % (i + 1)], after[i])
            compare(c.name + " state %d in place" % i, got["state.%d" % i], after[i])
        inputs["pos"] = np.array([0, 6, 2], np.int32)
        _, error = c.run([y, k1, v1], inputs, ["--batch", "3", "--time", str(time)])
        report(c.name + " beyond the context", None if error and "6 cached and 4 new" in error and "context of 9" in error else repr(error))


# ---- inputs, losses, probes ----
def rest():
    c = Case("embed and positions")
    tv, pv = c.arg("tokens", "i32[B,T]"), c.arg("pos", "i32[B]")
    ev, e = c.normal(7, 3)
    wv, w = c.normal(20, 3)
    where = c.op("positions", [tv, pv], ("B", "T"), dtype="i32")
    x = c.op("embed", [tv, ev], ("B", "T", 3))
    y = c.op("embed", [where, wv], ("B", "T", 3))
    z = c.op("add", [x, y], ("B", "T", 3))
    sv, s = c.normal(3)
    c.body.append('%%pr = probe %s, %s {name = "layers.0"} : f32[B,T,3]' % (z, sv))
    tokens, pos = np.array([[0, 6], [3, 3]], np.int32), np.array([4, 18], np.int32)
    want = e[tokens] + w[pos[:, None] + np.arange(2)]
    got = c.check([("%pr", want), (where, pos[:, None] + np.arange(2))], {"tokens": tokens, "pos": pos}, ["--batch", "2", "--time", "2"])
    if got:
        compare("probe with an inverse scale", got["probe.layers.0"], want * s)
    for label, bad in (("id", {"tokens": np.array([[0, 7], [3, 3]], np.int32), "pos": pos}), ("negative id", {"tokens": np.array([[0, -1], [3, 3]], np.int32), "pos": pos}),
                       ("position", {"tokens": tokens, "pos": np.array([4, 19], np.int32)})):
        _, error = c.run(["%pr"], bad, ["--batch", "2", "--time", "2"])
        report(label + " beyond the table", None if error and "is outside the" in error else repr(error))
    got, error = c.run(["%pr"], {"tokens": np.array([[0, 99], [3, 3]], np.int32), "pos": pos, "len": np.array([1, 2], np.int32)}, ["--batch", "2", "--time", "2"])
    report("an id beyond the table in a row without token", None if got else error)
    for vocab in (1, 257):
        c = Case("losses, vocab %d" % vocab)
        lv, logits = c.normal(2, 3, vocab, scale=200.0)
        target = c.rng.integers(0, vocab, (2, 3)).astype(np.int32)
        tv, _ = c.const(target)
        sv, s = c.normal(1, mean=3.0)
        top = logits.max(-1, keepdims=True)
        ce = np.log(np.exp(logits - top).sum(-1)) + top[..., 0] - np.take_along_axis(logits, target[..., None], -1)[..., 0]
        target[0, 1] = -1  # padding
        counts_ = target >= 0
        ce = np.where(counts_, ce, 0)[..., None]
        dv, drow = c.normal(2, 3, 1)
        ov, other = c.normal(2, 3, vocab, scale=2.0)
        bv, base = c.normal(2, 3, vocab, scale=2.0)
        ce_v = c.op("cross_entropy", [lv, tv], (2, 3, 1))
        soft, p, q = softmax(logits), softmax(base), softmax(other)
        hot = np.eye(vocab)[np.maximum(target, 0)]
        order = np.sort(other, -1)
        gap = order[..., -1:] - order[..., -2:-1] if vocab > 1 else np.zeros((2, 3, 1))
        c.tensors[tv[1:]] = target
        c.check([(ce_v, ce), (c.op("token_mean", [ce_v, tv], (1,)), [ce.sum() / counts_.sum()]),
                 (c.op("token_mean_back", [tv], (2, 3, 1)), (counts_ / counts_.sum())[..., None]),
                 (c.op("cross_entropy_back", [lv, tv, dv], (2, 3, vocab)), np.where(counts_[..., None], drow * (soft - hot), 0)),
                 (c.op("kl", [bv, ov], (2, 3, 1)), (p * (np.log(p) - np.log(q))).sum(-1, keepdims=True)),
                 (c.op("top_gap", [ov], (2, 3, 1)), gap)], tolerance=1e-11)
    c = Case("rounding every op to f32")
    xv, x = c.normal(4, 9)
    yv, y = c.normal(4, 9)
    want = (x.astype(np.float32) * y.astype(np.float32)).astype(np.float32) + x.astype(np.float32)
    m = c.op("mul", [xv, yv], (4, 9))
    c.check([(c.op("add", [m, xv], (4, 9)), want)], options=["--round"], tolerance=0)
    tested.update(["const", "gate", "arg", "return", "probe", "param"])


# ---- gradients: dx of an op is the central difference of sum(dy * op(x)); all inputs are float64 there ----
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def difference(f, x, dy):
    """d sum(dy f(x)) / dx, by Richardson's extrapolation of central differences."""
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        h, steps = 1e-3, []
        for k in (h, h / 2, h / 4):
            up, down = x.copy(), x.copy()
            up[i] += k
            down[i] -= k
            steps.append((dy * (f(up) - f(down))).sum() / (2 * k))
        first, second = (4 * steps[1] - steps[0]) / 3, (4 * steps[2] - steps[1]) / 3
        out[i] = (16 * second - first) / 15
    return out


def row_gradients():
    for shape in ((1, 1), (3, 20), (2, 2, 5), (1, 3, 2, 7), (2, 33)):
        d = shape[-1]
        c = Case("row gradients %s" % dims(shape))
        xv, x = c.normal(*shape, mean=0.5)
        yv, y = c.normal(*shape)
        wv, w = c.normal(d)
        tv, t = c.normal(d)
        kv, k = c.normal(1, mean=3.0)
        av, a = c.normal(1)
        sv, s = c.normal(*shape[:-1], 1)
        eps = 2.0 ** -10
        e = "eps = %s" % eps.hex()
        rms, ln = (lambda z: z / r_of(z, eps) * w), (lambda z: center(z) / r_of(center(z), eps) * w)
        rows = shape[:-1] + (1,)
        want = [(c.op("rms_norm_back", [xv, wv, yv], shape, e), difference(rms, x, y)), (c.op("layer_norm_back", [xv, wv, yv], shape, e), difference(ln, x, y)),
                (c.op("dyt_back", [xv, av, wv, yv], shape), difference(lambda z: w * np.tanh(a * z), x, y)),
                (c.op("row_rms", [xv], rows, e), r_of(x, eps)), (c.op("row_std", [xv], rows, e), r_of(center(x), eps)),
                (c.op("row_rms_back", [xv, sv], shape, e), difference(lambda z: r_of(z, eps), x, s)),
                (c.op("row_std_back", [xv, sv], shape, e), difference(lambda z: r_of(center(z), eps), x, s)),
                (c.op("row_l2", [xv], rows), np.sqrt((x * x).sum(-1, keepdims=True))), (c.op("row_dot", [xv, yv], rows), (x * y).sum(-1, keepdims=True)),
                (c.op("sum_rows", [xv], (d,)), x.reshape(-1, d).sum(0)),
                (c.op("pad", [xv], shape[:-1] + (d + 5,), "size = %d, start = 3" % (d + 5)), np.concatenate([np.zeros(shape[:-1] + (3,)), x, np.zeros(shape[:-1] + (2,))], -1))]
        for g in (0.0, 1.0, 0.3125):
            gv, _ = c.gate(g)
            want.append((c.op("taper_rms_norm_back", [xv, wv, tv, kv, gv, yv], shape, e), difference(lambda z: g * rms(z) + (1 - g) * k * z * t, x, y)))
            want.append((c.op("taper_layer_norm_back", [xv, wv, tv, kv, gv, yv], shape, e), difference(lambda z: g * ln(z) + (1 - g) * k * center(z) * t, x, y)))
            want.append((c.op("taper_factor", [kv, gv], (1,)), (1 - g) * k))
        c.check(want, tolerance=1e-9)
    for rows, i, o in ((1, 1, 1), (5, 7, 19), (3, 33, 2)):
        c = Case("gradients of linear %d x %d -> %d" % (rows, i, o))
        xv, x = c.normal(rows, i)
        wv, w = c.normal(o, i)
        yv, y = c.normal(rows, o)
        c.check([(c.op("linear_back", [yv, wv], (rows, i)), y @ w), (c.op("linear_weight_back", [yv, xv], (o, i)), y.T @ x)])
    c = Case("gradient of embed")
    iv, ids = c.const(np.array([[0, 6, 3], [3, 3, 0]], np.int32))
    yv, y = c.normal(2, 3, 5)
    tv, table = c.normal(7, 5)
    want = np.zeros((7, 5))
    np.add.at(want, ids, y)
    c.check([(c.op("embed_back", [iv, yv, tv], (7, 5)), want)])


def gelu_of(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def elementwise_gradients():
    c = Case("elementwise gradients")
    values = np.concatenate([np.linspace(-6, 6, 41) + 0.01, [-40.0, 40.0]]).astype(np.float32)
    xv, x = c.const(values)
    n = values.shape
    yv, y = c.normal(*n)
    sig = lambda z: 1 / (1 + np.exp(-z))
    forward = {"gelu": gelu_of, "gelu_tanh": lambda z: 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z ** 3))), "silu": lambda z: z * sig(z),
               "relu": lambda z: np.maximum(z, 0)}
    want = [(c.op(o + "_back", [xv, yv], n), difference(f, x, y)) for o, f in forward.items()]
    want.append((c.op("softcap_back", [xv, yv], n, "cap = 0x1.4p+1"), difference(lambda z: 2.5 * np.tanh(z / 2.5), x, y)))
    for o, f in (("sigmoid", sig), ("tanh", np.tanh)):
        want.append((c.op(o + "_back", [c.op(o, [xv], n), yv], n), difference(f, x, y)))
    c.check(want, tolerance=1e-9)
    c = Case("gradient of sqrt")
    xv, x = c.const(np.linspace(0.5, 50, 33).astype(np.float32))
    yv, y = c.normal(33)
    c.check([(c.op("sqrt_back", [c.op("sqrt", [xv], (33,)), yv], (33,)), difference(np.sqrt, x, y))], tolerance=1e-9)


def attention_gradients():
    for heads, hd, rotated, interleaved in ((1, 2, 2, 0), (3, 6, 4, 1)):
        c = Case("gradient of rope, %d heads of %d" % (heads, hd))
        yv, y = c.normal(2, 3, heads, hd)
        pv, p = c.const(np.array([[0, 1, 2], [100, 3, 7]], np.int32))
        zero = np.zeros(y.shape)
        want = difference(lambda z: rope(z, p.astype(float), inv_freq(rotated, 10000.0), interleaved), zero, y)
        c.check([(c.op("rope_back", [yv, pv], y.shape, "dims = %d, interleaved = %d" % (rotated, interleaved)), want)], tolerance=1e-9)
    for heads, kv, hd, hdv, time in ((1, 1, 3, 3, 1), (1, 1, 1, 1, 4), (4, 2, 3, 3, 5), (2, 2, 3, 5, 3)):
        for attrs, options in (("", {}), ("window = 2", {"window": 2}), ("scale = 0x1.8p-2, window = 3, cap = 2", {"scale": 0.375, "window": 3, "cap": 2.0})):
            c = Case("gradient of attention %d/%d heads of %d/%d, T %d {%s}" % (heads, kv, hd, hdv, time, attrs))
            qv, q = c.normal(2, time, heads, hd)
            kv_, k = c.normal(2, time, kv, hd)
            vv, v = c.normal(2, time, kv, hdv)
            yv, y = c.normal(2, time, heads, hdv)
            parts = [difference(lambda z: attention(z, k, v, **options), q, y), difference(lambda z: attention(q, z, v, **options), k, y),
                     difference(lambda z: attention(q, k, z, **options), v, y)]
            want = np.concatenate([g.reshape(2, time, -1) for g in parts], -1)
            c.check([(c.op("attention_back", [qv, kv_, vv, yv], want.shape, attrs), want)], tolerance=1e-8)


def effects():
    """Results and gradients are handed out; what leads to them is kept; a training program returns nothing."""
    c = Case("effects")
    tv, yv = c.arg("tokens", "i32[B,T]"), c.arg("targets", "i32[B,T]")
    c.globals.append('%w = param {name = "w", tensor = "w"} : f32[5,3]')
    c.tensors["w"] = c.rng.standard_normal((5, 3)).astype(np.float32)
    w = c.tensors["w"].astype(np.float64)
    x = c.op("embed", [tv, "%w"], ("B", "T", 3))
    s = c.op("row_l2", [x], ("B", "T", 1))
    m = c.op("token_mean", [s, yv], (1,))
    g = c.op("embed_back", [tv, x, "%w"], (5, 3))
    c.body += ['%%r = result %s {name = "l2"} : f32[1]' % m, '%%s = result %s {name = "l2_rows"} : f32[B,T,1]' % s, "%%g = gradient %s, %%w : f32[5,3]" % g]
    tokens, targets = np.array([[0, 4], [3, 3]], np.int32), np.array([[1, -1], [0, 2]], np.int32)
    rows = np.sqrt((w[tokens] ** 2).sum(-1, keepdims=True))
    want = np.zeros((5, 3))
    np.add.at(want, tokens, w[tokens])
    got, error = c.run([], {"tokens": tokens, "targets": targets}, ["--batch", "2", "--time", "2"])
    if got is None:
        return report(c.name, error)
    compare(c.name + ": a result", got["result.l2"], [(rows[..., 0] * (targets >= 0)).sum() / 3])
    compare(c.name + ": a result of every row", got["result.l2_rows"], rows)
    compare(c.name + ": a gradient", got["gradient.w"], want)
    tested.update(["result", "gradient"])


def all_ops_are_tested():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, "compiler", "ir", "op.def")) as f:
        ops = [line.split('"')[1] for line in f if line.startswith("OP(")]
    missing = [o for o in ops if o not in tested]
    report("every op of op.def has a case", "none for " + ", ".join(missing) if missing else None)


def main():
    if not os.path.exists(TOOL):
        print("not ok ops: %s is not built" % TOOL)
        sys.exit(1)
    for group in (norms, elementwise, linear_algebra, ropes, attentions, caches, rest, row_gradients, elementwise_gradients, attention_gradients,
                  effects, all_ops_are_tested):
        group()
    sys.exit(1 if counts["bad"] else 0)


main()

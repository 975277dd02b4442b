"""An independent NumPy training program for the models of lib_oracle: forward and backward written by hand, AdamW, schedules, taper.

Formulas: tapernorm.md 1-4 (the taper norms, their calibration, the gates' schedules, the anchor), Loshchilov and Hutter 2019 (AdamW), Salmon et al. 2011
(Philox). It shares nothing with the compiler or the library. Every array has the float type that the program was made with, float64 unless said.
"""
import math

import numpy as np

from lib_oracle import erf


class Value:
    """A tensor of the forward pass; `g`, once the backward pass has reached it, d(loss) / d(it)."""

    def __init__(self, d):
        self.d, self.g = d, None

    def add(self, g):
        self.g = g if self.g is None else self.g + g


def sigmoid(x):
    return np.exp(-np.logaddexp(x.dtype.type(0), -x))


def gelu_tanh(x):
    k = x.dtype.type(math.sqrt(2 / math.pi))
    a = x.dtype.type(0.044715)
    t = np.tanh(k * (x + a * x ** 3))
    return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * a * x * x)


def gelu(x):
    phi = 0.5 * (1 + erf(x / x.dtype.type(math.sqrt(2))))
    return x * phi, phi + x * np.exp(-x * x / 2) / x.dtype.type(math.sqrt(2 * math.pi))


def silu(x):
    s = sigmoid(x)
    return x * s, s * (1 + x * (1 - s))


ACTIVATION = {  # value and derivative
    "gelu_tanh": gelu_tanh, "gelu": gelu, "silu": silu,
    "relu": lambda x: (np.maximum(x, 0), (x > 0).astype(x.dtype)),
    "tanh": lambda x: (np.tanh(x), 1 - np.tanh(x) ** 2),
}


class Pass:
    """One forward and backward pass over a micro-batch. `gates`: {name: value or list}. `share`: 1 / counted positions of the whole step."""

    def __init__(self, c, p, gates, tokens, targets, share, anchor=0.0, s_tgt=0.0):
        self.c, self.p, self.gates, self.tokens = c, p, gates, tokens
        self.t = p["wte"].dtype.type
        self.counted = (targets >= 0)[..., None]
        self.share, self.anchor, self.s_tgt = self.t(share), self.t(anchor), self.t(s_tgt)
        self.steps, self.grad, self.statistics, self.result = [], {}, {}, {}
        self.head(self.body(), targets)

    def backward(self):
        for step in reversed(self.steps):
            step()
        return self.grad

    def give(self, name, g):
        self.grad[name] = self.grad[name] + g if name in self.grad else g

    def mean(self, x):
        """Mean over the counted positions of the step of x [B, T, 1]: this micro-batch's part."""
        return float(np.where(self.counted, x, 0).sum(dtype=np.float64) * float(self.share))

    # ---- pieces ----

    def linear(self, x, name, weight=None):
        weight = weight or name + ".weight"
        w, bias = self.p[weight], self.p.get(name + ".bias")
        y = Value(x.d @ w.T + (0 if bias is None else bias))

        def back():
            x.add(y.g @ w)
            flat = y.g.reshape(-1, w.shape[0])
            self.give(weight, flat.T @ x.d.reshape(-1, w.shape[1]))
            if bias is not None:
                self.give(name + ".bias", flat.sum(0))

        self.steps.append(back)
        return y

    def rows(self, x):
        return x.reshape(-1, x.shape[-1]).sum(0)

    def dyt(self, x, name):
        a, w = self.p[name + ".alpha"], self.p[name + ".weight"]
        th = np.tanh(a * x.d)
        y = Value(th * w + self.p[name + ".bias"])

        def back():
            inner = y.g * w * (1 - th * th)
            x.add(inner * a)
            self.give(name + ".alpha", np.array([(inner * x.d).sum()]))
            self.give(name + ".weight", self.rows(y.g * th))
            self.give(name + ".bias", self.rows(y.g))

        self.steps.append(back)
        return y

    def norm(self, x, name, gate=None, index=0, eps=None, plain=False):
        c, p, t, ln = self.c, self.p, self.t, self.c["norm"] == "ln" and not plain
        if c["dyt"] and gate == "internal":
            return self.dyt(x, name)
        h = x.d - x.d.mean(-1, keepdims=True) if ln else x.d
        s = np.sqrt((h * h).mean(-1, keepdims=True) + t(c["eps"] if eps is None else eps))
        n, gamma = h / s, p[name + ".weight"]
        taper = c["taper"] and not plain
        g, live = 1.0, n * gamma
        if taper:
            g = self.gates[gate]
            g = float(g[index] if isinstance(g, (list, tuple)) else g)
            k = (h * gamma)
            power = (k * k).sum(-1, keepdims=True)
            self.statistics[name] = (self.mean(power / s), self.mean(power), self.mean(s))
        factor = t(1 - g) * p[name + ".taper_c"][0] if taper and g != 1 else t(0)
        y = live if g == 1 else factor * h * p[name + ".taper_weight"] if g == 0 else t(g) * live + factor * h * p[name + ".taper_weight"]
        y = Value(y + p[name + ".bias"] if ln else y)

        def back():
            dh = 0
            if g != 0:
                dn = t(g) * y.g * gamma
                dh = (dn - n * (dn * n).mean(-1, keepdims=True)) / s
                self.give(name + ".weight", t(g) * self.rows(y.g * n))
            if g != 1:
                dh = dh + factor * p[name + ".taper_weight"] * y.g
                self.give(name + ".taper_weight", factor * self.rows(y.g * h))
            if ln:
                self.give(name + ".bias", self.rows(y.g))
                dh = dh - dh.mean(-1, keepdims=True)
            x.add(dh)

        self.steps.append(back)
        return y

    def rotation(self, positions):
        c = self.c
        n = c["rope_dims"] or c["hd"]
        inv = c["theta"] ** (-np.arange(0, n, 2, dtype=np.float64) / n)
        angle = np.arange(positions)[:, None] * inv[None]
        return n, np.cos(angle)[:, None].astype(self.t), np.sin(angle)[:, None].astype(self.t)

    def rope(self, x):  # [B, T, heads, hd]
        n, cos, sin = self.rotation(x.d.shape[1])
        one, two = (slice(0, n, 2), slice(1, n, 2)) if self.c["interleaved"] else (slice(0, n // 2), slice(n // 2, n))

        def turn(v, sin):
            out = v.copy()
            out[..., one], out[..., two] = v[..., one] * cos - v[..., two] * sin, v[..., one] * sin + v[..., two] * cos
            return out

        y = Value(turn(x.d, sin))
        self.steps.append(lambda: x.add(turn(y.g, -sin)))
        return y

    def heads(self, x, count):
        y = Value(x.d.reshape(x.d.shape[:2] + (count, -1)))
        self.steps.append(lambda: x.add(y.g.reshape(x.d.shape)))
        return y

    def attention(self, q, k, v):
        c, t = self.c, self.t
        B, T, H, D = q.d.shape
        KV, scale, cap = k.d.shape[2], t(1 / math.sqrt(D)), t(c["softcap"])
        Q = q.d.reshape(B, T, KV, H // KV, D)
        s = np.einsum("btkgd,bskd->bkgts", Q, k.d, optimize=True) * scale
        th = np.tanh(s / cap) if cap else None
        s = cap * th if cap else s
        i, j = np.arange(T)[:, None], np.arange(T)[None]
        seen = (j <= i) & ((j > i - c["window"]) if c["window"] else True)
        s = np.where(seen, s, t(-np.inf))
        e = np.exp(s - s.max(-1, keepdims=True))
        a = e / e.sum(-1, keepdims=True)
        y = Value(np.einsum("bkgts,bskd->btkgd", a, v.d, optimize=True).reshape(B, T, -1))

        def back():
            dy = y.g.reshape(B, T, KV, H // KV, -1)
            v.add(np.einsum("bkgts,btkgd->bskd", a, dy, optimize=True))
            da = np.einsum("btkgd,bskd->bkgts", dy, v.d, optimize=True)
            ds = a * (da - (da * a).sum(-1, keepdims=True)) * scale
            ds = ds * (1 - th * th) if cap else ds
            q.add(np.einsum("bkgts,bskd->btkgd", ds, k.d, optimize=True).reshape(q.d.shape))
            k.add(np.einsum("bkgts,btkgd->bskd", ds, Q, optimize=True))

        self.steps.append(back)
        return y

    def plus(self, x, *others):
        y = Value(x.d + sum(o.d for o in others))

        def back():
            for v in (x,) + others:
                v.add(y.g)

        self.steps.append(back)
        return y

    def lookup(self, ids, table):
        y = Value(self.p[table][ids])

        def back():
            g = np.zeros_like(self.p[table])
            np.add.at(g, ids, y.g)
            self.give(table, g)

        self.steps.append(back)
        return y

    def act(self, x, kind):
        d, slope = ACTIVATION[kind](x.d)
        y = Value(d)
        self.steps.append(lambda: x.add(y.g * slope))
        return y

    def times(self, x, z):
        y = Value(x.d * z.d)

        def back():
            x.add(y.g * z.d)
            z.add(y.g * x.d)

        self.steps.append(back)
        return y

    # ---- the model ----

    def attend(self, h, prefix):
        c = self.c
        q, k, v = (self.heads(self.linear(h, prefix + "attn." + n), c["heads"] if n == "q" else c["kv"]) for n in "qkv")
        if c["qk_norm"]:
            q, k = (self.norm(x, prefix + "attn.%s_norm" % n, eps=1e-6, plain=True) for x, n in ((q, "q"), (k, "k")))
        if c["rope"]:
            q, k = self.rope(q), self.rope(k)
        return self.linear(self.attention(q, k, v), prefix + "attn.o")

    def mlp(self, h, prefix):
        if self.c["act"] == "swiglu":
            a = self.times(self.act(self.linear(h, prefix + "mlp.gate"), "silu"), self.linear(h, prefix + "mlp.up"))
        else:
            a = self.act(self.linear(h, prefix + "mlp.fc"), self.c["act"])
        return self.linear(a, prefix + "mlp.down")

    def body(self):
        c = self.c
        x = self.lookup(self.tokens, "wte")
        if not c["rope"]:
            x = self.plus(x, self.lookup(np.broadcast_to(np.arange(self.tokens.shape[1]), self.tokens.shape), "wpe"))
        for i in range(c["layers"]):
            p = "layers.%d." % i
            if c["parallel"]:
                x = self.plus(x, self.attend(self.norm(x, p + "attn_norm", "internal", i), p), self.mlp(self.norm(x, p + "mlp_norm", "internal", i), p))
            else:
                x = self.plus(x, self.attend(self.norm(x, p + "attn_norm", "internal", i), p))
                x = self.plus(x, self.mlp(self.norm(x, p + "mlp_norm", "internal", i), p))
        return x

    def head(self, x, targets):
        c, t = self.c, self.t
        h = x.d - x.d.mean(-1, keepdims=True) if c["norm"] == "ln" else x.d
        s = np.sqrt((h * h).mean(-1, keepdims=True) + t(c["eps"]))
        off = s - self.s_tgt
        self.result.update(residual_scale=self.mean(s), aux=float(self.anchor) * self.mean(off * off))

        def anchor_back():
            if self.anchor:
                dh = np.where(self.counted, 2 * self.anchor * self.share * off, 0) * h / (h.shape[-1] * s)
                x.add(dh - dh.mean(-1, keepdims=True) if c["norm"] == "ln" else dh)

        self.steps.append(anchor_back)
        z = self.linear(self.norm(x, "norm", "final"), "head", "wte" if c["tied"] else None)
        top = z.d.max(-1, keepdims=True)
        e = np.exp(z.d - top)
        total = e.sum(-1, keepdims=True)
        at = np.where(targets >= 0, targets, 0)[..., None]
        ce = np.log(total) + top - np.take_along_axis(z.d, at, -1)
        self.result.update(ce=self.mean(ce), logit_norm=self.mean(np.sqrt((z.d * z.d).sum(-1, keepdims=True))))

        def back():
            g = e / total
            np.put_along_axis(g, at, np.take_along_axis(g, at, -1) - 1, -1)
            z.add(np.where(self.counted, g * self.share, 0).astype(self.t))

        self.steps.append(back)


# ---- the optimizer's side ----

RECIPE = dict(steps=20, lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.0, clip=1.0, schedule="cosine", warmup=0, floor=0.0, gates={}, anchor=0.0)
RAMP = dict(start=0, end=None, ema=0.01, inv_sigma=False)  # or step=, every=


class Trainer:
    """Trains weights {name: float32} in `dtype`. gates of the recipe: {name: RAMP or STEP dict}; a gate without an entry stays at `fixed` (1)."""

    def __init__(self, c, weights, recipe, dtype=np.float64, fixed=None):
        self.c, self.r, self.dtype = c, dict(RECIPE, **recipe), dtype
        self.p = {k: v.astype(dtype) for k, v in weights.items()}
        self.m, self.v, self.count = {}, {}, {}
        self.k = 0
        self.ema, self.seen, self.scale, self.s_tgt = {}, {}, 0.0, 0.0
        self.c_of, self.open = {}, {}
        self.fixed = fixed or {}
        self.norms = {}
        if c["taper"]:
            if not c["dyt"]:
                for i in range(c["layers"]):
                    for n in ("attn_norm", "mlp_norm"):
                        self.norms["layers.%d.%s" % (i, n)] = ("internal", i if c["gate_array"] else 0)
            self.norms["norm"] = ("final", 0)

    # tapernorm.md 3
    def start_of(self, gate, index):
        g = self.r["gates"].get(gate)
        return None if g is None else g["step"] + index * g.get("every", 0) if "step" in g else g["start"]

    def gate(self, gate, index, k):
        g, start = self.r["gates"].get(gate), self.start_of(gate, index)
        if g is None:
            return self.fixed.get(gate, 1.0)
        if k <= start:
            return 1.0
        if "step" in g or k >= g["end"]:
            return 0.0
        return (1 + math.cos(math.pi * (k - start) / (g["end"] - start))) / 2

    def gates(self, k):
        out = {}
        for gate in sorted({g for g, _ in self.norms.values()}):
            array = gate == "internal" and self.c["gate_array"]
            out[gate] = [self.gate(gate, i, k) for i in range(self.c["layers"])] if array else self.gate(gate, 0, k)
        return out

    def starts(self):
        return [self.start_of(*g) for g in self.norms.values() if self.start_of(*g) is not None]

    def lr(self, k):
        """Of step k = 1..N: linear rise over `warmup` steps, then on its way to `floor` of the peak, which the step after the last would have."""
        r = self.r
        if k <= r["warmup"]:
            return r["lr"] * k / r["warmup"]
        x = (k - 1 - r["warmup"]) / (r["steps"] - r["warmup"])
        share = {"cosine": (1 + math.cos(math.pi * x)) / 2, "linear": 1 - x, "constant": 1.0}[r["schedule"]]
        return r["lr"] * (share if r["schedule"] == "constant" else r["floor"] + (1 - r["floor"]) * share)

    # tapernorm.md 2 and 4
    def observe(self, statistics, scale):
        """One EMA step of every norm whose gate has not started; step 0 stands for the batches before the first, for gates that start there."""
        for name, (gate, index) in self.norms.items():
            start = self.start_of(gate, index)
            if start is None or self.k > start or name in self.c_of or self.k == 0 and start != 0:
                continue
            m = self.r["gates"][gate]["ema"]
            old, n = self.ema.get(name, (0.0, 0.0, 0.0)), self.seen.get(name, 0)
            self.ema[name] = tuple((1 - m) * a + m * b for a, b in zip(old, statistics[name]))
            self.seen[name] = n + 1
        if self.starts() and not self.c_of:
            first = min((self.start_of(*g), i) for i, g in enumerate(self.norms.values()) if self.start_of(*g) is not None)[1]
            m = self.r["gates"][list(self.norms.values())[first][0]]["ema"]
            self.scale, self.scale_n, self.scale_m = (1 - m) * self.scale + m * scale, getattr(self, "scale_n", 0) + 1, m

    def begin(self):
        """After update k: the gates that start here get c, gammat and fresh moments; the earliest fixes s_tgt."""
        if self.starts() and self.k == min(self.starts()):
            self.s_tgt = self.scale / (1 - (1 - self.scale_m) ** self.scale_n)
        for name, (gate, index) in self.norms.items():
            if self.start_of(gate, index) != self.k:
                continue
            g = self.r["gates"][gate]
            num, den, sigma = (x / (1 - (1 - g["ema"]) ** self.seen[name]) for x in self.ema[name])
            c = 1 / sigma if g.get("inv_sigma") else num / (den + 1e-12)
            self.c_of[name] = c
            self.p[name + ".taper_c"] = np.array([c], self.dtype)
            t = name + ".taper_weight"
            self.p[t] = self.p[name + ".weight"].copy()
            for state in (self.m, self.v, self.count):
                state.pop(t, None)

    def run(self, k, tokens, targets):
        """Micro-batches [A, B, T] -> means, statistics, gradients."""
        gates = self.gates(k)
        on = bool(self.starts()) and k > min(self.starts())
        share = 1.0 / (targets >= 0).sum()
        total, statistics, grad = {}, {}, {}
        for x, y in zip(tokens, targets):
            p = Pass(self.c, self.p, gates, x, y, share, self.r["anchor"] if on else 0.0, self.s_tgt)
            for n, g in p.backward().items():
                grad[n] = grad[n] + g if n in grad else g
            for n, v in p.result.items():
                total[n] = total.get(n, 0.0) + v
            for n, v in p.statistics.items():
                statistics[n] = tuple(a + b for a, b in zip(statistics.get(n, (0, 0, 0)), v))
        return gates, total, statistics, grad

    def calibrate(self, tokens, targets):
        """A batch before step 1, for gates that start at 0; the last one is followed by begin()."""
        _, total, statistics, _ = self.run(0, tokens, targets)
        self.observe(statistics, total["residual_scale"])

    def step(self, tokens, targets):
        self.k += 1
        r, k = self.r, self.k
        gates, out, statistics, grad = self.run(k, tokens, targets)
        out.update(step=k, g=gates, loss=out["ce"] + out["aux"], lr=self.lr(k))
        out["grad_norm"] = math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in grad.values()))
        clip = min(1.0, r["clip"] / out["grad_norm"]) if r["clip"] and out["grad_norm"] > 0 else 1.0
        t = self.dtype
        for name, g in grad.items():
            g = g * t(clip)
            n = self.count[name] = self.count.get(name, 0) + 1
            m = self.m[name] = t(r["beta1"]) * self.m.get(name, t(0)) + t(1 - r["beta1"]) * g
            v = self.v[name] = t(r["beta2"]) * self.v.get(name, t(0)) + t(1 - r["beta2"]) * g * g
            w = self.p[name]
            decay = r["decay"] if w.ndim == 2 else 0.0
            update = m / t(1 - r["beta1"] ** n) / (np.sqrt(v / t(1 - r["beta2"] ** n)) + t(r["eps"])) + t(decay) * w
            self.p[name] = w - t(out["lr"]) * update
        self.observe(statistics, out["residual_scale"])
        self.begin()
        return out


# ---- random numbers: Philox4x32-10 ----


def philox(seed, purpose, sequence, position, index):
    """key = seed, counter = (purpose, sequence, position, index) -> four 32-bit numbers."""
    mask = 0xFFFFFFFF
    c, k = [purpose & mask, sequence & mask, position & mask, index & mask], [seed & mask, seed >> 32 & mask]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & mask, (a >> 32) ^ c[3] ^ k[1], a & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


# ---- the program checks itself ----


def check_gradients(c, weights, gates, tokens, targets, anchor=0.1, s_tgt=0.7, seed=0):
    """Largest relative error of the gradients against central differences of the loss, in float64."""
    p = {k: v.astype(np.float64) for k, v in weights.items()}
    share = 1.0 / (targets >= 0).sum()

    def loss():
        r = Pass(c, p, gates, tokens, targets, share, anchor, s_tgt).result
        return r["ce"] + r["aux"]

    grad = Pass(c, p, gates, tokens, targets, share, anchor, s_tgt).backward()
    floor = 1e-5 * math.sqrt(sum(float((g * g).sum()) for g in grad.values()))
    r, worst = np.random.default_rng(seed), 0.0
    for name, g in grad.items():
        direction = r.standard_normal(g.shape)
        exact = float((g * direction).sum())
        size = float(np.sqrt((g * g).sum() * (direction * direction).sum() / g.size)) + floor
        at, errors = p[name], []
        for h in (1e-5, 1e-6, 1e-7):  # the best of three: truncation against rounding
            h /= max(1.0, float(np.abs(direction).max()))
            p[name] = at + h * direction
            up = loss()
            p[name] = at - h * direction
            errors.append(abs((up - loss()) / (2 * h) - exact) / size)
        p[name] = at
        worst = max(worst, min(errors))
    return worst

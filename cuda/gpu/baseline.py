#!/usr/bin/python3
"""The same models in PyTorch, decoding greedily with a static cache: eager, CUDA graph of the eager step, torch.compile, CUDA graph of the compiled
step. One JSON object a line, as decode.py's. Exit 77 with a reason where PyTorch or its GPU is not there.

baseline.py [--cpu]: --cpu tests the program itself, at a tiny size, eager against one forward pass of the whole sequence.
"""
import os
import sys
import time

import gpu_lib as g

try:
    import torch
    import torch.nn.functional as F
except ImportError as e:
    print("PyTorch is not there: %s" % e)
    sys.exit(77)

CONTEXT = 256


class Model:
    """Llama form, or with ln GPT-2's; random weights of deviation 0.02. step(): one token of each sequence at position `pos`."""

    def __init__(self, shape, batch, dtype, device, ln):
        self.d, self.layers, self.heads, self.kv, self.ff, self.vocab = shape
        self.batch, self.ln, self.hd = batch, ln, self.d // self.heads
        gen = torch.Generator().manual_seed(0)

        def matrix(out, inner):
            return (torch.randn(out, inner, generator=gen) * 0.02).to(device, dtype)

        kvd = self.kv * self.hd
        self.wte = matrix(self.vocab, self.d)
        self.wpe = matrix(CONTEXT, self.d)
        mats = [("qkv", self.d + 2 * kvd, self.d), ("o", self.d, self.d), ("up", self.ff if ln else 2 * self.ff, self.d), ("down", self.d, self.ff)]
        self.w = [{n: (matrix(o, i), torch.zeros(o, device=device, dtype=dtype) if ln else None) for n, o, i in mats} for _ in range(self.layers)]
        self.gain = torch.ones(self.d, device=device, dtype=dtype)
        self.k = [torch.zeros(batch, self.kv, CONTEXT, self.hd, device=device, dtype=dtype) for _ in range(self.layers)]
        self.v = [torch.zeros_like(k) for k in self.k]
        self.token = torch.ones(batch, dtype=torch.long, device=device)
        self.pos = torch.zeros(1, dtype=torch.long, device=device)
        t = torch.arange(CONTEXT, device=device, dtype=torch.float32)[:, None] * 10000.0 ** (-torch.arange(self.hd // 2, device=device) * 2 / self.hd)[None]
        self.cos, self.sin = t.cos().to(dtype), t.sin().to(dtype)
        self.at = torch.arange(CONTEXT, device=device)

    def norm(self, x):
        return F.layer_norm(x, (self.d,), self.gain, None) if self.ln else F.rms_norm(x, (self.d,), self.gain, 1e-5)

    def rope(self, x):
        c, s = self.cos.index_select(0, self.pos)[:, None], self.sin.index_select(0, self.pos)[:, None]
        a, b = x[..., : self.hd // 2], x[..., self.hd // 2 :]
        return torch.cat((a * c - b * s, a * s + b * c), -1)

    def block(self, i, x):
        w = self.w[i]
        q, k, v = F.linear(self.norm(x), *w["qkv"]).split((self.d, self.kv * self.hd, self.kv * self.hd), -1)
        q, k, v = (y.view(self.batch, -1, 1, self.hd) for y in (q, k, v))
        if not self.ln:
            q, k = self.rope(q), self.rope(k)
        self.k[i].index_copy_(2, self.pos, k)
        self.v[i].index_copy_(2, self.pos, v)
        keys, values = self.k[i], self.v[i]
        if self.kv != self.heads:
            keys, values = (y.repeat_interleave(self.heads // self.kv, 1) for y in (keys, values))
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=(self.at <= self.pos)[None, None, None])
        x = x + F.linear(y.reshape(self.batch, self.d), *w["o"])
        h = F.linear(self.norm(x), *w["up"])
        h = F.gelu(h, approximate="tanh") if self.ln else F.silu(h[..., : self.ff]) * h[..., self.ff :]
        return x + F.linear(h, *w["down"])

    def logits(self):
        x = F.embedding(self.token, self.wte)
        if self.ln:
            x = x + self.wpe.index_select(0, self.pos)
        for i in range(self.layers):
            x = self.block(i, x)
        return F.linear(self.norm(x), self.wte)

    def step(self):
        self.token.copy_(self.logits().argmax(-1))
        self.pos.add_(1)

    def begin(self):
        self.token.fill_(1)
        self.pos.zero_()


def captured(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure(model, step, tokens, rounds):
    """Microseconds of a token, a number a round; the first round does not count."""
    values = []
    for r in range(rounds + 1):
        model.begin()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.time()
        for _ in range(tokens):
            step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if r:
            values.append((time.time() - start) * 1e6 / tokens)
    return sorted(values)


def one(entry, batch, how, device, tokens=128, rounds=3):
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[entry["dtype"]]
    row = {"size": entry["size"], "dtype": entry["dtype"], "batch": batch, "how": how, "torch": torch.__version__}
    try:
        with torch.no_grad():
            m = Model(entry["shape"], batch, dtype, device, entry.get("ln", False))
            step = torch.compile(m.step) if "compile" in how else m.step
            if "graph" in how:
                step = captured(step)
            v = measure(m, step, tokens, rounds)
        row.update(median_us=v[len(v) // 2], min_us=v[0], max_us=v[-1], n=len(v))
    except Exception as e:  # any fault of PyTorch is a row, not the end
        row["error"] = "%s: %s" % (type(e).__name__, str(e)[:300])
    return row


def self_test():
    """One step after another against a forward pass written another way: no cache, all positions at once."""
    worst = 0.0
    for ln, heads in ((False, 2), (True, 5)):
        m = Model((20, 2, heads, heads, 28, 33), 2, torch.float32, "cpu", ln)
        ids = [m.token.clone()]
        with torch.no_grad():
            for _ in range(5):
                last = m.logits()
                m.step()
                ids.append(m.token.clone())
            x = F.embedding(torch.stack(ids[:-1], 1), m.wte)
            t = x.shape[1]
            if ln:
                x = x + m.wpe[:t]
            for w in m.w:
                q, k, v = F.linear(m.norm(x), *w["qkv"]).chunk(3, -1)
                q, k, v = (y.view(2, t, m.heads, m.hd).transpose(1, 2) for y in (q, k, v))
                if not ln:
                    half = m.hd // 2
                    q, k = (torch.cat((y[..., :half] * m.cos[:t] - y[..., half:] * m.sin[:t], y[..., :half] * m.sin[:t] + y[..., half:] * m.cos[:t]), -1) for y in (q, k))
                y = (q @ k.transpose(-1, -2) / m.hd**0.5 + torch.full((t, t), float("-inf")).triu(1)).softmax(-1) @ v
                x = x + F.linear(y.transpose(1, 2).reshape(2, t, m.d), *w["o"])
                h = F.linear(m.norm(x), *w["up"])
                x = x + F.linear(F.gelu(h, approximate="tanh") if ln else F.silu(h[..., : m.ff]) * h[..., m.ff :], *w["down"])
            want = F.linear(m.norm(x[:, -1]), m.wte)
        worst = max(worst, float((want - last).abs().max() / want.abs().max()))
    g.put({"self_test": worst, "ok": worst < 1e-5})
    return 0 if worst < 1e-5 else 1


def main():
    if "--cpu" in sys.argv:
        return self_test()
    if not torch.cuda.is_available() or g.DRY:
        print("PyTorch %s has no GPU here" % torch.__version__)
        return 77
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(os.environ.get("work", "."), "inductor"))
    torch.set_float32_matmul_precision("highest")
    entries = sorted((e for e in g.manifest()["decode"] if e["size"] != "tiny"), key=lambda e: (e["size"] != "15M", e["dtype"] != "f32"))
    for hows, batches in ((("eager", "graph"), (1, 8)), (("compile", "compile graph"), (1,))):
        for e in entries:
            for batch in batches:
                for how in hows:
                    if g.left() < (40 if "compile" in how else 5):
                        g.put({"size": e["size"], "dtype": e["dtype"], "batch": batch, "how": how, "error": "no time was left"})
                    else:
                        g.put(one(e, batch, how, "cuda"))
    return 0


sys.exit(main())

"""The PyTorch side of train.py: train_peer.py THREADS BATCH TIME VOCAB D LAYERS HEADS; a line `STEPS` on stdin trains so many, and prints the seconds of each.

GPT-2 form (LayerNorm, learned positions, biases, tanh GELU, tied head), float32, torch.compile, scaled_dot_product_attention, fused AdamW, clipping to 1. Compiling and the
first steps are over before it says `ready`.
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        B, T, d = x.shape
        q, k, v = (y.view(B, T, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, d))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, vocab, time_, d, layers, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(time_, d)
        self.layers, self.ln_f = nn.ModuleList([Layer(d, heads) for _ in range(layers)]), nn.LayerNorm(d)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    threads, batch, time_, vocab, d, layers, heads = map(int, sys.argv[1:8])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Model(vocab, time_, d, layers, heads)
    loss_of = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    data = torch.randint(0, vocab, (64, batch, time_ + 1))

    def step(i):
        start = time.perf_counter()
        loss = loss_of(data[i % 64, :, :-1], data[i % 64, :, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - start

    for i in range(4):
        step(i)
    print("ready %s" % torch.__version__, flush=True)
    for line in sys.stdin:
        print(" ".join("%.6f" % step(i) for i in range(int(line))), flush=True)


main()

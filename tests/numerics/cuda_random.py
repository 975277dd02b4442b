#!/usr/bin/python3
"""Random models of the whole language by CUDA kernels on the simulator: logits of each path against NumPy float64, in 16 bits the paths against each other; random calls of
sessions - ragged batches, rewinds, clones, generation - against NumPy and against the same package's CPU twin."""
import os
import subprocess
import sys

import numpy as np
from lib_random import Program
from lib_session import Library, Session
from safetensors.numpy import load_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1])
TAPERC = os.path.join(BUILD, "taperc")
LONG, QUICK = bool(os.environ.get("TAPERC_LONG")), bool(os.environ.get("TAPERC_QUICK"))
SWITCHES = [[], ["-O0"], ["--norms=kernel"], ["-O1"], ["--fold=none"], ["--fold=explicit"], ["--untie"], ["--split-scale"], ["--norms=deferred"]]
DTYPES = ["f32", "bf16", "f32", "f16"]
IMAGES = [("compute_90", "90"), ("compute_80", "89"), ("compute_120", "120"), ("compute_80", "80"), ("compute_100", "100"), ("compute_90", "100"), ("compute_80", "90")]
SAMPLINGS = [dict(temperature=0), dict(temperature=1, top_k=0, top_p=1, min_p=0), dict(temperature=0.7, top_k=5, repeat_penalty=1.3), dict(temperature=1.2, top_p=0.8, min_p=0.1)]


def taperc(*args, env=None):
    p = subprocess.run([TAPERC] + list(args), capture_output=True, text=True, env=dict(os.environ, **(env or {})))
    if p.returncode:
        raise RuntimeError("taperc %s: exit %d: %s" % (" ".join(args[:2]), p.returncode, p.stderr.strip()[-500:].replace("\n", " | ")))


def error(got, want):
    size = np.abs(want).max()
    return float(np.abs(got - want).max() / (size if size else 1)) if got.shape == want.shape else np.inf


def tolerance(program, tokens, exact):
    return max(2e-5, 4 * error(program(tokens, np.float32).astype(np.float64), exact))


def paths(folder, program, package, env, dtype):
    r = np.random.default_rng(program.seed)
    tokens = r.integers(0, program.vocab, min(program.context, 21))
    exact = program(tokens)
    limit, few, problems = tolerance(program, tokens, exact), None, []
    for n, gemm in ((8, "cublas"), (21, "cublas"), (21, "generated")):
        n = min(n, len(tokens))
        taperc("logits", package, "--device=sim", "--gemm=" + gemm, "--tokens", ",".join(map(str, tokens[:n])), "-o", folder + "/out.safetensors", env=env)
        got = load_file(folder + "/out.safetensors")["logits"].astype(np.float64)
        if dtype == "f32" and not error(got, exact[:n]) <= limit:
            problems.append("%d rows, %s: %.3g of %.3g" % (n, gemm, error(got, exact[:n]), limit))
        if dtype != "f32":
            few = got if few is None else few
            if not error(got[: len(few)], few[:n]) <= (3e-2 if dtype == "bf16" else 4e-3):
                problems.append("%d rows, %s: %.3g from few rows" % (n, gemm, error(got[: len(few)], few[:n])))
    return problems


class Calls:
    """The sequences of a session as lists, and what NumPy says of them."""

    def __init__(self, program, session, twin, seed):
        self.program, self.session, self.twin, self.r = program, session, twin, np.random.default_rng(seed)
        self.held, self.problems = [[] for _ in range(8)], []

    def tokens(self, room):
        n = int(self.r.choice([1, 1, 1, 2, 5, 8, 9, 13]))
        return [int(t) for t in self.r.integers(0, self.program.vocab, min(n, room))]

    def compare(self, what, seq, got):
        exact = self.program(self.held[seq])
        limit = tolerance(self.program, self.held[seq], exact)
        want = exact[-len(got):] if got.ndim == 2 else exact[-1]
        scale = np.abs(exact).max() / max(np.abs(want).max(), 1e-30)  # contract 9 is of all logits of a sequence
        if not error(got, want) <= limit * scale:
            self.problems.append("%s, sequence %d of %d: %.3g of %.3g" % (what, seq, len(self.held[seq]), error(got, want), limit * scale))

    def batch(self):
        parts = {}
        for seq in self.r.permutation(8)[: int(self.r.integers(1, 9))]:
            tokens = self.tokens(self.program.context - len(self.held[seq]))
            if tokens:
                parts[int(seq)] = tokens
        if not parts:
            return
        got = self.session.batch(parts)
        for seq, tokens in parts.items():
            self.held[seq] += tokens
            self.compare("a batch of %s" % {s: len(t) for s, t in parts.items()}, seq, got[seq])

    def all(self):
        seq = int(self.r.integers(8))
        tokens = self.tokens(self.program.context - len(self.held[seq]))
        if tokens:
            self.held[seq] += tokens
            self.compare("%d logits" % len(tokens), seq, self.session.all(seq, tokens))

    def rewind(self):
        for seq in self.r.permutation(8)[: int(self.r.integers(1, 9))]:
            length = int(self.r.integers(0, len(self.held[seq]) + 1))
            self.session.rewind(int(seq), length)
            del self.held[seq][length:]

    def generate(self):
        seq, sampling = int(self.r.integers(8)), dict(SAMPLINGS[int(self.r.integers(len(SAMPLINGS)))], seed=int(self.r.integers(1000)))
        prompt, count = self.tokens(self.program.context - len(self.held[seq])), int(self.r.integers(1, 40))
        if not prompt:
            return
        got = self.session.generate(seq, prompt, count, **sampling)
        self.twin.rewind(seq, 0)
        if self.held[seq]:
            self.twin.batch({seq: self.held[seq]})
        want = self.twin.generate(seq, prompt, count, **sampling)
        if got != want:
            self.problems.append("ids of %s after %d: %s, not %s" % (sampling, len(self.held[seq]) + len(prompt), got, want))
        if self.session.length(seq) != self.twin.length(seq):
            self.problems.append("%d tokens are held, not %d" % (self.session.length(seq), self.twin.length(seq)))
        self.held[seq] = (self.held[seq] + prompt + got)[: self.session.length(seq)]

    def run(self, steps):
        moves = [self.batch, self.batch, self.batch, self.all, self.rewind, self.generate, self.session.clone]
        for _ in range(steps):
            moves[int(self.r.integers(len(moves)))]()
            if self.problems:
                break
        return self.problems


def calls(folder, program, package, env, library, steps):
    os.environ.update(env)  # read when the simulator's context begins
    taperc("compile", folder, "-o", folder + "/cpu.tpack", "-O1")
    session = Session(library, package, program.vocab, no_graph=program.seed % 2, gemm=[b"cublas", b"generated"][program.seed // 2 % 2], chunk_rows=[0, 5, 16][program.seed % 3])
    twin = Session(library, folder + "/cpu.tpack", program.vocab, device="cpu")
    try:
        return Calls(program, session, twin, program.seed).run(steps)
    finally:
        session.close()
        twin.close()


def one(seed, library):
    program = Program(seed)
    dtype, switches, (arch, capability) = DTYPES[seed % 4], SWITCHES[seed % 9], IMAGES[seed % 7]
    label = "random model %d: d = %d, vocab %d, context %d, %d layers, %s" % (seed, program.d, program.vocab, program.context, program.layers, " ".join([dtype, arch] + switches))
    folder = os.path.join(ROOT, "build/numerics/cuda_random", str(seed))  # the same folder in every build: images come from the cache
    env = {"TAPER_SIM_CAPABILITY": capability, "TAPER_SIM_EAGER": str(seed // 2 % 2), "TAPER_SIM_SEED": str(seed % 5), "TAPER_SIM_MULTIPROCESSORS": ["132", "1", "16"][seed % 3]}
    program.write(folder)
    try:
        taperc("compile", folder, "--target", "cuda", "--arch", arch, "--dtype", dtype, "-o", folder + "/cuda.tpack", *switches)
        problems = paths(folder, program, folder + "/cuda.tpack", env, dtype)
        if dtype == "f32" and not problems:
            problems = calls(folder, program, folder + "/cuda.tpack", env, library, 60 if LONG else 12)
    except RuntimeError as e:
        problems = [str(e)]
    print("not ok %s: %s" % (label, "; ".join(problems)[:1500]) if problems else "ok " + label, flush=True)


def main():
    if subprocess.run([TAPERC, "compile", os.path.join(ROOT, "examples/models/kjv-all"), "--target", "cuda", "--emit=ptx", "-o", os.devnull], capture_output=True).returncode == 3:
        return print("skip random models by CUDA kernels: no NVRTC here")
    library = Library(BUILD)
    for seed in [int(s) for s in sys.argv[2:]] or range(60 if LONG else 1 if QUICK else 4):
        one(seed, library)


main()

"""The programs of training against the independent NumPy program: losses, calibration statistics, what --metrics full and a scan ask for (tapernorm.md 2 and 4),
and gradients against differences of the NumPy program's own loss, in float64. One module a form, made by `taperc opt --for train`, evaluated by tests/unit/eval_tir.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lib_oracle

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
TAPERC, TOOL = os.path.join(BUILD, "taperc"), os.path.join(BUILD, "tests", "unit", "eval_tir")
TARGET, LAMBDA, BATCH, TIME = 1.25, float(np.float32(0.1)), 2, 5
TINY = dict(d=12, heads=3, ff=10, vocab=17, context=8)
FORMS = {
    "llama form": {},
    "gpt2 form, one head, biases": dict(norm="ln", act="gelu_tanh", bias=True, rope=False, heads=1),
    "grouped queries, q/k norms, untied": dict(heads=4, hd=4, kv=2, qk_norm=True, tied=False),
    "neox form": dict(norm="ln", act="gelu", bias=True, parallel=True, rope_dims=2, tied=False, gate_array=True),
    "window, softcap, interleaved": dict(heads=2, window=2, softcap=3.0, interleaved=True, act="gelu", gate_array=True),
    "dyt": dict(dyt=True, act="tanh", tied=False, layers=1),
    "live norms": dict(taper=False, norm="ln", layers=1),
}
failed = 0


def report(name, why=None):
    global failed
    failed += why is not None
    print("not ok %s: %s" % (name, why) if why else "ok " + name)


def rows_scale(x, c):
    if c["norm"] == "ln":
        x = x - x.mean(-1, keepdims=True)
    return np.sqrt((x * x).mean(-1, keepdims=True) + c["eps"])


class Oracle:
    """What the programs hand out, from the NumPy model alone. gate: the value of every gate."""

    def __init__(self, c, w, tokens, targets):
        self.c, self.w, self.tokens, self.targets, self.counted = c, w, tokens, targets, targets >= 0

    def mean(self, rows):
        return rows[..., 0][self.counted].mean()

    def forward(self, gate, w=None):
        model = lib_oracle.Model(dict(self.c, internal=gate, final=gate), w or self.w)
        pairs = [model(t) for t in self.tokens]
        return np.stack([p[0] for p in pairs]), [np.stack(s) for s in zip(*(p[1] for p in pairs))]

    def losses(self, gate, aux, w=None):
        logits, streams = self.forward(gate, w)
        top = logits.max(-1, keepdims=True)
        log_sum = np.log(np.exp(logits - top).sum(-1, keepdims=True)) + top
        rows = np.where(self.counted[..., None], log_sum - np.take_along_axis(logits, np.maximum(self.targets, 0)[..., None], -1), 0)
        scale = rows_scale(streams[-1], self.c)
        out = {"ce": self.mean(rows), "scale": self.mean(scale), "logit_norm": self.mean(np.sqrt((logits ** 2).sum(-1, keepdims=True)))}
        if aux:
            out["aux"] = LAMBDA * self.mean((scale - TARGET) ** 2)
        order = np.sort(logits, -1)
        out.update({"rows.ce": rows, "rows.scale": scale, "logit_margin": self.mean(order[..., -1:] - order[..., -2:-1]), "streams": streams, "logits": logits})
        return out

    def norm(self, name, x):
        """Calibration of one norm whose input is x, and how far its two branches are apart."""
        ln = self.c["norm"] == "ln"
        h = x - x.mean(-1, keepdims=True) if ln else x
        s = rows_scale(x, self.c)
        square = ((h * self.w[name + ".weight"]) ** 2).sum(-1, keepdims=True)
        bias = self.w[name + ".bias"] if ln else 0
        live = h / s * self.w[name + ".weight"] + bias
        zero = self.w[name + ".taper_c"] * h * self.w[name + ".taper_weight"] + bias
        return {"numerator": self.mean(square / s), "denominator": self.mean(square), "sigma": self.mean(s),
                "error": self.mean(((zero - live) ** 2).sum(-1, keepdims=True)), "power": self.mean((live ** 2).sum(-1, keepdims=True))}


def differences(f, x, direction):
    steps = [(f(x + h * direction) - f(x - h * direction)) / (2 * h) for h in (2e-3, 1e-3, 5e-4)]
    first, second = (4 * steps[1] - steps[0]) / 3, (4 * steps[2] - steps[1]) / 3
    return (16 * second - first) / 15


class Program:
    def __init__(self, folder, c, w, tokens, targets):
        self.folder, self.inputs = folder, dict(w, tokens=tokens, targets=targets, **{"anchor.target": np.array([TARGET], np.float32)})
        self.path = os.path.join(folder, "model.tmodel")
        with open(self.path, "w") as f:
            f.write(lib_oracle.source(c))

    def lower(self, gate, gates):
        command = [TAPERC, "opt", self.path, "--for", "train", "--passes=default", "--verify-each"] + [o for g in gates for o in ("--gate", "%s=%r" % (g, gate))]
        text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=60, text=True).stdout
        with open(os.path.join(self.folder, "x.tir"), "w") as f:
            f.write(text)

    def run(self, entry):
        given, out = (os.path.join(self.folder, n) for n in ("in.safetensors", "out.safetensors"))
        save_file({k: np.ascontiguousarray(v) for k, v in self.inputs.items()}, given)
        p = subprocess.run([TOOL, os.path.join(self.folder, "x.tir"), given, out, "--entry", entry, "--batch", str(BATCH), "--time", str(TIME)],
                           stderr=subprocess.PIPE, timeout=60)
        if p.returncode:
            raise RuntimeError(p.stderr.decode())
        return load_file(out)


def close(got, want, tolerance=1e-10):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return np.max(np.abs(got - want)) <= tolerance * max(1.0, np.max(np.abs(want)))


def check_results(name, got, want):
    bad = ["%s is %s, expected %s" % (k, got.get("result." + k), v) for k, v in want.items() if "result." + k not in got or not close(got["result." + k].ravel(), np.ravel(v))]
    report(name, "; ".join(bad)[:400] if bad else None)


def check_gradients(name, got, oracle, w, gate, aux, rng):
    bad = []
    for key in w:
        if key.endswith(".taper_c"):
            if "gradient." + key in got:
                bad.append(key + " is trained")
            continue
        direction = rng.standard_normal(w[key].shape)
        ours = (got["gradient." + key] * direction).sum() if "gradient." + key in got else 0.0

        def loss(value):
            out = oracle.losses(gate, aux, dict(w, **{key: value}))
            return out["ce"] + out.get("aux", 0)

        wanted = differences(loss, w[key].astype(np.float64), direction)
        if not close(ours, wanted, 1e-7):
            bad.append("d/d%s along a direction is %.12g, by differences %.12g" % (key, ours, wanted))
    report(name, "; ".join(bad)[:400] if bad else None)


def check_form(name, changes):
    c = lib_oracle.config(**dict(TINY, **changes))
    w, rng = lib_oracle.weights(c, 5), np.random.default_rng(sum(map(ord, name)))
    tokens = rng.integers(0, c["vocab"], (BATCH, TIME)).astype(np.int32)
    targets = rng.integers(0, c["vocab"], (BATCH, TIME)).astype(np.int32)
    targets[0, 2] = targets[1, 4] = -1
    oracle, gates = Oracle(c, w, tokens, targets), list(lib_oracle.gates(c))
    norms = {"norm": -1, "layers.0.attn_norm": 0} if c["taper"] and not c["dyt"] else {"norm": -1} if c["taper"] else {}
    with tempfile.TemporaryDirectory() as folder:
        program = Program(folder, c, w, tokens, targets)
        for gate in (0.3125, 1.0, 0.0):
            program.lower(gate, gates)
            entries = [("train_taper", True)] + ([("train_warm", False)] if gate == 1 else []) + ([("train_zero", True)] if gate == 0 else [])
            for entry, aux in entries:
                label, got, want = "%s, gates %g: @%s" % (name, gate, entry), program.run(entry), oracle.losses(gate, aux)
                results = {k: want[k] for k in ("ce", "scale", "logit_norm") + (("aux",) if aux else ())}
                for n, stream in norms.items():
                    if entry != "train_zero":
                        results.update({"%s.%s" % (n, k): v for k, v in oracle.norm(n, want["streams"][stream]).items() if k in ("numerator", "denominator", "sigma")})
                check_results(label, got, results)
                check_gradients(label + " gradients", got, oracle, w, gate, aux, rng)
            want = oracle.losses(gate, False)
            check_results("%s, gates %g: @eval" % (name, gate), program.run("eval"), {"ce": want["ce"], "scale": want["scale"], "ce_rows": want["rows.ce"], "scale_rows": want["rows.scale"]})
            results = {"layers.%d.scale" % i: oracle.mean(rows_scale(s, c)) for i, s in enumerate(want["streams"])}
            results.update(ce=want["ce"], logit_norm=want["logit_norm"], logit_margin=want["logit_margin"])
            for n, stream in norms.items():
                x = want["streams"][stream]
                results.update({"%s.%s" % (n, k): v for k, v in oracle.norm(n, x).items() if k in ("error", "power")})
                results[n + ".scale_rows"] = rows_scale(x, c)
            check_results("%s, gates %g: @observe" % (name, gate), program.run("observe"), results)


def main():
    if not os.path.exists(TOOL):
        print("not ok train_programs: %s is not built" % TOOL)
        sys.exit(1)
    for name, changes in FORMS.items():
        check_form(name, changes)
    sys.exit(1 if failed else 0)


main()

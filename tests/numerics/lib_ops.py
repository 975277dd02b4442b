"""One .tir a case, evaluated by tests/unit/eval_tir and compared with NumPy: what tests/numerics/ops.py is written with."""
import os
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
TOOL = os.path.join(BUILD, "tests", "unit", "eval_tir")
TOLERANCE = 1e-12
counts = {"ok": 0, "bad": 0}
tested = set()


def dims(shape):
    return "[" + ",".join(str(s) for s in shape) + "]"


def declared(array):
    return ("i32" if array.dtype.kind == "i" else "f32") + dims(array.shape)


class Case:
    """Constants, then ops; `op` returns the name of its value."""

    def __init__(self, name, seed=0):
        self.name, self.globals, self.body, self.tensors, self.n = name, [], [], {}, 0
        self.rng = np.random.default_rng(seed + sum(map(ord, name)))

    def const(self, array):
        array = np.ascontiguousarray(array, dtype=np.int32 if np.asarray(array).dtype.kind == "i" else np.float32)
        key = "c%d" % len(self.tensors)
        self.tensors[key] = array
        self.globals.append('%%%s = const {tensor = "%s"} : %s' % (key, key, declared(array)))
        return "%" + key, array.astype(np.float64) if array.dtype.kind == "f" else array

    def normal(self, *shape, scale=1.0, mean=0.0):
        return self.const((self.rng.standard_normal(shape) * scale + mean).astype(np.float32))

    def gate(self, value):
        self.globals.append('%%g%d = gate {name = "g%d", value = [%s]} : f32[1]' % (self.n, self.n, float(value).hex()))
        self.n += 1
        return "%%g%d" % (self.n - 1), float(value)

    def arg(self, name, type_):
        self.body.append('%%%s = arg {name = "%s"} : %s' % (name, name, type_))
        return "%" + name

    def op(self, op, operands, shape, attrs="", name="", dtype="f32"):
        tested.add(op)
        self.n += 1
        self.body.append("%%v%d = %s %s%s : %s%s%s" % (self.n, op, ", ".join(operands), " {%s}" % attrs if attrs else "", dtype, dims(shape),
                                                      ' "%s"' % name if name else ""))
        return "%%v%d" % self.n

    def text(self, results):
        return ('tir 1\nmodule "%s" {\n  ' % self.name + "\n  ".join(self.globals) + "\n  entry @main {\n    " + "\n    ".join(self.body)
                + ("\n    return " + ", ".join(results)).rstrip() + "\n  }\n}\n")

    def run(self, results, inputs=None, options=()):
        """-> (results, None) or (None, stderr)"""
        with tempfile.TemporaryDirectory() as folder:
            tir, given, out = (os.path.join(folder, n) for n in ("x.tir", "in.safetensors", "out.safetensors"))
            with open(tir, "w") as f:
                f.write(self.text(results))
            save_file(dict(self.tensors, **(inputs or {}), __pad=np.zeros(1, np.float32)), given)
            p = subprocess.run([TOOL, tir, given, out] + list(options), stderr=subprocess.PIPE, timeout=60)
            return (load_file(out), None) if p.returncode == 0 else (None, p.stderr.decode())

    def check(self, wanted, inputs=None, options=(), tolerance=TOLERANCE):
        """wanted: [(value, array)]"""
        got, error = self.run([v for v, _ in wanted], inputs, options)
        if got is None:
            return report(self.name, error.strip())
        for i, (_, want) in enumerate(wanted):
            compare(self.name, got["out.%d" % i], want, tolerance)
        return got


def report(name, why=None):
    counts["bad" if why else "ok"] += 1
    print("not ok %s: %s" % (name, why) if why else "ok " + name)


def compare(name, got, want, tolerance=TOLERANCE):
    want = np.asarray(want, np.float64)
    if got.shape != want.shape:
        return report(name, "shape %s, expected %s" % (got.shape, want.shape))
    if not np.all(np.isfinite(got)):
        return report(name, "not finite")
    worst = np.max(np.abs(got - want)) / max(np.max(np.abs(want)), 1e-300)
    report(name, None if worst <= tolerance else "relative error %.3g" % worst)

#!/usr/bin/python3
"""Mutations of correct kernels: compiled models with one place changed, judged on the simulator by tests/sim/mutants.c.

Of the plain kernels of seeded.cu at least 90 % must be caught, by a fault or by a wrong result. Of models' source and PTX fewer: much of it is work of which
nothing comes out at one size or another; docs/sim.md says what survives and why. `mutate.py BUILD [--sample N] [--list]`: N mutants of each of three models,
each way, in place of 8 of two, drawn from all places with a fixed seed; --list prints the survivors. Changes that nothing executes, or that NVRTC compiles to
the same, do not count.
"""
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1])
TAPERC = os.path.join(BUILD, "taperc")
LIST = "--list" in sys.argv
QUICK = bool(os.environ.get("TAPERC_QUICK"))
SAMPLE = int(sys.argv[sys.argv.index("--sample") + 1]) if "--sample" in sys.argv else 4 if QUICK else 8  # mutants of a model, each way
LEAST = {"kernels of seeded.cu": 0.90, "models' source": 0.55, "models' PTX": 0.55}

SOURCE = """model mutated(vocab = 301, context = 40, d = %(d)d, layers = 1, heads = 2, kv = 1, ff = %(ff)d) {
  gate internal; gate final;
  param wte: [vocab, d] init normal(0.02);
  block layer(x) {
    let h = taper_rms_norm(x, name = "attn_norm", gate = internal, eps = 0.05);
    let q = rope(split_heads(linear(h, d, name = "attn.q"%(bias)s), heads), theta = 100);
    let k = rope(split_heads(linear(h, kv * (d / heads), name = "attn.k"%(bias)s), kv), theta = 100);
    let v = split_heads(linear(h, kv * (d / heads), name = "attn.v"%(bias)s), kv);
    let y = x + linear(merge_heads(attention(q, k, v, causal = true%(attention)s)), d, name = "attn.o"%(bias)s);
    let m = taper_rms_norm(y, name = "mlp_norm", gate = internal, eps = 0.05);
    return y + linear(%(mlp)s, d, name = "mlp.down"%(bias)s);
  }
  forward(tokens) {
    let x = embed(tokens, wte);
    repeat layers as "layers" { x = layer(x); }
    return linear(taper_rms_norm(x, name = "norm", gate = final, eps = 0.05), weight = wte);
  }
}
"""
SWIGLU = 'silu(linear(m, ff, name = "mlp.gate")) * linear(m, ff, name = "mlp.up")'
GELU = 'gelu_tanh(linear(m, ff, name = "mlp.gate", bias = true))'
MODELS = {  # text, gates, options
    "live": (dict(d=76, ff=84, bias="", attention="", mlp=SWIGLU), 1, []),
    "folded-bf16": (dict(d=88, ff=104, bias=", bias = true", attention=", window = 5", mlp=GELU), 0, ["--dtype", "bf16"]),
    "kernels": (dict(d=132, ff=136, bias="", attention=", softcap = 2.0", mlp=SWIGLU), 1, ["--norms=kernel"]),
}


def weights(path, text):
    """Deviation 0.3 and gains about 1: every number matters."""
    r = random.Random(3)
    d, ff, kvd, vocab, mlp = text["d"], text["ff"], text["d"] // 2, 301, text["mlp"]
    shapes = {"wte": (vocab, d)}
    for i in range(1):
        p = "layers.%d." % i
        mats = {"attn.q": (d, d), "attn.k": (kvd, d), "attn.v": (kvd, d), "attn.o": (d, d), "mlp.gate": (ff, d), "mlp.down": (d, ff)}
        if mlp is SWIGLU:
            mats["mlp.up"] = (ff, d)
        for n, s in mats.items():
            shapes[p + n + ".weight"] = s
            if mlp is GELU:
                shapes[p + n + ".bias"] = s[:1]
        for n in ("attn_norm", "mlp_norm"):
            shapes.update({p + n + ".weight": (d,), p + n + ".taper_weight": (d,), p + n + ".taper_c": (1,)})
    shapes.update({"norm.weight": (d,), "norm.taper_weight": (d,), "norm.taper_c": (1,)})
    header, data, at = {}, b"", 0
    for name, shape in shapes.items():
        n = 1
        for s in shape:
            n *= s
        mean, deviation = (0.8, 0) if name.endswith("taper_c") else (1, 0.2) if "norm" in name else (0, 0.3 if name == "wte" else 1.2 / d ** 0.5)
        data += struct.pack("<%df" % n, *(r.gauss(mean, deviation) for _ in range(n)))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, len(data)]}
        at = len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def make_package(name, folder):
    text, gate, options = MODELS[name]
    source, file, package = (os.path.join(folder, name + end) for end in (".tmodel", ".safetensors", ".tpack"))
    with open(source, "w") as f:
        f.write(SOURCE % text)
    weights(file, text)
    p = subprocess.run([TAPERC, "compile", source, "--weights", file, "--gate", "internal=%d" % gate, "--gate", "final=%d" % gate, "--target", "cuda", "--arch", "compute_90", "-o", package] + options, stderr=subprocess.PIPE, universal_newlines=True)
    if p.returncode == 3:  # no NVRTC
        print("skip mutants: " + p.stderr.strip().split("\n")[-1])
        sys.exit(0)
    if p.returncode:
        raise SystemExit("not ok mutants: exit %d: %s" % (p.returncode, p.stderr.strip()[-400:]))
    return package


def text_of(package, prefix):
    with open(package, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size).decode())
        name = next(k for k in header if k.startswith(prefix))
        begin, end = header[name]["data_offsets"]
        f.seek(8 + size + begin)
        return f.read(end - begin).rstrip(b"\0").decode()


# ---- mutations of the source: kind, pattern, what it becomes ----

SOURCE_RULES = [
    ("barrier dropped", r"\b__sync(?:threads|warp)\(\);", ";"),
    ("wait dropped", r"\bgrid_wait\(\);", ";"),
    ("copy not waited for", r'asm volatile\("cp\.async\.wait_[^;]*;', ";"),
    ("fence dropped", r"\b__threadfence\(\);", ";"),
    ("atomic without effect", r"\b(atomic\w+\([^;,]*, )1(\w*\))", r"\g<1>0\2"),
    ("bound: <, <=", r" < ", " <= "),
    ("bound: <=, <", r" <= ", " < "),
    ("bound: >, >=", r" > ", " >= "),
    ("bound: >=, >", r" >= ", " > "),
    ("condition turned: ==", r" == ", " != "),
    ("condition turned: !=", r" != ", " == "),
    ("operator: +, -", r" \+ ", " - "),
    ("operator: -, +", r" - ", " + "),
    ("operator: *, +", r" \* ", " + "),
    ("operator: /, *", r" / ", " * "),
    ("operator: %, /", r" % ", " / "),
    ("operator: &&, ||", r" && ", " || "),
    ("operator: ||, &&", r" \|\| ", " && "),
    ("operator: & , |", r" & ", " | "),
    ("operator: <<, >>", r" << ", " >> "),
    ("operator: >>, <<", r" >> ", " << "),
    ("operator: +=, =", r" \+= ", " = "),
    ("operator: +=, -=", r" \+= ", " -= "),
    ("operator: *=, =", r" \*= ", " = "),
    ("function: fma", r"\bfmaf\(([^,()]+(?:\[[^,]*\])?), ([^,()]+(?:\[[^,]*\])?), ", r"fmaf(\1, -\2, "),
    ("function: max, min", r"\b(f?)max(f?)\(", r"\1min\2("),
    ("function: min, max", r"\b(f?)min(f?)\(", r"\1max\2("),
    ("function: exp, log", r"\bexpf\(", "logf("),
    ("shuffle", r"\b__shfl_xor_sync\(", "__shfl_up_sync("),
    ("index", r"\[(\w+)\]", r"[\1 + 1]"),
    ("index of zero", r"\[0\]", "[1]"),
    ("number", r"(?<![\w.])([1-9]\d{0,3})(?![\w.])", lambda m: str(int(m.group(1)) + 1)),
    ("row", r"\bpitch_of<(\w+)>\(([^()]*)\)", r"(\2)"),
    ("rounding dropped", r"\bto_float\(rounded<T>\(([^()]*)\)\)", r"(\1)"),
    ("statement dropped", r"(?<=[;{}] )([a-z]\w*(?:\[[^\]=;]*\])* [+*|^]?= [^;{}]*;)", ";"),
]


def code_only(text):
    """The text with spaces in the place of comments, preprocessor lines and what stands before the first function."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group(0))  # noqa: E731
    text = re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.S)
    text = re.sub(r"^[ \t]*#[^\n]*", blank, text, flags=re.M)
    text = re.sub(r"^[^\n]*\bprefetch_\w+\([^;{]*\{.*?^\}", blank, text, flags=re.M | re.S)  # quicker or slower, not wrong
    text = re.sub(r"\S+ - \S+ < (\S+) \? ", blank, text)  # the smaller of two: `<=` is the same
    text = re.sub(r"\btemplate <[^;{]*?>(?= )|\bstatic_assert\([^;]*;|\bprefetch_\w+\([^;]*;", blank, text)
    first = text.index("INLINE")
    return re.sub(r"[^\n]", " ", text[:first]) + text[first:]


def source_mutants(text):
    code, out = code_only(text), []
    for kind, pattern, to in SOURCE_RULES:
        for m in re.finditer(pattern, code):
            changed = m.expand(to) if isinstance(to, str) else to(m)
            number = text.count("\n", 0, m.start()) + 1
            line = text.split("\n")[number - 1].strip()
            out.append((number, kind, line, text[: m.start()] + changed + text[m.end():]))
    return out


def compiled(text, folder):
    """PTX without the lines that say where it came from, or None."""
    path = os.path.join(folder, "mutant.cu")
    with open(path, "w") as f:
        f.write(text)
    p = subprocess.run([os.path.join(BUILD, "gpu-calibrate"), "--build", path, folder, "compute_90"], stderr=subprocess.PIPE)
    if p.returncode:
        return None
    with open(os.path.join(folder, "compute_90.ptx"), "rb") as f:
        return f.read().rstrip(b"\0").decode()


def instructions(ptx):
    return re.sub(r"^\s*(?:\.loc|//)[^\n]*\n|_\d{8}_\d+_\w*", "", ptx.split(".section")[0], flags=re.M)


# ---- mutations of PTX: kind, pattern of an instruction, what it becomes ----

SWAPS = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq", "lo": "ls", "hs": "hi", "ls": "lo", "hi": "hs", "ltu": "leu", "leu": "ltu", "gtu": "geu", "geu": "gtu", "equ": "neu", "neu": "equ"}


def last_number(step):
    """The last immediate operand of an integer instruction becomes another one."""
    def change(m):
        return m.group(1) + str(int(m.group(2)) + step) + m.group(3)
    return change


RULES = [
    ("barrier dropped", r"^(\s*)(?:bar|barrier)\.(?:cta\.)?(?:sync|warp\.sync)\b[^;]*;", r"\1"),
    ("wait dropped", r"^(\s*)(?:griddepcontrol\.wait|cp\.async\.wait_group|cp\.async\.wait_all)\b[^;]*;", r"\1"),
    ("fence dropped", r"^(\s*)(?:membar|fence)\.[^;]*;", r"\1"),
    ("atomic becomes a load", r"^(\s*)atom\.(global|shared)[^;]*?\.(\w\d\d)(\s+)([^,;]+), (\[[^\]]+\]),[^;]*;", r"\1ld.\2.\3\4\5, \6;"),
    ("reduction dropped", r"^(\s*)red\.[^;]*;", r"\1"),
    ("bound", r"(\bsetp\.)(\w+)(\.)", lambda m: m.group(1) + SWAPS.get(m.group(2), m.group(2)) + m.group(3)),
    ("branch turned", r"@%p", "@!%p"),
    ("branch turned back", r"@!%p", "@%p"),
    ("operator: add, sub", r"\badd\.((?:rn\.)?f32|s32|s64|u32)\b", r"sub.\1"),
    ("operator: sub, add", r"\bsub\.((?:rn\.)?f32|s32|s64|u32)\b", r"add.\1"),
    ("operator: mul, add", r"\bmul\.(?:rn\.)?f32\b", "add.f32"),
    ("operator: fma", r"\bfma\.rn\.f32(\s+)(%f\d+|%r\d+), (\S+), (\S+), (\S+);", r"fma.rn.f32\1\2, \3, \5, \4;"),
    ("operator: max, min", r"\bmax\.(f32|s32|u32)\b", r"min.\1"),
    ("operator: min, max", r"\bmin\.(f32|s32|u32)\b", r"max.\1"),
    ("operator: and, or", r"\band\.b(32|64)\b", r"or.b\1"),
    ("operator: shift", r"\bshl\.b(32|64)\b", r"shr.u\1"),
    ("operator: negation dropped", r"\bneg\.f32\b", "mov.f32"),
    ("operator: xor-shuffle", r"\bshfl\.sync\.bfly\b", "shfl.sync.up"),
    ("function: exp2, log2", r"\bex2\.approx(\.ftz)?\.f32\b", r"lg2.approx\1.f32"),
    ("function: rcp, sqrt", r"\brcp\.rn\.f32\b", "sqrt.rn.f32"),
    ("function: rsqrt, sqrt", r"\b(rsqrt\.approx(?:\.ftz)?|sqrt\.rn)\.f32\b", "rcp.rn.f32"),
    ("selection turned", r"\b(selp\.\w+\s+\S+), (\S+), (\S+), (%p\d+;)", r"\1, \3, \2, \4"),
    ("index: number + 1", r"^(\s*(?:@!?%p\d+ )?(?:add|sub|mad\.lo|mad\.wide|mul\.lo|mul\.wide|shl|shr|and)\.[^;]*, )(-?\d+)(;)", last_number(1)),
    ("stride: number * 2", r"^(\s*(?:mul\.lo|mul\.wide|mad\.lo)\.\w+\s+[^,]+, [^,]+, )(\d+)(;|, [^;]*;)", lambda m: m.group(1) + str(int(m.group(2)) * 2) + m.group(3)),
    ("address + 4", r"(\b(?:ld|st)\.(?:global|shared)[^;]*\[%\w+)(?:\+(\d+))?(\])", lambda m: "%s+%d%s" % (m.group(1), int(m.group(2) or 0) + 4, m.group(3))),
    ("address + 16", r"(\b(?:ld|st)\.(?:global|shared)[^;]*\.v4[^;]*\[%\w+)(?:\+(\d+))?(\])", lambda m: "%s+%d%s" % (m.group(1), int(m.group(2) or 0) + 16, m.group(3))),
    ("store dropped", r"^(\s*)st\.(?:global|shared)[^;]*;", r"\1"),
    ("parameter word", r"(\bld\.param\.u32\s+\S+, \[\w+\+)(\d+)(\])", last_number(4)),
    ("modifier: rounding", r"\bcvt\.rzi\.", "cvt.rpi."),
    ("modifier: bf16 operands", r"\bcvt\.rn\.bf16\.f32\b", "cvt.rz.bf16.f32"),
    ("modifier: signed shift", r"\bshr\.s32\b", "shr.u32"),
    ("modifier: matrix halves", r"\bmma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32\b", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
]
RULES = [(kind, re.compile(pattern), to) for kind, pattern, to in RULES]


def prefetches(lines):
    """Lines of basic blocks that prefetch and do nothing else to memory: a change there is slower, or quicker, but not wrong."""
    out, block = set(), []
    for number, line in enumerate(lines + ["$L:"]):
        block.append(number)
        if re.match(r"\s*(?:\$L\w*:|@!?%p\d+ bra|bra|ret|\})", line):
            text = "\n".join(lines[n] for n in block if n < len(lines))
            if "prefetch." in text and not re.search(r"\b(?:st|ld|atom|red|shfl|bar)\.(?!param)", text):
                out.update(block)
            block = []
    return out


def sites(text):
    """kind -> [(line number, kernel, changed line)]; code only."""
    found, kernel = {}, None
    lines = text.split("\n")
    slow = prefetches(lines)
    for number, line in enumerate(lines):
        m = re.search(r"\.(?:entry|func)\b.*?(\w+)\s*\($", line)
        kernel = m.group(1) if m else kernel
        if number in slow or not re.match(r"\s*(?:@!?%p\d+ )?[a-z]", line):
            continue
        for kind, pattern, to in RULES:
            changed = pattern.sub(to, line, count=1)
            if changed != line:
                found.setdefault(kind, []).append((number, kernel, changed))
    return found


def trap_before(line):
    m = re.match(r"\s*(@!?%p\d+ )", line)
    return (m.group(1) if m else "") + "trap;"


class Judge:
    def __init__(self, package, folder):
        self.command = [os.path.join(BUILD, "sim-mutants"), package, os.path.join(folder, "mutant.tpack")]
        self.start()

    def start(self):
        env = dict(os.environ, TAPER_SIM_BUDGET=str(1 << 20), TAPER_SIM_SEED="1", TAPER_SIM_THREADS="1")
        self.p = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        line = self.p.stdout.readline().decode("utf-8", "replace").strip()
        if line != "ready":
            raise SystemExit("not ok mutants: the package as it is: %s" % (line or "no answer"))

    def ask(self, text):
        data = text.encode()
        try:
            self.p.stdin.write(b"%d\n" % len(data) + data)
            self.p.stdin.flush()
            answer = self.p.stdout.readline().decode("utf-8", "replace").strip()
        except BrokenPipeError:
            answer = ""
        if not answer:
            status = self.p.wait()
            self.start()
            return "crash %d" % status
        return answer

    def close(self):
        self.p.stdin.close()
        self.p.wait()


class Score:
    def __init__(self, way):
        self.way = way
        self.caught = self.tried = self.nothing = 0
        self.survivors, self.crashes = [], []

    def add(self, answer, what):
        self.tried += 1
        word = answer.split(" ")[0]
        self.caught += word in ("fault", "wrong")
        if word == "crash":
            self.crashes.append("%s: %s" % (what, answer))
        elif word == "same":
            self.survivors.append(what)
            if LIST:
                print("# survivor: " + what)

    def tell(self):
        label = self.way
        print("%s %s: the simulator never crashes%s" % ("not ok" if self.crashes else "ok", label, ": " + "; ".join(self.crashes[:3]) if self.crashes else ""))
        good = self.tried > 0 and self.caught >= LEAST[self.way] * self.tried
        print("%s %s: %d of %d mutants caught (%.1f %%), %d without effect%s" % (
            "ok" if good else "not ok", label, self.caught, self.tried, 100.0 * self.caught / max(self.tried, 1), self.nothing, "" if good else ": survivors: " + "; ".join(self.survivors)))


def try_source(score, package, judge, folder):
    """Until SAMPLE mutants were judged."""
    text, before = text_of(package, "taper.source"), score.tried
    plain = instructions(compiled(text, folder))
    every = source_mutants(text)
    random.Random(11).shuffle(every)
    for number, kind, line, changed in every:
        if score.tried >= before + SAMPLE:
            break
        ptx = compiled(changed, folder)
        if ptx is None or instructions(ptx) == plain:
            score.nothing += 1
            continue
        answer = judge.ask(ptx)
        if not answer.startswith("refused"):
            score.add(answer, "%s: %d: %s" % (kind, number, line))


def try_ptx(score, package, judge):
    text = text_of(package, "taper.image.compute_")
    lines = text.split("\n")
    every = [(number, kind, kernel, changed) for kind, places in sorted(sites(text).items()) for number, kernel, changed in places]
    for number, kind, kernel, changed in random.Random(11).sample(every, min(2 * SAMPLE, len(every))):
        answer = judge.ask("\n".join(lines[:number] + [changed] + lines[number + 1:]))
        if answer.startswith("refused"):
            continue
        if answer == "same" and judge.ask("\n".join(lines[:number] + [trap_before(lines[number])] + lines[number:])) == "same":
            score.nothing += 1  # no trap is felt there either
        else:
            score.add(answer, "%s in %s: %s" % (kind, kernel, lines[number].strip()))


def try_kernels(folder):
    """The right kernels of seeded.cu, as test_cuda_seeded judges them; the committed PTX."""
    with open(os.path.join(ROOT, "tests/sim/seeded.ptx")) as f:
        text = f.read()
    score, lines, path = Score("kernels of seeded.cu"), text.split("\n"), os.path.join(folder, "seeded.ptx")
    every = [(number, kind, kernel, changed) for kind, places in sorted(sites(text).items()) for number, kernel, changed in places if kernel.endswith("_good") or kernel == "produce"]

    def judge(changed):
        with open(path, "w") as f:
            f.write("\n".join(changed))
        p = subprocess.run([os.path.join(BUILD, "tests/unit/test_cuda_seeded"), path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return {0: "same", 1: "wrong", 3: "refused"}.get(p.returncode, "crash %d" % p.returncode)

    print("%s kernels of seeded.cu: as they are, they are right" % ("ok" if judge(lines) == "same" else "not ok"))
    for number, kind, kernel, changed in random.Random(11).sample(every, min(8 * SAMPLE, len(every))):
        answer = judge(lines[:number] + [changed] + lines[number + 1:])
        if answer == "refused" or answer == "same" and judge(lines[:number] + [trap_before(lines[number])] + lines[number:]) == "same":
            score.nothing += 1
        else:
            score.add(answer, "%s in %s: %s" % (kind, kernel, lines[number].strip()))
    score.tell()


def main():
    sys.stdout.reconfigure(line_buffering=True)
    with tempfile.TemporaryDirectory() as folder:
        try_kernels(folder)
        source, ptx = Score("models' source"), Score("models' PTX")
        for name in list(MODELS)[: 1 if QUICK else 3 if "--sample" in sys.argv else 2]:
            package = make_package(name, folder)
            judge = Judge(package, folder)
            same = judge.ask(text_of(package, "taper.image.compute_")) == "same"
            print("%s %s: the kernels as they are are judged the same" % ("ok" if same else "not ok", name))
            try_source(source, package, judge, folder)
            try_ptx(ptx, package, judge)
            judge.close()
        source.tell()
        ptx.tell()


main()

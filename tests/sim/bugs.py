#!/usr/bin/python3
"""Bugs that an author of kernels would make, in the emitted source of small models: each must end in a fault of the simulator or in a wrong result.

`bugs.py BUILD [--all]`: without --all or TAPERC_LONG every fifth of those of the first model. A row: what was done wrong, the model of lib_mutants.py, what must come of it (words of the
fault; "": any fault or a wrong result), then pairs of an expression and its replacement; each must change something.
"""
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/sim"))
import lib_mutants  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
RACE, SHARED, NEVER, OUTSIDE, EARLY = "race between blocks", "race in shared memory", "never written|before it was written", "outside of every allocation", "griddepcontrol.wait"
BUGS = [
    # where numbers lie
    ("stride of another buffer's rows", "live", "", [(r"(void linear_5_0(?:.*\n)*?.*buffer_row\(c, a->b0, )84", r"\g<1>72")]),
    ("rows of 16-bit weights without their padding", "layers-f16", "", [(r"\(size_t\)id \* pitch_of<T>\(n\)", "(size_t)id * n")]),
    ("last columns of the head not cut off", "live", "", [(r"n = 301 - column < 32 \? 301 - column : 32", "n = 32"), (r"n = columns - column < 32 \? columns - column : 32", "n = 32")]),
    ("one row too many", "live", NEVER, [(r"(void linear_4_prologue(?:.*\n)*?.*)i < some;", r"\1i <= some;")]),
    ("rows wanted are taken for the first ones", "live", "", [(r"\(uint32_t\)c->out_row\[r0 \+ i\]", "r0 + i")]),
    ("cache of the row instead of its sequence", "live", "", [(r"\(size_t\)c->slot\[r\] \* c->context", "(size_t)r * c->context")]),
    ("too little shared memory", "live", "outside of|shared", [(r"(void linear_1\((?:.*\n)*?|KERNEL_OF\(8 \* 32\) linear_1\((?:.*\n)*?.*shared\[128 \+ )864", r"\g<1>512")]),
    ("end of a row not masked in a product", "flat", NEVER, [(r"k \+ i < WIDTH \? x\[k \+ i\] : 0\.0f", "x[k + i]")]),
    ("end of a row not masked in a tiled product", "flat", NEVER, [(r"k \+ i < depth \? row\[k \+ i\] : rounded<T>\(0\.0f\)", "row[k + i]")]),
    ("weights by 16 bytes at an odd start", "live", "misaligned", [(r"load_weight\(p\);", "load_weight(p + 1);")]),
    # attention
    ("a split begins one key early", "live", "", [(r"begin = first \+ share \* split,", "begin = first + share * split - (split > 0),")]),
    ("one key beyond the row's own", "live", NEVER, [(r"share < last \+ 1 \? begin \+ share : last \+ 1;", "share < last + 2 ? begin + share : last + 2;")]),
    ("positions divided without rounding up", "live", "", [(r"\(last - first \+ c\.splits\) / c\.splits", "(last - first + 1) / c.splits")]),
    ("window one too wide", "folded-bf16", "", [(r"last \+ 1 - 5 :", "last - 5 :"), (r"5 && last \+ 1 > 5", "5 && last > 5")]),
    ("query heads shared out wrongly", "live", "", [(r"(queries = .*\+ h \* )2 \* 18", r"\g<1>18")]),
    ("no softcap", "kernels", "", [(r"2\.0f \* tanhf\(s\[u\] / 2\.0f\)", "s[u]")]),
    ("sums not shrunk when the maximum grows", "kernels", "", [(r"sums\[g\]\[i\] \*= shrink;", ";")]),
    ("no maximum in the softmax", "folded-bf16", "", [(r"(float s\[AHEAD\], top = )most\[g\]", r"\g<1>0"), (r"top = fmaxf\(top, s\[u\]\);", ";")]),
    ("an empty part makes NaN", "live", "", [(r"shift = m\.most == -INFINITE \? 0 : m\.most", "shift = m.most"), (r"shift = top == -INFINITE \? 0 : top", "shift = top")]),
    ("the last block merges without a fence", "live", RACE, [(r"__threadfence\(\);\n(\s*is_last)", r"\1")]),
    ("the merge reads ahead of its fence", "live", RACE, [(r"(== c\.splits - 1;\n\s*)__threadfence\(\);", r"\1")]),
    ("the counter is not put back", "live", "", [(r"if \(is_last\) \*counter = 0;", "")]),
    # order of work
    ("a stage without its wait", "live", EARLY + "|" + NEVER, [(r"(KERNEL_OF\(4 \* 32\) linear_3\((?:.*\n)*?  )grid_wait\(\);", r"\1")]),
    ("positions are read ahead of the wait", "live", EARLY, [(r"  grid_wait\(\);\n(  const uint32_t last = )\(uint32_t\)c\.pos\[r\]", r"  const uint32_t early = (uint32_t)c.pos[r];\n  grid_wait();\n\1early")]),
    ("epilogue ahead of the products", "live", SHARED + "|" + NEVER, [(r"(void linear_5_0(?:.*\n)*?)  __syncthreads\(\);\n", r"\1")]),
    ("rotation ahead of its operand", "live", SHARED, [(r"(v_store\(m1 \+ j, v0\);\n    \}\n    )SYNC\(\);(\n    for \(uint32_t h = 0; h < n / 18; h\+\+\) rope\(y2)", r"\1\2")]),
    ("a tile is used before it came", "live", "before the wait", [(r"cp\.async\.wait_group 1;", "cp.async.wait_group 2;")]),
    ("a tile is written while it is read", "live", "shared memory|before the wait", [(r"(sum\[i\]\[j\] = fmaf\(u\[i\]\.w.*\n.*\n    \}\n    )__syncthreads\(\);", r"\1")]),
    # numbers
    ("norm over the padded width", "layers-f16", "", [(r"a->g0, 70, 0\.05f", "a->g0, 72, 0.05f")]),
    ("norm without eps", "live", "", [(r"\(float\)n \+ eps\);", "(float)n);")]),
    ("mean not taken off", "layers-f16", "", [(r"y\[i\] = \(x\[i\] - mu\) \* \(s", "y[i] = x[i] * (s")]),
    ("bias twice", "folded-bf16", "", [(r"(v = v_load\(d0 \+ j\) \+ v_load\(w0 \+ column \+ j\))", r"\1 + v_load(w0 + column + j)")]),
    ("rounded before the sum is whole", "folded-bf16", "", [(r"\? sum\[r\]\[i\]\[0\] \+ sum\[r\]\[i\]\[CHAINS - 1\] : sum\[r\]\[i\]\[0\];", "? to_float(rounded<T>(sum[r][i][0] + sum[r][i][CHAINS - 1])) : to_float(rounded<T>(sum[r][i][0]));")]),
    ("half a warp is added", "live", "", [(r"x \+= lane_xor<16>\(x\), x \+=", "x +=")]),
    ("rotation of the wrong half", "live", "", [(r"2 \* i \+ 1 : half \+ i;", "2 * i + 1 : n - 1 - i;")]),
    ("queries rotated one position on", "live", "", [(r"(rope\(y2.*\(size_t\))c->pos\[r\]", r"\1(c->pos[r] + 1)")]),
    # choosing
    ("ties go to the higher id", "live", "", [(r"<< 32 \| \(uint32_t\)~id", "<< 32 | id"), (r"return ~\(uint32_t\)key", "return (uint32_t)key")]),
    ("top-k keeps one more", "live", "", [(r"count >= q->count", "count > q->count")]),
    ("the same random numbers at every position", "live", "", [(r"sequence, position, id_of\(key\)", "sequence, 0, id_of(key)")]),
    ("the cut is left where it was", "live", "", [(r"c->lowest = s->cut;\n    return;", "return;")]),
]


def patched(text, changes):
    for pattern, to in changes:
        text, count = re.subn(pattern, to, text)
        if not count:
            return None
    return text


def main():
    sys.stdout.reconfigure(line_buffering=True)
    models = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model, fault, changes in BUGS if "--all" in sys.argv or os.environ.get("TAPERC_LONG") else [b for b in BUGS if b[1] == "live"][::5]:
            if model not in models:
                package = lib_mutants.make_package(BUILD, model, folder)
                models[model] = lib_mutants.Compiler(BUILD, lib_mutants.text_of(package, "taper.source"), folder), lib_mutants.Judge(BUILD, package, folder)
            compiler, judge = models[model]
            changed = patched(compiler.text, changes)
            ptx = changed and compiler.ptx(changed)
            answer = judge.ask(ptx) if ptx else "no such words in the source" if not changed else "NVRTC refuses it"
            good = answer.startswith("fault") and re.search(fault, answer) if fault else answer.split(" ")[0] in ("fault", "wrong")
            print("%s %s: %s%s" % ("ok" if good else "not ok", model, name, "" if good and "--list" not in sys.argv else ": " + answer))
        for _, judge in models.values():
            judge.close()


main()

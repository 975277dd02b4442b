"""What mutants are: places of a kernel's source and of PTX where one thing is changed."""
import re

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
    """(line number, kind, which of the line's places of that kind, changed text)."""
    code, out, lines = code_only(text), [], text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for kind, pattern, to in SOURCE_RULES:
        seen = {}
        for m in re.finditer(pattern, code):
            changed = m.expand(to) if isinstance(to, str) else to(m)
            number = text.count("\n", 0, m.start())
            seen[number] = seen.get(number, -1) + 1
            out.append((number + 1, kind, seen[number], text[: m.start()] + changed + text[m.end():]))
    return out


def same_place(text, line, kind, nth, place):
    """The mutant of another source at the line of the same words (the `place`-th of them, or its last), or None: it has none."""
    numbers = [n + 1 for n, other in enumerate(text.split("\n")) if other.strip() == line]
    if not numbers:
        return None
    number = numbers[min(place, len(numbers) - 1)]
    return next((changed for n, k, i, changed in source_mutants(text) if (n, k, i) == (number, kind, nth)), None)


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


def source_lines(ptx, source):
    """For each line of PTX the words of the source's line that it was made of, "" where none is told."""
    texts, at, out = source.split("\n"), "", []
    for line in ptx.split("\n"):
        m = re.match(r"\s*\.loc\s+\d+\s+(\d+)", line)
        if m:
            n = int(m.group(1))
            at = texts[n - 1].strip() if 0 < n <= len(texts) else ""
        out.append(at)
    return out

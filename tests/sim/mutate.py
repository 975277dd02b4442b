#!/usr/bin/python3
"""Mutations of correct kernels: the right kernels of seeded.cu, and compiled models with one place of their source or PTX changed, on the simulator.

At least 90 % of a sample whose survivors were looked at (--explained), 80 % of a new one, must be caught: by a fault, by a wrong result (logits, streams, caches, ids), or by bytes written that the right kernels do not write, or the
other way round. A change of the source that its own model does not show is tried at the same words in the other models (lib_mutants.py). Not counted, but
told: changes that NVRTC compiles to the same, places that nothing executes (no trap is felt there), and those of which survivors.txt says `equal`: no input
can show them. `mutate.py BUILD [--sample N] [--only WAY] [--list] [--explained]`: N source and 2 N PTX mutants of each of three models (12 where TAPERC_LONG is set; else 8
of two, of which 75 % must be caught: few vary more),
drawn from all places with a fixed seed; --list prints the survivors, --explained fails where one is not in survivors.txt.
"""
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/sim"))
import lib_mutants  # noqa: E402
import lib_rules  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
QUICK = bool(os.environ.get("TAPERC_QUICK"))


def argument(name, otherwise):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise


LONG = "--sample" in sys.argv or bool(os.environ.get("TAPERC_LONG"))
SAMPLE = int(argument("--sample", 12 if LONG else 4 if QUICK else 8))
SEED = int(argument("--seed", 11))
ONLY = argument("--only", "")
TRIED = ["live", "folded-bf16", "kernels"][: 1 if QUICK else 3 if LONG else 2]
LEAST = 0.9 if "--explained" in sys.argv else 0.8 if LONG else 0.75  # a small sample varies, and where survivors are new, equal ones are among them


def known_survivors():
    """(way, kind, words) -> `equal` or `unseen`."""
    known = {}
    with open(os.path.join(ROOT, "tests/sim/survivors.txt")) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                way, kind, words, what, _ = line.rstrip("\n").split("\t")
                known[way, kind, words] = what
    return known


class Score:
    known = known_survivors()

    def __init__(self, way):
        self.way = way
        self.caught = self.tried = self.nothing = self.equal = 0
        self.by = {}
        self.survivors, self.crashes, self.unknown = [], [], []

    def look_up(self, kind, words):
        begins = [w for way, k, w in self.known if (way, k) == (self.way, kind) and w.endswith("*") and words.startswith(w[:-1])]
        return self.known.get((self.way, kind, begins[0] if begins else words), "")

    def add(self, answer, kind, words, where):
        """`words`: what survivors.txt knows the place by."""
        word = answer.split(" ")[0]
        if word == "crash":
            self.crashes.append("%s: %s: %s" % (kind, words, answer))
        what = self.look_up(kind, words) if word == "same" else ""
        if what == "equal":
            self.equal += 1
        else:
            self.tried += 1
            self.caught += word in ("fault", "wrong")
            way = " ".join(answer.split(" ")[:2]) if word == "wrong" else word
            self.by[way] = self.by.get(way, 0) + 1
            if word == "same":
                self.survivors.append("%s: %s" % (kind, words))
        if word == "same" and not what:
            self.unknown.append("%s: %s" % (kind, words))
        if word == "same" and "--list" in sys.argv:
            print("# survivor\t%s\t%s\t%s\t%s\t%s" % (self.way, kind, words, where, what or "?"))

    def tell(self):
        label = self.way
        print("%s %s: the simulator never crashes%s" % ("not ok" if self.crashes else "ok", label, ": " + "; ".join(self.crashes[:3]) if self.crashes else ""))
        good = self.tried > 0 and self.caught >= LEAST * self.tried
        print("%s %s: %d of %d mutants caught (%.1f %%), %d equal to the original, %d compiled to the same or never executed%s" % (
            "ok" if good else "not ok", label, self.caught, self.tried, 100.0 * self.caught / max(self.tried, 1), self.equal, self.nothing,
            "" if good else ": survivors: " + "; ".join(self.survivors)))
        print("# %s: %s" % (label, ", ".join("%s %d" % item for item in sorted(self.by.items()))))
        if "--explained" in sys.argv:
            print("%s %s: survivors.txt explains every survivor%s" % ("not ok" if self.unknown else "ok", label, ": but not " + "; ".join(self.unknown) if self.unknown else ""))


class Models:
    """Packages and their judges, made when they are wanted."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def get(self, name):
        if name not in self.made:
            package = lib_mutants.make_package(BUILD, name, self.folder)
            judge = lib_mutants.Judge(BUILD, package, self.folder)
            self.made[name] = judge, lib_mutants.Compiler(BUILD, lib_mutants.text_of(package, "taper.source"), self.folder)
        return self.made[name]

    def elsewhere(self, name, line, kind, nth, place):
        """What the other models say of the same change; "same" if none sees it."""
        for other in lib_mutants.MODELS:
            if other == "wide" and not LONG:  # takes seconds
                continue
            judge, compiler = self.get(other)
            changed = None if other == name else lib_rules.same_place(compiler.text, line, kind, nth, place)
            ptx = changed and compiler.ptx(changed)
            answer = judge.ask(ptx) if ptx else "same"
            if answer.split(" ")[0] in ("fault", "wrong", "crash"):
                return answer
        return "same"

    def close(self):
        for judge, _ in self.made.values():
            judge.close()


def try_source(score, name, models):
    """Until SAMPLE mutants were judged."""
    judge, compiler = models.get(name)
    lines, before = compiler.text.split("\n"), score.tried + score.equal
    plain = lib_mutants.instructions(compiler.plain)
    every = lib_rules.source_mutants(compiler.text)
    random.Random(SEED).shuffle(every)
    for number, kind, nth, changed in every:
        if score.tried + score.equal >= before + SAMPLE:
            break
        ptx = compiler.ptx(changed)
        if ptx is None or lib_mutants.instructions(ptx) == plain:
            score.nothing += 1
            continue
        line = lines[number - 1].strip()
        answer = judge.ask(ptx)
        if answer == "same":
            place = sum(other.strip() == line for other in lines[:number - 1])
            answer = models.elsewhere(name, line, kind, nth, place)
        if not answer.startswith("refused"):
            score.add(answer, kind, line, "%s:%d" % (name, number))


def try_ptx(score, name, models):
    judge, compiler = models.get(name)
    lines = compiler.plain.split("\n")
    words = lib_rules.source_lines(compiler.plain, compiler.text)
    every = [(number, kind, kernel, changed) for kind, places in sorted(lib_rules.sites(compiler.plain).items()) for number, kernel, changed in places]
    for number, kind, kernel, changed in random.Random(SEED).sample(every, min(2 * SAMPLE, len(every))):
        answer = judge.ask("\n".join(lines[:number] + [changed] + lines[number + 1:]))
        if answer.startswith("refused"):
            continue
        if answer == "same" and judge.ask("\n".join(lines[:number] + [lib_rules.trap_before(lines[number])] + lines[number:])) == "same":
            score.nothing += 1  # no trap is felt there either
            if "--list" in sys.argv:
                print("# never executed\t%s:%s:%d %s\t%s" % (name, kernel, number + 1, lines[number].strip(), words[number]))
        else:
            score.add(answer, kind, words[number], "%s:%s:%d %s" % (name, kernel, number + 1, lines[number].strip()))


def try_kernels(folder):
    """The right kernels of seeded.cu, as test_cuda_seeded judges them; the committed PTX."""
    with open(os.path.join(ROOT, "tests/sim/seeded.ptx")) as f:
        text = f.read()
    score, lines, path = Score("kernels of seeded.cu"), text.split("\n"), os.path.join(folder, "seeded.ptx")
    every = [(number, kind, kernel, changed) for kind, places in sorted(lib_rules.sites(text).items()) for number, kernel, changed in places if kernel.endswith("_good") or kernel == "produce"]

    def judge(changed):
        with open(path, "w") as f:
            f.write("\n".join(changed))
        p = subprocess.run([os.path.join(BUILD, "tests/unit/test_cuda_seeded"), path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return {0: "same", 1: "wrong result", 3: "refused"}.get(p.returncode, "crash %d" % p.returncode)

    print("%s kernels of seeded.cu: as they are, they are right" % ("ok" if judge(lines) == "same" else "not ok"))
    for number, kind, kernel, changed in random.Random(SEED).sample(every, min(8 * SAMPLE, len(every))):
        answer = judge(lines[:number] + [changed] + lines[number + 1:])
        if answer == "refused" or answer == "same" and judge(lines[:number] + [lib_rules.trap_before(lines[number])] + lines[number:]) == "same":
            score.nothing += 1
        else:
            score.add(answer, kind, "%s: %s" % (kernel, " ".join(lines[number].split())), "")
    score.tell()


def main():
    sys.stdout.reconfigure(line_buffering=True)
    with tempfile.TemporaryDirectory() as folder:
        if ONLY in ("", "kernels"):
            try_kernels(folder)
        scores = [(way, Score("models' " + words), judge) for way, words, judge in (("source", "source", try_source), ("ptx", "PTX", try_ptx)) if ONLY in ("", way)]
        models = Models(folder)
        for name in TRIED if scores else []:
            judge, compiler = models.get(name)
            print("%s %s: the kernels as they are are judged the same" % ("ok" if judge.ask(compiler.plain) == "same" else "not ok", name))
            for _, score, judge_all in scores:
                judge_all(score, name, models)
        models.close()
        for _, score, _ in scores:
            score.tell()


main()

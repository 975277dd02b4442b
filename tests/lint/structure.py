#!/usr/bin/python3
"""Who may include whom, file sizes, and what must not stand in a tracked file. The table is docs/architecture.md's."""
import re
import subprocess
import sys

# room -> rooms whose headers its files may include (its own always; runtime/base and runtime/abi are everyone's)
MAY = {
    "runtime/base": {"runtime/taper.h"},
    "runtime/abi": set(),
    "runtime/text": {"runtime/taper.h", "runtime/memory.h"},
    "runtime": {"runtime/text"},
    "grammar": {"compiler/front", "compiler/diag"},
    "compiler/diag": set(),
    "compiler/ir": {"compiler/diag"},
    "compiler/front": {"grammar", "compiler/ir", "compiler/diag"},
    "compiler/analysis": {"compiler/ir", "compiler/diag"},
    "compiler/passes": {"compiler/analysis", "compiler/ir", "compiler/diag"},
    "compiler/formats": {"compiler/diag"},
    "compiler/schedule": {"compiler/analysis", "compiler/ir", "compiler/diag"},
    "compiler/emit": {"compiler/schedule", "compiler/analysis", "compiler/ir", "compiler/diag", "templates", "compiler/passes/pass.h"},
    "compiler/driver": {"compiler", "runtime/taper.h", "runtime/bench.h", "runtime/recipe.h", "runtime/text", "cuda/nvrtc.h"},
    "compiler/cli": {"compiler/driver", "compiler/diag", "compiler/ir", "compiler/passes/pass.h", "compiler/passes/passes.def", "compiler/formats", "runtime/taper.h", "runtime/text", "runtime/bench.h", "runtime/package.h", "cuda/nvrtc.h", "cuda/driver.h", "cuda/probe.h"},
    "examples": {"taper.h"},
    "templates/cpu": {"templates"},
    "templates/cuda": {"templates"},
    "cuda": {"runtime/device.h", "runtime/package.h", "runtime/memory.h", "runtime/pool.h", "runtime/text", "cuda/sim/control.h", "cuda/sim/control.def", "cuda/sim/sim.h"},
    "cuda/gpu": {"cuda/driver.h", "cuda/nvrtc.h", "runtime/device.h", "runtime/package.h"},
    "cuda/sim": {"cuda/driver.h", "cuda/driver.def", "cuda/cublas.h", "cuda/cublas.def"},
}
COMMON = ("runtime/base/", "runtime/abi/", "runtime/taper.h")
LIMIT = 600
FORBIDDEN = [(re.compile(r"/(?:work|root|farm|home)/\w"), "a path of one machine"), (re.compile(r"\b(?:TODO|FIXME|XXX)\b"), "an unfinished mark")]


def tracked(*patterns):
    return [f for f in subprocess.run(["git", "ls-files", "--"] + list(patterns), stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n") if f]


def room_of(path):
    parts = path.rsplit("/", 1)[0]
    while parts and parts not in MAY:
        parts = parts.rsplit("/", 1)[0] if "/" in parts else ""
    return parts


def allowed(room, include):
    if include.startswith(COMMON) or include.startswith(room + "/"):
        return True
    return any(include == m or include.startswith(m + "/") for m in MAY[room])


def main():
    bad = []
    for path in tracked("*.c", "*.h", "*.y", "*.l", "*.cpp", "*.def"):
        lines = open(path, encoding="utf-8", errors="replace").read().split("\n")
        if len(lines) - 1 > LIMIT:
            bad.append("%s: %d lines, at most %d; split it" % (path, len(lines) - 1, LIMIT))
        room = room_of(path)
        if not room or path.startswith("tests/"):
            continue
        for number, line in enumerate(lines, 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if m and not allowed(room, m.group(1)):
                bad.append('%s:%d: %s may not include "%s" (docs/architecture.md)' % (path, number, room, m.group(1)))
    for path in tracked("*.c", "*.h", "*.y", "*.l", "*.cpp", "*.def", "*.py", "*.sh", "*.md", "*.mk", "Makefile", "*.tmodel", "*.tir", "*.test", ".ci/run"):
        if path == "tests/lint/structure.py":
            continue
        for number, line in enumerate(open(path, encoding="utf-8", errors="replace"), 1):
            for pattern, what in FORBIDDEN:
                if pattern.search(line):
                    bad.append("%s:%d: %s: %s" % (path, number, what, line.strip()[:100]))
    print("\n".join(bad), end="\n" if bad else "")
    sys.exit(1 if bad else 0)


main()

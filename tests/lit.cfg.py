# lit configuration: text tests over the command line. Run through tests/run.py, which sets TAPERC_BUILD.
import os

import lit.formats

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
build = os.environ.get("TAPERC_BUILD", os.path.join(root, "build", "release"))
config.name = "taperc"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".tir", ".tmodel", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.join(root, "tests")
config.test_exec_root = os.path.join(build, "lit")
llvm = "/usr/lib/llvm-14/bin"
config.environment["PATH"] = os.pathsep.join([build, llvm, os.environ["PATH"]])
for name in ("LC_ALL", "LANG", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TMPDIR", "TAPER_CACHE_DIR", "HOME"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
config.substitutions.append(("%root", root))
config.substitutions.append(("%build", build))
config.substitutions.append(("%models", os.path.join(root, "examples", "models")))
config.substitutions.append(("%python", os.environ.get("TAPERC_PYTHON", "/usr/bin/python3")))

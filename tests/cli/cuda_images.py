#!/usr/bin/python3
"""compile --target cuda over made-up NVRTCs: how it fails, and the cache of images under races, damage, and folders that cannot be used."""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

STUB = os.path.join(cli.ROOT, "tests", "unit", "stubs", "nvrtc_stub.c")
COUNTS = 'FILE *f = fopen(getenv("STUB_COUNT"), "a"); fputs("x", f); fclose(f); '
IMAGES = 3  # of --arch=sm_80,sm_90: and PTX of the lower and of compute_90
ARCHS = "--arch=sm_80,sm_90,compute_90"


def stub(root, name, compile, *flags):
    path = os.path.join(root, name + ".so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", path, "-DSTUB_COMPILE=" + compile] + list(flags) + [STUB], check=True)
    return path


class Place:
    """A model, a cache and a count of what NVRTC was asked to do."""

    def __init__(self, root):
        self.root, self.model, self.cache, self.count = root, cli.write_model(os.path.join(root, "m")), os.path.join(root, "cache"), os.path.join(root, "count")
        self.env = {"TAPER_CACHE_DIR": self.cache, "STUB_COUNT": self.count, "TAPER_LIBNVRTC": stub(root, "good", COUNTS + "return 0;")}

    def compile(self, name, code=0, stderr=None, env=None, args=(), out="p"):
        path = os.path.join(self.root, out + ".tpack")
        if os.path.exists(path):
            os.unlink(path)
        cli.expect(name, ["compile", self.model, "--target", "cuda", ARCHS, "-o", path] + list(args), code, stderr, env=dict(self.env, **(env or {})))
        if (code == 0) != os.path.exists(path):
            cli.report(name + ": the package", "it is %s" % ("missing" if code == 0 else "there"))
        return open(path, "rb").read() if code == 0 and os.path.exists(path) else None

    def compiled(self):
        """How many images NVRTC made since the last question."""
        n = os.path.getsize(self.count) if os.path.exists(self.count) else 0
        if n:
            os.unlink(self.count)
        return n

    def entries(self):
        return sorted(os.path.join(self.cache, e) for e in os.listdir(self.cache))


def same(name, got, expected):
    cli.report(name, "" if got == expected else "%r, expected %r" % (got, expected))


def failures(at):
    cases = [("NVRTC crashes", 'fputs("last words\\n", stderr); raise(SIGKILL);', [], 3, r"NVRTC 12\.4 \(\S+\) died of signal 9 \(SIGKILL\) while 'model\.cu' was compiled for \w+: last words; "),
             ("NVRTC hangs", "for (;;) pause();", [], 3, r"NVRTC 12\.4 \(\S+\) was ended after 1 s while 'model\.cu' was compiled"),
             ("NVRTC fails", "return 11;", [], 3, r"NVRTC_ERROR_INTERNAL_ERROR"),
             ("NVRTC refuses the source", 'strcpy(said, "model.cu(7): error: what\\n"); return 6;', [], 70, r"/model\.cu: .*does not compile for \w+ with NVRTC 12\.4 .*model\.cu\(7\): error: what"),
             ("NVRTC knows no such arch", "return 0;", ["-DSTUB_ARCHS=50,60"], 1, r"NVRTC 12\.4 \(\S+\) does not know \w+; it compiles for sm_50,sm_60"),
             ("an old NVRTC", "return 0;", ["-DSTUB_MAJOR=10", "-DSTUB_MINOR=2", "-DnvrtcGetCUBIN=nvrtcOther"], 3, r"NVRTC 10\.2 \(\S+\) is too old")]
    for name, compile, flags, code, said in cases:
        at.compile(name, code, said, {"TAPER_LIBNVRTC": stub(at.root, "bad", compile, *flags), "TAPER_NVRTC_SECONDS": "1", "TMPDIR": at.root})
    at.compile("no library", 3, "cannot open the NVRTC library", {"TAPER_LIBNVRTC": os.path.join(cli.ROOT, "README.md")})
    same("nothing that failed is kept", os.path.isdir(at.cache) and len(at.entries()), 0)


def cache(at):
    first = at.compile("an empty cache")
    same("all are made", at.compiled(), IMAGES)
    same("the same again", at.compile("a full cache") == first, True)
    same("none is made", at.compiled(), 0)
    entries = at.entries()
    same("entries", len(entries), IMAGES)
    whole = [open(e, "rb").read() for e in entries]
    for name, change in [("cut off", lambda d: d[:-1]), ("empty", lambda d: b""), ("a bit flipped", lambda d: d[:-2] + bytes([d[-2] ^ 4]) + d[-1:]), ("of another source", lambda d: whole[1] if d == whole[0] else d)]:
        with open(entries[0], "wb") as f:
            f.write(change(whole[0]))
        same(name + ": the same package", at.compile("an entry that is " + name) == first, True)
        same(name + ": made anew", at.compiled(), 1)
        same(name + ": whole again", open(entries[0], "rb").read(), whole[0])
    other = {"TAPER_LIBNVRTC": stub(at.root, "newer", COUNTS + "return 0;", "-DSTUB_MINOR=6")}
    at.compile("another NVRTC", env=other)
    same("another NVRTC makes its own", (at.compiled(), len(at.entries())), (IMAGES, 2 * IMAGES))
    at.compile("--no-cache", args=["--no-cache"])
    same("--no-cache makes all", (at.compiled(), len(at.entries())), (IMAGES, 2 * IMAGES))


def folders(at):
    said = r"^[^\n]*warning: images are not cached: [^\n]*; set TAPER_CACHE_DIR, or give --no-cache\n"
    nowhere = {"TAPER_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": ""}
    at.compile("no HOME", stderr=said, env=nowhere)
    at.compile("a cache that is a file", stderr=said, env={"TAPER_CACHE_DIR": at.env["TAPER_LIBNVRTC"]})
    same("without a folder all are made", at.compiled(), 2 * IMAGES)
    os.chmod(at.cache, 0o777)
    at.compile("a cache that others may write", stderr="other users may write it")
    os.chmod(at.cache, 0o700)
    if os.geteuid() == 0:
        os.chown(at.cache, 12345, -1)
        at.compile("a cache of another user", stderr="another user owns it")
        os.chown(at.cache, 0, -1)
    else:
        os.chmod(at.cache, 0o500)
        at.compile("a cache that cannot be written", stderr=said)
        os.chmod(at.cache, 0o700)
    at.compiled()


def at_once(at):
    for entry in at.entries():
        os.unlink(entry)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        packages = list(pool.map(lambda i: at.compile("at once %d" % i, stderr="^((?!warning).)*$", out="p%d" % i), range(8)))
    same("all have the same package", packages.count(packages[0]), 8)
    same("entries of all", [re.sub(r".*\.", "", e) for e in at.entries()], ["image"] * IMAGES)
    made = at.compiled()
    same("each was made once at least, at most by each", IMAGES <= made <= 8 * IMAGES, True)


def main():
    with tempfile.TemporaryDirectory() as root:
        at = Place(root)
        failures(at)
        cache(at)
        folders(at)
        at_once(at)
    sys.exit(1 if cli.failed else 0)


main()

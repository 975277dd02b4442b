#!/usr/bin/python3
"""taperc report: pages of runs and of models: what stands in them, names escaped, damaged metrics told, long runs thinned."""
import html.parser
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
MODELS = os.path.join(ROOT, "examples/models")
QUICK = bool(os.environ.get("TAPERC_QUICK"))


def taperc(*args, code=0, env=None):
    p = subprocess.run([TAPERC] + list(args), capture_output=True, text=True, errors="replace", env=env)
    if p.returncode != code:
        raise RuntimeError("taperc %s: exit %d: %s" % (" ".join(args), p.returncode, p.stderr.strip()[-400:]))
    return p


def verdict(ok, name, detail=""):
    print("%s %s%s" % ("ok" if ok else "not ok", name, ": %s" % detail if detail and not ok else ""), flush=True)


class Page(html.parser.HTMLParser):
    """Balanced tags, ids once, no reference to anything outside."""

    VOID = {"meta", "br", "link", "img", "path", "circle", "rect", "use", "fecomposite", "feflood"}

    def __init__(self, text):
        super().__init__()
        self.stack, self.bad, self.ids, self.svgs, self.headings, self.cells, self.words = [], [], [], 0, [], [], []
        self.feed(text)
        if self.stack:
            self.bad.append("open: %s" % self.stack)

    def handle_startendtag(self, tag, attrs):
        self.look(tag, attrs)

    def handle_starttag(self, tag, attrs):
        self.look(tag, attrs)
        if tag not in ("meta", "br"):
            self.stack.append(tag)

    def look(self, tag, attrs):
        a = dict(attrs)
        if "id" in a:
            self.ids.append(a["id"])
        if tag in ("script", "link", "img", "iframe") or a.get("src") or (a.get("href", "#") or "#")[0] != "#":
            self.bad.append("not self-contained: %s %s" % (tag, a))
        self.svgs += tag == "svg" and "viewbox" in a and a["viewbox"] != "0 0 26 10"

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop() != tag:
            self.bad.append("closed out of turn: " + tag)

    def handle_data(self, data):
        if not data.strip() or not self.stack:
            return
        if self.stack[-1] in ("h1", "h2", "h3"):
            self.headings.append(data.strip())
        if self.stack[-1] in ("td", "th"):
            self.cells.append(data.strip())
        self.words.append(data)

    def sound(self):
        twice = sorted({i for i in self.ids if self.ids.count(i) > 1})
        return not self.bad and not twice, (self.bad + twice)[:5]


def line(step, **more):
    g = max(0.0, 1 - step / 100)
    d = {"step": step, "loss": 5 / math.sqrt(step), "ce": 5 / math.sqrt(step), "aux": 0.01, "lr": 1e-3, "g": {"internal": g, "layers": [g, g / 2]}, "grad_norm": 1 + 1 / step, "logit_norm": 20.0 + step,
         "residual_scale": 1.5, "tokens": step * 64, "tokens_per_s": 1000.0 + step % 7}
    d.update(more)
    return d


def write_run(path, lines):
    os.makedirs(path)
    with open(os.path.join(path, "metrics.jsonl"), "w") as f:
        f.writelines(x if isinstance(x, str) else json.dumps(x) + "\n" for x in lines)
    return path


def a_run(path, extra=()):
    lines = []
    for step in range(1, 121):
        more = {}
        if step % 20 == 0:
            more = {"val_ce": 4 / math.sqrt(step), "val_ce_g0": 4000 / step}
        if step % 2 == 0:
            more["full"] = {"layers.0.scale": 0.1, "layers.1.scale": 0.4, "grad_norm.qkv": 0.5, "grad_norm.o": 0.25, "layers.0.attn_norm.calibration_error": 0.3, "logit_margin": 1.0}
        lines.append(line(step, **more))
        if step == 10:
            lines.append({"step": 10, "event": "taper_start", "c": {"layers.0.attn_norm": 12.5, "norm": 2.25}, "s_tgt": 0.75})
        if step % 30 == 0:
            lines.append({"step": step, "event": "checkpoint"})
    lines.append({"step": 120, "event": "end"})
    return write_run(path, lines + list(extra))


def runs(root):
    first = a_run(os.path.join(root, "first"))
    taperc("report", first)
    page = Page(open(os.path.join(first, "report.html"), encoding="utf-8").read())
    verdict(*((page.sound()[0], "one run: a sound page", page.sound()[1])))
    charts = ["Loss", "Gates", "Learning rate", "Scale loss, weight included", "Logit norm", "Residual scale before the head", "Residual scale by layer", "Gradient norm", "Gradient norm by kind", "Calibration error",
              "Logit margin", "Throughput"]
    verdict(all(c in page.headings for c in charts) and page.svgs == len(charts), "one run: every chart", "%s %d" % (page.headings, page.svgs))
    verdict("12.50" in page.cells and "2.2500" in page.cells and "0.7500" in page.cells, "one run: c of each norm and s_tgt", page.cells)
    verdict("120" in page.cells and "7680" in page.cells and "33.33" in page.cells, "one run: final numbers", page.cells[:40])
    verdict(not re.search(r' color="(black|gray|white)"|rgb\( *1, *2, *3\)', open(os.path.join(first, "report.html")).read()), "one run: the charts' text has the page's colour")
    verdict("Values far above the first curve are cut off." in "".join(page.words), "one run: an outlier does not flatten the loss")
    second = a_run(os.path.join(root, "b & <i>\"second\"<b>"))
    out = os.path.join(root, "both.html")
    taperc("report", first, second, "-o", out)
    text = open(out, encoding="utf-8").read()
    page = Page(text)
    verdict(*((page.sound()[0], "two runs: a sound page", page.sound()[1])))
    verdict("<i>" not in text and "b &amp; &lt;i&gt;&quot;second&quot;&lt;b&gt;" in text, "two runs: names are escaped")
    verdict(page.headings.count("Loss") == 1 and len([h for h in page.headings if h.startswith("Gates")]) == 2, "two runs: overlaid, series of a run apart", page.headings)
    verdict("+0.00 %" in page.cells, "two runs: against the first")


def damaged(root):
    cases = {
        "nulls": [line(s, ce=None if s % 5 == 0 else 2.0, grad_norm=None) for s in range(1, 40)],
        "few keys": ['{"step": 1}\n', '{"step": 2, "ce": 1.5}\n'],
        "one step": [line(1)],
        "no taper": [dict(line(s), g={}) for s in range(1, 20)],
        "equal values": [dict(line(s), ce=1.0, logit_norm=0, grad_norm=0) for s in range(1, 20)],
        "values at the end of the range": [dict(line(s), ce=1e308 * (-1) ** s, grad_norm=1e308) for s in range(1, 20)],
        "huge values": [dict(line(s), ce=1e300, grad_norm=1e-300) for s in range(1, 20)],
        "strange keys": [dict(line(s), **{"full": {"layers.<b>&\"'`$(x)\n.scale": 1.0, "grad_norm.%s%n": 2.0}}) for s in range(1, 20)],
    }
    for name, lines in cases.items():
        run = write_run(os.path.join(root, name), lines)
        taperc("report", run)
        text = open(os.path.join(run, "report.html"), encoding="utf-8").read()
        page = Page(text)
        verdict(page.sound()[0] and "<b>" not in text, "metrics: " + name, page.sound()[1])
    p = taperc("report", run + "//")
    verdict("wrote %s:" % os.path.join(run, "report.html") in p.stderr, "a run with a slash behind it", p.stderr)
    run = write_run(os.path.join(root, "cut"), [line(s) for s in range(1, 30)] + ["not json\n", "[1, 2]\n", '{"step": 30, "ce": 1.'])
    p = taperc("report", run)
    text = open(os.path.join(run, "report.html"), encoding="utf-8").read()
    verdict("2 lines cannot be read, the first is line 30" in p.stderr and "the last line is cut off" in p.stderr, "metrics: damaged lines are told", p.stderr)
    verdict("2 lines of metrics.jsonl cannot be read" in text and "The last line is cut off" in text, "metrics: and said on the page")
    run = write_run(os.path.join(root, "deep"), [line(s) for s in range(1, 5)] + ["[" * 100000 + "\n", '{"step": 5, "x": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}\n"])
    verdict("2 lines cannot be read" in taperc("report", run).stderr, "metrics: nesting is bounded")


def long_run(root):
    n = 20000 if QUICK else 1000000
    run = os.path.join(root, "long")
    os.makedirs(run)
    with open(os.path.join(run, "metrics.jsonl"), "w") as f:
        for s in range(1, n + 1):
            f.write('{"step": %d, "loss": 2.5, "ce": %.5f, "lr": 0.001, "g": {"all": 0.5}, "grad_norm": %.4f, "tokens": %d, "tokens_per_s": 5000}\n' % (s, 2 + 1 / (1 + s / 1000), 9.0 if s == n // 2 else 1.0, s * 10))
    taperc("report", run)
    path = os.path.join(run, "report.html")
    page = Page(open(path, encoding="utf-8").read())
    verdict(page.sound()[0] and os.path.getsize(path) < 3e6, "a run of %d steps is thinned" % n, os.path.getsize(path))
    verdict(str(n) in page.cells and "Long runs are thinned" in "".join(page.words), "a long run: said")


def models(root):
    for name in ("kjv-all", "kjv-ln", "kjv-internal"):
        out = os.path.join(root, name + ".html")
        taperc("report", os.path.join(MODELS, name), "-o", out)
        page = Page(open(out, encoding="utf-8").read())
        verdict(page.sound()[0] and page.svgs == 2 and "layers.3.mlp_norm" in page.cells and "wte" in page.cells, "page of " + name, page.sound()[1])
    verdict("internal = 0, removed" in " ".join(page.cells) and "final = 1, live" in " ".join(page.cells), "page of kjv-internal: states of gates", page.cells[:60])


def refusals(root):
    empty = write_run(os.path.join(root, "empty"), [])
    events = write_run(os.path.join(root, "events"), ['{"step": 1, "event": "end"}\n'])
    nothing = os.path.join(root, "nothing")
    os.mkdir(nothing)
    model = os.path.join(MODELS, "kjv-all")
    good = os.path.join(root, "first")
    without = dict(os.environ, PATH=nothing)
    slow = os.path.join(root, "slow")
    os.mkdir(slow)
    for name, args, code, words, env in [
        ("an empty metrics.jsonl", [empty], 1, "no line of it is a training step", None),
        ("events alone", [events], 1, "no line of it is a training step", None),
        ("a folder of nothing", [nothing, "-o", root + "/x.html"], 1, "neither model.tmodel nor a checkpoint", None),
        ("a model among runs", [good, model, "-o", root + "/x.html"], 1, "is no run", None),
        ("several runs without -o", [good, good], 2, "give -o report.html", None),
        ("a model without -o", [model], 2, "give -o report.html", None),
        ("an unwritable place", [good, "-o", root + "/no/x.html"], 3, "no/x.html", None),
        ("no gnuplot", [good], 3, "apt install gnuplot-nox", without),
    ]:
        p = taperc("report", *args, code=code, env=env)
        verdict(words in p.stderr, "refused: " + name, p.stderr)
    fake = os.path.join(slow, "gnuplot")
    with open(fake, "w") as f:
        f.write("#!/bin/sh\necho 'out of ink' >&2\nexit 7\n")
    os.chmod(fake, 0o755)
    p = taperc("report", good, code=3, env=dict(os.environ, PATH=slow + ":" + os.environ["PATH"]))
    verdict("gnuplot failed: out of ink" in p.stderr, "refused: a gnuplot that fails", p.stderr)
    left = [f for f in os.listdir(os.environ.get("TMPDIR", "/tmp")) if re.match(r"taperc-......$", f) and os.path.exists(os.path.join(os.environ.get("TMPDIR", "/tmp"), f, "script"))]
    verdict(not left, "nothing is left behind", left)


def main():
    if not shutil.which("gnuplot"):
        print("skip report: gnuplot is not installed; run make setup")
        return
    with tempfile.TemporaryDirectory() as root:
        os.environ["TMPDIR"] = os.path.join(root, "tmp")
        os.mkdir(os.environ["TMPDIR"])
        for part in (runs, damaged, long_run, models, refusals):
            try:
                part(root)
            except (RuntimeError, OSError, UnicodeDecodeError) as e:
                verdict(False, part.__name__, repr(e))


main()

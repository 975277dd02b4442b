#!/usr/bin/python3
"""taperc train: options, refusals, what RUN/ holds, and that a resumed run is the uninterrupted one, bit for bit."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

QUICK = bool(os.environ.get("TAPERC_QUICK"))
TEXT = os.path.join(cli.ROOT, "examples", "data", "kjv.txt")
KEYS = ["step", "loss", "ce", "aux", "lr", "g", "grad_norm", "logit_norm", "residual_scale", "tokens", "tokens_per_s"]
LIVE = cli.SOURCE.replace("  gate internal;\n  gate final;\n", "").replace("taper_rms_norm", "rms_norm")
LIVE = re.sub(r", gate = \w+", "", LIVE)
ODD = """model odd(vocab = 257, d = 20, layers = 1, heads = 5, kv = 1, context = 7) {
  gate inner[layers];
  gate last;
  param wte: [vocab, d] init normal(0.02);
  param wpe: [context, d] init uniform(0.01);
  forward(tokens) {
    let x = embed(tokens, wte) + embed(positions(tokens), wpe);
    repeat layers as "layers" with i {
      let h = taper_layer_norm(x, name = "norm", gate = inner[i]);
      let q = split_heads(linear(h, d, name = "q", bias = true), heads);
      let k = split_heads(linear(h, 4, name = "k", bias = true), kv);
      let v = split_heads(linear(h, 4, name = "v", bias = true), kv);
      x = x + linear(gelu(merge_heads(attention(q, k, v))), d, name = "o", bias = true);
    }
    return linear(taper_layer_norm(x, name = "ln_f", gate = last), vocab, name = "head");
  }
}
train { tokenizer bytes; optimizer adamw(lr = 1e-2); schedule cosine(warmup = 2); taper inner(step = 3, every = 2, calibration = inv_sigma); taper last(start = 4, end = 8);
        anchor fixed_target(weight = 0.1); steps 12; batch 3; sequence 7; seed 5; accumulate 2; }
"""


class Place:
    def __init__(self, root):
        self.root = root
        self.env = {"TAPER_CACHE_DIR": os.environ.get("TAPER_CACHE_DIR", os.path.join(root, "cache"))}

    def __call__(self, *parts):
        return os.path.join(self.root, *parts)


def metrics(run):
    return [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]


def steps(run):
    return [m for m in metrics(run) if "event" not in m]


def events(run):
    return [(m["step"], m["event"]) for m in metrics(run) if "event" in m]


def same(name, a, b):
    cli.report(name, a != b and "%r is not %r" % (a, b))


def train(name, at, args, code=0, stderr=None, stress=False, **keywords):
    keywords.setdefault("env", at.env)
    return cli.expect(name, ["train"] + args + ["-t", "2"] + ([] if stress else ["--no-stress"]), code, stderr, **keywords)


TINY = ["--steps", "6", "--batch", "2", "--seq", "16", "--lr", "1e-3", "--seed", "3"]


def refusals(at):
    m, data = at("tiny.tmodel"), at("text.txt")
    base = [m, "--data", data, "-o", at("never")]
    rows = [
        ("no data", [m, "-o", at("never")], 2, "needs data; give --data FILE"),
        ("no folder", [m, "--data", data], 2, "needs a folder for the run; give -o RUN"),
        ("steps 0", base + ["--steps", "0"], 2, "option '--steps': '0' is not a whole number in range"),
        ("steps abc", base + ["--steps", "abc"], 2, "option '--steps': 'abc'"),
        ("lr 0", base + ["--lr", "0"], 2, "option '--lr': '0' is not a number in range"),
        ("lr nan", base + ["--lr", "nan"], 2, "option '--lr'"),
        ("warm-up", base + ["--warmup", "101%"], 2, "option '--warmup': '101%' is no amount of time"),
        ("warm-up behind the end", base + ["--steps", "4", "--warmup", "5"], 1, "the warm-up ends at step 5, after the last of 4"),
        ("variant", base + ["--variant", "internl"], 2, "did you mean 'internal'"),
        ("schedule", base + ["--schedule", "cos"], 2, "give cosine, linear or constant"),
        ("metrics", base + ["--metrics", "all"], 2, "give basic or full"),
        ("val twice", base + ["--val", data, "--val-fraction", "0.1"], 2, "give one"),
        ("eval without data", base + ["--val-fraction", "0", "--eval-every", "5"], 2, "without held-out data"),
        ("val-fraction 1", base + ["--val-fraction", "1"], 2, "option '--val-fraction'"),
        ("a floor of a constant schedule", base + ["--schedule", "constant", "--floor", "0.1"], 2, "'--floor' acts on nothing with --schedule constant"),
        ("init and weights", base + ["--init", m, "--weights", m], 2, "'--weights' acts on nothing with --init"),
        ("keep 0", base + ["--keep", "0"], 2, "option '--keep'"),
        ("sequence beyond the context", base + ["--seq", "33"], 1, "a sequence of 33 is longer than the model's context of 32"),
        ("no such model", [at("none.tmodel"), "--data", data, "-o", at("never")], 1, "none.tmodel: error: "),
        ("no such data", [m, "--data", at("none.txt"), "-o", at("never")], 1, "none.txt: error: "),
        ("-O acts on nothing", base + ["-O1"], 2, "unknown option '-O1'"),
        ("no such init", base + ["--init", at("none")], 1, "none: error: "),
        ("init without weights", base + ["--init", m], 1, "the model has no weights to start from"),
        ("IR text", [at("m.tir"), "--data", data, "-o", at("never")], 1, "IR text says nothing of initial values"),
        ("no gate to taper", [at("nonorm.tmodel"), "--data", data, "--variant", "all", "-o", at("never")], 1, "no norm .* that could be tapered"),
        ("folder cannot be made", [m, "--data", data, "-o", at("a", "b", "run")] + TINY, 3, "cannot be created: No such file"),
    ]
    for name, args, code, message in rows:
        train("refused: " + name, at, args, code, message)
    cli.report("a refusal makes no folder", os.path.exists(at("never")) and "it is there")
    os.mkdir(at("there"))
    train("refused: an existing RUN", at, [m, "--data", data, "-o", at("there")] + TINY, 1, "there: error: exists already; give --resume")


def layout(at):
    run = at("run")
    args = [at("tiny.tmodel"), "--data", at("text.txt"), "-o", run, "--variant", "all-aux", "--warmup", "2", "--eval-every", "3", "--checkpoint-every", "2"] + TINY
    out, err = train("a run", at, args, 0, "stress verdict: ", stress=True)
    cli.report("its result", not re.search(rb"^steps +6\n.*checkpoint +.*checkpoint-6$", out.strip(), re.S) and repr(out))
    lines = steps(run)
    same("a line a step", [m["step"] for m in lines], [1, 2, 3, 4, 5, 6])
    same("keys of a line", list(lines[0]), KEYS)
    same("keys where it evaluates", list(lines[2]), KEYS + ["val_ce", "val_ce_g0"])
    cli.report("and at the end", "val_ce_g0" not in lines[5])
    same("tokens", [m["tokens"] for m in lines], [32 * k for k in range(1, 7)])
    same("gates", [m["g"] for m in lines[:2]] + [lines[5]["g"]], [{"internal": 1, "final": 1}] * 2 + [{"internal": 0, "final": 0}])
    cli.report("loss is ce and aux", [m for m in lines if abs(m["loss"] - m["ce"] - m["aux"]) > 1e-6])
    cli.report("the anchor acts once a gate is below 1", (any(m["aux"] for m in lines[:2]) or not lines[3]["aux"]) and [m["aux"] for m in lines])
    same("events", events(run), [(2, "taper_start"), (2, "checkpoint"), (4, "checkpoint"), (6, "checkpoint"), (6, "end")])
    start = [m for m in metrics(run) if m.get("event") == "taper_start"][0]
    same("c of each norm", sorted(start["c"]), ["layers.0.attn_norm", "layers.0.mlp_norm", "norm"])
    cli.report("s_tgt", not start["s_tgt"] > 0)
    same("files of a checkpoint", sorted(os.listdir(os.path.join(run, "checkpoint-4"))), ["manifest.json", "model.tmodel", "optimizer.safetensors", "weights.safetensors"])
    cli.report("log", "starts from random initial values, seed 3" not in open(os.path.join(run, "log.txt")).read())
    weights, meta = cli.read_safetensors(os.path.join(run, "checkpoint-6", "weights.safetensors"))
    same("gates of a checkpoint", json.loads(meta["taper.gates"]), {"internal": 0, "final": 0})
    cli.report("c in the checkpoint", "layers.0.attn_norm.taper_c" not in weights)
    cli.expect("a run folder is a MODEL", ["run", run, "--prompt", "In the", "-n", "4"], 0, env=at.env)
    out, err = train("--json", at, args[:3] + ["-o", at("json"), "--json"] + TINY, 0)
    result = json.loads(out)
    same("keys of --json", list(result), ["run", "checkpoint", "steps", "tokens", "ce", "val_ce", "val_ce_g0", "tokens_per_s"])


def losses(at):
    """What train says of the held-out data is what eval says."""
    run = at("losses")
    train("a run with --val", at, [at("tiny.tmodel"), "--data", at("text.txt"), "--val", at("val.txt"), "--eval-windows", "0", "-o", run, "--variant", "internal", "--warmup", "1", "-D", "layers=2", "-D", "ff=20"] + TINY)
    last = steps(run)[-1]
    out, err = cli.expect("eval of its checkpoint", ["eval", run, "--data", at("val.txt"), "-c", "16", "--json"], 0, env=at.env)
    ce = json.loads(out)["ce"]
    cli.report("the same loss", abs(ce - last["val_ce"]) > 2e-5 and "%r, %r" % (ce, last))
    same("the last gate is 0", last["val_ce"], last["val_ce_g0"])
    cli.expect("-D stands in the checkpoint's source", ["compile", os.path.join(run, "checkpoint-6"), "--emit=ast"], 0, stdout=re.compile(rb"layers = 2, heads = 2, ff = 20"), env=at.env)


def clamps(at):
    """What train measures with --clamp-rows is what eval measures with it, and training does not notice."""
    base = [at("tiny.tmodel"), "--data", at("text.txt"), "--val", at("val.txt"), "--eval-windows", "0", "--eval-every", "3", "--variant", "all", "--warmup", "2"] + TINY
    train("a run to compare with", at, base + ["-o", at("free")])
    train("a run with --clamp-rows", at, base + ["-o", at("clamped"), "--clamp-rows", "0.7"])
    a, b = steps(at("free")), steps(at("clamped"))
    same("the training is the same", [m["ce"] for m in b], [m["ce"] for m in a])
    same("live norms are not clamped", b[2]["val_ce"], a[2]["val_ce"])
    cli.report("without norms it acts", b[2]["val_ce_g0"] == a[2]["val_ce_g0"] or b[5]["val_ce"] == a[5]["val_ce"])
    out, err = cli.expect("eval --clamp-rows of the checkpoint", ["eval", at("clamped"), "--data", at("val.txt"), "-c", "16", "--clamp-rows", "0.7", "--json"], 0, env=at.env)
    ce = json.loads(out)["ce"]
    cli.report("the same clamped loss", abs(ce - b[5]["val_ce"]) > 2e-5 and "%r, %r" % (ce, b[5]["val_ce"]))
    train("a norm that stays live", at, base[:-14] + ["--variant", "final", "-o", at("stays"), "--clamp-rows", "2"] + TINY, 1, "'layers.0.attn_norm' is a live norm that stays")


def strip(lines):
    return [{k: v for k, v in m.items() if k != "tokens_per_s"} for m in lines if m.get("event") != "resume"]


def contents(folder):
    return {f: open(os.path.join(folder, f), "rb").read() for f in sorted(os.listdir(folder)) if f != "manifest.json"}


def resumes(at):
    """Checkpoints at every step; from each of them the run goes on to the same end."""
    whole = at("whole")
    args = [at("odd.tmodel"), "--data", at("text.txt"), "--eval-every", "5", "--checkpoint-every", "1", "-o"]
    train("an uninterrupted run", at, args + [whole])
    same("its tapers", [e for e in events(whole) if e[1] == "taper_start"], [(3, "taper_start"), (4, "taper_start")])
    for k in (3, 8) if QUICK else (1, 2, 3, 4, 5, 8, 11):
        run = at("from%d" % k)
        shutil.copytree(whole, run)
        for later in range(k + 1, 13):
            shutil.rmtree(os.path.join(run, "checkpoint-%d" % later))
        with open(os.path.join(run, "metrics.jsonl"), "a") as f:
            f.write('{"step": 13, "lo')
        train("resumed after step %d" % k, at, args + [run, "--resume"], 0, "checkpoint-%d: goes on after step %d" % (k, k))
        same("the same metrics after %d" % k, strip(metrics(run)), strip(metrics(whole)))
        same("the resume is told after %d" % k, events(run).count((k, "resume")), 1)
        a, b = contents(os.path.join(run, "checkpoint-12")), contents(os.path.join(whole, "checkpoint-12"))
        cli.report("the same weights and moments after %d" % k, [f for f in b if a.get(f) != b[f]])
    run = at("done")
    shutil.copytree(whole, run)
    train("a finished run", at, args + [run, "--resume"], 0, "checkpoint-12: the run is complete")
    said = b"val_ce            %.6f\n" % steps(whole)[-1]["val_ce"]
    cli.expect("a finished run says its loss", ["train"] + args + [run, "--resume"], 0, stdout=re.compile(re.escape(said)), env=at.env)
    same("nothing is added", strip(metrics(run)), strip(metrics(whole)))


def falls_back(at):
    run = at("damaged")
    args = [at("tiny.tmodel"), "--data", at("text.txt"), "--checkpoint-every", "2", "-o", run] + TINY
    train("a run to damage", at, args)
    good = contents(os.path.join(run, "checkpoint-6"))
    with open(os.path.join(run, "checkpoint-6", "weights.safetensors"), "r+b") as f:
        f.seek(3000)
        f.write(b"\xff\xff\xff")
    os.remove(os.path.join(run, "checkpoint-4", "manifest.json"))
    train("falls back to a whole checkpoint", at, args + ["--resume"], 0, "(?s)checkpoint-6: warning: passed over.*checkpoint-4: warning: passed over.*goes on after step 2")
    same("and comes to the same end", contents(os.path.join(run, "checkpoint-6")), good)
    for k in (2, 4, 6):
        os.remove(os.path.join(run, "checkpoint-%d" % k, "optimizer.safetensors"))
    train("no whole checkpoint at all", at, args + ["--resume"], 0, "no complete checkpoint to go on from; the run starts anew")
    same("the same end again", contents(os.path.join(run, "checkpoint-6")), good)
    same("metrics begin anew", [m["step"] for m in steps(run)], [1, 2, 3, 4, 5, 6])
    train("other data", at, [at("tiny.tmodel"), "--data", at("val.txt"), "-o", run, "--resume"] + TINY, 1, "was trained on other data")
    train("another recipe", at, args + ["--resume", "--lr", "1"], 1, "checkpoint-6.*lr")
    train("--resume of nothing", at, [at("tiny.tmodel"), "--data", at("text.txt"), "-o", at("new"), "--resume"] + TINY, 0, "no checkpoint to go on from; the run starts anew")
    train("--keep", at, [at("tiny.tmodel"), "--data", at("text.txt"), "-o", at("keep"), "--checkpoint-every", "1", "--keep", "2"] + TINY)
    same("keeps the newest", sorted(f for f in os.listdir(at("keep")) if f.startswith("check")), ["checkpoint-5", "checkpoint-6"])


def edges(at):
    base = [at("tiny.tmodel"), "--data", at("text.txt"), "--batch", "2", "--seq", "8"]
    train("one step", at, base + ["-o", at("one"), "--steps", "1"])
    same("one line", [m["step"] for m in steps(at("one"))], [1])
    train("T = 1", at, base[:3] + ["-o", at("t1"), "--steps", "2", "--seq", "1", "--batch", "1"])
    train("tapering from step 0", at, base + ["-o", at("zero"), "--steps", "3", "--variant", "all-aux"])
    same("calibrated before it", events(at("zero"))[0], (0, "taper_start"))
    cli.report("below 1 from the first step", not steps(at("zero"))[0]["g"]["internal"] < 1)
    train("one step from 0 to its end", at, base + ["-o", at("both"), "--steps", "1", "--variant", "all"])
    same("its gate", steps(at("both"))[0]["g"], {"internal": 0, "final": 0})
    train("full metrics", at, base + ["-o", at("full"), "--steps", "2", "--metrics", "full", "--variant", "internal"])
    full = steps(at("full"))[0]["full"]
    wanted = ["grad_norm.qkv", "grad_norm.o", "grad_norm.mlp_in", "grad_norm.mlp_out", "grad_norm.embedding", "layers.0.scale", "layers.0.attn_norm.calibration_error", "logit_margin"]
    cli.report("keys of full", [k for k in wanted if k not in full] and sorted(full))
    out, err = train("a loss that is not finite", at, base + ["-o", at("nan"), "--steps", "50", "--lr", "1e30", "--clip", "0", "--checkpoint-every", "1"], 1, r"step \d+")
    last = steps(at("nan"))[-1]["step"]
    cli.report("the last good checkpoint stands", not os.path.exists(at("nan", "checkpoint-%d" % last, "manifest.json")) or "the last checkpoint is" not in err)


def starts(at):
    """A live norm becomes a taper norm with gate 1: nothing changes but the source."""
    live = cli.write_model(at("live"), source=LIVE, items={k: v for k, v in cli.tensors().items() if "taper" not in k}, metadata={})
    args = ["--data", at("text.txt"), "--steps", "2", "--batch", "1", "--seq", "8", "--lr", "1e-38", "--warmup", "2", "--checkpoint-every", "1", "--variant", "all"]
    train("--init", at, [at("live.tmodel"), "--init", live, "-o", at("converted")] + args, 0, "(?s)^(?!.*taken as 1).*3 live norms became taper norms")
    cli.expect("logits bit-equal", ["check", live, at("converted", "checkpoint-1"), "--json"], 0, stdout=re.compile(rb'"max_abs": 0,'), env=at.env)
    train("a folder starts from its weights", at, [live, "-o", at("own")] + args, 0, None)
    cli.report("and says so", "starts from the weights of" not in open(at("own", "log.txt")).read())
    train("a tapered source from live weights", at, [at("tiny.tmodel"), "--init", os.path.join(live, "weights.safetensors"), "-o", at("plain")] + args)
    cli.expect("logits bit-equal again", ["check", live, at("plain", "checkpoint-1"), "--json"], 0, stdout=re.compile(rb'"max_abs": 0,'), env=at.env)
    done = cli.write_model(at("tapered"), gates={"internal": 0, "final": 0})
    train("weights whose gates are 0 cannot taper again", at, [done, "-o", at("again")] + args, 1, "gate 'internal' is 0 in the weights, and a schedule begins at 1")
    tapers = cli.write_model(at("tapers"), source=re.sub(r"train \{[^}]*\}", "", cli.SOURCE) + "train { tokenizer bytes; taper internal(start = 1, end = 2); steps 4; }\n", gates={"internal": 0, "final": 0})
    cli.expect("and compile says how", ["compile", tapers, "--for", "both", "-o", at("again.tpack")], 1, "give --gate internal=1, or, .* --variant baseline .an option of train", env=at.env)
    train("but go on without norms", at, [done, "-o", at("on"), "--variant", "baseline"] + args[:-2])
    same("with gates 0", steps(at("on"))[0]["g"], {"internal": 0, "final": 0})
    train("a shape that does not fit", at, [at("tiny.tmodel"), "-D", "ff=20", "--init", live, "-o", at("wrong")] + args, 1, "shape .* in the file")


def packages(at):
    cli.expect("compile --for train", ["compile", at("odd.tmodel"), "--for", "train", "-o", at("t.tpack")], 0, "wrote", env=at.env)
    items, meta = cli.read_safetensors(at("t.tpack"))
    same("it says what it is for", meta["taper.for"], "train")
    cli.report("it holds the parameters", [n for n in ("taper.param.wte", "taper.recipe", "taper.file.model.tmodel") if n not in items])
    cli.expect("it does not decode", ["run", at("t.tpack"), "--prompt", "a"], 1, "--for decode or both", env=at.env)
    folder = cli.write_model(at("both-model"), gates={"internal": 1, "final": 1})
    cli.expect("compile --for both", ["compile", folder, "--for", "both", "-o", at("b.tpack")], 0, "wrote", env=at.env)
    cli.expect("it decodes", ["run", at("b.tpack"), "--prompt", "a", "-n", "2"], 0, env=at.env)
    cli.expect("-O means nothing to training", ["compile", at("odd.tmodel"), "--for", "train", "-O1"], 2, "option '-O' acts on nothing with --for train", env=at.env)
    cli.expect("--emit of both", ["compile", folder, "--for", "both", "--emit", "ir"], 2, "two", env=at.env)
    for word, found in (("ir", b"entry @train_warm"), ("plan", b"."), ("source", b"taper_train_image"), ("ast", b"model odd")):
        cli.expect("--emit=%s --for train" % word, ["compile", at("odd.tmodel"), "--for", "train", "--emit=" + word], 0, stdout=re.compile(found), env=at.env)


def signals(at):
    run = at("signal")
    args = ["train", at("tiny.tmodel"), "--data", at("text.txt"), "-o", run, "--steps", "1000000", "--batch", "1", "--seq", "8", "-t", "1"]
    p = subprocess.Popen([cli.TAPERC] + args, env=dict(os.environ, **at.env), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if p.poll() is not None or (os.path.exists(os.path.join(run, "metrics.jsonl")) and os.path.getsize(os.path.join(run, "metrics.jsonl")) > 2000):
                break
            try:
                p.wait(0.1)
            except subprocess.TimeoutExpired:
                pass
        p.send_signal(signal.SIGTERM)
        err = p.communicate(timeout=60)[1].decode()
    finally:
        p.kill()
    last = steps(run)[-1]["step"]
    cli.report("SIGTERM ends with a checkpoint", (p.returncode != 3 or "stopped by SIGTERM after step %d" % last not in err or not os.path.exists(os.path.join(run, "checkpoint-%d" % last, "manifest.json"))) and err)
    # one step of minutes: the first signal waits for its end, the second does not, of whichever kind it is
    run = at("twice")
    args = ["train", at("tiny.tmodel"), "--data", at("text.txt"), "-o", run, "--steps", "1", "--accumulate", "65536", "--batch", "64", "--seq", "8", "-t", "1"]
    p = subprocess.Popen([cli.TAPERC] + args, env=dict(os.environ, **at.env), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if p.poll() is not None or os.path.exists(os.path.join(run, "metrics.jsonl")):
                break
            time.sleep(0.1)
        time.sleep(0.5)
        p.send_signal(signal.SIGINT)
        time.sleep(0.5)
        waits = p.poll() is None
        p.send_signal(signal.SIGTERM)
        p.wait(10)
        cli.report("a second signal of another kind ends at once", (not waits or p.returncode != -signal.SIGTERM) and "%s, exit %s" % (waits, p.returncode))
    except subprocess.TimeoutExpired:
        cli.report("a second signal of another kind ends at once", "it went on")
    finally:
        p.kill()
        p.wait()


def full_disk(at):
    """Files may not grow beyond a limit: the run fails, what was whole stays whole."""
    run = at("disk")
    args = [at("tiny.tmodel"), "--data", at("text.txt"), "--checkpoint-every", "2", "-o", run, "--val-fraction", "0"] + TINY

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))

    train("a run to be cut", at, args[:-2] + ["--seed", "3"])
    good = contents(os.path.join(run, "checkpoint-6"))
    for k in (4, 6):
        shutil.rmtree(os.path.join(run, "checkpoint-%d" % k))
    os.truncate(os.path.join(run, "log.txt"), 0)
    p = subprocess.run([cli.TAPERC, "train"] + args + ["--resume", "-t", "2"], env=dict(os.environ, TAPER_CACHE_DIR=at.env["TAPER_CACHE_DIR"]), capture_output=True, preexec_fn=limit, timeout=120)
    cli.report("a full disk", p.returncode != 3 and "exit %d: %s" % (p.returncode, p.stderr.decode()))
    cli.report("no half checkpoint", [f for f in os.listdir(run) if f.startswith("checkpoint") and not os.path.exists(os.path.join(run, f, "manifest.json"))])
    train("goes on with space", at, args + ["--resume"], 0, "goes on after step 2")
    same("to the same end", contents(os.path.join(run, "checkpoint-6")), good)


GROUPS = [refusals, layout, losses, clamps, resumes, falls_back, edges, starts, packages, signals, full_disk]
QUICK_GROUPS = [refusals, layout, resumes]


def main():
    with tempfile.TemporaryDirectory() as root:
        at = Place(root)
        text = open(TEXT, "rb").read()
        open(at("text.txt"), "wb").write(text[:20000])
        open(at("val.txt"), "wb").write(text[30000:31001])
        open(at("tiny.tmodel"), "w").write(cli.SOURCE)
        open(at("live.tmodel"), "w").write(LIVE)
        open(at("odd.tmodel"), "w").write(ODD)
        open(at("nonorm.tmodel"), "w").write("model n(vocab = 256, context = 8, d = 4) { param e: [vocab, d]; forward(t) { return linear(embed(t, e), weight = e); } } train { tokenizer bytes; }")
        cli.run(["compile", at("tiny.tmodel"), "--emit=ir", "-o", at("m.tir")])
        only = sys.argv[2:] or [g.__name__ for g in (QUICK_GROUPS if QUICK else GROUPS)]
        for group in GROUPS:
            if group.__name__ in only:
                group(at)
    sys.exit(1 if cli.failed else 0)


main()

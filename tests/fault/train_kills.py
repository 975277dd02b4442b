#!/usr/bin/python3
"""kill -9 of `taperc train` at random moments: what is resumed ends where the uninterrupted run ended, bit for bit, and no half checkpoint is ever taken for a whole one."""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
KILLS = int(os.environ.get("TAPERC_KILLS", "2" if os.environ.get("TAPERC_QUICK") else "6"))
STEPS = 120
SOURCE = """model tiny(vocab = 256, d = 12, layers = 2, context = 8) {
  gate inner[layers];
  gate last;
  param wte: [vocab, d];
  forward(tokens) {
    let x = embed(tokens, wte);
    repeat layers as "layers" with i {
      let h = taper_rms_norm(x, name = "norm", gate = inner[i]);
      let v = split_heads(linear(h, d, name = "v"), 3);
      x = x + linear(silu(merge_heads(attention(rope(v), rope(v), v))), d, name = "o");
    }
    return linear(taper_rms_norm(x, name = "norm", gate = last), weight = wte);
  }
}
train { tokenizer bytes; optimizer adamw(lr = 1e-2); schedule cosine(warmup = 5%); taper inner(step = 20, every = 30); taper last(start = 30, end = 90); anchor fixed_target(weight = 0.1); }
"""


def command(root, run):
    return [TAPERC, "train", os.path.join(root, "m.tmodel"), "--data", os.path.join(root, "t.txt"), "-o", run, "--steps", str(STEPS), "--batch", "2", "--seq", "8", "--seed", "9",
            "--checkpoint-every", "2", "--keep", "3", "--eval-every", "40", "--resume", "-t", "1"]


def metrics(run):
    lines = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]
    return [{k: v for k, v in m.items() if k != "tokens_per_s"} for m in lines if m.get("event") != "resume"]


def end_of(run):
    folder = os.path.join(run, "checkpoint-%d" % STEPS)
    return {f: open(os.path.join(folder, f), "rb").read() for f in ("weights.safetensors", "optimizer.safetensors", "model.tmodel")}


def main():
    rng = random.Random(4)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        env = dict(os.environ, TMPDIR=root, TAPER_CACHE_DIR=os.environ.get("TAPER_CACHE_DIR", os.path.join(root, "cache")))
        open(os.path.join(root, "m.tmodel"), "w").write(SOURCE)
        open(os.path.join(root, "t.txt"), "wb").write(open(os.path.join(ROOT, "examples/data/kjv.txt"), "rb").read(30000))
        whole = os.path.join(root, "whole")
        subprocess.run(command(root, whole), env=env, capture_output=True)
        began = time.time()
        p = subprocess.run(command(root, os.path.join(root, "again")), env=env, capture_output=True, text=True)
        seconds = time.time() - began
        if p.returncode:
            print("not ok an uninterrupted run: %s" % p.stderr.strip().replace("\n", " | "))
            sys.exit(1)
        expected, lines, kills, runs, bad = end_of(whole), metrics(whole), 0, 0, []
        print("%s the same run twice" % ("ok" if end_of(os.path.join(root, "again")) == expected else "not ok"))
        while kills < KILLS and not bad:
            run, runs = os.path.join(root, "run%d" % runs), runs + 1
            for attempt in range(40):
                p = subprocess.Popen(command(root, run), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                try:
                    p.wait(rng.uniform(0, seconds) if attempt < 20 and kills < KILLS else 120)
                except subprocess.TimeoutExpired:
                    p.send_signal(signal.SIGKILL)
                    kills += 1
                err = p.communicate()[1]
                if p.returncode == 0:
                    break
                if p.returncode != -signal.SIGKILL or re.search("passed over", err):
                    bad.append("exit %d: %s" % (p.returncode, err.strip()))
                    break
            if not bad and end_of(run) != expected:
                bad.append("another end after %d kills" % kills)
            if not bad and metrics(run) != lines:
                bad.append("other metrics after %d kills" % kills)
            left = [f for f in os.listdir(run) if f.startswith("checkpoint-") and ".tmp-" in f]
            if not bad and left:
                bad.append("left behind: %s" % left)
        print("%s %d kills in %d runs%s" % ("ok" if not bad else "not ok", kills, runs, (": " + bad[0].replace("\n", " | ")) if bad else ""))
        sys.exit(1 if bad else 0)


main()

#!/usr/bin/python3
"""taperc scan --stress: the ids that harm, the clamp that mends them, the copy that says what was measured, and what each key of the JSON means."""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPERC = os.path.join(os.path.abspath(sys.argv[1]), "taperc")
MODELS = os.path.join(ROOT, "examples/models")
KJV = os.path.join(ROOT, "examples/data/kjv.txt")


def taperc(*args, code=0):
    p = subprocess.run([TAPERC] + list(args), capture_output=True, text=True, errors="replace")
    if p.returncode != code:
        raise RuntimeError("taperc %s: exit %d: %s" % (" ".join(args), p.returncode, p.stderr.strip()[-400:]))
    return p


def verdict(ok, name, detail=""):
    print("%s %s%s" % ("ok" if ok else "not ok", name, ": %s" % detail if detail else ""), flush=True)


def tensors(path):
    """name -> (dtype, shape, bytes), by hand: the format is simple."""
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]]) for k, v in header.items() if k != "__metadata__"}, header.get("__metadata__", {})


def stress(model):
    s = json.loads(taperc("scan", os.path.join(MODELS, model), "--data", KJV, "--stress", "--json").stdout)["stress"]
    tokens = {t["id"]: t for t in s["tokens"]}
    order = [t["dloss"] if t["dloss"] is not None else math.inf for t in s["tokens"]]
    verdict(sorted(tokens) == list(range(256)) and order == sorted(order, reverse=True), model + ": every id, the most harmful first")
    verdict(set(s["tokens"][0]) == {"id", "text", "seen", "row_norm_ratio", "scale_ratio", "dloss"} and tokens[65]["text"] == "A", model + ": keys of a token")
    counts = open(KJV, "rb").read()[:-1]
    verdict(all(tokens[i]["seen"] == counts.count(bytes([i])) for i in range(256)), model + ": seen, counted in the data")
    return s, tokens


def kjv_all():
    s, tokens = stress("kjv-all")
    harm = [t for t in tokens.values() if t["dloss"] > s["harm_dloss"]]
    verdict(s["clamp_rows"] == 1.5 and s["mended"], "kjv-all: the clamp", s["clamp_rows"])
    verdict(len(harm) == 194 and all(t["seen"] == 0 or t["text"] == "Q" for t in harm), "kjv-all: the unused bytes and 'Q' do harm", len(harm))
    verdict(s["worst_ratio"] > 1e4 and tokens[ord("Q")]["scale_ratio"] > 500 and tokens[ord("e")]["scale_ratio"] < 5, "kjv-all: scale ratios", "%.3g" % s["worst_ratio"])
    verdict(3.3 < tokens[0]["row_norm_ratio"] < 4 and 0.8 < tokens[ord("e")]["row_norm_ratio"] < 1.4, "kjv-all: row norms")
    verdict([t["clamp_rows"] for t in s["tries"]] == [None, 2, 1.5] and s["tries"][-1]["ids_that_harm"] == 0, "kjv-all: clamps tried")
    with tempfile.TemporaryDirectory() as root:
        data = os.path.join(root, "validation.txt")
        open(data, "wb").write(open(KJV, "rb").read()[-206893:][:206849])
        ce = json.loads(taperc("eval", os.path.join(MODELS, "kjv-all"), "--data", data, "--json", "--clamp-rows=%g" % s["clamp_rows"]).stdout)["ce"]
        verdict(ce <= 1.29, "kjv-all: mean validation loss by that clamp, 2.2186 before", "%.4f" % ce)


def others():
    s, _ = stress("kjv-internal")
    verdict(s["clamp_rows"] == 2, "kjv-internal: the live final norm bounds the harm", s["clamp_rows"])
    s, _ = stress("kjv-ln")
    verdict(s["clamp_rows"] is None and s["mended"] and len(s["tries"]) == 1, "kjv-ln: no clamp is needed")
    live = ["--gate", "internal=1", "--gate", "final=1"]
    s = json.loads(taperc("scan", os.path.join(MODELS, "kjv-all"), "--data", KJV, "--stress", "--json", *live).stdout)["stress"]
    verdict(s["clamp_rows"] is None and len(s["tries"]) == 1, "live norms: no clamp is tried")


def norms():
    p = taperc("scan", os.path.join(MODELS, "kjv-all"), "--data", KJV, "--json")
    verdict(json.loads(p.stdout)["norms"] == [], "kjv-all: no norm is left")
    keys = ["name", "r_p5", "r_p50", "r_p95", "c", "kl_one", "dloss_one", "kl_upto", "dloss_upto"]
    live = ["--gate", "internal=1", "--gate", "final=1"]
    p = json.loads(taperc("scan", os.path.join(MODELS, "kjv-ln"), "--data", KJV, "--json", *live).stdout)
    names = [n["name"] for n in p["norms"]]
    verdict(len(names) == 9 and names[0] == "layers.0.attn_norm" and names[-1] == "norm" and all(list(n) == keys for n in p["norms"]), "kjv-ln: keys, in order", names)
    verdict(p["norms"][0]["kl_one"] == p["norms"][0]["kl_upto"] and all(n["r_p5"] <= n["r_p50"] <= n["r_p95"] and n["kl_one"] > 0 for n in p["norms"]), "kjv-ln: numbers that belong together")
    lines = taperc("scan", os.path.join(MODELS, "kjv-ln"), "--data", KJV, *live).stdout.split("\n")
    losses = [float(line.split()[7]) for line in lines[1:10]]
    verdict(lines[0].startswith("norm") and losses == sorted(losses, reverse=True), "kjv-ln: ranked", losses)


def trained():
    with tempfile.TemporaryDirectory() as root:
        small = ["-D", "d=12", "-D", "layers=1", "-D", "heads=1", "-D", "ff=20", "-D", "context=24"]
        run = os.path.join(root, "run")
        p = taperc("train", os.path.join(MODELS, "kjv-all/model.tmodel"), *small, "--data", KJV, "--steps", "20", "--eval-windows", "20", "-o", run, "--json")
        r = json.loads(p.stdout)
        verdict("clamp_rows" in r["stress"] and r["stress"]["worst_ratio"] > 0, "train: stress at its end", p.stdout)
        got, _ = tensors(os.path.join(r["checkpoint"], "weights.safetensors"))
        verdict(got["taper.scale"][0] == "F32" and got["wte.seen"][1] == [256], "train: its weights say counts and scale")


def copy():
    with tempfile.TemporaryDirectory() as root:
        to = os.path.join(root, "a folder/copy/")
        os.mkdir(os.path.dirname(os.path.dirname(to)))
        source = os.path.join(MODELS, "kjv-all")
        taperc("scan", source, "--data", KJV, "--stress", "-o", to)
        got, metadata = tensors(to + "weights.safetensors")
        was, old = tensors(source + "/weights.safetensors")
        verdict(all(got.get(k) == v for k, v in was.items()) and metadata == old, "copy: weights and metadata")
        verdict(set(got) - set(was) <= {"wte.seen", "taper.scale"} | {k for k in got if k.startswith("__pad.")} and "wte.seen" in got, "copy: two tensors more")
        counts = struct.unpack("<256q", got["wte.seen"][2])
        data = open(KJV, "rb").read()[:-1]
        verdict(got["wte.seen"][:2] == ("I64", [256]) and all(counts[i] == data.count(bytes([i])) for i in range(256)), "copy: counts")
        median, high = struct.unpack("<2f", got["taper.scale"][2])
        verdict(0.4 < median < 0.6 and 1 < high < 1.5, "copy: scale, as with the clamp", "%.3f %.3f" % (median, high))
        verdict(open(to + "model.tmodel").read() == open(source + "/model.tmodel").read(), "copy: source")
        p = taperc("run", to, "--prompt", "And ", "-n", "3", "--temp", "0", "--clamp-rows=2")
        verdict(bool(p.stdout), "copy: --clamp-rows goes by its counts")
        taperc("check", to, source)
        s = json.loads(taperc("scan", to, "--data", os.path.join(source, "model.tmodel"), "--stress", "--json").stdout)["stress"]
        verdict(abs(s["scale_median"] - median) < 1e-6 and {t["id"]: t["seen"] for t in s["tokens"]}[ord("e")] == counts[ord("e")], "copy: scan goes by its numbers")
        for name, prompt, extra, count in [("names the first", "And Quit", [], 1), ("stays silent", "And the ", [], 0), ("is content with a clamp", "And Quit", ["--clamp-rows=1.5"], 0),
                                           ("leaves live norms alone", "And Quit", ["--gate", "internal=1", "--gate", "final=1"], 0)]:
            err = taperc("run", to, "--prompt", prompt, "-n", "20", "--temp", "0", *extra).stderr
            said = [line for line in err.split("\n") if "drives the residual stream out of range" in line]
            verdict(len(said) == count and (not said or "token 81 ('Q') at position 4" in said[0]), "guard of run: " + name, err.strip()[-200:] if len(said) != count else "")
        verdict("holds a model already" in taperc("scan", source, "--data", KJV, "-o", to, code=1).stderr, "copy: never over a model")


def refusals():
    m = os.path.join(MODELS, "kjv-all")
    with tempfile.TemporaryDirectory() as root:
        empty, package = os.path.join(root, "empty"), os.path.join(root, "m.tpack")
        open(empty, "w").close()
        taperc("compile", m, "--arch=native", "-o", package)
        cases = [("no data", [m], 2, "give --data FILE"), ("no file", [m, "--data", empty + "x"], 1, "empty"), ("empty data", [m, "--data", empty], 1, "empty"),
                 ("a package", [package, "--data", KJV], 1, "the model that it was made of"), ("--clamp-rows", [m, "--data", KJV, "--clamp-rows=2"], 2, "leave it out"),
                 ("-D and -o", [m, "--data", KJV, "-o", root + "/x", "-D", "context=64"], 2, "without -D context"),
                 ("-o in no folder", [m, "--data", KJV, "-o", root + "/x/y"], 3, "cannot be created")]
        for name, args, code, words in cases:
            p = taperc("scan", *args, "--stress", code=code)
            verdict(words in p.stderr, "refused: " + name, p.stderr.strip()[-120:] if words not in p.stderr else "")


for part in (kjv_all, others, norms, trained, copy, refusals):
    try:
        part()
    except (RuntimeError, KeyError, TypeError) as e:
        verdict(False, part.__name__, repr(e))

#!/usr/bin/python3
"""Logits of every small model against its reference (fp64), and greedy and sampled ids against the CPU's; one JSON object a line.

A row: name, kind (logits | ids), ok; logits: max_rel, tol; else why. Exit 1 where one is not ok.
"""
import json
import sys

import gpu_lib as g


def check(m):
    status, out, err = g.run([g.path("bin", "taperc"), "check", g.package(m["package"]), g.path("models", m["reference"]), "--device", g.DEVICE, "--json", "--tol", repr(m["tol"])], g.left())
    row = {"name": m["name"], "kind": "logits", "dtype": m["dtype"], "tol": m["tol"], "ok": status == 0}
    try:
        row["max_rel"] = json.loads(out)["max_rel"]
    except (ValueError, KeyError):
        row["why"] = "exit %d: %s" % (status, err.strip()[-400:])
    return row


def same_ids(m):
    status, out, err = g.run([g.path("bin", "taperc"), "run", g.package(m["package"]), "--device", g.DEVICE] + m["arguments"], g.left())
    row = {"name": m["name"], "kind": "ids", "dtype": m["dtype"], "ok": status == 0 and out.strip() == m["ids"], "arguments": " ".join(m["arguments"])}
    if not row["ok"]:
        row["why"] = "exit %d: %s, not %s: %s" % (status, out.strip()[:300], m["ids"][:300], err.strip()[-300:])
    return row


def main():
    bad = 0
    for work, rows in ((check, g.manifest()["models"]), (same_ids, g.manifest()["ids"])):
        for m in rows:
            if g.DRY and not m["dry"]:
                continue
            row = {"name": m["name"], "kind": work.__name__, "ok": False, "why": "no time was left"} if g.left() < 1 else work(m)
            bad += not row["ok"]
            g.put(row)
    return 1 if bad else 0


sys.exit(main())

#!/usr/bin/python3
"""Decode tables: every size, type and batch, its four variants side by side in one process (gpu-decode). One JSON object a line.

Packages travel without weights; they are unpacked, filled with random numbers (gpu-fill), timed and deleted, the small sizes first, f32 first.
"""
import json
import lzma
import os
import struct
import sys

import gpu_lib as g


def unpack(skeleton, out):
    """NAME.skeleton.xz: the header of the package and the tensors `taper.*`; the weights become a hole."""
    with lzma.open(skeleton, "rb") as f, open(out, "wb") as o:
        (size,) = struct.unpack("<Q", f.read(8))
        header = f.read(size)
        tensors = {k: v["data_offsets"] for k, v in json.loads(header.decode()).items() if k != "__metadata__"}
        o.write(struct.pack("<Q", size) + header)
        for name, (begin, end) in sorted(tensors.items(), key=lambda t: t[1]):
            if name.startswith("taper."):
                o.seek(8 + size + begin)
                o.write(f.read(end - begin))
        o.truncate(8 + size + max(end for _, end in tensors.values()))


def time_one(entry, batches, folder, seconds):
    packages = []
    for variant in entry["variants"]:
        p = os.path.join(folder, variant + ".tpack")
        unpack(g.path("decode", entry["variants"][variant]), p)
        packages.append(variant + "=" + p)
    status, _, err = g.run([g.path("bin", "gpu-fill")] + [p.split("=", 1)[1] for p in packages], g.left())
    if status:
        return [{"size": entry["size"], "dtype": entry["dtype"], "error": "gpu-fill: " + err.strip()[-400:]}]
    rows = []
    for batch in batches:
        command = [g.path("bin", "gpu-decode"), "--device", g.DEVICE, "--batch", str(batch), "--tokens", "4" if g.DRY else "128", "--rounds", "1" if g.DRY else "20"]
        share = max(min(seconds / len(batches), g.left() / 2), 2)
        status, out, err = g.run(command + ["--seconds", str(max(int(share / 2), 1))] + packages, g.left())
        row = {"size": entry["size"], "dtype": entry["dtype"], "shape": entry["shape"], "parameters": entry["parameters"], "batch": batch}
        try:
            row.update(json.loads(out))
        except ValueError:
            row["error"] = "exit %d: %s" % (status, err.strip()[-400:])
        rows.append(row)
    return rows


def main():
    folder = os.path.join(os.environ.get("work", "."), "decode")
    os.makedirs(folder, exist_ok=True)
    entries = [e for e in g.manifest()["decode"] if (e["size"] == "tiny") == g.DRY]
    bad = 0
    for i, entry in enumerate(entries):
        if g.left() < 4:
            rows = [{"size": entry["size"], "dtype": entry["dtype"], "error": "no time was left"}]
        else:
            try:
                rows = time_one(entry, (1, 2) if g.DRY else (1, 8), folder, g.left() / (len(entries) - i))
            except (OSError, ValueError, struct.error, lzma.LZMAError) as e:
                rows = [{"size": entry["size"], "dtype": entry["dtype"], "error": str(e)}]
        for row in rows:
            bad += "error" in row or any("error" in r for r in row["rows"])
            g.put(row)
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
    return 1 if bad or not entries else 0


sys.exit(main())

#!/usr/bin/python3
"""The calibration program on the simulator: every exchange between blocks (graph nodes, PDL edges, barriers, flags) ends in the numbers that the host
computes, whatever the order of the blocks; its command line."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(os.path.abspath(sys.argv[1]), "gpu-calibrate")
POSSIBLE = ("read_1_mib", "launch", "launch_sync", "graph_launch_sync", "graph_node", "graph_pdl_edge", "exchange_node", "exchange_pdl", "exchange_grid_barrier", "exchange_counter", "exchange_flag")


def run(*words, **env):
    p = subprocess.run([PROGRAM] + list(words), env=dict(os.environ, **env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    return p.returncode, p.stdout, p.stderr


def expect(name, good, why=""):
    print("ok %s" % name if good else "not ok %s: %s" % (name, str(why).replace("\n", " | ")[-600:]))


def main():
    for words in (["--rounds", "0"], ["--device", "tpu"], ["--rounds"], ["--fast", "1"], ["--build", "x"]):
        status, out, err = run(*words)
        expect("usage: " + " ".join(words), status == 2 and not out and "usage" in err, err)
    with tempfile.TemporaryDirectory() as folder:
        status, out, err = run("--device", "sim", "--images", folder)
        expect("no image: the folder is named", status == 3 and folder in err, err)
        status, out, err = run("--build", os.path.join(ROOT, "cuda/gpu/calibrate.cu"), folder, "compute_90,compute_80")
        if status == 3 and "NVRTC" in err:
            print("skip gpu-calibrate: " + err.strip())
            return
        for seed in ("0", "1", "2"):
            status, out, err = run("--device", "sim", "--images", folder, "--rounds", "2", TAPER_SIM_SEED=seed)
            rows = {r["name"]: r for r in json.loads(out)["rows"]} if status == 0 else {}
            expect("seed %s: all that is possible agrees with the host" % seed, all(rows.get(n, {}).get("n") == 2 for n in POSSIBLE) and not any("error" in r for r in rows.values()), err or out)
        status, out, err = run("--device", "sim", "--images", folder, "--rounds", "1", TAPER_SIM_CAPABILITY="80")
        rows = {r["name"]: r for r in json.loads(out)["rows"]} if status == 0 else {}
        expect("sm_80: no programmatic launch, said", "not_possible" in rows.get("exchange_pdl", {}) and rows["exchange_flag"]["n"] == 1 and json.loads(out)["image"] == "compute_80.ptx", err or out)
        status, out, err = run("--device", "sim", "--images", folder, "--rounds", "1", "--only", "exchange_flag")
        expect("one measurement alone", status == 0 and [r["name"] for r in json.loads(out)["rows"]] == ["exchange_flag"], err or out)
        status, out, err = run("--device", "cuda:99", "--images", folder)
        expect("no GPU, or not that one: exit 3", status == 3 and err.startswith("gpu-calibrate: error: "), err)


main()

#!/usr/bin/python3
"""--device=sim from the command line: the same ids in deferred and eager mode, in any order of blocks, with graphs and without, on devices old and new; what
it says when its memory is small or there is no device; what bench counts."""
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import lib_cli as cli  # noqa: E402

PROMPT = ["--prompt", "In", "--print-tokens", "-n", "18", "--seed", "3"]


def ids(name, package, extra=(), env=None, device="sim"):
    out, _ = cli.expect(name, ["run", package, "--device", device] + PROMPT + list(extra), 0, env=env)
    return out


def same_ids(root, model):
    cuda, cpu = os.path.join(root, "m.tpack"), os.path.join(root, "cpu.tpack")
    cli.expect("compile for the simulator", ["compile", model, "--target", "cuda", "--arch", "compute_80,compute_90", "-o", cuda], 0)
    cli.expect("compile for the CPU", ["compile", model, "-o", cpu], 0)
    modes = (("deferred", [], {}), ("eager", [], {"TAPER_SIM_EAGER": "1"}), ("blocks in another order, no graphs", ["--no-graph"], {"TAPER_SIM_SEED": "5", "TAPER_SIM_THREADS": "1"}),
             ("sm_80", [], {"TAPER_SIM_CAPABILITY": "80"}))
    for what, options, count in (("greedy", ["--temp", "0"], 4), ("sampled", ["--temp", "0.7", "--top-k", "20"], 2)):
        want = ids(what + " on the CPU", cpu, options, device="cpu")
        for name, extra, env in modes[:count]:
            got = ids("%s, %s" % (what, name), cuda, options + extra, env)
            cli.report("%s, %s: the CPU's ids" % (what, name), None if got == want else "%r, wanted %r" % (got, want))
    cli.expect("a driver older than the PTX", ["run", cuda, "--device", "sim"] + PROMPT, 1, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION.* PTX is newer than the driver", env={"TAPER_SIM_DRIVER": "12020"})
    return cuda


def failures(package):
    run = ["run", package, "--device", "sim"] + PROMPT
    cli.expect("little memory", run, 3, "bytes; [0-9]+ of its 100000 are free", env={"TAPER_SIM_MEMORY": "100000"})
    cli.expect("no device", run, 3, "finds no device", env={"TAPER_SIM_DEVICES": "0"})
    cli.expect("no memory for the variables of the kernels", run, 3, "CUDA_ERROR_OUT_OF_MEMORY.*; free some", env={"TAPER_SIM_MEMORY": "1"})
    cli.expect("bad variable", run, 3, "CUDA_ERROR_INVALID_VALUE.*: TAPER_SIM_CAPABILITY is '12', no whole number from 75 to 121", env={"TAPER_SIM_CAPABILITY": "12"})
    cli.expect("no number", run, 3, "TAPER_SIM_MEMORY is 'much', no whole number from 1 to ", env={"TAPER_SIM_MEMORY": "much"})
    cli.expect("a GPU that is too old", run, 1, "is a GPU of sm_75, kernels need sm_80 or newer; ", env={"TAPER_SIM_CAPABILITY": "75"})
    cli.expect("a hang", run, 3, "no end in sight", env={"TAPER_SIM_BUDGET": "10"})


def cubins(root, model):
    """--arch sm_NN brings PTX along: the simulator takes it and has nothing to say about the cubin."""
    package = os.path.join(root, "cubin.tpack")
    cli.expect("compile a cubin", ["compile", model, "--target", "cuda", "--arch", "sm_90", "-o", package], 0)
    run = ["run", package, "--device", "sim", "--prompt", "In", "-n", "2", "--temp", "0"]
    _, said = cli.expect("a package of cubins", run, 0)
    cli.report("nothing is said of the cubin", None if not said else repr(said))
    cli.expect("no PTX that it takes", run, 1, "a GPU of sm_80 that executes PTX only: the package has sm_90,compute_90; compile it with --arch compute_80 or lower", b"", env={"TAPER_SIM_CAPABILITY": "80"})


def traffic(package):
    out, _ = cli.expect("bench --json", ["bench", package, "--device", "sim", "--json", "-n", "3", "-p", "3", "-r", "1"], 0)
    row = json.loads(out)
    used = row["weight_read_bytes_per_token"] / (32 * row["weight_sectors_per_token"])
    times = row["weight_read_bytes_per_token"] / row["bytes_per_token"]
    cli.report("sectors of weights are used", None if 0.95 <= used <= 1 else "%g" % used)
    cli.report("weights are read once a token", None if 0.98 <= times <= 1.05 else "%g times" % times)
    cli.report("more than weights is read", None if row["sectors_per_token"] > row["weight_sectors_per_token"] > 0 else str(row))
    want = re.compile(rb"of weights and tables, in .* sectors, .*% of them used; [01].* times the weights' [0-9]+ bytes\n.*instructions of warps\n  the interpreter's own rate, no GPU's: [0-9.e+]+ million instructions of warps a second\n$")
    out, _ = cli.expect("bench", ["bench", package, "--device", "sim", "-n", "3", "-p", "3", "-r", "1"], 0, stdout=want)
    cli.report("no time of the simulator stands there as a GPU's", None if not re.search(rb"tok/s|GB/s", out) else repr(out))


def main():
    model = os.path.join(cli.MODELS, "kjv-all")
    with tempfile.TemporaryDirectory() as root:
        if cli.run(["compile", model, "--target", "cuda", "--emit=ptx"])[0] == 3:
            print("skip the simulator's commands: no NVRTC here")
        else:
            package = same_ids(root, model)
            failures(package)
            traffic(package)
            cubins(root, model)
    sys.exit(1 if cli.failed else 0)


main()

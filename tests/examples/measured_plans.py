#!/usr/bin/env python3
"""measured_plans.py PENTAD_PLAN TRAIN_LM MPIEXEC: the machine that pentad_plan --measure measures, the mesh that train_lm
--mesh auto takes, and that bad input is said once, by one rank, before anything is measured."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from common import expect

PENTAD_PLAN, TRAIN_LM, MPIEXEC = sys.argv[1:]
TINY = ["--layers", "2", "--hidden", "32", "--heads", "2", "--ffn", "48", "--seq", "16", "--batch", "8", "--steps", "2"]


def run(ranks, program, *flags):
    return subprocess.run([MPIEXEC, "-n", str(ranks), program, *flags], capture_output=True, text=True, timeout=200)


def refused(done, sentence):
    expect(done.returncode == 2, f"exit status {done.returncode}: {done}")
    lines = [line for line in done.stderr.splitlines() if sentence in line]
    expect(len(lines) == 1, f"wanted once: {sentence!r}, got {done.stderr!r}")


def measured(folder):
    for ranks in (1, 2):
        path = folder / f"machine{ranks}.json"
        done = run(ranks, PENTAD_PLAN, "--measure", "--hardware-out", str(path))
        expect(done.returncode == 0 and not done.stdout and not done.stderr, done)
        machine = json.loads(path.read_text())
        expect(machine["devices"] == ranks, machine)
        for key in ("memory_bytes", "memory_bandwidth", "launch_s"):
            expect(machine[key] > 0, f"{key} of {machine}")
        expect(min(machine["peak_flops"][key] for key in ("bf16", "f32")) > 1e8, machine)
        expect(len(machine["links"]) == (1 if ranks > 1 else 0), machine)
        expect(0 <= machine["sharing"] <= 1, machine)
        plan = ["--model", "llama-1b", "--seq", "128", "--global-batch", "8", "--dtype", "f32", "--json"]
        answer = run(1, PENTAD_PLAN, *plan, "--hardware-json", str(path), "--evaluate", f"dp={ranks}")
        expect(json.loads(answer.stdout)["step_s"] > 0, answer)
    done = run(2, PENTAD_PLAN, *plan, "--measure", "--evaluate", "dp=2")
    expect(done.returncode == 0 and json.loads(done.stdout)["step_s"] > 0, done)
    refused(run(2, PENTAD_PLAN, "--measure", "--hardware", "h100", "--hardware-out", str(folder / "x")),
            "--hardware has no meaning with --measure")
    refused(run(2, PENTAD_PLAN, "--measure", "--modle", "llama-1b"), "there is no flag --modle: did you mean --model?")


def taken(folder):
    for flags in ([], ["--experts", "4", "--sequence-parallel", "on", "--zigzag"]):
        done = run(2, TRAIN_LM, "--mesh", "auto", *TINY, *flags)
        expect(done.returncode == 0, done)
        found = re.search(r"^--mesh (\S+) is planned to be the fastest: .* a step$", done.stdout, re.MULTILINE)
        expect(found, done.stdout)
        extents = [int(item.split("=")[1]) for item in found[1].split(",")]
        expect(extents == [2], done.stdout)
    # With one sequence, one layer and one head there is one axis left, and with one token none: half of it would be padding.
    narrow = ["--layers", "1", "--hidden", "32", "--heads", "1", "--ffn", "47", "--batch", "1", "--steps", "2", "--seq"]
    done = run(2, TRAIN_LM, "--mesh", "auto", *narrow, "16")
    expect(done.returncode == 0 and "--mesh cp=2 is planned" in done.stdout, done)
    refused(run(2, TRAIN_LM, "--mesh", "auto", *narrow, "1"), "--mesh auto: no mesh of 2 ranks divides this model and batch")
    refused(run(2, TRAIN_LM, "--mesh", "auto", *TINY, "--schedule-file", str(folder / "none")), "--mesh auto does not know")


with tempfile.TemporaryDirectory() as name:
    measured(pathlib.Path(name))
    taken(pathlib.Path(name))

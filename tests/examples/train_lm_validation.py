#!/usr/bin/env python3
"""train_lm_validation.py TRAIN_LM MPIEXEC: the loss on --validation is the same on any mesh, changes nothing of the training, and is refused
where there is nothing to compute it from."""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from common import expect

TRAIN_LM, MPIEXEC = sys.argv[1:]
SMALL = ["--layers", "2", "--hidden", "32", "--heads", "4", "--ffn", "48", "--seq", "16", "--batch", "8", "--dtype", "f64",
         "--ignore-token", "101", "--experts", "4", "--quiet"]


def run(ranks, *flags):
    return subprocess.run([MPIEXEC, "-n", str(ranks), TRAIN_LM, *SMALL, *map(str, flags)], capture_output=True, text=True, timeout=200)


def log_of(folder, ranks, *flags):
    log = folder / "log"
    done = run(ranks, "--log", log, *flags)
    expect(done.returncode == 0 and not done.stdout and not done.stderr, done)
    return [json.loads(line) for line in log.read_text().splitlines()]


def refused(done, sentence):
    expect(done.returncode == 2 and not done.stdout and done.stderr == f"train_lm: {sentence}\n", f"wanted {sentence!r}: {done}")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    draw = random.Random(1)
    for file in ("data", "held-out"):
        (folder / file).write_text("".join(draw.choice("etaoin shrdlu") for _ in range(4000)))
    (folder / "short").write_text("short")
    data = ["--data", folder / "data"]
    held_out = ["--validation", folder / "held-out", "--validation-batches", "3"]

    five = ["--steps", "5"]
    plain = log_of(folder, 1, *data, *five)
    one = log_of(folder, 1, *data, *five, *held_out, "--validate-every", "2")
    expect([i for i, line in enumerate(one) if "validation_loss" in line] == [1, 3, 5], one)
    for a, b in zip(plain, one, strict=True):
        expect(all(b[key] == a[key] for key in a if key != "tokens_per_s"), f"training with validation differs: {a}, {b}")
    for mesh in ("dp=2,pp=2,tp=2", "ep=2,cp=2"):
        ranks = 8 if "dp" in mesh else 4
        other = log_of(folder, ranks, *data, *five, *held_out, "--validate-every", "2", "--mesh", mesh)
        for a, b in zip(one, other, strict=True):
            if "validation_loss" in a:
                expect(abs(b["validation_loss"] - a["validation_loss"]) < 1e-12, f"{mesh}: {a}, {b}")
        unchanged = log_of(folder, ranks, *data, *five, "--mesh", mesh)
        expect([line.get("bytes") for line in unchanged] == [line.get("bytes") for line in other], "the steps' bytes have those of validation")
    # The first batch of the same text is the batch after no step.
    same = log_of(folder, 1, *data, "--steps", "0", "--validation", folder / "data", "--validation-batches", "1")[-1]
    expect(same["validation_loss"] == same["final_loss"], same)

    refused(run(2, "--validation-batches", "4"), "--validation-batches 4 needs data held out: --validation FILE")
    quiet = run(1, "--validation", folder / "held-out")
    expect(quiet.returncode == 2 and "--log" in quiet.stderr, quiet)
    refused(run(2, "--validate-every", "2"), "--validate-every 2 needs data held out: --validation FILE")
    log = ["--log", folder / "log"]
    refused(run(2, *log, "--validation", folder / "none"), f"--validation: cannot read {folder / 'none'}: No such file or directory")
    short = run(2, *log, "--validation", folder / "short")
    expect(short.returncode == 2 and short.stderr.startswith(f"train_lm: --validation: {folder / 'short'} ") and short.stderr.count("\n") == 1, short)
    out = folder / "held-out"
    written = run(1, "--validation", out, "--log", out)
    expect(written.returncode == 2 and "--validation" in written.stderr and len(out.read_text()) == 4000, written)

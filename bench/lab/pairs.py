#!/usr/bin/env python3
"""Pairs of a forward and a backward that hide each other's dispatch, across hosts joined by links of a known rate.

    pairs.py --train-lm BINARY [--hosts N] [--rate 1gbit] [--delay 0ms] [--steps N] [--rounds N] [FLAG...]

One rank a host, which share the experts; more flags go to train_lm. A round is a run with 1F1B, one with DualPipeV, whose passes
are pairs, and runs of one rank each with its share of the batch, at the same time, which send nothing. Times are medians over
the steps after the first two. Dispatch is what 1F1B takes beyond the runs that send nothing.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import hosts

MODEL = ["--layers", 8, "--hidden", 256, "--heads", 4, "--ffn", 512, "--experts", 8, "--vocab", 512, "--seq", 128, "--quiet"]
MICRO_BATCHES, WARM_UP = 8, 2  # of one sequence on a rank


def seconds_of(log, ranks):
    lines = [json.loads(line) for line in pathlib.Path(log).read_text().splitlines()]
    return statistics.median(MICRO_BATCHES * ranks * 128 / line["tokens_per_s"] for line in lines[WARM_UP:] if "step" in line)


def command(o, ranks, schedule, flags, log):
    return list(map(str, [o.train_lm, "--mesh", f"ep={ranks}", "--batch", MICRO_BATCHES * ranks, "--micro-batches", MICRO_BATCHES,
                          "--schedule", schedule, *MODEL, "--steps", o.steps, *flags, "--log", log]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    hosts.add_arguments(parser, ranks_per_host=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    o, flags = parser.parse_known_args()
    ranks = o.hosts * o.ranks_per_host
    gains = []
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        try:
            with hosts.Hosts(o.hosts, o.rate, o.delay) as lab:
                for _ in range(o.rounds):
                    seconds = {}
                    for schedule in ("1f1b", "dualpipe-v"):
                        if lab.mpiexec(o.ranks_per_host, command(o, ranks, schedule, flags, log)).returncode != 0:
                            sys.exit("pairs.py: train_lm failed")
                        seconds[schedule] = seconds_of(log, ranks)
                    logs = [pathlib.Path(folder) / f"alone{i}" for i in range(ranks)]
                    runs = [subprocess.Popen(["mpiexec", "-n", "1", *command(o, 1, "1f1b", flags, own)]) for own in logs]
                    if any(run.wait() != 0 for run in runs):
                        sys.exit("pairs.py: train_lm failed")
                    alone = statistics.median(seconds_of(own, 1) for own in logs)
                    gains.append(seconds["1f1b"] / seconds["dualpipe-v"])
                    print(f"a step of 1f1b {seconds['1f1b'] * 1e3:.0f} ms, of pairs {seconds['dualpipe-v'] * 1e3:.0f} ms, of ranks that send "
                          f"nothing {alone * 1e3:.0f} ms: dispatch {1 - alone / seconds['1f1b']:.2f} of 1f1b, pairs {gains[-1]:.2f} times as fast")
        except hosts.Skip as reason:
            print(f"lab: skipped: {reason}")
            sys.exit()
    print(f"pairs: {statistics.median(gains):.2f} times the tokens/s of 1f1b, median of {o.rounds} rounds")


main()

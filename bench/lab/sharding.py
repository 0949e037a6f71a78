#!/usr/bin/env python3
"""ZeRO-3 across hosts joined by links of a known rate: what of the time of its gathers and reductions is hidden.

    sharding.py --train-lm BINARY [--hosts N] [--rate 1gbit] [--delay 0ms] [--steps N] [--pairs N] [FLAG...]

One rank a host; more flags go to train_lm. A pair is a run on all hosts, and runs of one rank each with its share of the
batch, at the same time, which send nothing. Communication alone is what a rank sends in a step at the rate of the link. Hidden:
(computation + communication - step) / the lesser of the two, from medians over the steps after the first two.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import hosts

MODEL = ["--layers", 6, "--hidden", 512, "--heads", 8, "--ffn", 1408, "--vocab", 512, "--seq", 256, "--quiet"]
SEQUENCES, WARM_UP = 8, 2  # of a rank


def steps_of(log, ranks):
    """Seconds of each step after the first ones, and the bytes that a rank sends in the last."""
    lines = [json.loads(line) for line in pathlib.Path(log).read_text().splitlines()]
    seconds = [SEQUENCES * ranks * 256 / line["tokens_per_s"] for line in lines[WARM_UP:] if "step" in line]
    return seconds, [line["bytes"]["dp"] / ranks for line in lines if "step" in line][-1]


def alone(o, ranks, folder, flags):
    """As many trainings as there are hosts, side by side."""
    logs = [pathlib.Path(folder) / f"alone{i}" for i in range(ranks)]
    runs = [subprocess.Popen(list(map(str, ["mpiexec", "-n", 1, o.train_lm, "--batch", SEQUENCES, *MODEL, "--steps", o.steps,
                                            *flags, "--log", log]))) for log in logs]
    if any(run.wait() != 0 for run in runs):
        sys.exit("sharding.py: train_lm failed")
    return statistics.median(s for log in logs for s in steps_of(log, 1)[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    hosts.add_arguments(parser, ranks_per_host=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=3)
    o, flags = parser.parse_known_args()
    ranks = o.hosts * o.ranks_per_host
    found = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [pathlib.Path(folder) / f"together{i}" for i in range(o.pairs)]
        computing = []
        try:
            with hosts.Hosts(o.hosts, o.rate, o.delay) as lab:
                rate = lab.link_rate(o.ranks_per_host)
                for log in logs:
                    computing.append(alone(o, ranks, folder, flags))
                    command = [o.train_lm, "--mesh", f"dp={ranks}", "--zero", 3, "--batch", SEQUENCES * ranks, *MODEL, "--steps",
                               o.steps, *flags, "--log", log]
                    if lab.mpiexec(o.ranks_per_host, list(map(str, command))).returncode != 0:
                        sys.exit("sharding.py: train_lm failed")
        except hosts.Skip as reason:
            print(f"lab: skipped: {reason}")
            sys.exit()
        for log, compute in zip(logs, computing):
            seconds, sent = steps_of(log, ranks)
            step, communication = statistics.median(seconds), sent / rate
            found.append((compute + communication - step) / min(compute, communication))
            print(f"computation {compute * 1e3:.0f} ms, communication {communication * 1e3:.0f} ms ({sent / 1e6:.0f} MB), "
                  f"step {step * 1e3:.0f} ms: hidden {found[-1]:.2f}")
    print(f"ZeRO-3, {' '.join(map(str, flags)) or 'one micro-batch'}: hidden {statistics.median(found):.2f}, median of {o.pairs} pairs")


main()

#!/usr/bin/env python3
"""Pairs of a forward and a backward that hide each other's dispatch, across hosts joined by links of a known rate.

    pairs.py --train-lm BINARY [--hosts N] [--rate 1gbit] [--delay 0ms] [--steps N] [--rounds N] [FLAG...]

One rank a host, which share the experts; tokens are routed by a hash, so that ranks get as many rows. More flags go to train_lm.
A round is a run with 1F1B whose rows travel all at once, one whose rows travel in parts, and one with DualPipeV, whose passes are
pairs. Times are medians over the steps after the first two. The first run is repeated over links of 40 Gbit/s: what it takes less
is dispatch, and the reduction of gradients at the end of a step. Messages are several times the 200 kB that a link of the lab takes
at once.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import hosts
import library_kernels
import training

SEQ, MICRO_BATCHES = 1024, 8  # of one sequence on a rank
MODEL = ["--layers", 8, "--hidden", 256, "--heads", 4, "--ffn", 512, "--experts", 8, "--vocab", 512, "--seq", SEQ, "--router", "hash", "--quiet"]
AT_ONCE = "1f1b, rows all at once"
RUNS = {AT_ONCE: ["--schedule", "1f1b", "--row-parts", 1], "1f1b, rows in parts": ["--schedule", "1f1b"], "pairs": ["--schedule", "dualpipe-v"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    hosts.add_arguments(parser, ranks_per_host=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    o, flags = parser.parse_known_args()
    library_kernels.say(pathlib.Path(o.train_lm).parent)
    ranks = o.hosts * o.ranks_per_host
    taken = {name: [] for name in RUNS}
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"

        def step(lab, run):
            """Seconds of a step."""
            training.on_hosts(lab, o.ranks_per_host, [o.train_lm, "--mesh", f"ep={ranks}", "--batch", MICRO_BATCHES * ranks, "--micro-batches",
                                                      MICRO_BATCHES, *MODEL, "--steps", o.steps, *flags, *RUNS[run], "--log", log])
            return statistics.median(training.seconds(log, MICRO_BATCHES * ranks * SEQ))

        try:
            with hosts.Hosts(o.hosts, o.rate, o.delay) as lab, hosts.Hosts(o.hosts, "40gbit", "0ms") as fast:
                for _ in range(o.rounds):
                    unhindered = step(fast, AT_ONCE)
                    for name in RUNS:
                        taken[name].append(step(lab, name))
                    print(f"a step over fast links {unhindered:.2f} s; "
                          + "; ".join(f"{name} {took[-1]:.2f} s, of which {1 - unhindered / took[-1]:.2f} for sending" for name, took in taken.items()), flush=True)
        except hosts.Skip as reason:
            print(f"lab: skipped: {reason}")
            sys.exit()
    for name in list(RUNS)[:-1]:
        gain = statistics.median(other / pairs for other, pairs in zip(taken[name], taken["pairs"]))
        print(f"pairs: {gain:.2f} times the tokens/s of {name}, median of {o.rounds} rounds")


main()

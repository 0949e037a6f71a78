#!/usr/bin/env python3
"""Pairs of a forward and a backward that hide each other's dispatch, across hosts joined by links of a known rate.

    pairs.py --train-lm BINARY [--hosts N] [--rate 1gbit] [--delay 0ms] [--steps N] [--rounds N] [FLAG...]

One rank a host, which share the experts; tokens are routed by a hash, so that ranks get as many rows. More flags go to train_lm.
A round is a run with 1F1B, one with DualPipeV, whose passes are pairs, and runs of one rank each with its share of the batch, at
the same time, which send nothing. Times are medians over the steps after the first two. What 1F1B takes beyond the runs that
send nothing is the part of dispatch that it does not hide, and the reduction of gradients at the end of a step.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import hosts
import training

MODEL = ["--layers", 8, "--hidden", 256, "--heads", 4, "--ffn", 512, "--experts", 8, "--vocab", 512, "--seq", 256, "--router", "hash", "--quiet"]
MICRO_BATCHES = 16  # of one sequence on a rank


def command(o, ranks, schedule, flags, log):
    return [o.train_lm, "--mesh", f"ep={ranks}", "--batch", MICRO_BATCHES * ranks, "--micro-batches", MICRO_BATCHES, "--schedule",
            schedule, *MODEL, "--steps", o.steps, *flags, "--log", log]


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
        logs = [pathlib.Path(folder) / f"alone{i}" for i in range(ranks)]
        try:
            with hosts.Hosts(o.hosts, o.rate, o.delay) as lab:
                for _ in range(o.rounds):
                    seconds = {}
                    for schedule in ("1f1b", "dualpipe-v"):
                        training.on_hosts(lab, o.ranks_per_host, command(o, ranks, schedule, flags, log))
                        seconds[schedule] = statistics.median(training.seconds(log, MICRO_BATCHES * ranks * 256))
                    training.side_by_side(command(o, 1, "1f1b", flags, own) for own in logs)
                    alone = statistics.median(s for own in logs for s in training.seconds(own, MICRO_BATCHES * 256))
                    gains.append(seconds["1f1b"] / seconds["dualpipe-v"])
                    print(f"a step of 1f1b {seconds['1f1b'] * 1e3:.0f} ms, of pairs {seconds['dualpipe-v'] * 1e3:.0f} ms, of ranks that send "
                          f"nothing {alone * 1e3:.0f} ms: 1f1b sends for {1 - alone / seconds['1f1b']:.2f} of it, pairs {gains[-1]:.2f} times as fast",
                          flush=True)
        except hosts.Skip as reason:
            print(f"lab: skipped: {reason}")
            sys.exit()
    print(f"pairs: {statistics.median(gains):.2f} times the tokens/s of 1f1b, median of {o.rounds} rounds")


main()

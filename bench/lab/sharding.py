#!/usr/bin/env python3
"""ZeRO-3 across hosts joined by links of a known rate: what of the time of its gathers and reductions is hidden.

    sharding.py --train-lm BINARY [--hosts N] [--rate 1gbit] [--delay 0ms] [--steps N] [--pairs N] [FLAG...]

One rank a host; more flags go to train_lm. A pair is a run on all hosts, and runs of one rank each with its share of the
batch, at the same time, which send nothing. Communication alone is what a rank sends in a step at the rate of the link. Hidden:
(computation + communication - step) / the lesser of the two, from medians over the steps after the first two.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import hosts
import library_kernels
import training

MODEL = ["--layers", 6, "--hidden", 512, "--heads", 8, "--ffn", 1408, "--vocab", 512, "--seq", 256, "--quiet"]
SEQUENCES = 8  # of a rank


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    hosts.add_arguments(parser, ranks_per_host=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=3)
    o, flags = parser.parse_known_args()
    library_kernels.say(pathlib.Path(o.train_lm).parent)
    ranks = o.hosts * o.ranks_per_host
    found = []
    with tempfile.TemporaryDirectory() as folder:
        together = pathlib.Path(folder) / "together"
        logs = [pathlib.Path(folder) / f"alone{i}" for i in range(ranks)]
        try:
            with hosts.Hosts(o.hosts, o.rate, o.delay) as lab:
                rate = lab.link_rate(o.ranks_per_host)
                for _ in range(o.pairs):
                    training.side_by_side([o.train_lm, "--batch", SEQUENCES, *MODEL, "--steps", o.steps, *flags, "--log", log]
                                          for log in logs)
                    compute = statistics.median(s for log in logs for s in training.seconds(log, SEQUENCES * 256))
                    training.on_hosts(lab, o.ranks_per_host,
                                      [o.train_lm, "--mesh", f"dp={ranks}", "--zero", 3, "--batch", SEQUENCES * ranks, *MODEL,
                                       "--steps", o.steps, *flags, "--log", together])
                    step = statistics.median(training.seconds(together, SEQUENCES * ranks * 256))
                    sent = training.steps(together)[-1]["bytes"]["dp"] / ranks
                    communication = sent / rate
                    found.append((compute + communication - step) / min(compute, communication))
                    print(f"computation {compute * 1e3:.0f} ms, communication {communication * 1e3:.0f} ms ({sent / 1e6:.0f} MB), "
                          f"step {step * 1e3:.0f} ms: hidden {found[-1]:.2f}", flush=True)
        except hosts.Skip as reason:
            print(f"lab: skipped: {reason}")
            sys.exit()
    print(f"ZeRO-3, {' '.join(map(str, flags)) or 'one micro-batch'}: hidden {statistics.median(found):.2f}, median of {o.pairs} pairs")


main()

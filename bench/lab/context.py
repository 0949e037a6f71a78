#!/usr/bin/env python3
"""Attention over cp across hosts joined by links of a known rate: what each strategy sends, and what of that time is hidden.

    context.py --bench BINARY [--hosts N] [--ranks-per-host N] [--rate 1gbit] [--delay 0ms] [--seq N] [--heads N] [--repeats N] [--pairs N]

A pair is a run on all hosts and a run of as many ranks on one host, which send nothing over a link: that is computation, and
copies within a host. Communication alone is what the host that sends most sends in a forward and a backward pass, at the rate
of the link. Hidden: (computation + communication - pass on hosts) / communication. Ends with a line where the lab cannot be set up.
"""

import argparse
import json
import statistics
import subprocess
import sys

import hosts

STRATEGIES = ("ring", "allgather", "two-level", "double-ring")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    hosts.add_arguments(parser)
    parser.add_argument("--seq", type=int, default=16384)
    parser.add_argument("--heads", type=int, default=4, help="of 64, of queries, keys and values")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=3)
    o = parser.parse_args()
    command = list(map(str, [o.bench, o.ranks_per_host, o.repeats, o.seq, o.heads]))
    ranks = o.hosts * o.ranks_per_host
    pairs = []
    try:
        with hosts.Hosts(o.hosts, o.rate, o.delay) as lab:
            rate = lab.link_rate(o.ranks_per_host)
            for _ in range(o.pairs):
                both = [subprocess.run(["mpiexec", "-n", str(ranks), *command], stdout=subprocess.PIPE, text=True),
                        lab.mpiexec(o.ranks_per_host, command, stdout=subprocess.PIPE, text=True)]
                if any(done.returncode != 0 for done in both):
                    sys.exit("context.py: the benchmark failed")
                pairs.append([json.loads(done.stdout) for done in both])
    except hosts.Skip as reason:
        print(f"lab: skipped: {reason}")
        sys.exit()
    if any((one["hosts"], many["hosts"]) != (1, o.hosts) for one, many in pairs):
        sys.exit("context.py: the ranks are not on the hosts where they were started")
    print(f"{o.heads} heads of 64, a sequence of {o.seq}, forward and backward, f32; medians of {o.pairs} pairs of {o.repeats}")
    print("strategy     sent by a host  communication, ms  of the ring's  computation  on hosts  hidden")
    for name in STRATEGIES:
        sent = pairs[0][1][f"{name} bytes"]
        communication = sent / rate
        alone, together = ([statistics.median(run[name]) for run in runs] for runs in zip(*pairs))
        hidden = statistics.median((a + communication - t) / communication for a, t in zip(alone, together))
        print(f"{name:13}{sent / 1e6:11.1f} MB{communication * 1e3:19.0f}{sent / pairs[0][1]['ring bytes']:15.2f}"
              f"{statistics.median(alone) * 1e3:13.0f}{statistics.median(together) * 1e3:10.0f}{hidden:8.2f}")


main()

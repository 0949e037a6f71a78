#!/usr/bin/env python3
"""A stencil across hosts joined by links of a known rate: how much of the time in which its halo is filled is hidden.

    halo.py --bench BINARY [--hosts N] [--ranks-per-host N] [--rate 1gbit] [--delay 0ms] [--cells N] [--repeats N] [--runs N]

Communication is what filling the halo first adds to the computation. Hidden: (before - beside) / (before - computation), the
median of the runs. Ends with a line where the lab cannot be set up.
"""

import argparse
import json
import statistics
import subprocess
import sys

import hosts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    hosts.add_arguments(parser)
    parser.add_argument("--cells", type=int, default=192, help="along each of the three dimensions of a rank's block")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--runs", type=int, default=3)
    o = parser.parse_args()
    try:
        with hosts.Hosts(o.hosts, o.rate, o.delay) as lab:
            lab.link_rate(o.ranks_per_host)
            runs = []
            for _ in range(o.runs):
                done = lab.mpiexec(o.ranks_per_host, [o.bench, str(o.cells), str(o.repeats)], stdout=subprocess.PIPE, text=True)
                if done.returncode != 0:
                    sys.exit("halo.py: the benchmark failed")
                runs.append(json.loads(done.stdout))
    except hosts.Skip as reason:
        print(f"lab: skipped: {reason}")
        sys.exit()
    hidden = statistics.median((run["before"] - run["beside"]) / (run["before"] - run["computation"]) for run in runs)
    ms = {name: statistics.median(run[name] for run in runs) * 1e3 for name in ("computation", "before", "beside")}
    print(f"{o.cells}^3 cells a rank, f64, a halo of 2: {runs[0]['bytes'] / 1e6:.1f} MB sent by a rank; computation "
          f"{ms['computation']:.1f} ms, with the halo before it {ms['before']:.1f}, beside it {ms['beside']:.1f}: hidden {hidden:.2f}")


main()

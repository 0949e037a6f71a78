#!/usr/bin/env python3
"""Transfers beside products, across hosts joined by links of a known rate: what of the transfers' time is hidden.

    overlap.py --bench BINARY [--hosts N] [--rate 1gbit] [--delay 0ms] [--repeats N]

One rank a host. Times are medians; "hidden" is the median over rounds of (blocking - overlapped) / communication alone.
Ends with a line where the lab cannot be set up.
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
    hosts.add_arguments(parser, ranks_per_host=1)
    parser.add_argument("--repeats", type=int, default=11)
    o = parser.parse_args()
    try:
        with hosts.Hosts(o.hosts, o.rate, o.delay) as lab:
            seconds, counted = lab.prove()
            print(f"lab: {o.hosts} hosts of {o.ranks_per_host} rank, {o.rate}; 8 MiB from the first to the last in {seconds * 1e3:.0f} ms, "
                  f"{counted} bytes on its device", flush=True)
            done = lab.mpiexec(o.ranks_per_host, [o.bench, "--repeats", str(o.repeats)], stdout=subprocess.PIPE, text=True)
    except hosts.Skip as reason:
        print(f"lab: skipped: {reason}")
        return
    if done.returncode != 0:
        sys.exit(f"overlap.py: {o.bench} ended with {done.returncode}")
    print("what                        passes                 compute, ms  communication  blocking  overlapped  hidden")
    for line in done.stdout.splitlines():
        row = json.loads(line)
        middle = {name: statistics.median(row[name]) * 1e3 for name in ("blocking", "overlapped", "communication")}
        compute = statistics.median(row["compute"]) * 1e3 if "compute" in row else middle["blocking"] - middle["communication"]
        hidden = statistics.median((b - v) / c for b, v, c in zip(row["blocking"], row["overlapped"], row["communication"]))
        print(f"{row['what']:28}{row['passes']:22}{compute:12.1f}{middle['communication']:15.1f}{middle['blocking']:10.1f}"
              f"{middle['overlapped']:12.1f}{hidden:8.2f}")


main()

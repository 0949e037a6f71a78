#!/usr/bin/env python3
"""Transfers beside products, across hosts joined by links of a known rate: what of the transfers' time is hidden.

    overlap.py --bench BINARY [--hosts N] [--rate 1gbit] [--delay 0ms] [--repeats N]

One rank a host. Times are medians; "hidden" is the median over rounds of (blocking - overlapped) / communication alone. The
computation of ring attention is what blocking leaves without communication. Ends with a line where the lab cannot be set up.
"""

import argparse
import pathlib
import statistics

import hosts
import library_kernels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    hosts.add_arguments(parser, ranks_per_host=1)
    parser.add_argument("--repeats", type=int, default=11)
    o = parser.parse_args()
    library_kernels.say(pathlib.Path(o.bench).parent)
    (rows,) = hosts.lines_of(o, [o.bench, o.repeats])
    print("what                        passes                 compute, ms  communication  blocking  overlapped  hidden")
    for row in rows:
        middle = {name: statistics.median(row[name]) * 1e3 for name in ("blocking", "overlapped", "communication")}
        compute = statistics.median(row["compute"]) * 1e3 if "compute" in row else middle["blocking"] - middle["communication"]
        hidden = statistics.median((b - v) / c for b, v, c in zip(row["blocking"], row["overlapped"], row["communication"]))
        print(f"{row['what']:28}{row['passes']:22}{compute:12.1f}{middle['communication']:15.1f}{middle['blocking']:10.1f}"
              f"{middle['overlapped']:12.1f}{hidden:8.2f}")


main()

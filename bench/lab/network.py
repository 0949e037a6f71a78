#!/usr/bin/env python3
"""Collectives across hosts joined by links of a known rate: in two levels, by the MPI library, round one ring.

    network.py --bench BINARY [--hosts N] [--ranks-per-host N] [--rate 1gbit] [--delay 0ms] [BYTES...]

Times are medians of pairs of calls made in turn; "link" is what the busiest host's device sent, over the bytes of the
unscattered side. "ledger" is what the ledgers of a host's ranks say that they sent to other hosts, over the payload that
its device counted, of the host where the two differ most; for 1 MB and more. The payload is the device's bytes less 66 for
each packet it counted: the headers of Ethernet, IPv4 and TCP with time stamps, which is also all of an acknowledgement.
(These devices pass segments of up to 64 KiB as one packet; where 1448 bytes of payload fill a packet of 1514, headers are
4.6 % of the payload.) Ends with a line where the lab cannot be set up.
"""

import argparse
import json
import statistics
import subprocess
import sys

import hosts


def median(row, what, column):
    return statistics.median(sample[column] for sample in row[what])


def ratio(row, what, to="mpi"):
    return statistics.median(a[0] / b[0] for a, b in zip(row[what], row[to]))


def ledger(row, what):
    if what not in row or row["bytes"] < 1e6:
        return "       -"
    return f"{statistics.median(sample[3] / sample[2] for sample in row[what]):8.3f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    hosts.add_arguments(parser)
    parser.add_argument("bytes", nargs="*", type=int, default=[64 << 10, 1 << 20, 16 << 20])
    o = parser.parse_args()
    try:
        with hosts.Hosts(o.hosts, o.rate, o.delay) as lab:
            seconds, counted = lab.prove()
            print(f"lab: {o.hosts} hosts of {o.ranks_per_host} ranks, {o.rate}; 8 MiB from the first to the last in {seconds * 1e3:.0f} ms, "
                  f"{counted} bytes on its device", flush=True)
            done = lab.mpiexec(o.ranks_per_host, [o.bench, *map(str, o.bytes), "--device", hosts.DEVICE], stdout=subprocess.PIPE, text=True)
    except hosts.Skip as reason:
        print(f"lab: skipped: {reason}")
        return
    if done.returncode != 0:
        sys.exit(f"network.py: {o.bench} ended with {done.returncode}")
    print("operation           bytes    MPI, ms   Pentad/MPI  MPI again  Pentad/ring   link: MPI  Pentad    ring  ledger: MPI  Pentad    ring")
    for line in done.stdout.splitlines():
        row = json.loads(line)
        ring = f"{ratio(row, 'pentad', 'ring'):13.2f}" if "ring" in row else "            -"
        link = f"{median(row, 'ring', 1) / row['bytes']:8.2f}" if "ring" in row else "       -"
        print(f"{row['operation']:15}{row['bytes']:10}{median(row, 'mpi', 0) * 1e3:11.2f}{ratio(row, 'pentad'):13.2f}"
              f"{ratio(row, 'mpi_again'):11.2f}{ring}{median(row, 'mpi', 1) / row['bytes']:12.2f}"
              f"{median(row, 'pentad', 1) / row['bytes']:8.2f}{link}"
              f"     {ledger(row, 'mpi')}{ledger(row, 'pentad')}{ledger(row, 'ring')}")


main()

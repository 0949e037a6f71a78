#!/usr/bin/env python3
"""Across hosts joined by links of a known rate: collectives in two levels, by the MPI library, round one ring; tokens to
experts and back, a row for each choice or one for each node.

    network.py --bench BINARY [--experts BINARY] [--hosts N] [--ranks-per-host N] [--rate 1gbit] [--delay 0ms] [BYTES...]

Times are medians of pairs of calls made in turn; "link" is what the busiest host's device sent, over the bytes of the
unscattered side. "ledger" is what the ledgers of a host's ranks say that they sent to other hosts, over the payload that
its device counted, of the host where the two differ most; for 1 MB and more. The payload is the device's bytes less 66 for
each packet it counted: the headers of Ethernet, IPv4 and TCP with time stamps, which is also all of an acknowledgement.
(These devices pass segments of up to 125 KB as one packet; where 1448 bytes of payload fill a packet of 1514, headers are
4.6 % of the payload.) Ends with a line where the lab cannot be set up.
"""

import argparse
import statistics

import hosts


def median(row, what, column):
    return statistics.median(sample[column] for sample in row[what])


def ratio(row, what, to="mpi"):
    return statistics.median(a[0] / b[0] for a, b in zip(row[what], row[to]))


def ledger(row, what):
    if what not in row or row.get("bytes", 1e6) < 1e6:
        return "       -"
    return f"{statistics.median(sample[3] / sample[2] for sample in row[what]):8.3f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--experts")
    hosts.add_arguments(parser)
    parser.add_argument("bytes", nargs="*", type=int, default=[64 << 10, 1 << 20, 16 << 20])
    o = parser.parse_args()
    device = ["--device", hosts.DEVICE]
    collectives, *experts = hosts.lines_of(o, [o.bench, *o.bytes, *device], *([[o.experts, *device]] if o.experts else []))
    print("operation           bytes    MPI, ms   Pentad/MPI  MPI again  Pentad/ring   link: MPI  Pentad    ring  ledger: MPI  Pentad    ring")
    for row in collectives:
        ring = f"{ratio(row, 'pentad', 'ring'):13.2f}" if "ring" in row else "            -"
        link = f"{median(row, 'ring', 1) / row['bytes']:8.2f}" if "ring" in row else "       -"
        print(f"{row['operation']:15}{row['bytes']:10}{median(row, 'mpi', 0) * 1e3:11.2f}{ratio(row, 'pentad'):13.2f}"
              f"{ratio(row, 'mpi_again'):11.2f}{ring}{median(row, 'mpi', 1) / row['bytes']:12.2f}"
              f"{median(row, 'pentad', 1) / row['bytes']:8.2f}{link}"
              f"     {ledger(row, 'mpi')}{ledger(row, 'pentad')}{ledger(row, 'ring')}")
    for row in sum(experts, []):
        print(f"{row['choices']} of {row['experts']} experts, {row['tokens']} tokens of {row['hidden']} f32 a rank, there and back: "
              f"{median(row, 'choice', 0) * 1e3:.0f} ms a row for each choice; "
              f"time by node / by choice {ratio(row, 'node', 'choice'):.2f} (by choice again {ratio(row, 'choice_again', 'choice'):.2f})\n"
              f"  on the busiest link {median(row, 'choice', 1) / 1e6:.1f} and {median(row, 'node', 1) / 1e6:.1f} MB, a factor of "
              f"{median(row, 'choice', 1) / median(row, 'node', 1):.3f}; of rows {row['rows_by_choice'] / row['rows_by_node']:.3f}; "
              f"ledger / device {ledger(row, 'choice').strip()} and {ledger(row, 'node').strip()}")


main()

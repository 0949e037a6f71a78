"""The collectives beside those of the MPI library and, where PyTorch is installed, of gloo: a table, and a picture.

    collectives.py --bench BINARY --out FOLDER [--ranks 2 4 8] [--smallest BYTES] [--largest BYTES]

A size is that of the unscattered side: what an all-reduce sums, a reduce-scatter takes, an all-gather gives. Times are
medians, the slowest rank's; ratios are medians over pairs of calls made in turn. FOLDER gets collectives.json and
collectives.svg.
"""

import argparse
import importlib.util
import json
import math
import pathlib
import statistics
import subprocess
import sys

import torch_ranks

OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"]
LINES = {"mpi": ("MPI", "#888"), "gloo": ("gloo", "#b80"), "outside": ("Pentad, outside", "#7ac"),
         "segment": ("Pentad, in a segment", "#048"), "bound": ("memory bandwidth", "#c22")}


def pentad_and_mpi(o, ranks):
    """The rows of a run; each is said as it comes, since a run takes minutes."""
    command = ["mpiexec", "-n", str(ranks), o.bench, str(o.smallest), str(o.largest)]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            rows.append(json.loads(line))
            print(f"collectives: {ranks} ranks, {rows[-1]['operation']} of {rows[-1]['bytes']} bytes: {ratio(rows[-1], 'segment'):.2f} of MPI's time in a "
                  f"segment, {ratio(rows[-1], 'outside'):.2f} outside", file=sys.stderr, flush=True)
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {run.returncode}")
    return rows


def gloo(o, ranks):
    if importlib.util.find_spec("torch") is None:
        return []
    return torch_ranks.run("torch_collectives.py", ranks, [o.smallest, min(o.largest, 64 << 20)])


def measure(o):
    results = []
    for ranks in o.ranks:
        rows = pentad_and_mpi(o, ranks)
        print(f"collectives: {ranks} ranks of gloo", file=sys.stderr, flush=True)
        peers = {(g["operation"], g["bytes"]): g["gloo"] for g in gloo(o, ranks)}
        for row in rows:
            if (row["operation"], row["bytes"]) in peers:
                row["gloo"] = peers[row["operation"], row["bytes"]]
        results += rows
    return results


def ratio(row, what):
    return statistics.median(a / b for a, b in zip(row[what], row["mpi"]))


def table(results):
    print("operation        ranks      bytes     MPI, us   segment   outside  MPI again    gloo   bound   (times MPI's)")
    for row in results:
        mpi = statistics.median(row["mpi"])
        peer = f"{statistics.median(row['gloo']) / mpi:7.2f}" if "gloo" in row else "      -"
        print(f"{row['operation']:15}{row['ranks']:6}{row['bytes']:12}{mpi * 1e6:11.1f}{ratio(row, 'segment'):10.2f}"
              f"{ratio(row, 'outside'):10.2f}{ratio(row, 'mpi_again'):11.2f} {peer}{row['bound'] / mpi:8.2f}")


def picture(results):
    """Seconds against bytes, both in powers of ten: a column for each operation, a row for each number of ranks."""
    ranks = sorted({row["ranks"] for row in results})
    width, height, left, top, gap = 210, 170, 60, 60, 30
    sizes = [row["bytes"] for row in results]
    low, high = math.log10(min(sizes)), math.log10(max(sizes)) or 1
    times = [t for row in results for t in (row["bound"], *(statistics.median(row[k]) for k in LINES if k in row and k != "bound"))]
    first, last = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    out = []

    def text(x, y, what, anchor="middle", extra=""):
        out.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" {extra}>{what}</text>')

    for j, (label, colour) in enumerate(LINES.values()):
        x = left + 190 * j
        out.append(f'<path d="M{x} 20h24" stroke="{colour}" stroke-width="2"/>')
        text(x + 30, 24, label, "start")
    for i, n in enumerate(ranks):
        for j, operation in enumerate(OPERATIONS):
            x0, y0 = left + j * (width + gap), top + i * (height + gap + 10)
            across = lambda b: x0 + width * (math.log10(b) - low) / max(high - low, 1e-9)
            up = lambda t: y0 + height * (last - math.log10(t)) / (last - first)
            out.append(f'<rect x="{x0}" y="{y0}" width="{width}" height="{height}" fill="none" stroke="#ccc"/>')
            text(x0 + width / 2, y0 - 6, f"{operation.replace('_', '-')}, {n} ranks")
            for power in range(first, last + 1):
                out.append(f'<path d="M{x0} {up(10.0 ** power):.1f}h{width}" stroke="#eee"/>')
                if j == 0:
                    text(x0 - 4, up(10.0 ** power) + 4, {-6: "1 us", -3: "1 ms", 0: "1 s"}.get(power, f"1e{power} s"), "end")
            for size, name in ((4 << 10, "4K"), (64 << 10, "64K"), (1 << 20, "1M"), (16 << 20, "16M"), (256 << 20, "256M")):
                if low <= math.log10(size) <= high:
                    text(across(size), y0 + height + 13, name)
            for what, (_, colour) in LINES.items():
                points = [(row["bytes"], row[what] if what == "bound" else statistics.median(row[what]))
                          for row in results if row["ranks"] == n and row["operation"] == operation and what in row]
                path = " ".join(f"{across(b):.1f},{up(t):.1f}" for b, t in points)
                dash = ' stroke-dasharray="4 3"' if what == "bound" else ""
                out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
    w, h = left + len(OPERATIONS) * (width + gap), top + len(ranks) * (height + gap + 10)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" font-family="sans-serif" font-size="11">'
            f'<rect width="{w}" height="{h}" fill="white"/>\n' + "\n".join(out) + "\n</svg>\n")


def write(path, content):
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(content)
    unfinished.replace(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--smallest", type=int, default=4 << 10)
    parser.add_argument("--largest", type=int, default=256 << 20)
    o = parser.parse_args()
    o.out.mkdir(parents=True, exist_ok=True)
    results = measure(o)
    table(results)
    write(o.out / "collectives.json", json.dumps(results, indent=0) + "\n")
    write(o.out / "collectives.svg", picture(results))
    print(f"{o.out}/collectives.json and collectives.svg")


main()

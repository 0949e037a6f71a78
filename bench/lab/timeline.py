#!/usr/bin/env python3
"""Trains a small model on hosts of a lab, data parallel, and draws the last step's timeline: the gradients of a bucket are
reduced over the link while the backward pass of the layers before goes on.

    timeline.py --train-lm BINARY --out FILE.svg [--hosts N] [--rate 1gbit] [--delay 0ms] [FLAG...]

More flags go to train_lm. Prints how much of the time in which something is under way is computation.
"""

import argparse
import json
import pathlib
import tempfile

import hosts
import library_kernels

MODEL = ["--layers", 6, "--hidden", 512, "--heads", 8, "--ffn", 1408, "--vocab", 512, "--seq", 256, "--steps", 3, "--zero", 1,
         "--bucket-elements", 1 << 20]
COLOURS = {"gemm": "#2a6f97", "attention": "#d1495b", "update": "#8d99ae"}
UNDER_WAY = "#edae49"


def last_step(events):
    """The spans of the last training step: rank -> [(name, start, end, whether it is in flight)], in milliseconds."""
    ranks = {}
    begun = {}
    for event in events:
        spans = ranks.setdefault(event["pid"], [])
        if event["ph"] == "X":
            spans.append((event["name"], event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3, False))
        elif event["ph"] == "b":
            begun[event["id"]] = event
        elif event["ph"] == "e":
            spans.append((event["name"], begun[event["id"]]["ts"] / 1e3, event["ts"] / 1e3, True))
    updates = sorted(end for name, _, end, _ in ranks[0] if name == "update")
    first, last = updates[-2], updates[-1]
    return first, last, {rank: [s for s in spans if s[1] >= first and s[2] <= last] for rank, spans in sorted(ranks.items())}


def overlapped(spans):
    """Of the time in which something is in flight, the part in which a product or attention is computed; and that time."""
    marks = sorted([(t, kind, change) for name, start, end, flies in spans if flies or name in ("gemm", "attention")
                    for t, kind, change in ((start, flies, 1), (end, flies, -1))])
    count, before, flying, both = {True: 0, False: 0}, 0.0, 0.0, 0.0
    for t, kind, change in marks:
        if count[True] > 0:
            flying += t - before
            both += t - before if count[False] > 0 else 0
        count[kind] += change
        before = t
    return both / flying if flying else 0.0, flying


def picture(first, last, ranks, title):
    left, width, lane = 110, 1100, 34
    across = lambda t: left + width * (t - first) / (last - first)
    out = []

    def text(x, y, what, anchor="start"):
        out.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{what}</text>')

    def bar(y, height, span, colour):
        name, start, end, _ = span
        out.append(f'<rect x="{across(start):.1f}" y="{y:.1f}" width="{max(across(end) - across(start), 0.3):.1f}" height="{height:.1f}" '
                   f'fill="{colour}"><title>{name}, {end - start:.1f} ms</title></rect>')

    text(left, 18, title)
    for i, (name, colour) in enumerate([*COLOURS.items(), ("rest of the passes", "#ccd"), ("under way on the link", UNDER_WAY)]):
        out.append(f'<rect x="{left + 150 * i}" y="28" width="12" height="12" fill="{colour}"/>')
        text(left + 150 * i + 18, 38, name)
    y = 56
    for rank, spans in ranks.items():
        text(left - 8, y + 20, f"rank {rank}", "end")
        for span in spans:
            if span[0] in ("forward", "backward"):
                bar(y, lane, span, "#ccd")
        for span in spans:
            if span[0] in COLOURS and not span[3]:
                bar(y, lane, span, COLOURS[span[0]])
        flights = sorted((s for s in spans if s[3]), key=lambda s: s[1])
        ends = []  # of the last flight of each line
        for span in flights:
            line = next((i for i, end in enumerate(ends) if end <= span[1]), len(ends))
            ends[line:line + 1] = [span[2]]
            bar(y + lane + 3 + 9 * line, 7, span, UNDER_WAY)
        y += lane + 9 * max(len(ends), 1) + 16
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if (last - first) / s <= 12)
    for i in range(int((last - first) / step) + 1):
        out.append(f'<path d="M{across(first + i * step):.1f} {y - 8}v5" stroke="#666"/>')
        text(across(first + i * step), y + 10, f"{i * step} ms", "middle")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 30} {y + 18}" font-family="sans-serif" font-size="11">'
            f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(out) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    hosts.add_arguments(parser, ranks_per_host=1)
    o, flags = parser.parse_known_args()
    library_kernels.say(pathlib.Path(o.train_lm).parent)
    ranks = o.hosts * o.ranks_per_host
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        hosts.lines_of(o, [o.train_lm, "--mesh", f"dp={ranks}", "--batch", 4 * ranks, *MODEL, *flags, "--trace", trace, "--quiet"])
        first, last, spans = last_step(json.loads(trace.read_text())["traceEvents"])
    for rank, mine in spans.items():
        part, flying = overlapped(mine)
        print(f"rank {rank}: of {last - first:.0f} ms something is under way for {flying:.0f}; in {part:.2f} of that the rank computes")
    o.out.write_text(picture(first, last, spans, f"A training step on {o.hosts} hosts of {o.ranks_per_host} rank, {o.rate}: {ranks} ranks of dp"))
    print(o.out)


main()

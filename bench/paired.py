"""Timing one of our benchmarks and a peer in turn, forward and both passes."""

import statistics


def median_of_passes(run, repeats=3):
    """run() gives the seconds of a forward pass and of both passes; its first call is not counted."""
    forward, both = zip(*[run() for _ in range(repeats + 1)][1:])
    return {"forward": statistics.median(forward), "both": statistics.median(both)}


def compare(name, peer, pairs, ours, theirs):
    """Calls ours() and theirs() in turn, each of which gives the seconds of "forward" and "both"; prints the ratios of ours by theirs, and their medians."""
    ratios = {"forward": [], "both": []}
    for pair in range(pairs):
        own, other = ours(), theirs()
        for what in ratios:
            ratios[what].append(own[what] / other[what])
        print(f"  {name}, pair {pair + 1}: " + "   ".join(f"{what} {own[what]:.3f} / {other[what]:.3f} s = {ratios[what][-1]:.3f}" for what in ratios), flush=True)
    print(f"{name}: Pentad / {peer}, medians: forward {statistics.median(ratios['forward']):.3f}, both passes {statistics.median(ratios['both']):.3f}", flush=True)

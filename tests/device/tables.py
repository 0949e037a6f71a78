#!/usr/bin/env python3
"""Tables of what run-on-gpu has measured:

    tables.py RESULTS [PAGE]

prints them, or writes them into PAGE (docs/performance.md) between its lines <!-- gpu --> and <!-- end of gpu -->. Results of a rehearsal are
printed alone.
"""
import argparse
import json
import pathlib
import re
import sys

BEGIN, END = "<!-- gpu -->", "<!-- end of gpu -->"


def scaled(value, unit):
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def part(value):
    return "" if value is None else f"{value:.2f}"


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""] if rows else []


def counted(entries, what):
    """A sentence on tests or runs."""
    outcomes = [entry["outcome"] for entry in entries]
    if not outcomes:
        return []
    lines = [f"{what}: {outcomes.count('passed')} of {len(outcomes)} pass, {outcomes.count('failed')} fail, {outcomes.count('skipped')} were not run."]
    lines += [f"- {entry['name']}: {entry['outcome']}" + (f", {entry['text']}" if entry.get("text") else "") for entry in entries if entry["outcome"] != "passed"]
    return [*lines, ""]


def tables(results):
    parts = {name: value["entries"] for name, value in results["parts"].items()}
    machine, built = results["machine"], results["built"]
    lines = [f"On {machine['gpu']}" + (f" ({machine['memory']}, driver {machine['driver']})" if "driver" in machine else "")
             + f", {machine['cores']} cores; Kokkos {built['Kokkos']}, {built['compiler']}; commit {built['commit']}; PyTorch: {machine['torch']}.", ""]
    lines += counted(parts.get("tests", []), "Tests on 1, 2 and 4 ranks that share the GPU")
    lines += counted(parts.get("train", []), "Runs of `train_lm` beside the host's numbers")
    worst = {}
    for entry in parts.get("train", []):
        if entry["outcome"] == "passed":
            worst[entry["element"]] = max(worst.get(entry["element"], 0), entry["difference"])
    lines += table(("element", "largest relative difference of a loss from the host's"), [(element, f"{value:.1e}") for element, value in worst.items()])
    measured = [entry for entry in parts.get("kernels", []) if entry["outcome"] == "measured"]
    lines += table(("kernel", "speed", "time", "of the peak", "of a copy's speed"),
                   [(f"`{entry['name']}`", scaled(entry["speed"], entry["unit"]), f"{entry['seconds'] * 1e3:.3g} ms", part(entry.get("of_peak")), part(entry.get("of_copy")))
                    for entry in measured if "speed" in entry])
    lines += table(("layer", "forward", "both passes", "of the peak", "of the speed of its products"),
                   [(entry["name"], f"{entry['forward'] * 1e3:.3g} ms", f"{entry['seconds'] * 1e3:.3g} ms", part(entry.get("of_peak")), part(entry.get("of_gemm")))
                    for entry in measured if "forward" in entry])
    lines += table(("time over PyTorch's", "forward", "both passes"),
                   [(entry["name"].removeprefix("attention beside PyTorch, "), part(entry["forward_ratio"]), part(entry["both_ratio"])) for entry in measured if "both_ratio" in entry])
    lines += table(("training", "tokens/s", "of the peak", "of PyTorch's speed"),
                   [(entry["name"], f"{entry['tokens_per_s']:.0f}", part(entry.get("of_peak")), part(entry.get("ratio"))) for entry in parts.get("step", []) if entry["outcome"] == "measured"])
    lines += counted(parts.get("sanitizer", []), "Under compute-sanitizer")
    lines += counted(parts.get("repeats", []), "Again, with a heap that is checked")
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("page", type=pathlib.Path, nargs="?")
    o = parser.parse_args()
    results = json.loads(o.results.read_text())
    text = tables(results)
    if o.page is None:
        print(text, end="")
        return
    if results["rehearsed"]:
        sys.exit("tables: these are the results of a rehearsal: no page is written")
    page = o.page.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"tables: {o.page} has no lines {BEGIN} and {END}")
    o.page.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}{END}", page, flags=re.S))


if __name__ == "__main__":
    main()

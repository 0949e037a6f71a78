#!/usr/bin/env python3
"""train_lm_nodes.py TRAIN_LM MPIEXEC: what a run says of its mesh on several nodes (PENTAD_RANKS_PER_NODE), that the order of axes
which it names works and sends as much as it says, and that --order auto is that order."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from common import expect

TRAIN_LM, MPIEXEC = sys.argv[1:]
SMALL = ["--layers", "2", "--hidden", "64", "--heads", "4", "--ffn", "96", "--seq", "64", "--batch", "8", "--dtype", "f64"]
NOT_COMPARED = "no other order of the axes is compared"


def start(ranks, per_node, *flags):
    flags = flags if "--steps" in flags else ("--steps", "2", *flags)
    environment = dict(os.environ)
    if per_node:
        environment["PENTAD_RANKS_PER_NODE"] = str(per_node)
    small = [word for flag, value in zip(SMALL[::2], SMALL[1::2]) if flag not in flags for word in (flag, value)]
    return subprocess.run([MPIEXEC, "-n", str(ranks), TRAIN_LM, *small, *map(str, flags)], capture_output=True, text=True, timeout=200,
                          env=environment)


def run(ranks, per_node, *flags):
    done = start(ranks, per_node, *flags)
    expect(done.returncode == 0 and not done.stderr, done)
    return done.stdout


def refused(ranks, per_node, sentence, *flags):
    done = start(ranks, per_node, *flags)
    expect(done.returncode == 2 and done.stderr == f"train_lm: {sentence}\n" and not done.stdout, done)


def block(ranks, per_node, *flags):
    """The lines about the nodes: the first and those that are indented below it."""
    first, *lines = run(ranks, per_node, *flags).splitlines()
    return first, [line.strip() for line in lines[:next((i for i, line in enumerate(lines) if not line.startswith("  ")), None)]]


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)

    def losses(*flags):
        log = folder / "log"
        expect(run(4, 2, "--quiet", "--log", log, *flags) == "", "--quiet is not quiet")
        return [(line.get("loss"), line.get("bytes")) for line in map(json.loads, log.read_text().splitlines())]

    expect(block(2, None, "--mesh", "tp=2") == ("mesh tp=2 on one node: nothing crosses a network", []), "one node")
    expect(not run(1, None).startswith("mesh"), "one rank has no mesh to speak of")

    given = ["--mesh", "tp=2,dp=2"]
    first, lines = block(4, 2, *given)
    sent = re.fullmatch(r"mesh tp=2,dp=2 on 2 nodes of 2 ranks: each node sends (\S+ \S+) across the network in a step", first)
    expect(sent and f"tp=2 crosses the network: {sent[1]}" in lines and "dp=2 stays within a node" in lines, (first, lines))
    warning = re.fullmatch(r"warning: (--mesh \S+) would send (\S+ \S+): use it, or --order auto", lines[-1])
    expect(warning and warning[1] == "--mesh dp=2,tp=2", lines)
    other = warning[1].split()
    first, lines = block(4, 2, *other)
    expect(first == f"mesh dp=2,tp=2 on 2 nodes of 2 ranks: each node sends {warning[2]} across the network in a step", first)
    expect(not any("warning" in line for line in lines), lines)
    automatic, lines = block(4, 2, *given, "--order", "auto")
    expect(automatic == first and lines[-1] == f"--order auto: in the order --mesh tp=2,dp=2 each would send {sent[1]}", (automatic, lines))
    expect(block(4, 2, *other, "--order", "auto") == block(4, 2, *other), "the better order is kept")
    # It is the run in that order: its numbers have the same bits.
    expect(losses(*given, "--order", "auto") == losses(*other), "--order auto is not the run in the order that it names")

    # Attention of two levels is split by the nodes, as if that had been asked for.
    for strategy in ("two-level", "double-ring"):
        split = ["--mesh", "cp=4", "--cp", strategy]
        expect(losses(*split) == losses(*split, "--cp-inner", "2"), f"--cp {strategy} is not split by nodes of 2")
        expect(run(4, 2, *split).startswith(f"--cp {strategy} --cp-inner 2 follows the nodes\n"), "the split is not said")
    two_level = ["--mesh", "cp=4", "--cp", "two-level"]  # which sends fewer bytes where nodes are larger
    expect(losses(*two_level) != losses(*two_level, "--cp-inner", "4"), "--cp-inner changes nothing")
    refused(4, 1, "--cp double-ring splits cp = 4 by nodes, and not every node has 2 or more neighbours along it: give --cp-inner N, or take "
            "--cp ring", "--mesh", "cp=4", "--cp", "double-ring")
    refused(4, 4, "--heads 2 over tp = 1 gives 2, which are not divisible by the 4 ranks of cp that exchange heads: try --heads 4", "--mesh", "cp=4",
            "--cp", "two-level", "--heads", "2")

    first, lines = block(4, 3, *given)
    expect(" on 2 nodes of 1 to 3 ranks: " in first and any(NOT_COMPARED in line for line in lines), (first, lines))
    expect(block(4, 3, *given, "--order", "auto") == (first, lines), "no order is taken where none is compared")
    # With experts, across nodes.
    experts = ["--experts", "4", "--mesh", "ep=4"]
    expect(any("choose experts evenly" in line for line in block(4, 2, *experts)[1]), "experts")

    # Local steps of the ranks of a node: hardly anything crosses the network, and the run is another one, which ends in one model.
    def sent_by(*flags):
        units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
        number, unit = re.search(r"each node sends (\S+) (\S+) across", block(4, 2, "--mesh", "dp=4", *flags)[0]).groups()
        return float(number) * units[unit]

    local = ["--local-steps", "1000", "--local-ranks", "2"]
    synchronous, apart = sent_by(), sent_by(*local)
    expect(apart < synchronous / 100, f"{apart} bytes of {synchronous} cross the network with local steps")
    losses_of = [loss for loss, _ in losses("--mesh", "dp=4", "--steps", "5", "--local-steps", "2", "--local-ranks", "2", "--outer-lr", "0.7",
                                            "--outer-momentum", "0.9")]
    expect(all(loss is None or loss > 0 for loss in losses_of), losses_of)

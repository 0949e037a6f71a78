"""Runs of train_lm that programs of the lab time."""

import json
import pathlib
import subprocess
import sys

WARM_UP = 2  # steps that are left out


def steps(log):
    """The lines of a log that are of a step, without the first ones."""
    lines = [json.loads(line) for line in pathlib.Path(log).read_text().splitlines()]
    return [line for line in lines if "step" in line][WARM_UP:]


def seconds(log, tokens):
    """Of each step, which has so many tokens."""
    return [tokens / line["tokens_per_s"] for line in steps(log)]


def on_hosts(lab, ranks_per_host, command):
    if lab.mpiexec(ranks_per_host, list(map(str, command))).returncode != 0:
        sys.exit("lab: train_lm failed")


def side_by_side(commands):
    """Each on one rank, at the same time: they share the machine as ranks do, and send nothing."""
    runs = [subprocess.Popen(list(map(str, ["mpiexec", "-n", 1, *command]))) for command in commands]
    if any([run.wait() != 0 for run in runs]):
        sys.exit("lab: train_lm failed")

#!/usr/bin/env python3
"""Runs the fuzz targets, one after the other: run.py BIN [--seconds N] [--seed N] [--corpus FOLDER] [TARGET...]. BIN is where
they were built (build/fuzz/bin). Without a corpus each begins with valid files alone; in one, what is found new stays. Exit status
1 when a target has a finding: its input is then in the present folder."""
import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

TARGETS = "checkpoint checkpoint_index hardware manifest model_config npy safetensors schedule_json schedule_text token_data trace tuning".split()

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("bin", type=pathlib.Path)
parser.add_argument("--seconds", type=int, default=60, help="of each target (60)")
parser.add_argument("--seed", type=int, default=random.randrange(1, 1 << 31), help="(drawn at random, and printed)")
parser.add_argument("--corpus", type=pathlib.Path, help="a folder that is kept, with one folder for each target")
parser.add_argument("targets", nargs="*", default=TARGETS, choices=TARGETS, metavar="TARGET")
options = parser.parse_args()


def figure(pattern, text):
    found = re.findall(pattern, text)
    return found[-1] if found else "?"


def run(target, seeds, corpus):
    """Whether it has no finding."""
    corpus.mkdir(parents=True, exist_ok=True)
    command = [options.bin / f"fuzz_{target}", corpus, seeds / target, f"-max_total_time={options.seconds}", f"-seed={options.seed}",
               f"-artifact_prefix=fuzz_{target}.", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1", "-max_len=8192"]
    symbols = {"ASAN_OPTIONS": "allow_addr2line=1", "UBSAN_OPTIONS": "print_stacktrace=1:allow_addr2line=1"}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=os.environ | symbols)
    print(f"{target:16}  {figure(r'number_of_executed_units: *([0-9]+)', done.stderr):>11}  {figure(r'cov: ([0-9]+)', done.stderr):>8}  "
          f"{figure(r'ft: ([0-9]+)', done.stderr):>8}  {figure(r'corp: ([0-9]+)', done.stderr):>6}  "
          f"{figure(r'peak_rss_mb: *([0-9]+)', done.stderr):>6}  {'none' if done.returncode == 0 else 'FOUND'}", flush=True)
    if done.returncode != 0:
        print(*[line[:300] for line in done.stderr.splitlines() if not re.match("#[0-9]+\t", line)], sep="\n", flush=True)
    return done.returncode == 0


with tempfile.TemporaryDirectory() as scratch:
    seeds = pathlib.Path(scratch) / "seeds"
    subprocess.run([options.bin / "fuzz_seeds", seeds], check=True)
    print(f"{options.seconds} s for each target, seed {options.seed}")
    print("target             executions  coverage  features  corpus     MB  findings")
    results = [run(target, seeds, (options.corpus or pathlib.Path(scratch)) / target) for target in options.targets]
sys.exit(0 if all(results) else 1)

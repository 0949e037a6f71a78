"""Trains the same dense model with train_lm and with PyTorch DistributedDataParallel, in turn, and prints the ratio.

    training.py --train-lm BINARY --data FILE [--pairs N] [--steps N]

4 layers, hidden 512, 8 heads, ffn 1408, vocab 4096, seq 512, 4 sequences a rank, f32, data parallel over 2 ranks of one
thread. Each pair is a run of each; the figures are medians over the steps after the first two, and over the pairs.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

import torch_ranks

SHAPE = {"layers": 4, "hidden": 512, "heads": 8, "ffn": 1408, "vocab": 4096, "seq": 512}
RANKS, SEQUENCES = 2, 4
WARM_UP = 2


def shape_flags(steps):
    return [x for name, value in {**SHAPE, "batch": RANKS * SEQUENCES, "steps": steps}.items()
            for x in (f"--{name}", str(value))]


def pentad(o):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        done = subprocess.run(["mpiexec", "-n", str(RANKS), o.train_lm, "--mesh", f"dp={RANKS}", "--dtype", "f32",
                               "--data", o.data, "--log", log, *shape_flags(o.steps)],
                              check=True, capture_output=True, text=True)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    speed = re.search(r"GEMM speed of all \d+ ranks \(([\d.]+) ([GT])FLOP/s", done.stdout)
    gemm = float(speed[1]) * (1e9 if speed[2] == "G" else 1e12) / RANKS
    return statistics.median(line["tokens_per_s"] for line in lines[WARM_UP:-1]), gemm


def torch(o):
    result, = torch_ranks.run("torch_training.py", RANKS, shape_flags(o.steps))
    step = statistics.median(result["seconds"][WARM_UP:])
    return RANKS * SEQUENCES * SHAPE["seq"] / step, result["gemm"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    o = parser.parse_args()
    ratios = []
    print("dense model, data parallel over 2 ranks of 1 thread, f32     tokens/s          GEMM of a rank    ratio")
    for pair in range(o.pairs):
        ours, our_gemm = pentad(o)
        theirs, their_gemm = torch(o)
        ratios.append(ours / theirs)
        print(f"  pair {pair + 1}: Pentad {ours:8.0f}  PyTorch DDP {theirs:8.0f}              "
              f"{our_gemm / 1e9:5.0f} / {their_gemm / 1e9:3.0f} GFLOP/s   {ratios[-1]:.3f}", flush=True)
    print(f"Pentad / PyTorch, median of {o.pairs} pairs: {statistics.median(ratios):.3f}")


main()

"""Trains the same dense model with train_lm and with PyTorch DistributedDataParallel, in turn, and prints the ratio.

    training.py --train-lm BINARY --data FILE [--pairs N] [--steps N]

4 layers, hidden 512, 8 heads, ffn 1408, vocab 4096, seq 512, 4 sequences a rank, f32, data parallel over 2 ranks of one
thread. Each pair is a run of each; the figures are medians over the steps after the first two, and over the pairs. What a
step spends outside matrix products and attention is its time less theirs: by the spans of train_lm's timeline, and by
PyTorch's profiler.
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
TOKENS = RANKS * SEQUENCES * SHAPE["seq"]


class Run:
    """The medians over the steps of a run: tokens a second, seconds outside products and attention, FLOP/s of a product."""

    def __init__(self, seconds, outside, gemm):
        self.speed, self.outside, self.gemm = TOKENS / statistics.median(seconds), statistics.median(outside), gemm


def shape_flags(steps):
    return [x for name, value in {**SHAPE, "batch": RANKS * SEQUENCES, "steps": steps}.items()
            for x in (f"--{name}", str(value))]


def pentad(o):
    with tempfile.TemporaryDirectory() as folder:
        log, trace = pathlib.Path(folder) / "log", pathlib.Path(folder) / "trace"
        done = subprocess.run(["mpiexec", "-n", str(RANKS), o.train_lm, "--mesh", f"dp={RANKS}", "--dtype", "f32",
                               "--data", o.data, "--log", log, "--trace", trace, *shape_flags(o.steps)],
                              check=True, capture_output=True, text=True)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        spans = [span for span in json.loads(trace.read_text())["traceEvents"] if span["pid"] == 0 and span["ph"] == "X"]
    speed = re.search(r"GEMM speed of all \d+ ranks \(([\d.]+) ([GT])FLOP/s", done.stdout)
    gemm = float(speed[1]) * (1e9 if speed[2] == "G" else 1e12) / RANKS
    ends = sorted(span["ts"] for span in spans if span["name"] == "update")
    outside = [(end - start - sum(span["dur"] for span in spans if span["name"] in ("gemm", "attention") and start < span["ts"] < end)) / 1e6
               for start, end in zip(ends[WARM_UP - 1:], ends[WARM_UP:])]
    seconds = [TOKENS / line["tokens_per_s"] for line in lines[WARM_UP:-1]]
    return Run(seconds, outside, gemm)


def torch(o):
    result, = torch_ranks.run("torch_training.py", RANKS, shape_flags(o.steps))
    return Run(result["seconds"][WARM_UP:], result["outside"], result["gemm"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    o = parser.parse_args()
    speeds, outsides = [], []
    print("dense model, data parallel over 2 ranks of 1 thread, f32      tokens/s  ratio   GEMM of a rank     ms outside GEMM and attention  ratio")
    for pair in range(o.pairs):
        ours, theirs = pentad(o), torch(o)
        speeds.append(ours.speed / theirs.speed)
        outsides.append(ours.outside / theirs.outside)
        print(f"  pair {pair + 1}: Pentad {ours.speed:8.0f}  PyTorch DDP {theirs.speed:8.0f}              {speeds[-1]:.3f}"
              f"{ours.gemm / 1e9:6.0f} / {theirs.gemm / 1e9:3.0f} GFLOP/s{ours.outside * 1e3:20.0f} / {theirs.outside * 1e3:.0f}"
              f"{outsides[-1]:14.3f}", flush=True)
    print(f"Pentad / PyTorch, medians of {o.pairs} pairs: tokens/s {statistics.median(speeds):.3f}, "
          f"time outside GEMM and attention {statistics.median(outsides):.3f}")


main()

"""Trains the same dense model with train_lm and with PyTorch, in turn, and prints the ratios: data parallel beside
DistributedDataParallel, and sharded by ZeRO-2 and ZeRO-3 beside fully_shard (FSDP2).

    training.py --train-lm BINARY --data FILE [--pairs N] [--steps N] [--ways ddp,zero2,zero3]

4 layers, hidden 512, 8 heads, ffn 1408, vocab 4096, seq 512, 4 sequences a rank, f32, data parallel over 2 ranks of one
thread. Each pair is a run of each; the figures are medians over the steps after the first two, and over the pairs. What a
step spends outside matrix products and attention is its time less theirs: by the spans of train_lm's timeline, and by
PyTorch's profiler. The memory of a rank is the largest resident set of the process; of PyTorch's, its libraries take a part
before there is a model, so that it is told with and without.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

import library_kernels
import torch_ranks

SHAPE = {"layers": 4, "hidden": 512, "heads": 8, "ffn": 1408, "vocab": 4096, "seq": 512}
RANKS, SEQUENCES = 2, 4
WARM_UP = 2
TOKENS = RANKS * SEQUENCES * SHAPE["seq"]


class Run:
    """The medians over the steps of a run: tokens a second, seconds outside products and attention, FLOP/s of a product; and
    the bytes of a rank, without what the process held before there was a model and with it."""

    def __init__(self, seconds, outside, gemm, peak, before=0):
        self.speed, self.outside, self.gemm = TOKENS / statistics.median(seconds), statistics.median(outside), gemm
        self.peak, self.own = peak, peak - before


def shape_flags(steps):
    return [x for name, value in {**SHAPE, "batch": RANKS * SEQUENCES, "steps": steps}.items()
            for x in (f"--{name}", str(value))]


WAYS = {"ddp": ([], "DDP"), "zero2": (["--zero", "2"], "FSDP2, kept for the backward pass"),
        "zero3": (["--zero", "3"], "FSDP2, freed after the forward pass")}


def pentad(o, way):
    with tempfile.TemporaryDirectory() as folder:
        log, trace = pathlib.Path(folder) / "log", pathlib.Path(folder) / "trace"
        done = subprocess.run(["mpiexec", "-n", str(RANKS), o.train_lm, "--mesh", f"dp={RANKS}", "--dtype", "f32",
                               "--data", o.data, "--log", log, "--trace", trace, *WAYS[way][0], *shape_flags(o.steps)],
                              check=True, capture_output=True, text=True)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        spans = [span for span in json.loads(trace.read_text())["traceEvents"] if span["pid"] == 0 and span["ph"] == "X"]
    speed = re.search(r"GEMM speed of all \d+ ranks \(([\d.]+) ([GT])FLOP/s", done.stdout)
    gemm = float(speed[1]) * (1e9 if speed[2] == "G" else 1e12) / RANKS
    peak = re.search(r"peak memory of a rank ([\d.]+) ([MG])iB", done.stdout)
    ends = sorted(span["ts"] for span in spans if span["name"] == "update")
    outside = [(end - start - sum(span["dur"] for span in spans if span["name"] in ("gemm", "attention") and start < span["ts"] < end)) / 1e6
               for start, end in zip(ends[WARM_UP - 1:], ends[WARM_UP:])]
    seconds = [TOKENS / line["tokens_per_s"] for line in lines[WARM_UP:-1]]
    return Run(seconds, outside, gemm, float(peak[1]) * 2 ** (20 if peak[2] == "M" else 30))


def torch(o, way):
    result, = torch_ranks.run("torch_training.py", RANKS, [*shape_flags(o.steps), "--parallel", way])
    return Run(result["seconds"][WARM_UP:], result["outside"], result["gemm"], result["peak"], result["before"])


def compare(o, way):
    speeds, outsides = [], []
    print(f"dense model over 2 ranks of 1 thread, f32, {' '.join(WAYS[way][0]) or 'dp'}, beside PyTorch {WAYS[way][1]}")
    for pair in range(o.pairs):
        ours, theirs = pentad(o, way), torch(o, way)
        speeds.append(ours.speed / theirs.speed)
        outsides.append(ours.outside / theirs.outside)
        print(f"  pair {pair + 1}: tokens/s {ours.speed:.0f} / {theirs.speed:.0f} = {speeds[-1]:.3f}; "
              f"GEMM of a rank {ours.gemm / 1e9:.0f} / {theirs.gemm / 1e9:.0f} GFLOP/s; "
              f"outside GEMM and attention {ours.outside * 1e3:.0f} / {theirs.outside * 1e3:.0f} ms = {outsides[-1]:.3f}; "
              f"memory of a rank {ours.peak / 2**20:.0f} / {theirs.peak / 2**20:.0f} MiB ({theirs.own / 2**20:.0f} "
              "without its libraries)", flush=True)
    print(f"Pentad / PyTorch, medians of {o.pairs} pairs: tokens/s {statistics.median(speeds):.3f}, "
          f"time outside GEMM and attention {statistics.median(outsides):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--ways", default=",".join(WAYS))
    o = parser.parse_args()
    library_kernels.say(pathlib.Path(o.train_lm).parent, "torch")
    for way in o.ways.split(","):
        compare(o, way)


main()

#!/usr/bin/env python3
"""Attention of 8 heads of 64, causal, beside PyTorch's scaled_dot_product_attention on one thread, one after the other (PyPI: torch):

    attention.py --bench BINARY [--pairs N] [--seq N]

Prints the ratios of times, Pentad's by PyTorch's, and their medians, of a forward pass and of both passes, in f32 and bf16. --seq is one of the lengths that the
binary, bench_kernels_gemm_attention, has.
"""
import argparse
import json
import pathlib
import subprocess
import time

import library_kernels  # before torch
import paired

import torch


def ours(o, dtype):
    """Seconds of a forward pass and of both."""
    element = {"f32": "f32", "bf16": "(pentad::)?bf16"}[dtype]
    done = subprocess.run([o.bench, f"--benchmark_filter=attention_(forward|backward)<{element}>/batch:1/seq:{o.seq}/heads:8/kv_heads:8/head_dim:64/causal:1/window:0/document:0/soft_cap:0/alibi:0",
                           "--benchmark_format=json", "--benchmark_repetitions=3"], check=True, capture_output=True, text=True)
    medians = {run["run_name"].split("<")[0]: run["real_time"] / 1e3 for run in json.loads(done.stdout)["benchmarks"] if run.get("aggregate_name") == "median"}
    return {"forward": medians["attention_forward"], "both": medians["attention_forward"] + medians["attention_backward"]}


def theirs(o, dtype):
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    q, k, v = (torch.randn(1, 8, o.seq, 64).to(kind).requires_grad_() for _ in range(3))
    dy = torch.randn(1, 8, o.seq, 64).to(kind)
    attention = torch.nn.functional.scaled_dot_product_attention

    def passes():
        start = time.perf_counter()
        with torch.no_grad():
            attention(q, k, v, is_causal=True)
        half = time.perf_counter()
        attention(q, k, v, is_causal=True).backward(dy)
        return half - start, time.perf_counter() - half

    return paired.median_of_passes(passes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seq", type=int, default=4096)
    o = parser.parse_args()
    torch.set_num_threads(1)
    library_kernels.say(pathlib.Path(o.bench).parent, "torch")
    for dtype in ("f32", "bf16"):
        paired.compare(dtype, "PyTorch", o.pairs, lambda: ours(o, dtype), lambda: theirs(o, dtype))


main()

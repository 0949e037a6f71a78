#!/usr/bin/env python3
"""A layer of experts beside MixtralSparseMoeBlock of transformers, in each of its implementations for a CPU, forward and both passes, f32, one thread, one after the
other (PyPI: torch, transformers); and the layer on 2 ranks of ep with as many tokens each:

    experts.py --bench BINARY [--mpiexec MPIEXEC] [--pairs N] [--tokens N] [--hidden N] [--experts N] [--width N] [--top-k N]

Prints the ratios of times, Pentad's by theirs, and their medians.
"""
import argparse
import json
import pathlib
import subprocess
import time

import library_kernels  # before torch
import paired

import torch


def block(o, implementation):
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    config = MixtralConfig(hidden_size=o.hidden, intermediate_size=o.width, num_local_experts=o.experts, num_experts_per_tok=o.top_k)
    config._experts_implementation = implementation
    layer = MixtralSparseMoeBlock(config)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.02)
    return layer


def theirs(layer, o):
    x = torch.randn(1, o.tokens, o.hidden, requires_grad=True)

    def passes():
        start = time.perf_counter()
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        half = time.perf_counter()
        y.backward(torch.full_like(y, 0.1))
        return half - start, time.perf_counter() - start

    return paired.median_of_passes(passes)


def ours(o, ranks=1):
    sizes = [str(n) for n in (3, o.tokens, o.hidden, o.experts, o.width, o.top_k)]
    return json.loads(subprocess.run([*([o.mpiexec, "-n", str(ranks)] if ranks > 1 else []), o.bench, *sizes], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--top-k", type=int, default=4)
    o = parser.parse_args()
    torch.set_num_threads(1)
    library_kernels.say(pathlib.Path(o.bench).parent, "torch")
    for implementation in ("eager", "grouped_mm"):
        try:
            layer = block(o, implementation)
            theirs(layer, o)
        except Exception as error:  # an implementation that this version has not, or not on a CPU
            print(f"transformers' {implementation}: {type(error).__name__}: {error}")
            continue
        paired.compare("experts", f"transformers ({implementation})", o.pairs, lambda: ours(o), lambda: theirs(layer, o))
    for _ in range(o.pairs):
        one, two = ours(o), ours(o, 2)
        print(f"of the speed of dense products {one['of_gemm_speed']:.2f}; 2 ranks of ep, tokens/s over those of one: {2 * one['both'] / two['both']:.2f}", flush=True)


main()

#!/usr/bin/env python3
"""A layer of Mamba-2 beside Mamba2Mixer of transformers, and one of linear attention beside MiniMaxLightningAttention, forward and both passes, f32, one
thread, one after the other (PyPI: torch, transformers):

    mixers.py --bench BINARY [--pairs N] [--seq N] [--hidden N] [--state N] [--chunk N] [--their-chunk N]

Prints the ratios of times, Pentad's by theirs, and their medians. transformers has no kernels of its own for a CPU: it computes with PyTorch's operations.
"""
import argparse
import json
import pathlib
import subprocess
import time

import library_kernels  # before torch
import paired

import torch


def mixer(o):
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer
    return Mamba2Mixer(Mamba2Config(hidden_size=o.hidden, num_heads=2 * o.hidden // 64, head_dim=64, state_size=o.state, n_groups=1, chunk_size=o.their_chunk), 0)


def lightning(o):
    from transformers import MiniMaxConfig
    from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention
    config = MiniMaxConfig(hidden_size=o.hidden, num_attention_heads=o.hidden // 64, head_dim=64, num_hidden_layers=2, block_size=o.their_chunk,
                           layer_types=["linear_attention", "linear_attention"])
    layer = MiniMaxLightningAttention(config, 0)
    return lambda x: layer(x, None, None)[0]


def theirs(layer, o):
    x = torch.full((1, o.seq, o.hidden), 0.1, requires_grad=True)

    def passes():
        start = time.perf_counter()
        y = layer(x)
        half = time.perf_counter()
        y.backward(torch.full_like(y, 0.1))
        return half - start, time.perf_counter() - start

    return paired.median_of_passes(passes)


def ours(o, name):
    return json.loads(subprocess.run([o.bench, name, "3", str(o.seq), str(o.hidden), "64", str(o.state), str(o.chunk)], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--state", type=int, default=128)
    parser.add_argument("--chunk", type=int, default=64, help="of Pentad; results do not depend on it")
    parser.add_argument("--their-chunk", type=int, default=256, help="default of their configurations")
    o = parser.parse_args()
    torch.set_num_threads(1)
    library_kernels.say(pathlib.Path(o.bench).parent, "torch")
    for name, make in (("mamba2", mixer), ("linear", lightning)):
        layer = make(o)
        paired.compare(name, "transformers", o.pairs, lambda: ours(o, name), lambda: theirs(layer, o))


main()

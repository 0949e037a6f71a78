"""The peer of bench/training.py: the same dense model trained by PyTorch over gloo, with DistributedDataParallel or with
fully_shard (FSDP2) for each block and for the rest.

torch_ranks.py starts it. Rank 0 prints one JSON line: the seconds of each step, the bytes that the process held before it made
the model and at most, those seconds outside matrix products and attention in four more steps under the profiler, and the GEMM
speed. scaled_dot_product_attention, fused AdamW, default buckets, no clipping.
"""

import argparse
import json
import resource
import time

import library_kernels  # before torch

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class RmsNorm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.heads = o.heads
        self.norm1, self.norm2 = RmsNorm(o.hidden), RmsNorm(o.hidden)
        self.q, self.k, self.v, self.o = (nn.Linear(o.hidden, o.hidden, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(o.hidden, o.ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(o.ffn, o.hidden, bias=False)

    def forward(self, x, cosine, sine):
        batch, seq, hidden = x.shape
        h = self.norm1(x)
        q, k, v = (w(h).view(batch, seq, self.heads, -1).transpose(1, 2) for w in (self.q, self.k, self.v))

        def rotate(t):
            left, right = t.chunk(2, dim=-1)
            return t * cosine + torch.cat((-right, left), dim=-1) * sine

        a = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(batch, seq, hidden))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embedding = nn.Embedding(o.vocab, o.hidden)
        self.blocks = nn.ModuleList(Block(o) for _ in range(o.layers))
        self.norm = RmsNorm(o.hidden)
        self.head = nn.Linear(o.hidden, o.vocab, bias=False)
        width = o.hidden // o.heads
        angles = torch.outer(torch.arange(o.seq), 1e4 ** (-torch.arange(0, width, 2) / width))
        self.register_buffer("cosine", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sine", torch.cat((angles, angles), -1).sin())

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::mkldnn_linear", "aten::_scaled_dot_product_flash_attention_for_cpu",
            "aten::_scaled_dot_product_flash_attention_for_cpu_backward"}


def gemm_speed():
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        F.linear(a, b)
        best = max(best, 2 * 1024**3 / (time.perf_counter() - start))
    return best


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def sharded(model, o):
    """Parameters that are gathered for a pass are freed after the forward pass (ZeRO-3), or kept for the backward (ZeRO-2)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=o.parallel == "zero3")
    return fully_shard(model, mesh=mesh, reshard_after_forward=o.parallel == "zero3")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=("ddp", "zero2", "zero3"), default="ddp")
    for name in ("layers", "hidden", "heads", "ffn", "vocab", "seq", "batch", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    o = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    before = resident()
    model = DistributedDataParallel(Model(o)) if o.parallel == "ddp" else sharded(Model(o), o)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    speed = gemm_speed()

    def step():
        text = torch.randint(0, 256, (o.batch // ranks, o.seq + 1))
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(text[:, :-1], text[:, 1:]).backward()
        optimizer.step()
        dist.barrier()
        return time.perf_counter() - start

    seconds = [step() for _ in range(o.steps)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    outside = []
    for _ in range(4):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            took = step()
        outside.append(took - sum(event.self_cpu_time_total for event in profile.key_averages() if event.key in PRODUCTS) / 1e6)
    if rank == 0:
        print(json.dumps({"seconds": seconds, "before": before, "peak": peak, "outside": outside, "gemm": speed}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

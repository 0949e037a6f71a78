"""The peer of bench_checkpoints: the same state, sharded over the ranks as DTensors, saved and loaded by
torch.distributed.checkpoint. torch_ranks.py starts it. Rank 0 prints a JSON line."""

import argparse
import json
import pathlib
import time

import library_kernels  # before torch

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

parser = argparse.ArgumentParser()
parser.add_argument("--folder", required=True)
parser.add_argument("--hidden", type=int, required=True)
parser.add_argument("--layers", type=int, required=True)
o = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
h, f = o.hidden, 3 * o.hidden
shapes = {"embed_tokens": (4096, h), "lm_head": (4096, h), "norm": (h,)}
for i in range(o.layers):
    shapes |= {f"{i}.{name}": shape for name, shape in [("q", (h, h)), ("k", (h, h)), ("v", (h, h)), ("o", (h, h)), ("gate", (f, h)), ("up", (f, h)),
                                                        ("down", (h, f)), ("norm1", (h,)), ("norm2", (h,))]}


def state():
    return {kind: {name: distribute_tensor(torch.rand(shape), mesh, [Shard(0)]) for name, shape in shapes.items()}
            for kind in ("weight", "exp_avg", "exp_avg_sq")}


def timed(work):
    dist.barrier()
    start = time.perf_counter()
    work()
    dist.barrier()
    return time.perf_counter() - start


saved = state()
times = [timed(lambda: dcp.save(saved, checkpoint_id=pathlib.Path(o.folder) / f"{i}")) for i in range(2)]
loaded = state()
load = timed(lambda: dcp.load(loaded, checkpoint_id=pathlib.Path(o.folder) / "1"))
if dist.get_rank() == 0:
    print(json.dumps({"save": times[1], "load": load}))
dist.destroy_process_group()

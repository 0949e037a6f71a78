"""The peer of bench/collectives.py: the same collectives by torch.distributed over gloo. torch_ranks.py starts it. Rank 0
prints a JSON line for each operation and size.

    gloo.py SMALLEST_BYTES LARGEST_BYTES
"""

import json
import sys
import time

import library_kernels  # before torch

import torch
import torch.distributed as dist

smallest, largest = (int(x) for x in sys.argv[1:])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


def seconds(call):
    dist.barrier()
    start = time.perf_counter()
    call()
    spent = torch.tensor([time.perf_counter() - start])
    dist.all_reduce(spent, dist.ReduceOp.MAX)
    return spent.item()


size = smallest
while size <= largest:
    n = size // 4 // ranks * ranks
    whole, other, piece = torch.ones(n), torch.ones(n), torch.ones(n // ranks)
    for name, call in {
        "all_reduce": lambda: dist.all_reduce(whole),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(piece, whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, piece),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
    }.items():
        try:
            seconds(call)
        except RuntimeError:  # gloo does not have them all
            continue
        samples = [seconds(call) for _ in range(21 if size < 1 << 20 else 5)]
        if rank == 0:
            print(json.dumps({"operation": name, "ranks": ranks, "bytes": size, "gloo": samples}), flush=True)
    size *= 4
dist.destroy_process_group()

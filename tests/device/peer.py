"""PyTorch beside Pentad on one GPU, for run-on-gpu. Prints a line of JSON.

    peer.py attention SHAPES: seconds of a forward pass and of both, of scaled_dot_product_attention, for each [element, batch, seq, heads, kv heads, head dim, causal]
    peer.py step --layers N ...: tokens a second of bench/torch_training.py's model: parameters in f32, autocast to bf16, fused AdamW, eager
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from torch_training import Model  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def seconds(call, least=0.05):
    """Of a call: the fastest of the batches of ten that are waited for, as bench/kernels.hpp times."""
    call()
    wait()
    best, begin = float("inf"), time.perf_counter()
    while best == float("inf") or time.perf_counter() - begin < least:
        start = time.perf_counter()
        for _ in range(10):
            call()
        wait()
        best = min(best, (time.perf_counter() - start) / 10)
    return best


def attention(shapes):
    found = []
    for element, *sizes in shapes:
        batch, seq, heads, kv_heads, head_dim, causal = map(int, sizes)
        q, dy = (torch.randn(batch, heads, seq, head_dim, device=DEVICE, dtype=KINDS[element]) for _ in range(2))
        k, v = (torch.randn(batch, kv_heads, seq, head_dim, device=DEVICE, dtype=KINDS[element], requires_grad=True) for _ in range(2))
        q.requires_grad_()

        def call():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=heads != kv_heads)

        with torch.no_grad():
            forward = seconds(call)
        found.append({"forward": forward, "both": seconds(lambda: torch.autograd.grad(call(), (q, k, v), dy))})
    return found


def step(o):
    torch.manual_seed(1)
    model = Model(o).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    times = []
    for _ in range(o.steps):
        text = torch.randint(0, 256, (o.batch, o.seq + 1), device=DEVICE)
        wait()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(text[:, :-1], text[:, 1:])
        loss.backward()
        optimizer.step()
        wait()
        times.append(time.perf_counter() - start)
    return {"tokens_per_s": o.batch * o.seq / statistics.median(times[2:])}


def main():
    if sys.argv[1] == "attention":
        print(json.dumps(attention(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser()
    for name in ("layers", "hidden", "heads", "ffn", "vocab", "seq", "batch", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    print(json.dumps(step(parser.parse_args(sys.argv[2:]))))


main()

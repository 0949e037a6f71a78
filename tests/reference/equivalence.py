#!/usr/bin/env python3
"""Trains the same small models with train_lm on one rank and over meshes, and compares every number.

    equivalence.py --train-lm BINARY [--mpiexec "mpiexec ..."] [--random N --seed S] [--only TEXT] [--max-ranks R]

runs the fixed list of meshes, or with --random N meshes and models drawn at random; prints a line for each, and exits
with 1 if one differs. The reference of a mesh is the single-rank run of the same model with the same micro-batches, and
with none of the ways to go about it: no sequence parallelism, zigzag, ZeRO or recomputation. Standard library only.
"""
import argparse
import dataclasses
import math
import os
import pathlib
import random
import re
import shlex
import sys
import tempfile
import time

import check_equivalence
import launch
import text_windows
import variety

IGNORED = 10  # the byte of --ignore-token
MODEL = {"layers": 2, "hidden": 32, "heads": 4, "kv-heads": 2, "ffn": 48, "vocab": 260, "seq": 16, "batch": 8,
         "micro-batches": 2, "steps": 5, "lr": 0.003, "warmup": 2, "clip": 0.5, "seed": 7, "dtype": "f64"}
MAMBA = {"state": 8, "chunk": 5}
LATENT = {"latent-attention": "q=12,kv=16,rope=4,nope=6,v=5", "kv-heads": None}  # queries and keys of 10, values of 5
DIRECT = {"latent-attention": "q=0,kv=9,rope=2,nope=3,v=8", "kv-heads": None}
MOE = {"experts": 4, "top-k": 2, "aux-coef": 0.02, "z-coef": 0.002}
NO_BALANCE_LOSS = {"aux-coef": None}
# Routers. With an expert-ffn of its own an expert is finer than the MLP of a dense layer.
DEEPSEEK = {**MOE, "experts": 8, "top-k": 3, "router": "sigmoid", "expert-groups": 4, "top-groups": 2, "route-scale": 2.5, "balance": "bias", **NO_BALANCE_LOSS,
            "bias-rate": 0.01, "shared-experts": 1, "expert-ffn": 24, "dense-layers": 1}
SEQUENCE_BALANCE = {**MOE, "experts": 8, "top-k": 3, "router": "sigmoid", "balance": "sequence-aux"}
SWITCH = {**MOE, "top-k": 1, "router": "switch"}
BY_POSITION = {**MOE, "capacity": 0.8}
BY_SCORE = {**MOE, "experts": 8, "capacity": 0.6, "drop": "score", "renormalise": "off"}
EXPERT_CHOICE = {**MOE, **NO_BALANCE_LOSS, "experts": 8, "router": "expert-choice"}
HASH = {**MOE, **NO_BALANCE_LOSS, "experts": 8, "router": "hash"}
SINKHORN = {**MOE, **NO_BALANCE_LOSS, "experts": 8, "top-k": 1, "router": "sinkhorn"}

# The synchronous schedules, and numbers of chunks that they are defined for.
SCHEDULES = {"gpipe": (1,), "1f1b": (1,), "eager-1f1b": (1,), "zb-h1": (1,), "zb-h2": (1,), "terapipe": (1,),
             "interleaved-1f1b": (1, 2, 3), "looped-bfs": (2, 3), "zb-v": (2,), "v-half": (2,), "v-min": (2,),
             "dualpipe-v": (2,), "hanayo": (2, 4), "dualpipe": (1,), "chimera": (1,)}


@dataclasses.dataclass
class Case:
    """A mesh and a way to train over it (ways: flags), and a model with its data (model: flag -> value, True, or None: left out)."""
    mesh: str
    ways: str = ""
    model: dict = dataclasses.field(default_factory=dict)
    data: str = "text"  # a key of DATA
    valid: bool = True  # a batch has targets that count

    def ranks(self):
        return math.prod(int(axis.split("=")[1]) for axis in self.mesh.split(","))

    def __str__(self):
        model = " ".join(f"--{key}" if value is True else f"--{key} {value}" for key, value in self.model.items() if value is not None)
        data = "" if self.data == "text" else f"[{self.data}]"
        return " ".join(part for part in (self.mesh, self.ways, model, data) if part)


FIXED = [
    # each axis alone
    Case("dp=2"), Case("dp=3", "--zero 1", {"batch": 12}), Case("dp=4", "--zero 1"),
    Case("ep=2"), Case("ep=2", "", MOE), Case("ep=4", "--zero 1", MOE),
    Case("cp=2"), Case("cp=2", "--zigzag"), Case("cp=3", "--zigzag", {"seq": 24}), Case("cp=4", "--cp allgather"),
    Case("cp=4", "--cp allgather --zigzag"), Case("cp=3", "", {**MOE, "seq": 24}),
    Case("tp=2"), Case("tp=2", "--sequence-parallel on"), Case("tp=4", "--sequence-parallel on"),  # kv-heads 2 and tp 4
    Case("tp=4", "", MOE), Case("tp=3", "--sequence-parallel on", {"heads": 6, "kv-heads": 3, "hidden": 48, "seq": 24}),
    Case("tp=4", "", {"kv-heads": 1, "tie-embeddings": True}), Case("tp=2", "--recompute full", {**MOE, "moe-every": 2}),
    Case("pp=2"), Case("pp=2", "--schedule gpipe", {"tie-embeddings": True}), Case("pp=3", "", {"layers": 3, "micro-batches": 4}),
    Case("pp=4", "--recompute full", {"layers": 4, "micro-batches": 8, "tie-embeddings": True}),
    Case("pp=4", "--schedule gpipe", {**MOE, "layers": 4, "micro-batches": 1}),
    # schedules with other axes inside the stages
    Case("pp=4,dp=2", "--schedule dualpipe --zero 1", {"layers": 4, "micro-batches": 4, "tie-embeddings": True}),
    Case("pp=2,dp=2,tp=2", "--schedule zb-v --stages 0,1,2,1", {**MOE, "layers": 4, "micro-batches": 4, "tie-embeddings": True}),
    Case("pp=4,cp=2,tp=2", "--schedule interleaved-1f1b --chunks 2 --recompute full --sequence-parallel on", {"layers": 8, "micro-batches": 4}),
    Case("pp=4,cp=2,ep=2", "--schedule terapipe --slices 4 --zigzag", {**MOE, "layers": 4, "seq": 64}),
    Case("pp=2,cp=2", "--schedule terapipe --slices 2 --cp allgather --recompute full --stages balanced", {**MOE, "layers": 5}),
    Case("pp=4,ep=2,dp=2", "--schedule chimera --zero 1", {**MOE, "layers": 4, "micro-batches": 4, "batch": 16}),
    Case("pp=3,dp=2", "--stages balanced", {"layers": 5, "tie-embeddings": True}),
    Case("pp=4,ep=2,cp=2,tp=2", "--schedule hanayo --chunks 4 --recompute full", {**MOE, "layers": 16, "micro-batches": 4}),
    # one rank, by other ways
    Case("dp=1", "--recompute full --zero 1 --zigzag --sequence-parallel on --schedule gpipe --cp allgather", MOE),
    # several
    Case("dp=2,tp=2", "--zero 1 --sequence-parallel on --bucket-elements 500"), Case("tp=2,dp=2", "--zero 1 --bucket-elements 500", {"tie-embeddings": True}),
    Case("dp=3,tp=2", "--zero 1 --sequence-parallel on", {**MOE, "batch": 6}),
    Case("cp=2,tp=2", "--sequence-parallel on --zigzag"), Case("cp=2,tp=2", "--sequence-parallel on --zigzag", {"seq": 20}), Case("tp=2,cp=3", "--sequence-parallel on", {"seq": 24}),
    Case("ep=2,tp=2", "--sequence-parallel on --zero 1", MOE), Case("tp=2,ep=2,dp=2", "--zero 1 --recompute full", MOE),
    Case("pp=2,tp=2", "--schedule gpipe --sequence-parallel on", {"tie-embeddings": True}), Case("pp=2,dp=3", "--zero 1 --bucket-elements 500", {"batch": 12, "tie-embeddings": True}),
    Case("cp=2,ep=2", "--zigzag", MOE), Case("dp=2,ep=2", "--zero 1"),
    Case("dp=2,pp=2,cp=2", "--zero 1 --zigzag --recompute full"), Case("cp=2,pp=2,tp=2", "--cp allgather --sequence-parallel on", MOE),
    Case("dp=2,pp=1,ep=2,cp=1,tp=4", "--zero 1 --sequence-parallel on", MOE),
    # strategies of attention
    Case("cp=2", "--cp ulysses"), Case("cp=4,tp=2", "--cp ulysses --sequence-parallel on", {"heads": 8, "kv-heads": 2}),
    Case("cp=3,dp=2", "--cp ulysses --zigzag", {"heads": 6, "kv-heads": 3, "hidden": 48, "seq": 24}),
    Case("cp=4,ep=2", "--cp two-level --cp-heads 2 --zigzag --recompute selective --recompute-parts attention", MOE),
    Case("cp=4", "--cp two-level --cp-heads 4", {"kv-heads": 1, "tie-embeddings": True}),
    Case("cp=6", "--cp two-level --cp-heads 3 --zigzag", {"heads": 6, "kv-heads": 2, "hidden": 48, "seq": 24}),
    Case("tp=2,cp=4", "--cp double-ring --cp-inner 2 --zigzag --sequence-parallel on --recompute full", {"seq": 32}), Case("cp=6", "--cp double-ring --cp-inner 3", {"seq": 24}),
    Case("pp=2,cp=4", "--cp two-level --cp-heads 2 --schedule terapipe --slices 2 --zigzag --recompute full", {**MOE, "seq": 32}),
    Case("pp=2,cp=4", "--cp double-ring --cp-inner 2 --schedule terapipe --slices 2", {"seq": 32}),
    # heads exchanged for sequence behind attention
    Case("tp=2", "--attention-output all-to-all"), Case("tp=4,dp=2", "--attention-output all-to-all --sequence-parallel on --zero 3", {"seq": 37}),
    Case("cp=2,tp=2,pp=2", "--attention-output all-to-all --sequence-parallel on --zigzag --recompute selective --recompute-parts attention", MOE),
    Case("cp=3,tp=2", "--attention-output all-to-all --cp ulysses --recompute full", {"heads": 6, "kv-heads": 2, "hidden": 48, "seq": 24}),
    # the experts' ranks folded over dp, cp and tp
    Case("tp=2", "--expert-mesh ep=2", MOE), Case("tp=4", "--expert-mesh ep=4 --sequence-parallel on --recompute full", {**MOE, "seq": 37}),
    Case("dp=2,tp=2", "--expert-mesh ep=4 --zero 3", MOE), Case("dp=4,tp=2", "--expert-mesh edp=2,ep=4,etp=1 --sequence-parallel on --zero 1", {**MOE, "moe-every": 2}),
    Case("pp=2,cp=2,tp=2", "--expert-mesh ep=2,edp=2 --attention-output all-to-all --zigzag --recompute selective --recompute-parts activations,rows", MOE),
    Case("pp=2,tp=2,cp=2", "--expert-mesh ep=4 --schedule terapipe --slices 2 --cp allgather --sequence-parallel on", {**MOE, "seq": 32}),
    Case("tp=2,cp=2", "--expert-mesh ep=4", MOE), Case("tp=4", "--expert-mesh ep=2,etp=2", MOE), Case("cp=4", "--expert-mesh ep=4 --zigzag --zero 1", MOE),
    Case("dp=2,cp=2", "--expert-mesh ep=4 --zero 2", MOE), Case("dp=4", "--expert-mesh ep=2,etp=2 --zero 3", MOE), Case("cp=3,dp=2", "--expert-mesh edp=3,ep=2 --zero 1", {**MOE, "seq": 37}),
    Case("dp=2,cp=2,tp=2", "--expert-mesh ep=8 --zero 3 --sequence-parallel on", {**MOE, "experts": 8, "tie-embeddings": True}),
    Case("dp=2,tp=3", "--expert-mesh ep=3,etp=2", {**MOE, "experts": 6, "heads": 6, "kv-heads": 3, "hidden": 48}),
    Case("dp=4,tp=2", "--expert-mesh ep=2,etp=4 --zero 1 --zero-ranks 2", MOE), Case("dp=2,pp=2,tp=2", "--expert-mesh ep=2,etp=2", MOE),
    Case("pp=2,dp=2,cp=2,tp=2", "--expert-mesh ep=4,etp=2 --schedule dualpipe --zero 1", {**MOE, "layers": 4, "micro-batches": 4, "batch": 16}),
    Case("pp=2,dp=4,tp=2", "--expert-mesh ep=4,etp=1 --schedule zb-v --zero 3 --recompute full", {**MOE, "layers": 4, "seq": 50}),
    Case("pp=2,dp=2,cp=2,tp=2", "--expert-mesh edp=2,ep=4 --zero 1 --sequence-parallel on --zigzag", {**DEEPSEEK, "layers": 4, "steps": 20}),
    Case("dp=2,tp=2", "--expert-mesh ep=2,etp=2 --zero 1", {**DEEPSEEK, "dtype": "f32"}), Case("cp=2,tp=4", "--expert-mesh ep=8", {**BY_SCORE, "seq": 40}),
    # a forward and a backward that take turns
    Case("ep=2", "--schedule dualpipe-v", {**MOE, "micro-batches": 4}), Case("pp=2,ep=2,tp=2", "--schedule dualpipe-v --zero 3 --sequence-parallel on", {**DEEPSEEK, "layers": 4, "micro-batches": 6, "batch": 24}),
    Case("pp=2,cp=2", "--schedule dualpipe-v --pair on --recompute full --zigzag --cp ring", {"layers": 4, "micro-batches": 5, "batch": 10, "mtp": 1}),
    Case("pp=4,dp=2,cp=2", "--schedule dualpipe --expert-mesh ep=4 --recompute selective --recompute-parts activations,rows --zero 1", {**MOE, "layers": 4, "micro-batches": 8, "batch": 16, "steps": 4}),
    Case("pp=2,ep=4", "--schedule dualpipe-v --pair off", {**DEEPSEEK, "layers": 4, "micro-batches": 4, "batch": 16}),
    # multi-token prediction
    Case("dp=2", "--zero 1", {"mtp": 1}), Case("tp=2", "", {"mtp": 2}), Case("tp=2,cp=2", "--sequence-parallel on --zigzag --recompute full", {"mtp": 1, "seq": 37}),
    Case("pp=2", "", {"mtp": 1}), Case("pp=2", "--schedule zb-v", {"mtp": 2, "tie-embeddings": True, "layers": 4}), Case("pp=4,dp=2", "--schedule zb-h1 --zero 3", {"mtp": 1, "layers": 4}),
    Case("pp=2,dp=2", "--schedule dualpipe --zero 1", {"mtp": 1, "layers": 4, "micro-batches": 4}), Case("pp=2,cp=2", "--schedule terapipe --slices 4 --zero 2", {"mtp": 2, "seq": 50}),
    Case("pp=2,ep=2,dp=2", "--schedule dualpipe --zero 1", {**DEEPSEEK, "layers": 4, "micro-batches": 4, "batch": 16, "mtp": 1}),
    Case("pp=2,dp=2,tp=2", "--expert-mesh ep=4 --zero 3 --sequence-parallel on", {**DEEPSEEK, **LATENT, "mtp": 2}), Case("cp=2,dp=2", "--zero 1", {"mtp": 2, "pack": 32, "seq": 40}),
    Case("dp=4", "--zero 0 --gradient-release", {"mtp": 1, "clip": 0, "ignore-token": IGNORED}),
    # routers
    Case("ep=2", "", {**DEEPSEEK, "steps": 20}), Case("ep=8", "--zero 1", {**DEEPSEEK, "batch": 16}), Case("ep=4,tp=2", "--sequence-parallel on --zero 3", DEEPSEEK),
    Case("pp=2,ep=2,dp=2", "--schedule dualpipe --zero 1", {**DEEPSEEK, "layers": 4, "micro-batches": 4, "batch": 16, "steps": 20}),
    Case("cp=3,ep=2", "--recompute full", {**DEEPSEEK, "seq": 37}), Case("tp=2,dp=2,cp=2", "--expert-mesh ep=4 --zigzag --zero 3 --recompute selective --recompute-parts activations,rows", DEEPSEEK),
    Case("pp=2,cp=2", "--schedule terapipe --slices 2", {**DEEPSEEK, "layers": 4, "seq": 32}), Case("dp=4", "--zero 2 --gradient-release", {**DEEPSEEK, "clip": 0}),
    Case("ep=2,cp=2", "--zigzag", {**DEEPSEEK, "pack": 32, "seq": 40}), Case("dp=2,ep=2", "--zero 1", {**DEEPSEEK, "dtype": "f32", "optimizer": "muon"}),
    Case("ep=3", "--zero 1", {**SEQUENCE_BALANCE, "experts": 9, "batch": 12}), Case("cp=2,tp=2", "--sequence-parallel on --zigzag", SEQUENCE_BALANCE),
    Case("pp=2,cp=2", "--schedule terapipe --slices 4 --recompute full", {**SEQUENCE_BALANCE, "seq": 32}), Case("pp=2,dp=2,ep=2", "--schedule zb-v", {**SEQUENCE_BALANCE, "layers": 4, "micro-batches": 4, "batch": 16, "seq": 19}),
    Case("ep=4", "", SWITCH), Case("cp=2,tp=2", "--sequence-parallel on --recompute full", {**SWITCH, "seq": 21}), Case("pp=2,cp=2", "--schedule terapipe --slices 2 --zero 1", {**SWITCH, "seq": 32}),
    Case("ep=2", "", BY_POSITION), Case("cp=4", "--zigzag --recompute full", {**BY_POSITION, "seq": 37}), Case("ep=4,tp=2", "--sequence-parallel on", BY_POSITION),
    Case("dp=2,ep=2,pp=2", "--zero 3", {**BY_POSITION, "top-k": 3}), Case("ep=8", "", {**BY_SCORE, "batch": 16}), Case("pp=2,cp=2,tp=2", "--expert-mesh ep=2", BY_SCORE),
    Case("cp=3,dp=2", "--recompute full", {**BY_SCORE, "pack": 32, "seq": 24}), Case("ep=2,dp=2", "--zero 1", {**BY_SCORE, "dtype": "f32"}),
    Case("ep=4", "", EXPERT_CHOICE), Case("cp=2,tp=2", "--sequence-parallel on --zigzag", {**EXPERT_CHOICE, "seq": 37}), Case("pp=2,ep=2,dp=2", "--zero 1 --recompute full", {**EXPERT_CHOICE, "capacity": 0.5}),
    Case("dp=2,tp=2", "--expert-mesh ep=4", EXPERT_CHOICE), Case("ep=4", "", HASH), Case("cp=2,tp=2,pp=2", "--sequence-parallel on --zigzag", {**HASH, "top-k": 1}),
    Case("dp=2,ep=2", "--zero 1", {**HASH, "capacity": 1}), Case("ep=8", "", {**SINKHORN, "batch": 16}), Case("cp=2,tp=2", "--sequence-parallel on --recompute full", {**SINKHORN, "seq": 37}),
    Case("dp=2,pp=2", "--schedule zb-h1", {**SINKHORN, "router": "sinkhorn", "top-k": 2}),
    # experts that move between ranks
    Case("ep=2", "--rebalance-experts 1", {**MOE, "experts": 8}), Case("dp=2,ep=4", "--rebalance-experts 1 --zero 3", {**MOE, "experts": 8, "batch": 16}),
    Case("ep=8", "--rebalance-experts 2 --zero 1", {**DEEPSEEK, "experts": 32, "batch": 16, "steps": 20}), Case("ep=4,tp=2", "--rebalance-experts 1 --recompute full --sequence-parallel on", {**SWITCH, "experts": 12}),
    Case("dp=2,cp=2,tp=2", "--expert-mesh ep=4,etp=2 --rebalance-experts 2 --zero 1 --sequence-parallel on", {**BY_SCORE, "seq": 40}),
    Case("pp=2,ep=2,dp=2", "--schedule dualpipe --zero 1 --rebalance-experts 1", {**MOE, "experts": 8, "layers": 4, "micro-batches": 4, "batch": 16, "mtp": 1}),
    Case("dp=4,tp=2", "--expert-mesh edp=2,ep=4,etp=1 --rebalance-experts 1 --zero 2", {**HASH, "capacity": 1, "optimizer": "muon", "dtype": "f32"}),
    Case("dp=2,ep=2", "--rebalance-experts 1 --zero 3 --zero-keep on --gradient-release", {**MOE, "experts": 8, "clip": 0, "tie-embeddings": True}),
    # tensor parallelism on a grid
    Case("tp=4", "--tp-kind 2d"), Case("tp=4", "--tp-kind 2d --recompute full", {"tie-embeddings": True, "seq": 37}), Case("tp=6", "--tp-kind 2d", {"heads": 6, "hidden": 48, "batch": 6}),
    Case("tp=8", "--tp-kind 2.5d", {"tie-embeddings": True}), Case("tp=8", "--tp-kind 3d"), Case("tp=8", "--tp-kind 3d --recompute selective", {"tie-embeddings": True, "attention-sinks": True}),
    Case("dp=2,tp=4", "--tp-kind 2d --zero 3"), Case("cp=2,tp=4", "--tp-kind 2d --zigzag"), Case("tp=4,pp=2", "--tp-kind 2d --schedule zb-v --zero 2", {"layers": 4, "batch": 16, "micro-batches": 4}),
    Case("dp=2,pp=2,cp=2,tp=4", "--tp-kind 2d --zero 1 --zigzag", {"batch": 16}), Case("cp=2,dp=2,tp=8", "--tp-kind 2.5d --cp allgather --zero 1", {"batch": 16}),
    Case("dp=2,cp=2,tp=8", "--tp-kind 3d --zero 2 --zigzag --recompute full", {"batch": 16}), Case("pp=2,tp=8", "--tp-kind 3d", {"tie-embeddings": True, "positions": "alibi"}),
    Case("pp=2,cp=2,tp=8", "--tp-kind 2.5d --schedule terapipe --slices 2", {"seq": 32, "window": 6}), Case("cp=2,tp=4", "--tp-kind 2d --cp ulysses", {"heads": 8, "hidden": 32, "dtype": "f32"}),
    # windows and packed documents
    Case("cp=2", "", {"window": 5}), Case("cp=4,tp=2", "--zigzag --sequence-parallel on", {"window": 1}), Case("cp=3,dp=2", "--cp allgather", {"window": 7, "seq": 24, "batch": 12}),
    Case("pp=2,cp=2", "--schedule terapipe --slices 2", {"window": 6}), Case("cp=4", "--cp double-ring --cp-inner 2", {"window": 9, "seq": 32}),
    Case("dp=2,tp=2", "", {"pack": 101}), Case("cp=2", "", {"pack": 101}), Case("cp=4", "--recompute full", {"pack": 32, "seq": 64}),
    Case("cp=3,tp=2", "--sequence-parallel on", {"pack": 32, "seq": 48}), Case("cp=4,dp=2", "--cp ulysses", {"pack": 32, "seq": 32}),
    Case("cp=4,ep=2", "--cp two-level --cp-heads 2", {**MOE, "pack": 32, "seq": 64}), Case("cp=4", "--cp double-ring --cp-inner 2", {"pack": 101, "seq": 64, "window": 9}),
    Case("pp=2,cp=2", "--zigzag", {"pack": 101, "kv-heads": 1, "tie-embeddings": True}), Case("pp=2,cp=2", "--schedule terapipe --slices 2 --cp allgather", {**MOE, "pack": 101, "seq": 32}),
    Case("pp=2,dp=2,cp=2", "--zero 2 --recompute full", {"pack": 32, "seq": 40, "micro-batches": 4}),
    # latent attention
    Case("dp=2", "", LATENT), Case("tp=2", "", LATENT), Case("tp=4", "--sequence-parallel on --recompute full", DIRECT), Case("cp=2", "--zigzag", LATENT), Case("cp=4", "", {**DIRECT, "seq": 37}),
    Case("cp=2,tp=2", "--zigzag --sequence-parallel on --zero 3", LATENT), Case("cp=2,dp=2", "--cp ulysses --zero 1 --recompute selective --recompute-parts attention", DIRECT),
    Case("pp=2", "--recompute selective --recompute-parts norms", LATENT), Case("pp=2,cp=2,tp=2", "--zigzag --recompute selective --recompute-parts inputs,norms,attention", {**LATENT, "tie-embeddings": True}),
    Case("tp=2,cp=3", "--sequence-parallel on --zigzag --recompute full", {**LATENT, "seq": 50}), Case("tp=2,dp=2", "--attention-output all-to-all --sequence-parallel on --zero 2", {**LATENT, "seq": 37}),
    Case("cp=4", "--cp two-level --cp-heads 2 --zigzag", {**LATENT, "window": 9, "seq": 32}), Case("cp=4,tp=2", "--cp double-ring --cp-inner 2", {**LATENT, "pack": 32, "seq": 64}),
    Case("cp=3,dp=2", "--recompute selective --recompute-parts attention", {**DIRECT, "pack": 101, "seq": 48}), Case("cp=4", "--cp ulysses", {**LATENT, "pack": 101, "seq": 37}),
    Case("pp=2,cp=2", "--schedule terapipe --slices 2 --zigzag", LATENT), Case("pp=2,cp=2,tp=2", "--schedule terapipe --slices 4 --recompute full --sequence-parallel on", {**DIRECT, "seq": 32, "window": 6}),
    Case("pp=2,cp=2", "--schedule terapipe --slices 2 --recompute selective --recompute-parts norms,attention", {**LATENT, "pack": 32, "seq": 37}),
    Case("pp=2,dp=2,tp=2", "--schedule zb-v --zero 3", {**LATENT, "layers": 4, "micro-batches": 4}), Case("ep=2,tp=2,cp=2", "--sequence-parallel on --zigzag --zero 1", {**MOE, **LATENT}),
    Case("dp=2,pp=2,ep=2,cp=2,tp=2", "--zero 1 --zigzag --sequence-parallel on", {**MOE, **LATENT}), Case("dp=2,cp=2", "--zero 3 --gradient-release", {**LATENT, "clip": 0}),
    Case("cp=2,tp=2", "--zigzag", {**LATENT, "mixers": "m,a", **MAMBA}), Case("dp=2,tp=2", "--zero 1 --sequence-parallel on", {**LATENT, "dtype": "f32"}),
    # Mamba-2 and linear attention, alone and among attention
    Case("tp=2", "", {**MAMBA, "mixers": "m"}), Case("tp=4,dp=2", "--sequence-parallel on --recompute full", {**MAMBA, "mixers": "m", "groups": 2, "expand": 3}),
    Case("cp=2", "", {**MAMBA, "mixers": "m"}), Case("cp=4", "--cp allgather", {**MAMBA, "mixers": "m", "groups": 4}), Case("cp=3,tp=2", "--zigzag", {**MAMBA, "mixers": "m,a", "seq": 24}),
    Case("cp=4,dp=2", "", {"chunk": 5, "mixers": "l", "kv-heads": 4}), Case("cp=2,tp=2", "--sequence-parallel on --zigzag --recompute selective", {**MAMBA, "mixers": "l,m", "seq": 32}),
    Case("cp=4,tp=2", "", {**MAMBA, "mixers": "m,a", "pack": 32, "seq": 64}), Case("cp=3,dp=2", "--zigzag", {**MAMBA, "mixers": "l,m", "pack": 101, "seq": 37}),
    Case("pp=2,cp=2", "--schedule terapipe --slices 3", {**MAMBA, "mixers": "m,l", "pack": 32, "seq": 50}), Case("cp=4,ep=2", "--cp allgather", {**MOE, **MAMBA, "mixers": "m", "seq": 5}),
    Case("cp=6", "--cp allgather", {"chunk": 5, "mixers": "l", "seq": 24}), Case("cp=4,ep=2", "--cp two-level --cp-heads 2 --zigzag", {**MOE, **MAMBA, "mixers": "m,a", "seq": 32}),
    Case("pp=2,cp=2", "--schedule terapipe --slices 2 --recompute full", {**MAMBA, "mixers": "m,a,l", "layers": 4, "seq": 24}),
    Case("pp=2,cp=2,tp=2", "--schedule terapipe --slices 4 --cp allgather --sequence-parallel on", {**MAMBA, "mixers": "l,m", "seq": 32}),
    Case("pp=2,cp=3", "--schedule zb-v --cp ulysses --recompute selective --recompute-parts norms,activations", {**MAMBA, "mixers": "m,l,a,m", "heads": 3, "kv-heads": 1, "hidden": 24, "layers": 4, "seq": 24}),
    Case("dp=2,pp=2,cp=2,tp=2", "--zero 3 --zigzag", {**MAMBA, "mixers": "m,a", "tie-embeddings": True, "window": 5}), Case("cp=2,dp=2", "--zero 2", {**MAMBA, "mixers": "m,l", "dtype": "f32"}),
    # lengths that the mesh does not divide
    Case("cp=2", "", {"seq": 37}), Case("cp=3", "--zigzag", {"seq": 50}), Case("cp=4", "--zero 2", {"seq": 101}), Case("cp=4", "--zigzag --cp allgather", {"seq": 37}),
    Case("tp=2", "--sequence-parallel on", {"seq": 37}), Case("tp=3,cp=2", "--sequence-parallel on --zigzag --recompute full", {"heads": 6, "kv-heads": 3, "hidden": 48, "seq": 50}),
    Case("cp=4,tp=2", "--sequence-parallel on --zero 3", {**MOE, "seq": 37}), Case("cp=3,ep=2", "--zigzag", {**MOE, "seq": 101}), Case("cp=4,ep=2", "--zero 1", {**MOE, "seq": 5}),
    Case("pp=2,cp=2", "--schedule terapipe --slices 3 --zigzag", {"seq": 37}), Case("pp=2,ep=2,tp=2", "--schedule terapipe --slices 4 --sequence-parallel on", {**MOE, "seq": 50}),
    Case("cp=4", "--cp two-level --cp-heads 2 --zigzag", {"seq": 37}), Case("cp=3", "--cp ulysses", {"heads": 6, "kv-heads": 3, "hidden": 48, "seq": 50}),
    Case("cp=4", "--cp double-ring --cp-inner 2 --zigzag", {**MOE, "seq": 101}), Case("cp=4", "", {"window": 9, "seq": 37}),
    Case("cp=4", "", {"pack": 32, "seq": 101}), Case("cp=3,tp=2", "--sequence-parallel on", {**MOE, "pack": 101, "seq": 50}), Case("cp=4,dp=2", "--zigzag", {"ignore-token": 101, "seq": 1}),
    # scores that are capped, ALiBi, no positions, sinks
    Case("tp=2", "--sequence-parallel on", {"attention-sinks": True}), Case("cp=4", "--cp ulysses --zero 3", {"attention-sinks": True, "positions": "none"}),
    Case("cp=2,tp=2", "--zigzag", {"positions": "alibi", "soft-cap": 0.5}), Case("cp=3,dp=2", "--cp ulysses", {"heads": 6, "kv-heads": 3, "hidden": 48, "seq": 24, "positions": "alibi"}),
    Case("pp=2,cp=2", "--schedule terapipe --slices 2", {"positions": "alibi", "soft-cap": 0.5, "attention-sinks": True, "window": 6}),
    Case("pp=2,cp=4", "--cp two-level --cp-heads 2 --schedule terapipe --slices 2 --recompute full", {**MOE, "seq": 32, "positions": "alibi", "attention-sinks": True}),
    Case("cp=4", "--cp double-ring --cp-inner 2 --recompute selective --recompute-parts attention", {"pack": 32, "seq": 64, "positions": "alibi", "attention-sinks": True}),
    Case("cp=4,tp=2", "--cp two-level --cp-heads 2 --sequence-parallel on", {"heads": 8, "kv-heads": 1, "pack": 101, "seq": 32, "soft-cap": 0.3, "attention-sinks": True}),
    Case("dp=2,pp=2", "--schedule zb-v --zero 2", {"layers": 4, "micro-batches": 4, "attention-sinks": True, "soft-cap": 1, "positions": "none"}),
    Case("dp=2,cp=2", "--cp allgather --zero 3 --gradient-release", {"clip": 0, "attention-sinks": True, "positions": "alibi", "tie-embeddings": True}),
    # all five, in three orders
    Case("dp=2,pp=2,ep=2,cp=2,tp=2", "--zero 1 --zigzag --sequence-parallel on --bucket-elements 500", MOE),
    Case("tp=2,cp=2,ep=2,pp=2,dp=2", "--schedule gpipe --cp allgather --recompute full --bucket-elements 500", {**MOE, "tie-embeddings": True}),
    Case("pp=2,tp=2,dp=2,ep=2,cp=2", "--zero 1 --recompute full --sequence-parallel on", {"tie-embeddings": True}),
    # gradients and parameters that are sharded, hybrid sharding, gradients that are released
    Case("dp=2", "--zero 2"), Case("dp=4", "--zero 3", {"tie-embeddings": True}), Case("dp=3", "--zero 3 --zero-keep on", {**MOE, "batch": 12}),
    Case("dp=4", "--zero 3 --zero-ranks 2 --zero-accumulate on"), Case("ep=2,dp=2", "--zero 3", {**MOE, "tie-embeddings": True}),
    Case("cp=2,dp=2", "--zero 2 --zigzag --zero-accumulate on"), Case("dp=4,tp=2", "--zero 3 --zero-ranks 2 --sequence-parallel on --recompute full", MOE),
    Case("pp=2,dp=2,tp=2", "--zero 3", {"tie-embeddings": True, "micro-batches": 4}), Case("pp=2,dp=4", "--schedule zb-v --zero 3 --zero-ranks 2", {**MOE, "layers": 4, "micro-batches": 4, "batch": 16}),
    Case("pp=4,dp=2,ep=2", "--schedule dualpipe --zero 3 --zero-keep on --zero-accumulate on", {**MOE, "layers": 4, "micro-batches": 4, "batch": 16, "tie-embeddings": True}),
    Case("pp=2,cp=2,tp=2,dp=2", "--zero 2 --sequence-parallel on", {"micro-batches": 4}), Case("dp=1", "--zero 3 --recompute full", MOE),
    Case("dp=4", "--zero 0 --gradient-release", {"clip": 0}), Case("dp=2,ep=2", "--zero 3 --gradient-release", {**MOE, "clip": 0, "tie-embeddings": True}),
    Case("pp=2,dp=4", "--zero 2 --zero-ranks 2 --gradient-release --schedule zb-h1", {"clip": 0, "tie-embeddings": True, "micro-batches": 2}),
    Case("cp=2,tp=2,pp=2", "--zero 3 --zero-keep on --gradient-release --sequence-parallel on", {**MOE, "clip": 0}),
    # f32
    Case("dp=2,tp=2", "--zero 3 --sequence-parallel on", {"dtype": "f32"}), Case("dp=2,tp=2", "--zero 1 --sequence-parallel on", {"dtype": "f32"}),
    Case("dp=2,pp=2,ep=2", "--zero 1", {**MOE, "dtype": "f32"}), Case("cp=2,tp=2", "--zigzag", {"dtype": "f32"}),
    # targets that carry no loss
    Case("dp=2,cp=2", "--zero 1", {"ignore-token": 101}), Case("pp=2,tp=2", "", {**MOE, "ignore-token": 101}),
    Case("cp=2", "", {"ignore-token": IGNORED}, "one cp rank"), Case("cp=4,tp=2", "--sequence-parallel on", {**MOE, "ignore-token": IGNORED}, "one cp rank"),
    Case("cp=2,dp=2", "--zigzag --zero 1", {"ignore-token": IGNORED}, "one cp rank"),
    Case("pp=2", "", {"ignore-token": IGNORED, "batch": 4, "micro-batches": 4}, "one sequence"),
    Case("pp=2,cp=2", "--schedule gpipe", {**MOE, "ignore-token": IGNORED, "batch": 4, "micro-batches": 4}, "one sequence"),
    Case("dp=4", "--zero 1", {"ignore-token": IGNORED, "batch": 4, "micro-batches": 1}, "one sequence"),
    Case("dp=2,ep=2", "", {**MOE, "ignore-token": IGNORED, "batch": 4, "micro-batches": 1}, "one sequence"),
    Case("dp=2,tp=2", "--zero 1 --sequence-parallel on", {"ignore-token": IGNORED}, "none", valid=False),
    Case("pp=2,cp=2", "--zigzag", {**MOE, "ignore-token": IGNORED}, "none", valid=False),
    Case("dp=1", "", {"ignore-token": IGNORED}, "none", valid=False),
]


def write_data(folder):
    """The data of the cases: key -> files. Those with few valid targets have windows of MODEL's seq only."""
    draw = random.Random(1)
    letters = range(2, 256, 5)  # each rank of tp holds the rows of some
    words = [bytes(draw.choice(letters) for _ in range(draw.randint(1, 8))) for _ in range(200)]
    prose = b" ".join(draw.choice(words) for _ in range(3000))
    variety.tokens("the text", [prose[:9000], prose[9000:]], MODEL["vocab"])
    seq = MODEL["seq"]
    contents = {
        "text": [prose[:9000], prose[9000:]],
        "one cp rank": [prose[:seq // 4] + bytes([IGNORED]) * (seq + 1 - seq // 4)],  # the first quarter of the sequence
        "one sequence": [prose[:seq + 1]] + [bytes([IGNORED]) * (seq + 1)] * 3,
        "none": [bytes([IGNORED]) * 100],
    }
    files = {}
    for key, texts in contents.items():
        files[key] = [folder / f"{key.replace(' ', '_')}.{i}" for i in range(len(texts))]
        for file, text in zip(files[key], texts):
            file.write_bytes(text)
    return files


def seed_for_one_sequence(files, batch, steps):
    """A seed with which each batch, the one after the last step too, has exactly one sequence with valid targets: they
    are all in one micro-batch, or all on one dp rank."""
    texts = [file.read_bytes() for file in files]
    seq = MODEL["seq"]
    for seed in range(100000):
        if all(sum(window != texts[1] for window in text_windows.batch(texts, seq, seed, batch, step)) == 1 for step in range(steps + 1)):
            return seed
    raise AssertionError("no seed gives one valid sequence a batch")


# Grids of tp: its ranks, and what these divide: the batch, heads and widths, and the heads of keys and values.
GRIDS = {"2d": ((4, 2, 2, 2), (6, 3, 6, 2)), "2.5d": ((8, 4, 2, 2),), "3d": ((8, 4, 4, 2),)}


def random_case(draw, max_ranks):
    """A mesh of at most so many ranks and a model that it divides, with sequences of any length."""
    while True:
        extent = {axis: draw.choice((1, 1, 2, 2, 3, 4)) for axis in ("dp", "pp", "ep", "cp", "tp")}
        kind = draw.choice(("1d",) * 6 + tuple(GRIDS))
        if kind != "1d":
            extent["ep"] = 1
            extent["tp"], sequences, widths, kv_divisor = draw.choice(GRIDS[kind])
        else:
            sequences, widths, kv_divisor = 1, extent["tp"], 1
        if 2 <= math.prod(extent.values()) <= max_ranks:
            break
    is_grid = kind != "1d"
    tp, cp = extent["tp"], extent["cp"]
    zigzag, sequence_parallel = draw.random() < 0.5, draw.random() < 0.5 and not is_grid
    heads = widths * draw.choice((1, 2, 3, 4) if widths < 3 else (1, 2) if widths < 4 else (1,))
    kv_heads = draw.choice([kv for kv in range(1, heads + 1) if heads % kv == 0 and (kv % kv_divisor == 0 if is_grid else kv % tp == 0 or tp % kv == 0)])
    micro_batches = draw.choice((1, 2, 3, 4))
    model = {"heads": heads, "kv-heads": kv_heads, "hidden": heads * draw.choice((4, 6, 8)), "ffn": widths * draw.randint(3, 12),
             "layers": extent["pp"] * draw.choice((1, 2) if extent["pp"] < 3 else (1,)), "micro-batches": micro_batches,
             "batch": extent["dp"] * extent["ep"] * sequences * micro_batches * draw.choice((1, 2)), "vocab": draw.randint(256, 280),
             "seq": draw.randint(1, 45), "seed": draw.randint(1, 10**9)}
    folding = ""
    if draw.random() < 0.6 and not is_grid:
        experts_on = extent["ep"]
        if draw.random() < 0.5:  # the experts' ranks folded over those of a stage
            extent["dp"], extent["ep"] = extent["dp"] * extent["ep"], 1
            ranks = extent["dp"] * cp * tp
            width = draw.choice([n for n in range(1, ranks + 1) if ranks % n == 0 and model["ffn"] % n == 0])
            experts_on = draw.choice([n for n in range(1, ranks // width + 1) if ranks // width % n == 0])
            folding = f"--expert-mesh ep={experts_on},etp={width}"
        experts = experts_on * draw.randint(1, 3)
        model |= {**MOE, "experts": experts, "top-k": draw.randint(1, min(3, experts)), "moe-every": draw.choice((1, 1, min(2, model["layers"])))}
        model |= draw.choice(({}, {}, {**NO_BALANCE_LOSS, "router": "sigmoid", "balance": "bias", "bias-rate": 0.01}, {**NO_BALANCE_LOSS, "router": "sigmoid", "balance": "bias", "bias-rate": 0.05, "bias-step": "proportional"},
                              {"router": "sigmoid", "balance": "sequence-aux"}, {"router": "switch", "top-k": 1},
                              {**NO_BALANCE_LOSS, "router": "hash"}, {**NO_BALANCE_LOSS, "router": "expert-choice"}, {**NO_BALANCE_LOSS, "router": "sinkhorn", "top-k": 1}, {"balance": "sequence-aux", "renormalise": "off"}))
        if draw.random() < 0.3 and model.get("router") != "expert-choice":
            model |= {"capacity": draw.choice((0.5, 0.8, 1.25)), "drop": draw.choice(("position", "score"))}
        if draw.random() < 0.3:
            model |= {"shared-experts": draw.randint(1, 2)}
    if draw.random() < 0.4:
        model["tie-embeddings"] = True
    if draw.random() < 0.25 and not is_grid:
        model |= {"mtp": draw.randint(1, 2), "mtp-coef": draw.choice((0.1, 0.3, 2))}
    if draw.random() < 0.3:
        model["ignore-token"] = draw.choice(b" et")
    if draw.random() < 0.3 and not is_grid:
        model["pack"] = draw.choice(b" et")
    if draw.random() < 0.25:
        model["window"] = draw.randint(1, model["seq"])
    if draw.random() < 0.25:
        model["soft-cap"] = draw.choice((0.3, 1, 30))
    if draw.random() < 0.3:
        model["positions"] = draw.choice(("alibi", "alibi", "none"))
    if draw.random() < 0.25:
        model["attention-sinks"] = True
    if draw.random() < 0.3 and not is_grid:
        expand = draw.choice((1, 2))
        groups = draw.choice([n for n in range(1, expand * heads + 1) if expand * heads % n == 0 and (n % tp == 0 or tp % n == 0)])
        attention_alone = {"window", "soft-cap", "positions", "attention-sinks"} & set(model)
        model |= {"mixers": draw.choice(("m,a", "a,m,l") if attention_alone else ("m", "l", "m,a", "l,m", "a,m,l")), "chunk": draw.randint(2, 9)}
        if "m" in model["mixers"]:
            model |= {"state": 12, "expand": expand, "groups": groups, "conv": draw.choice((1, 2, 4))}
    if draw.random() < 0.25 and not is_grid and "a" in model.get("mixers", "a") and not {"positions", "soft-cap", "attention-sinks"} & set(model):
        sizes = {"q": draw.choice((0, draw.randint(1, 20))), "kv": draw.randint(1, 20), "rope": 2 * draw.randint(1, 4), "nope": draw.randint(1, 9), "v": draw.randint(1, 9)}
        model |= {"kv-heads": None, "latent-attention": ",".join(f"{key}={size}" for key, size in sizes.items())}
    axes = [f"{axis}={size}" for axis, size in extent.items() if size > 1 or draw.random() < 0.3]
    draw.shuffle(axes)
    if folding:  # the ranks of a stage follow each other
        axes.sort(key=lambda axis: not axis.startswith("pp"))
    name, chunks = draw.choice([(name, chunks) for name, numbers in SCHEDULES.items() for chunks in numbers
                                if extent["pp"] % 2 == 0 or name not in ("dualpipe", "chimera")])
    stages = extent["pp"] * chunks
    sees_all = "capacity" in model or model.get("router") in ("expert-choice", "sinkhorn")
    slices = draw.choice((1, 2, 4)) if name == "terapipe" and not sees_all else 1
    if chunks > 1 and model["layers"] % stages or draw.random() < 0.2:
        cuts = sorted(draw.randint(0, model["layers"]) for _ in range(stages - 1))
        dealt = "--stages " + ",".join(str(b - a) for a, b in zip([0, *cuts], [*cuts, model["layers"]]))
    else:
        dealt = ""
    inside = draw.choice([n for n in range(min(2, cp), cp + 1) if cp % n == 0])
    own_heads = heads // (2 if is_grid else tp)  # all grids above have two columns
    context = draw.choice(["--cp ring", "--cp allgather", f"--cp double-ring --cp-inner {inside}"]
                          + ["--cp ulysses"] * (own_heads % cp == 0) + [f"--cp two-level --cp-heads {inside}"] * (own_heads % inside == 0))
    zero = draw.randint(0, 3)
    sharding = [f"--zero {zero}"]
    if zero > 0 and draw.random() < 0.5:
        data, ep = extent["dp"] * extent["ep"], extent["ep"]
        sharding.append(f"--zero-ranks {draw.choice([n for n in range(1, data + 1) if data % n == 0 and (ep % n == 0 or n % ep == 0)])}")
    if zero == 3:
        sharding.append(f"--zero-keep {draw.choice(('on', 'off'))}")
    if zero >= 2:
        sharding.append(f"--zero-accumulate {draw.choice(('on', 'off'))}")
    if draw.random() < 0.3 and name not in ("dualpipe", "chimera"):
        sharding.append("--gradient-release")
        model["clip"] = 0
    if "experts" in model and draw.random() < 0.4:
        sharding.append(f"--rebalance-experts {draw.choice((1, 2))}")
    ways = [f"--schedule {name}", f"--chunks {chunks}", f"--slices {slices}", dealt, context, *sharding,
            "--zigzag" if zigzag else "", f"--tp-kind {kind}" if is_grid else draw.choice(("", "", "--attention-output all-to-all")), folding, "--sequence-parallel on" if sequence_parallel else "", draw.choice(("--recompute full", "--recompute full --recompute-every 2", "--recompute selective",
             "--recompute selective --recompute-parts inputs,attention", "--recompute selective --recompute-parts norms,activations,rows", ""))]
    return Case(",".join(axes), " ".join(way for way in ways if way), model)


class Bench:
    """Runs train_lm, and keeps the single-rank runs."""

    def __init__(self, arguments, folder):
        self.binary = arguments.train_lm
        self.mpiexec = shlex.split(arguments.mpiexec)
        self.timeout = arguments.timeout
        self.folder = folder
        self.data = write_data(folder)
        self.references = {}
        self.runs = 0

    def train(self, ranks, flags):
        """The log and the dump of a run."""
        self.runs += 1
        log, dump = self.folder / f"{self.runs}.log", self.folder / f"{self.runs}.weights"
        dump.mkdir()
        command = [*self.mpiexec, "-n", str(ranks), self.binary, *flags, "--log", str(log), "--dump-weights", str(dump), "--quiet"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false", "KOKKOS_DISABLE_WARNINGS": "1"}
        try:
            status, output, errors = launch.run(command, self.timeout, environment)
        except TimeoutError as error:
            raise check_equivalence.Difference(f"{error}: {shlex.join(command)}")
        if status != 0:
            raise check_equivalence.Difference(f"exit status {status}: {shlex.join(command)}\n{(output + errors)[-4000:]}")
        if output:
            raise check_equivalence.Difference(f"prints although --quiet: {output[:400]!r}")
        return log, dump

    def check(self, case):
        """The largest differences between a case and its reference."""
        model = {**MODEL, **case.model}
        if case.data == "one sequence":
            model["seed"] = seed_for_one_sequence(self.data[case.data], model["batch"], model["steps"])
        flags = [word for file in self.data[case.data] for word in ("--data", str(file))]
        for key, value in model.items():
            flags += [] if value is None else [f"--{key}"] if value is True else [f"--{key}", str(value)]
        key = tuple(flags)
        if key not in self.references:
            self.references[key] = self.train(1, [*flags, "--mesh", "dp=1"])
        reference = self.references[key]
        log, dump = self.train(case.ranks(), [*flags, "--mesh", case.mesh, *case.ways.split()])
        moves = re.findall(r'"moved_experts":(\d+)', log.read_text())
        if case in FIXED and moves and not any(map(int, moves)):
            raise check_equivalence.Difference("no expert has moved")
        tolerances = check_equivalence.TOLERANCES[model["dtype"]]
        steps, end = check_equivalence.read_log(log)
        losses = [step["loss"] for step in steps] + [end["final_loss"]]
        if case.valid and not all(loss is not None and loss > 0 for loss in losses):
            raise check_equivalence.Difference(f"the losses are {losses}: there were targets")
        if not case.valid and any(loss is not None for loss in losses):
            raise check_equivalence.Difference(f"the losses are {losses}: there was no target")
        largest = check_equivalence.compare_logs(reference[0], log, tolerances)
        largest["weights"] = check_equivalence.compare_weights(reference[1], dump, tolerances["weights"])
        return largest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-lm", required=True, metavar="BINARY")
    parser.add_argument("--mpiexec", default="mpiexec", metavar="COMMAND")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose line contains it")
    parser.add_argument("--max-ranks", type=int, default=32, metavar="R")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="of one run")
    arguments = parser.parse_args()

    draw = random.Random(arguments.seed)
    cases = [random_case(draw, arguments.max_ranks) for _ in range(arguments.random)] if arguments.random else FIXED
    cases = [case for case in cases if arguments.only in str(case) and case.ranks() <= arguments.max_ranks]
    if not cases:
        sys.exit("no case is left to run")
    failures = 0
    with tempfile.TemporaryDirectory(prefix="pentad-equivalence-") as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        for case in cases:
            start = time.monotonic()
            try:
                largest = bench.check(case)
                outcome = "same   " + " ".join(f"{key} {largest[key]:.0e}" for key in ("loss", "grad_norm", "weights"))
            except (check_equivalence.Difference, OSError) as error:
                failures += 1
                outcome = f"DIFFERS {error}"
            print(f"{time.monotonic() - start:5.1f} s  {case.ranks():2} ranks  {case}  {outcome}", flush=True)
    print(f"{len(cases) - failures} of {len(cases)} the same as on one rank")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

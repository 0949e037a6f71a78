#!/usr/bin/env python3
"""A mixer of the program's own: own_block.py OWN_BLOCK MPIEXEC. On each mesh the program compares itself with one rank and with its dry
run; its parameters are in the checkpoint; a mesh that does not fit is refused in one sentence."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from common import expect

OWN_BLOCK, MPIEXEC = sys.argv[1:]


def run(mesh, folder, ranks):
    command = [MPIEXEC, "-n", str(ranks), OWN_BLOCK, *mesh.split(), str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    losses = set()
    for mesh, ranks in [("1 1 1 1 1", 1), ("1 1 1 2 2", 4), ("1 2 2 1 2", 8), ("2 2 1 2 1", 8)]:
        done = run(mesh, folder, ranks)
        expect(done.returncode == 0, f"{mesh}: {done.returncode}\n{done.stdout}{done.stderr}")
        losses.add(tuple(re.findall(r"loss ([0-9.]{10})", done.stdout)))
        numbers = re.findall(r"^(?:sent along dp|pp|ep|cp|tp|edp|etp|FLOPs of products|bytes held) +\d+ +\d+ +\d+ +\d+$", done.stdout, re.M)
        expect(len(numbers) == 9 and re.search(r"^12 is\|.+", done.stdout, re.M), done.stdout)
    expect(len(losses) == 1 and len(*losses) == 4, f"losses differ between meshes: {losses}")
    data = (folder / "model.safetensors").read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    shapes = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    expect(shapes["model.layers.3.convolution.taps"] == [48, 4] and shapes["model.layers.0.convolution.up.weight"] == [48, 32], shapes)
    for mesh, ranks, message in [("3 1 1 1 1", 2, "a mesh of 3 ranks on 2"), ("1 1 1 1", 1, "it takes DP PP EP CP TP FOLDER"),
                                 ("1 1 1 16 1", 16, "not shorter than its taps")]:
        done = run(mesh, folder, ranks)
        expect(done.returncode == 2 and re.fullmatch(rf"own_block: [^\n]*{message}[^\n]*\n", done.stderr), f"{mesh}: {done.returncode}\n{done.stderr}")

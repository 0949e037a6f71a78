"""Saves and loads the same state with Pentad and with torch.distributed.checkpoint, in turn, on 2 ranks and one disk, and prints the ratios.

    checkpoints.py --bench BINARY [--pairs N] [--hidden N] [--layers N] [--folder FOLDER]

f32 weights and the two moments of AdamW, sharded over the ranks. Both wait until the files are on the disk. Pentad writes over the files of a checkpoint
that is no longer kept (save), or where there is none, to new ones (new files), as PyTorch does. Also what saving in the background costs the steps beside it,
of the time that writing takes.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import library_kernels
import torch_ranks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--folder", help="on the disk to measure; default: that of temporary files")
    o = parser.parse_args()
    library_kernels.say(pathlib.Path(o.bench).parent)
    ratios = {"save": [], "new files": [], "load": [], "slower": []}
    for pair in range(o.pairs):
        with tempfile.TemporaryDirectory(dir=o.folder) as name:
            folder = pathlib.Path(name)
            done = subprocess.run(["mpiexec", "-n", "2", o.bench, folder, str(o.hidden), str(o.layers)], check=True, capture_output=True, text=True)
            ours = json.loads(done.stdout)
        with tempfile.TemporaryDirectory(dir=o.folder) as name:
            theirs, = torch_ranks.run("torch_checkpoints.py", 2, ["--folder", name, "--hidden", str(o.hidden), "--layers", str(o.layers)])
        for what in ("save", "load"):
            ratios[what].append(ours[what] / theirs[what])
        ratios["new files"].append(ours["new_files"] / theirs["save"])
        ratios["slower"].append(ours["slower"] / ours["writing"])
        gib = ours["bytes"] / 2**30
        print(f"  pair {pair + 1}, {gib:.2f} GiB: save {ours['save']:.2f} / {theirs['save']:.2f} s = {ratios['save'][-1]:.3f} (new files {ours['new_files']:.2f} s)   load {ours['load']:.2f} / "
              f"{theirs['load']:.2f} s = {ratios['load'][-1]:.3f}   beside training: steps of {ours['step']:.2f} s take {ours['slower']:.2f} s longer in all while "
              f"{ours['writing']:.2f} s are written: {ratios['slower'][-1]:.3f}", flush=True)
    print("Pentad / torch.distributed.checkpoint, medians: " + ", ".join(f"{what} {statistics.median(found):.3f}" for what, found in ratios.items()))


main()

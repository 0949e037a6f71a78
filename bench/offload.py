"""What it costs to keep optimizer state or activations in files: trains a model with and without --offload, in turn.

    offload.py --train-lm BINARY --data FILE [--what optimizer|activations] [--folder DIR] [--rounds N] [--steps N] [--ranks N] [--batch N] [--no-release]

Each round is a run without, what the disk does by itself with the bytes that a step reads and writes (one process, past the
kernel's memory, in pieces of 8 MiB), and a run with. The figures are medians over the steps after the first two, and over the
rounds. With gradient release, updates of the optimizer's state are spread over the backward pass.
"""

import argparse
import json
import mmap
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

import library_kernels

SHAPE = {"layers": 8, "hidden": 512, "heads": 8, "ffn": 1408, "vocab": 4096, "seq": 512}
WARM_UP = 2
PIECE = 8 << 20
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Run:
    def __init__(self, o, *flags):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            shape = [x for name, value in {**SHAPE, "batch": o.batch, "steps": o.steps}.items() for x in (f"--{name}", str(value))]
            release = [] if o.no_release else ["--gradient-release", "--clip", "0"]
            done = subprocess.run(["mpiexec", "-n", str(o.ranks), o.train_lm, "--dtype", "f32", "--data", o.data, "--log", log, *shape, *release, *flags],
                                  check=True, capture_output=True, text=True)
            lines = [json.loads(line) for line in log.read_text().splitlines()]
        tokens = o.batch * SHAPE["seq"]
        self.seconds = statistics.median(tokens / line["tokens_per_s"] for line in lines[WARM_UP:-1])
        self.waited = statistics.median(line.get("offload_wait_s", 0) for line in lines[WARM_UP:-1])
        self.peak = bytes_of(re.search(r"peak memory of a rank ([\d.]+ \w+)", done.stdout)[1])
        self.loss = lines[-1]["final_loss"]
        self.said = re.search(r"offload: ([\d.]+ \w+) of (?:optimizer state|activations) in .*, windows of ([\d.]+ \w+) on all ranks.*", done.stdout)


def bytes_of(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def disk_seconds(folder, size):
    """Seconds to write and read so many bytes, one after the other, past the kernel's memory."""
    piece = mmap.mmap(-1, PIECE)
    file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT)
    try:
        os.posix_fallocate(file, 0, size)
        places = range(0, size - PIECE + 1, PIECE)
        for at in places:  # as the first step does: the blocks exist then
            os.pwritev(file, [piece], at)
        start = time.perf_counter()
        for at in places:
            os.pwritev(file, [piece], at)
        for at in places:
            os.preadv(file, [piece], at)
        return time.perf_counter() - start
    finally:
        os.close(file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--what", choices=("optimizer", "activations"), default="optimizer")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--no-release", action="store_true")
    o = parser.parse_args()
    library_kernels.say(pathlib.Path(o.train_lm).parent)
    rounds = []
    for number in range(o.rounds):
        without = Run(o)
        with_files = Run(o, "--offload", o.what, "--offload-folder", o.folder)
        state, window = (bytes_of(with_files.said[i]) for i in (1, 2))
        disk = disk_seconds(o.folder, int(state))
        if without.loss != with_files.loss:
            raise SystemExit(f"the losses differ: {without.loss} and {with_files.loss}")
        rounds.append((with_files.seconds / without.seconds, without.seconds, with_files.seconds, with_files.waited, disk, without.peak - with_files.peak))
        print(f"  round {number + 1}: a step {1e3 * without.seconds:.0f} ms, with files {1e3 * with_files.seconds:.0f} ms, of which it waits "
              f"{1e3 * with_files.waited:.0f} ms; the disk by itself {1e3 * disk:.0f} ms; peak {without.peak / 2**20:.0f} and {with_files.peak / 2**20:.0f} MiB",
              flush=True)
        print(f"    {with_files.said[0]}", flush=True)
    ratio, before, after, waited, disk, saved = (statistics.median(values) for values in zip(*rounds))
    print(f"medians of {o.rounds} rounds: {ratio:.3f} times the step time ({1e3 * before:.0f} ms, {1e3 * after:.0f} ms with files, {1e3 * waited:.0f} ms of it "
          f"waiting); written and read by themselves the same bytes take {1e3 * disk:.0f} ms. In files {state / 2**20:.0f} MiB, windows {window / 2**20:.0f} MiB on all "
          f"ranks; the peak of a rank falls by {saved / 2**20:.0f} MiB")


main()

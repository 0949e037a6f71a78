#!/usr/bin/env python3
"""Plans beside runs: measures this machine, ranks every mesh of so many ranks for a small mixture-of-experts model by
pentad_plan, trains it on each with train_lm, and compares.

    planner.py --bin FOLDER [--ranks 2,4] [--repeats 3] [--mpiexec "mpiexec ..."]

Prints planned and measured milliseconds of a step for each mesh, how far the one that is planned first is from the
fastest, and Spearman's rank correlation. The runs of a repeat follow each other, mesh by mesh. Standard library only.
"""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import tempfile

import library_kernels

AXES = ("dp", "pp", "ep", "cp", "tp")
BATCH, SEQ, MICRO_BATCHES, STEPS = 16, 128, 2, 16
MODEL = ["--layers", "4", "--hidden", "96", "--heads", "4", "--kv-heads", "2", "--ffn", "192", "--experts", "4",
         "--seq", str(SEQ), "--batch", str(BATCH), "--micro-batches", str(MICRO_BATCHES)]


def meshes(ranks, axes=AXES):
    """Every way to write `ranks` as a product of the axes."""
    if len(axes) == 1:
        return [{axes[0]: ranks}]
    return [{axes[0]: n, **rest} for n in range(1, ranks + 1) if ranks % n == 0 for rest in meshes(ranks // n, axes[1:])]


def text(mesh):
    return ",".join(f"{axis}={n}" for axis, n in mesh.items() if n > 1) or "dp=1"


def spearman(a, b):
    def ranks(values):
        return [sum(x < v for x in values) + (sum(x == v for x in values) - 1) / 2 for v in values]
    x, y = ranks(a), ranks(b)
    mean = (len(x) - 1) / 2
    return (sum((i - mean) * (j - mean) for i, j in zip(x, y))
            / (sum((i - mean) ** 2 for i in x) * sum((j - mean) ** 2 for j in y)) ** 0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path, metavar="FOLDER", help="with train_lm and pentad_plan")
    parser.add_argument("--ranks", default="2,4", metavar="LIST")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--mpiexec", default="mpiexec", metavar="COMMAND")
    arguments = parser.parse_args()
    library_kernels.say(arguments.bin)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def run(ranks, program, *flags):
            command = [*shlex.split(arguments.mpiexec), "-n", str(ranks), str(arguments.bin / program), *flags]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
            return done.stdout

        def trained(ranks, mesh):
            """Median seconds of a step."""
            log = folder / "log.jsonl"
            flags = ["--zigzag"] if mesh["cp"] > 1 else []
            run(ranks, "train_lm", "--mesh", text(mesh), *MODEL, "--steps", str(STEPS), "--quiet", "--log", str(log), *flags)
            steps = [json.loads(line) for line in log.read_text().splitlines()]
            return statistics.median([BATCH * SEQ / s["tokens_per_s"] for s in steps if "tokens_per_s" in s][4:])

        run(1, "train_lm", *MODEL, "--steps", "0", "--quiet", "--dump-weights", name)
        pooled = []
        for ranks in map(int, arguments.ranks.split(",")):
            all_meshes = meshes(ranks)
            planned, measured = {}, {text(mesh): [] for mesh in all_meshes}
            for repeat in range(arguments.repeats):
                machine = folder / f"machine{repeat}.json"
                run(ranks, "pentad_plan", "--measure", "--hardware-out", str(machine))
                for mesh in all_meshes:
                    key = text(mesh)
                    measured[key].append(trained(ranks, mesh))
                    answer = run(1, "pentad_plan", "--model-json", str(folder / "config.json"), "--hardware-json",
                                 str(machine), "--evaluate", ",".join(f"{a}={n}" for a, n in mesh.items()), "--seq",
                                 str(SEQ), "--global-batch", str(BATCH), "--micro-batch",
                                 str(BATCH // MICRO_BATCHES // (mesh["dp"] * mesh["ep"])), "--dtype", "f32", "--json")
                    planned.setdefault(key, []).append(json.loads(answer)["step_s"])
            plan = {key: statistics.median(times) for key, times in planned.items()}
            real = {key: statistics.median(times) for key, times in measured.items()}
            print(f"{ranks} ranks: mesh, planned, measured [ms]")
            for key in sorted(real, key=real.get):
                print(f"  {key:20} {1e3 * plan[key]:7.1f} {1e3 * real[key]:7.1f}   "
                      + " ".join(f"{1e3 * t:.1f}" for t in measured[key]))
            first = min(plan, key=plan.get)
            print(f"  planned first: {first}, {real[first] / min(real.values()):.2f} of the fastest; rank correlation "
                  f"{spearman([plan[k] for k in real], list(real.values())):.2f}")
            pooled += [(plan[k], real[k]) for k in real]
        print(f"all: rank correlation {spearman(*map(list, zip(*pooled))):.2f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs of train_lm that are to give the same on a device as on the host: cases of tests/reference/equivalence.py, in f64, f32 and bf16 in turn.

    training.py BUILD FOLDER [--runs 20]

trains with train_lm of BUILD, a build for the host, and keeps the logs in FOLDER, for tests/device/bundle.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "reference"))
import check_equivalence  # noqa: E402
import equivalence  # noqa: E402
import launch  # noqa: E402

RANKS = (1, 2, 4)
ELEMENTS = ("f64", "f32", "bf16")
# Of bf16, whose numbers have 8 bits; for the others equivalence.py's.
TOLERANCES = {**check_equivalence.TOLERANCES, "bf16": {key: 5e-2 if "grad" in key else 1e-2 for key in check_equivalence.TOLERANCES["f32"]} | {"lr": 1e-6}}


@dataclasses.dataclass
class Case:
    number: int
    element: str
    case: equivalence.Case

    def ranks(self):
        return self.case.ranks()

    def __str__(self):
        return f"{self.element} {dataclasses.replace(self.case, model={k: v for k, v in self.case.model.items() if k != 'dtype'})}"


def cases(count):
    """So many, spread over the fixed list. The same for the same count."""
    fitting = [case for case in equivalence.FIXED if case.ranks() in RANKS and case.data == "text" and case.valid]
    return [Case(i, ELEMENTS[i % len(ELEMENTS)], fitting[i * len(fitting) // count]) for i in range(min(count, len(fitting)))]


@dataclasses.dataclass
class Run:
    """How a run ended: what went wrong, or the largest relative difference of its losses from the reference's."""
    problem: str = ""
    difference: float = 0


class Trainer:
    """Starts train_lm."""

    def __init__(self, program, mpiexec, environment, timeout=120):
        self.program, self.mpiexec, self.timeout = program, mpiexec, timeout
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false", "KOKKOS_DISABLE_WARNINGS": "1", **environment}
        self.data = tempfile.TemporaryDirectory(prefix="pentad-device-")
        self.files = equivalence.write_data(pathlib.Path(self.data.name))["text"]

    def numbers_of(self, log, name):
        """A log of bf16 without the loads of experts: a token whose two best ones are close may choose otherwise."""
        reduced = pathlib.Path(self.data.name) / name
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        axes = dict.fromkeys(("dp", "pp", "ep", "cp", "tp"), 0)
        reduced.write_text("".join(json.dumps({key: value for key, value in line.items() if key != "experts"} | {"bytes": axes}) + "\n" for line in lines))
        return reduced

    def train(self, case, log, reference=None):
        """Trains, and compares with another run's log."""
        flags = [word for file in self.files for word in ("--data", str(file))]
        for key, value in {**equivalence.MODEL, **case.case.model, "dtype": case.element}.items():
            flags += [] if value is None else [f"--{key}"] if value is True else [f"--{key}", str(value)]
        command = [*self.mpiexec, "-n", str(case.ranks()), str(self.program), *flags, "--mesh", case.case.mesh, *case.case.ways.split(), "--log", str(log), "--quiet"]
        try:
            status, output, errors = launch.run(command, self.timeout, self.environment)
        except TimeoutError as error:
            return Run(str(error))
        if status != 0:
            return Run(f"exit status {status}: {(output + errors).strip()[-600:]}")
        try:
            check_equivalence.read_log(log)
            if reference is None:
                return Run()
            if case.element == "bf16":
                reference, log = self.numbers_of(reference, "reference"), self.numbers_of(log, "log")
            largest = check_equivalence.compare_logs(reference, log, TOLERANCES[case.element])
            return Run(difference=largest["loss"])
        except (check_equivalence.Difference, OSError) as error:
            return Run(str(error))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=20)
    o = parser.parse_args()
    o.folder.mkdir(parents=True, exist_ok=True)
    mpiexec = json.loads((o.build / "device.json").read_text())["mpiexec"]
    trainer = Trainer((o.build / "bin" / "train_lm").resolve(), [mpiexec], {})
    for case in cases(o.runs):
        done = trainer.train(case, o.folder / f"{case.number}.log")
        print(f"{case}: {done.problem or 'kept'}", flush=True)
        if done.problem:
            sys.exit(1)


if __name__ == "__main__":
    main()

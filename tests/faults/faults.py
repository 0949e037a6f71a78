#!/usr/bin/env python3
"""A matrix of faults: programs are started in thousands of wrong and hostile ways, and must neither hang, crash, accept what is wrong, nor
leave anything half-written or behind. faults.py --bin FOLDER --mpiexec MPIEXEC --seed S --trials N. Every trial is drawn from the seed
and its number; what fails is repeated alone by the command that is printed. Exit status 1 when anything fails."""
import argparse
import collections
import importlib
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

import harness
from trial import FAULTS, OUTCOMES, Trial
from world import World

KINDS = {"flags": 55, "files": 17, "kills": 6, "signals": 6, "disks": 5, "limits": 4, "ranks": 4, "numbers": 3}  # and their shares
HARNESS = "harness error"
Result = collections.namedtuple("Result", "seed number kind label outcomes faults")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, help="the folder of the programs")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31), help="default: drawn, and printed")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--random", type=int, default=0, metavar="N", help="so many more, of a seed drawn now")
    parser.add_argument("--trial", type=int, metavar="I", help="only this one, and all that it does is shown")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only trials of these kinds")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="trials at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial after so long")
    parser.add_argument("--sanitized", action="store_true", help="the programs are built with sanitizers")
    return parser.parse_args()


def kind_of(seed, number, kinds):
    return random.Random(f"{seed}/{number}").choices(list(kinds), [KINDS[kind] for kind in kinds])[0]


def run_trial(task, verbose=False):
    seed, number, kind = task
    if time.monotonic() > DEADLINE:
        return None
    with Trial(WORLD, kind, seed, number, verbose) as trial:
        try:
            importlib.import_module(f"kinds.{kind}").trial(trial)
        except Exception:  # of the matrix, not of the programs
            harness.kill_all()
            trial.fault(HARNESS, traceback.format_exc())
    return Result(seed, number, kind, trial.label, trial.outcomes, trial.faults)


def start_worker():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    harness.call("prctl", harness.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    harness.prepare_process()


def again(result):
    return f"--seed {result.seed} --kind {result.kind} --trial {result.number}"


class Report:
    def __init__(self):
        self.results, self.seen = [], collections.Counter()

    def add(self, result):
        self.results.append(result)
        for fault in result.faults:
            key = (fault.what, result.label)
            self.seen[key] += 1
            if self.seen[key] <= 2:
                print(f"{fault.what}: {result.label} ({again(result)})\n    " + fault.text.replace("\n", "\n    "), flush=True)

    def table(self, seconds):
        columns = [what for what in (*FAULTS, HARNESS) if what != HARNESS or any(f.what == HARNESS for r in self.results for f in r.faults)]
        rows = [("kind", "trials", "runs", *OUTCOMES, *columns)]
        for kind in (*KINDS, "all"):
            mine = [result for result in self.results if kind in (result.kind, "all")]
            if not mine:
                continue
            outcomes = collections.Counter(outcome for result in mine for outcome in result.outcomes)
            faults = collections.Counter(what for result in mine for what in {fault.what for fault in result.faults})
            rows.append((kind, len(mine), sum(outcomes.values()), *(outcomes[name] for name in OUTCOMES), *(faults[what] for what in columns)))
        widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(str(cell).ljust(width) if i == 0 else str(cell).rjust(width) for i, (cell, width) in enumerate(zip(row, widths))) for row in rows]
        return "\n".join(lines) + f"\n{len(self.results)} trials in {seconds:.0f} s"

    def groups(self):
        """The faults by what was tried, worst first."""
        found = {}
        for result in self.results:
            for fault in result.faults:
                found.setdefault((fault.what, result.label), []).append((result, fault))
        order = (HARNESS, *FAULTS)
        lines = []
        for (what, label), cases in sorted(found.items(), key=lambda item: (order.index(item[0][0]), -len(item[1]))):
            result, fault = cases[0]
            lines.append(f"{what} x {len(cases)}: {label} ({again(result)}): {' '.join(fault.text.split())[:200]}")
        return "\n".join(lines)

    @property
    def failed(self):
        return sum(1 for result in self.results if result.faults)


def main():
    global WORLD, DEADLINE
    options = arguments()
    kinds = options.kind or list(KINDS)
    private = harness.private_mounts()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="pentad-faults-"))
    try:
        if private:
            try:
                harness.mount("none", scratch, "tmpfs", 0, "mode=755")
            except OSError:
                private = False
        scratch.chmod(0o755)
        harness.prepare_process()
        WORLD = World(options.bin, options.mpiexec, scratch, options.sanitized)
        print(WORLD.describe(), flush=True)
        report = Report()
        begin = time.monotonic()
        DEADLINE = begin + options.seconds
        if options.trial is not None:
            report.add(run_trial((options.seed, options.trial, kind_of(options.seed, options.trial, kinds)), verbose=True))
        else:
            drawn = random.SystemRandom().randrange(1 << 31)
            numbers = [(options.seed, number) for number in range(options.trials)] + [(drawn, number) for number in range(options.random)]
            print(f"{options.trials} trials of seed {options.seed}" + (f", {options.random} of seed {drawn}" if options.random else ""), flush=True)
            tasks = [(seed, number, kind_of(seed, number, kinds)) for seed, number in numbers]
            with multiprocessing.get_context("fork").Pool(options.jobs, start_worker) as pool:
                told = begin
                for result in pool.imap_unordered(run_trial, tasks):
                    if result is None:
                        continue
                    report.add(result)
                    if time.monotonic() - told > 60:
                        told = time.monotonic()
                        print(f"{len(report.results)} of {len(numbers)} trials after {told - begin:.0f} s, {report.failed} with faults", flush=True)
        print(report.groups())
        print(report.table(time.monotonic() - begin))
        return 1 if report.failed else 0
    finally:
        if private:
            harness.unmount(scratch)
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

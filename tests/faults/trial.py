"""One trial: runs programs in a folder of its own and notes what went wrong."""
import collections
import os
import pathlib
import random
import re
import shlex
import shutil
import signal

import harness

Fault = collections.namedtuple("Fault", "what text")
# What can go wrong, as the columns of the summary.
HANG, CRASH, ACCEPTED, HALF, TEMPORARY, BEHIND, STATUS, WORDS = FAULTS = (
    "hang", "crash", "silent accept", "half-written", "temporary left", "process left", "wrong status", "not one sentence")
PASSES, REFUSED, FAILS, STOPPED, KILLED, FOREIGN = OUTCOMES = "passes", "refused", "fails", "stopped", "killed", "foreign"
WARNS = "warns"  # passes, but says in one sentence what it ignores
OUTCOME_OF_STATUS = {0: PASSES, 2: REFUSED, 3: FAILS}
# Failures of the system's libraries, before a program can say anything: they count as such only where a trial takes resources away.
FOREIGN_WORDS = re.compile(r"error while loading shared libraries|libgomp: |MPI_Init|MPIR_Init|Fatal error in (internal|PMPI)_Init|UCX  (ERROR|FATAL)|"
                           r"OpenBLAS (blas_thread_init|:|Warning|error)|HYD[UT_]|PMI[UX_]|out of memory allocating|cannot allocate TLS|launch_proxy|"
                           r"Out of memory|Cannot fork|unable to fork|Error in system call fork|pthread_create|fork failed|cannot create|Failed to create|Assertion `ucs_|Resource temporarily unavailable")
LIMIT = 90  # seconds; programs take a tenth of a second, but ranks that wait for each other take long on a busy machine
LONG = 4  # seconds, after which what may take long is stopped
MEMORY = 4 << 30  # address space of a process, so that no trial can take the machine's memory


def snapshot(folder):
    """What is in a folder: of each file its kind and size, and of small ones what is in them."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        status = path.lstat()
        small = path.is_file() and not path.is_symlink() and status.st_size < 1 << 20
        try:
            content = path.read_bytes() if small else None
        except OSError:
            content = None
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_size if not path.is_dir() else 0, content)
    return found


def temporaries(folder):
    return [str(path) for path in pathlib.Path(folder).rglob(".*") if path.name.endswith(".tmp") or path.name.startswith(".pentad-")]


class Trial:
    def __init__(self, world, kind, seed, number, verbose=False):
        self.world, self.kind, self.seed, self.number, self.verbose = world, kind, seed, number, verbose
        self.random = random.Random(f"{seed}/{number}/{kind}")
        self.folder = world.scratch / f"{kind}-{number}"
        self.label = kind  # what was tried, for the summary
        self.faults, self.outcomes, self.commands, self.mounts = [], [], [], []

    def __enter__(self):
        self.folder.mkdir()
        return self

    def __exit__(self, *_):
        for path in self.mounts:
            harness.unmount(path)
        shutil.rmtree(self.folder, ignore_errors=True)

    def chance(self, probability):
        return self.random.random() < probability

    def fault(self, what, text):
        command = self.commands[-1] if self.commands else ""
        self.faults.append(Fault(what, f"{text}\n    {command}"))

    def run(self, program, arguments, ranks=1, environment=None, launch=None, limit=LIMIT, limits=(), memory=MEMORY, **more):
        """Runs a program on so many ranks: one without mpiexec. launch: what mpiexec is given instead of -n RANKS PROGRAM."""
        path = str(self.world.program(program))
        if launch is not None:
            command = [self.world.mpiexec, *launch]
        elif ranks == 1:
            command = [path, *arguments]
        else:
            command = [self.world.mpiexec, "-n", str(ranks), path, *arguments]
        added = environment or {}
        limits = [*self.world.limits(memory), *limits]
        self.commands.append(shlex.join([*(f"{name}={value}" for name, value in added.items()), *command]))
        if self.verbose:
            print(f"in {self.folder}: {self.commands[-1]}", flush=True)
        ended = harness.run(command, more.pop("folder", self.folder), {**self.world.environment, **added}, limit, limits=limits, **more)
        if self.verbose:
            print(f"status {ended.status} after {ended.seconds:.2f} s{' HUNG' if ended.hung else ''}{' stopped' if ended.stopped else ''}\n"
                  f"--- stdout\n{ended.output}--- stderr\n{ended.errors}---\n{ended.states}", flush=True)
        return ended

    def judge(self, ended, program, allowed, sent=None, says=None, warns=False, spoken=True, foreign=False):
        """What became of a run, after the faults that it has are noted. allowed: the outcomes that are right. sent: the signal that a
        rank was sent. says: what the sentence must contain. warns: a run that passes may say something on stderr. spoken: stderr can
        be read (else no sentence is asked for). foreign: the system's libraries may fail in ways of their own."""
        outcome = self.outcome_of(ended, program, allowed, sent, says, warns, spoken, foreign)
        self.outcomes.append(outcome)
        return outcome

    def outcome_of(self, ended, program, allowed, sent, says, warns, spoken, foreign):
        if ended.left_behind:
            self.fault(BEHIND, f"still there after the job: {', '.join(ended.left_behind)}")
        if ended.hung:
            self.fault(HANG, f"no end after {ended.seconds:.0f} s\n{ended.states}\n{ended.errors[-400:]}")
            return "hang"
        if harness.SANITIZER.search(ended.errors):
            self.fault(CRASH, ended.errors[:3000])
            return "crash"
        if ended.stopped and STOPPED in allowed:
            return STOPPED
        # How far a long measurement is, which on a busy machine any is.
        lines = [line for line in harness.own_lines(ended.errors) if not re.match(r"pentad_tune: \d+ ranks, .* \(\d+ of \d+\)", line)]
        said = "\n".join(lines[:6])[:1500]
        number = -ended.status if ended.status < 0 else 0
        if not number and ended.status and (found := harness.SIGNAL_OF_MPICH.search(ended.output + ended.errors)):
            number = int(found[1])
        if number:
            # MPICH kills the others, and names the bitwise or of the signals by which ranks ended.
            if sent and number in {sent, *(one | other for one in (0, sent) for other in (signal.SIGKILL, signal.SIGTERM, signal.SIGPIPE))}:
                return KILLED
            if foreign and FOREIGN_WORDS.search(ended.errors):
                return FOREIGN
            self.fault(CRASH, f"ended by signal {number} ({signal.Signals(number).name})\n{said}")
            return "crash"
        if KILLED in allowed and ended.status != 0:
            return KILLED
        if foreign and FOREIGN_WORDS.search(ended.errors + ended.output):
            return FOREIGN
        outcome = OUTCOME_OF_STATUS.get(ended.status)
        # What is wrong in the data of a file, and not in its form, is found when they are used (docs/reliability.md).
        found_in_data = re.search(r"token \d+ .* is not in a vocabulary", said) or \
            "--weights" in self.label and re.search(r"is not finite", said)
        if outcome == FAILS and REFUSED in allowed and found_in_data:
            outcome = REFUSED
        if outcome == PASSES and WARNS in allowed and len(lines) == 1 and lines[0].startswith("pentad: "):
            return outcome
        if outcome == PASSES and PASSES not in allowed:
            self.fault(ACCEPTED, f"status 0, and it must be {' or '.join(sorted(allowed))}\n{said}")
        elif outcome not in allowed:
            self.fault(STATUS, f"status {ended.status}, and it must be {' or '.join(sorted(allowed))}\n{said}")
        if not spoken:
            return outcome or "other"
        # Steps that are not applied are each told.
        lines = [line for line in lines if not re.match(r"train_lm: step \d+ is not applied", line)]
        if outcome == PASSES:
            if lines and not warns:
                self.fault(WORDS, f"status 0, and yet it says\n{said}")
        elif len(lines) != 1 or not re.match(rf"{program}: |pentad: ", lines[0]):
            self.fault(WORDS, f"status {ended.status}, and not one sentence but\n{said or '(nothing)'}")
        elif says and not re.search(says, lines[0]):
            self.fault(WORDS, f"the sentence does not say /{says}/:\n{said}")
        if outcome == REFUSED and REFUSED in allowed and harness.own_lines(ended.output):
            self.fault(WORDS, f"refused, and yet it prints\n{ended.output[:300]}")
        return outcome or "other"

    def expect_unchanged(self, before, folder=None, what="refused"):
        after = snapshot(folder or self.folder)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                self.fault(HALF, f"{what}, and yet {name} is {'made' if name not in before else 'gone' if name not in after else 'changed'}")

    def expect_no_temporaries(self, folder=None):
        if left := temporaries(folder or self.folder):
            self.fault(TEMPORARY, f"left behind: {', '.join(os.path.relpath(path, folder or self.folder) for path in left)}")


"""Runs that write files, for the trials that disturb them: what was there before, what is there afterwards if all goes well, and
whether what is there now is one of the two."""
import json
import os
import signal
import time

import harness
import programs
from trial import HALF, PASSES

LARGER = {"--vocab": "4096", "--hidden": "128"}  # weights of some MB, so that writing them takes a moment


class Job:
    """A command line and the files that it writes in the trial's folder. `same`: their bytes are the same in each run."""

    def __init__(self, program, arguments, ranks, files, same=True):
        self.program, self.arguments, self.ranks, self.files, self.same = program, arguments, ranks, files, same


def drawn(t, ends=True, program=None, ranks=None):
    """A job that takes a moment; or, not ends, one that goes on until it is stopped."""
    rng = t.random
    program = program or rng.choices(programs.NAMES, (75, 5, 15, 5))[0]
    match program:
        case "train_lm":
            ranks = ranks or rng.choice((1, 1, 2, 2, 3, 4))
            settings = dict(programs.SMALL)
            if ranks in (2, 4):
                settings["--mesh"] = f"{rng.choice(('dp', 'tp', 'pp', 'cp') if ranks == 2 else ('dp', 'pp=2,dp', 'cp'))}={ranks if ranks == 2 else 4}"
                settings["--mesh"] = settings["--mesh"].replace("pp=2,dp=4", "pp=2,dp=2")
            if ranks == 3:
                settings["--batch"] = "6"
            if not ends:
                settings["--steps"] = "1000000"
                files = ["log"] if t.chance(0.5) else []
                settings |= {"--log": "log"} if files else {}
                return Job(program, programs.as_arguments(settings.items()), ranks, files, False)
            settings["--steps"] = rng.choice(("0", "2"))
            files, what = [], rng.choice(("weights", "weights", "weights", "trace", "log"))
            if what == "weights":
                settings |= LARGER | {"--dump-weights": "."}
                files = ["model.safetensors", "config.json"]
            else:
                settings["--steps"] = "20"
                settings[f"--{what}"] = what
                files = [what]
            return Job(program, programs.as_arguments(settings.items()), ranks, files, what == "weights")
        case "pentad_schedule":
            line = ["--schedule", rng.choice(("1f1b", "zb-v", "dualpipe-v")), "--stages", rng.choice(("8", "16")), "--micro-batches", rng.choice(("64", "512"))]
            kinds = rng.sample(("svg", "perfetto", "text", "json"), rng.randint(1, 4))
            return Job(program, line + [text for kind in kinds for text in (f"--{kind}", kind)], 1, kinds)
        case "pentad_plan":
            if t.chance(0.3):
                return Job(program, ["--hardware", "h100", "--hardware-out", "machine"], 1, ["machine"])
            line = ["--model", "llama-3-8b", "--hardware", "h100", "--devices", "64", "--seq", "4096", "--global-batch", "256"]
            return Job(program, [*line, "--svg", "svg"], 1, ["svg"])
        case _:
            return Job(program, ["--out", "tuning", "--largest", "4096", "--repeats", "1"], 2, ["tuning"], False)


def reference(t, job):
    """What the job writes when nothing happens to it."""
    key = (job.program, tuple(job.arguments), job.ranks)
    known = t.world.references
    if key not in known:
        folder = t.folder / "reference"
        folder.mkdir()
        ended = t.run(job.program, job.arguments, job.ranks, folder=folder)
        if t.judge(ended, job.program, {PASSES}) == PASSES:
            known[key] = {name: (folder / name).read_bytes() for name in job.files}
    return known.get(key)


def put_old_files(t, job, folder=None):
    """What was there before: other files, or in half of the trials none."""
    folder = folder or t.folder
    old = dict.fromkeys(job.files)
    if t.chance(0.6):
        for name in job.files:
            old[name] = b"old " * 100 if name not in ("model.safetensors", "config.json") else (t.world.corpus / "weights" / name).read_bytes()
            (folder / name).write_bytes(old[name])
    return old


def well_formed(name, content, may_be_torn):
    try:
        if name == "log":
            lines = content.split(b"\n")
            torn = lines.pop()
            if torn and not may_be_torn:
                return False
            return all(json.loads(line) for line in lines)
        if name == "tuning":
            return content.startswith(b"pentad tuning 1\n") and content.endswith(b"\n") and b"group" in content
        return bool(json.loads(content))
    except ValueError:
        return False


def check_files(t, job, old, new, finished, folder=None, may_be_torn=False):
    """Each file is the old one or the new one; after a run that passed, the new one; config.json and model.safetensors belong together.
    A log is written line by line."""
    folder, states = folder or t.folder, {}
    for name in job.files:
        path = folder / name
        content = path.read_bytes() if path.is_file() else None
        if content == old[name] and not finished:
            states[name] = "old"
        elif content is None:
            t.fault(HALF, f"{name} is gone" if old[name] is not None else f"the run ended well, and {name} is not there")
        elif content == new[name] if job.same and new else well_formed(name, content, may_be_torn):
            states[name] = "new"
        elif name == "log" and not finished and well_formed(name, content, may_be_torn):
            states[name] = "new"
        else:
            t.fault(HALF, f"{name} is neither the old nor the new file: {len(content)} bytes, old {len(old[name] or b'')}, new {len(new[name]) if new else '?'}")
    pair = {states.get("model.safetensors"), states.get("config.json")} - {None}
    if len(pair) > 1:
        t.fault(HALF, f"model.safetensors and config.json do not belong together: {states}")


def ranks_of(job, process):
    """The processes that run the program."""
    if job.ranks == 1:
        return [process] if os.path.basename(harness.command_of(process)) == job.program else []
    return [child for child in harness.descendants(process) if os.path.basename(harness.command_of(child)) == job.program]


class Disturbance:
    """Does something at a moment: so many seconds after the start, or after something is seen in the folder."""

    def __init__(self, t, act, folder=None, sees=None, after=None):
        self.act, self.sees = act, sees
        self.delay = t.random.uniform(0, 0.8) if after is None else after
        self.begin = None if sees else time.monotonic()
        self.acted = False

    def __call__(self, process):
        if self.begin is None:
            if not self.sees():
                return False
            self.begin = time.monotonic()
        if time.monotonic() - self.begin < self.delay:
            return False
        self.acted = self.act(process)
        return self.acted


def while_writing(t, job, folder=None):
    """Sees that a file is being written, or has just been."""
    folder = folder or t.folder
    before = {name: (folder / name).stat().st_ino if (folder / name).exists() else 0 for name in job.files}
    which = t.random.choice(("temporary", "first"))

    def sees():
        try:
            if which == "temporary" and any(entry.name.startswith(".") for entry in os.scandir(folder)):
                return True
            return any((folder / name).stat().st_ino != inode for name, inode in before.items() if (folder / name).exists())
        except OSError:
            return False
    return sees


def signalling(t, job, number, target):
    """Sends a signal to a rank, to all, to the launcher, or to the launcher's process group."""
    def act(process):
        ranks = ranks_of(job, process)
        if len(ranks) < job.ranks:
            return False  # not yet; MPICH's launcher loses a signal while it starts them (docs/reliability.md)
        if target == "group":
            os.killpg(process, number)
            return True
        if target == "launcher":
            harness.send(process, number)
            return True
        for rank in [t.random.choice(ranks)] if target == "rank" else ranks:
            harness.send(rank, number)
        return True
    return act


def at_a_random_moment(t, job, act, writing):
    """The files that were there before, those that the job writes when nothing happens to it, and `act` as a disturbance at any moment of the run,
    or while it writes."""
    new = reference(t, job) if job.same else None
    old = put_old_files(t, job)
    sees = while_writing(t, job) if writing else None
    most = t.random.choice((0.02, 0.002)) if writing else 0.05 if job.program == "pentad_schedule" else 0.9
    return old, new, Disturbance(t, act, sees=sees, after=t.random.uniform(0, most))

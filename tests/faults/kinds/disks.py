"""Disks that are full, read-only or taken away: one sentence and status 3, or status 2 where it can be known before, and the old files as
they were."""
import os
import resource
import shutil
import signal

import harness
import jobs
import programs
from trial import FAILS, FOREIGN, KILLED, PASSES, REFUSED


def trial(t):
    ways = [full_device, file_size, removed_folder, cut_data, standard_output, standard_output]
    if t.world.may_mount:
        ways += [full_disk, full_disk, read_only]
    t.random.choice(ways)(t)


def disk(t, size):
    """A disk of its own, of so many bytes."""
    folder = t.folder / "disk"
    folder.mkdir()
    harness.mount("none", folder, "tmpfs", 0, f"size={size}")
    t.mounts = [folder]
    return folder


def checked(t, job, ended, old, new, allowed, folder, **more):
    outcome = t.judge(ended, job.program, allowed, **more)
    jobs.check_files(t, job, old, new, outcome == PASSES, folder, may_be_torn=True)
    t.expect_no_temporaries(folder)


def full_disk(t):
    job = jobs.drawn(t)
    t.label = f"{job.program}: a full disk"
    new = jobs.reference(t, job) if job.same else None
    need = sum(map(len, new.values())) if new else 20000
    folder = disk(t, 64 << 20)
    old = jobs.put_old_files(t, job, folder)
    free = t.random.choice((0, 4096, int(need * t.random.random()), need, 2 * need))
    status = os.statvfs(folder)
    filler = max(status.f_bavail * status.f_bsize - free, 0)
    with (folder / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(filler, 1))
    ended = t.run(job.program, job.arguments, job.ranks, folder=folder)
    checked(t, job, ended, old, new, {PASSES, FAILS, REFUSED}, folder)


def read_only(t):
    job = jobs.drawn(t)
    t.label = f"{job.program}: a read-only disk"
    folder = disk(t, 1 << 20)
    old = jobs.put_old_files(t, job, folder)
    harness.mount("none", folder, "tmpfs", harness.MS_REMOUNT | harness.MS_RDONLY)
    ended = t.run(job.program, job.arguments, job.ranks, folder=folder)
    checked(t, job, ended, old, None, {REFUSED} if job.program == "train_lm" else {REFUSED, FAILS}, folder)


def full_device(t):
    """/dev/full in place of a file."""
    rng = t.random
    choices = [(name, flag) for name, program in t.world.tables.items() for flag in program.outputs if flag.kind == "file"]
    name, flag = rng.choice(choices)
    t.label = f"{name} {flag.name}: /dev/full"
    line = t.world.line_for(name, flag)
    ranks = 2 if name == "pentad_tune" else rng.choice((1, 2)) if name == "train_lm" else 1
    ended = t.run(name, programs.as_arguments([*line, (flag.name, "/dev/full")]), ranks)
    t.judge(ended, name, {FAILS, REFUSED})


def file_size(t):
    """RLIMIT_FSIZE: "File too large", and no SIGXFSZ."""
    job = jobs.drawn(t)
    t.label = f"{job.program}: RLIMIT_FSIZE"
    new = jobs.reference(t, job) if job.same else None
    old = jobs.put_old_files(t, job)
    need = max(map(len, new.values())) if new else 20000
    limit = t.random.choice((0, 1, 4096, int(need * t.random.random()), need, 2 * need))
    ended = t.run(job.program, job.arguments, job.ranks, limits=[(resource.RLIMIT_FSIZE, limit)])
    checked(t, job, ended, old, new, {PASSES, FAILS, REFUSED, FOREIGN}, t.folder, foreign=True)  # MPICH makes files too


def removed_folder(t):
    """The folder of the outputs goes during the run."""
    job = jobs.drawn(t, program="train_lm")
    t.label = f"{job.program}: its folder is removed"
    folder = t.folder / "folder"
    folder.mkdir()
    arguments = ["folder" if text == "." else f"folder/{text}" if text in job.files else text for text in job.arguments]

    def remove(_):
        shutil.rmtree(folder, ignore_errors=True)
        return True
    removal = jobs.Disturbance(t, remove, after=t.random.uniform(0, 0.9))
    ended = t.run(job.program, arguments, job.ranks, meddle=removal)
    t.judge(ended, job.program, {PASSES, FAILS, REFUSED})


def cut_data(t):
    """A file of training text gets shorter while it is read."""
    rng = t.random
    ranks = rng.choice((1, 1, 2, 4))
    text = t.folder / "text"
    with text.open("wb") as file:
        for _ in range(40):
            file.write(t.world.good_files("train_lm", "--data")[0].read_bytes())
    left = rng.choice((0, 1, 33, 4096, 100000))
    t.label = f"train_lm{'' if ranks == 1 else ' on ranks'}: its data are cut to {'nothing' if left == 0 else 'less'}"

    def cut(_):
        os.truncate(text, left)
        return True
    settings = dict(programs.SMALL) | {"--steps": "400", "--data": "text"} | ({"--micro-batches": "2"} if t.chance(0.3) else {})
    ended = t.run("train_lm", programs.as_arguments(settings.items()), ranks, meddle=jobs.Disturbance(t, cut, after=rng.uniform(0, 1)))
    t.judge(ended, "train_lm", {PASSES, FAILS, REFUSED})


def standard_output(t):
    """What is printed cannot be: the disk is full, the pipe has no reader, the descriptor is closed."""
    rng = t.random
    name = rng.choice(programs.NAMES)
    way = rng.choice(("/dev/full", "a pipe without a reader", "closed"))
    settings = dict(t.world.baseline(name, rng))
    ranks = 2 if name == "pentad_tune" else 1
    arguments = programs.as_arguments((flag, value) for flag, value in settings.items() if flag != "--quiet")
    if t.chance(0.2):
        arguments, ranks = ["--help"], 1
    t.label = f"{name}: standard output is {way}"
    sent = None
    allowed = {FAILS}
    files = {}
    if way == "/dev/full":
        target = os.open("/dev/full", os.O_WRONLY)
        if ranks > 1:  # mpiexec is who writes, and what it makes of it is its own
            allowed = {FAILS, PASSES}
    elif way == "closed":
        if name == "pentad_schedule" and arguments[0] != "--help":
            arguments += ["--text", "text", "--json", "json"]
            files = {kind: (t.folder / kind) for kind in ("text", "json")}
        target, allowed = None, {PASSES, FAILS, REFUSED}
    else:
        reader, target = os.pipe()
        os.close(reader)
        sent, allowed = signal.SIGPIPE, {FAILS, KILLED, PASSES}
    if way == "closed":
        ended = t.run(name, arguments, 1, launch=None, closes_output=True) if ranks == 1 else None
        if ended is None:
            return
    else:
        ended = t.run(name, arguments, ranks, stdout=target)
        os.close(target)
    outcome = t.judge(ended, name, allowed, sent=sent, foreign=ranks > 1)
    for kind, path in files.items():
        good = t.world.corpus / ("schedule.txt" if kind == "text" else "schedule.json")
        if path.exists() and path.read_bytes() != good.read_bytes() or outcome == PASSES and not path.exists():
            t.fault("half-written", f"{kind} is not what it is otherwise")

"""Less memory, fewer files and processes than usual. What is known before is refused; the rest fails in one sentence, or works. What the
system's own libraries do when they get nothing is theirs."""
import os
import resource

import programs
from trial import FAILS, FOREIGN, PASSES, REFUSED
from world import NOBODY

MIB = 1 << 20


def trial(t):
    ways = [address_space, address_space, too_large, files, stack]
    if t.world.may_change_user:
        ways.append(processes)
    if t.world.cgroup:
        ways += [cgroup, cgroup]
    t.random.choice(ways)(t)


def a_line(t):
    """A command line, and on how many ranks."""
    rng = t.random
    name = rng.choices(programs.NAMES, (60, 15, 20, 5))[0]
    settings = dict(t.world.baseline(name, rng))
    ranks = 2 if name == "pentad_tune" else rng.choice((1, 1, 1, 2, 4)) if name == "train_lm" else 1
    if name == "train_lm" and t.chance(0.5):
        settings |= rng.choice(({"--hidden": "512", "--ffn": "2048"}, {"--vocab": "65536"}, {"--batch": "64", "--seq": "512"}, {"--layers": "64"},
                                {"--dtype": "f64", "--hidden": "256"}, {"--experts": "8", "--ffn": "1024"}))
    return name, programs.as_arguments(settings.items()), ranks


def judged(t, name, ended, warns=False):
    t.judge(ended, name, {PASSES, REFUSED, FAILS, FOREIGN}, foreign=True, warns=warns)
    t.expect_no_temporaries()


def address_space(t):
    name, arguments, ranks = a_line(t)
    t.label = f"{name}: RLIMIT_AS"
    # Below 700 MiB the libraries cannot start.
    limit = int(t.random.uniform(20, 300) if name == "pentad_schedule" else t.random.uniform(650, 1500)) * MIB
    judged(t, name, t.run(name, arguments, ranks, memory=limit))


LARGE = (("--hidden", "8192", "--ffn", "32768", "--heads", "64", "--kv-heads", "64"), ("--layers", "4096", "--hidden", "1024"),
         ("--vocab", "4000000", "--hidden", "2048"), ("--experts", "4096", "--ffn", "8192"), ("--batch", "65536", "--seq", "4096"),
         ("--seq", "1000000", "--batch", "4096"), ("--hidden", "32768", "--heads", "64", "--kv-heads", "64"))


def large_line(t):
    large = list(t.random.choice(LARGE))
    settings = dict(programs.SMALL) | dict(zip(large[::2], large[1::2]))
    if "--seq" in settings:  # a text that is long enough
        text = t.folder / "text"
        with text.open("wb") as file:
            file.truncate(2 << 20)
        settings["--data"] = "text"
    return programs.as_arguments(settings.items())


def too_large(t):
    """A model, or a step, that cannot fit is refused before anything is allocated, with the numbers."""
    t.label = "train_lm: more memory than RLIMIT_AS"
    ranks = t.random.choice((1, 1, 2))
    ended = t.run("train_lm", large_line(t), ranks, memory=t.random.choice((1, 2, 3)) << 30)
    t.judge(ended, "train_lm", {REFUSED}, says=r"\d (KiB|MiB|GiB|TiB)")


def cgroup(t):
    """A control group's limit."""
    folder = t.world.cgroup / f"pentad-faults-{os.getpid()}-{t.number}"
    folder.mkdir()
    try:
        file = next(path for path in (folder / "memory.max", folder / "memory.limit_in_bytes") if path.exists())
        large = t.chance(0.6)
        limit = (t.random.choice((256, 512, 1024)) if large else 300) * (6 if t.world.sanitized else 1)  # of which a sanitizer takes most
        file.write_text(str(limit * MIB))
        t.label = "train_lm: " + ("more memory than the control group has" if large else f"a control group of {limit} MiB")
        arguments = large_line(t) if large else programs.as_arguments(programs.SMALL.items())
        ended = t.run("train_lm", arguments, t.random.choice((1, 1, 2)), cgroup=folder)
        if large:
            t.judge(ended, "train_lm", {REFUSED}, says=r"\d (KiB|MiB|GiB|TiB)")
        else:
            t.judge(ended, "train_lm", {PASSES})
    finally:
        folder.rmdir()


def files(t):
    name, arguments, ranks = a_line(t)
    t.label = f"{name}: RLIMIT_NOFILE"
    judged(t, name, t.run(name, arguments, ranks, limits=[(resource.RLIMIT_NOFILE, t.random.randint(4, 64))]), warns=True)  # that memory cannot be mapped


def stack(t):
    name, arguments, ranks = a_line(t)
    t.label = f"{name}: RLIMIT_STACK"
    judged(t, name, t.run(name, arguments, ranks, limits=[(resource.RLIMIT_STACK, t.random.choice((256, 512, 1024, 4096)) * 1024)]))


def processes(t):
    name, arguments, ranks = a_line(t)
    t.label = f"{name}: RLIMIT_NPROC"
    t.folder.chmod(0o777)
    threads = {"OMP_NUM_THREADS": t.random.choice(("1", "4"))}
    if ranks > 1:
        return stack(t)  # it is mpiexec that would need more processes
    try:
        judged(t, name, t.run(name, arguments, 1, threads, user=NOBODY, limits=[(resource.RLIMIT_NPROC, t.random.randint(1, 12))]))
    except OSError:  # not even the program could be started
        t.outcomes.append(FOREIGN)

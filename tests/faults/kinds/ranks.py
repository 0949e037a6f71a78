"""Ranks of one job that were started differently: other flags, another environment, another file under the same name. One rank says which
rank differs in what, and all end."""
import pathlib
import sys

import programs
from trial import PASSES, REFUSED

VARIABLES = {"PENTAD_COLLECTIVES": ("mpi", "mailbox", "direct"), "PENTAD_RANKS_PER_NODE": ("1", "2"), "PENTAD_SHARED_MEMORY_LIMIT": ("0", "1048576"),
             "OMP_NUM_THREADS": ("2", "3"), "OMP_SCHEDULE": ("static", "dynamic"), "PENTAD_TUNING": ("@tuning",)}
OTHER = {"--seed": "7", "--lr": "0.5", "--steps": "3", "--layers": "4", "--hidden": "64", "--batch": "16", "--seq": "16", "--dtype": "f64", "--zero": "1",
         "--recompute": "full", "--tie-embeddings": None, "--warmup": "1", "--clip": "0.5", "--experts": "2", "--bucket-elements": "100", "--sample": "3",
         "--log": "log", "--trace": "trace", "--dump-weights": ".", "--data": "@text", "--schedule": "gpipe", "--micro-batches": "2"}


def trial(t):
    t.random.choices((flags, environment, contents, refused_alone, alike, other_programs), (30, 25, 15, 12, 8, 10))[0](t)


def job(t, name="train_lm", settings=None):
    """Ranks, the one that is different, and the usual arguments."""
    ranks = t.random.choice((2, 2, 3, 4))
    settings = dict(settings or programs.SMALL)
    if ranks == 3 and name == "train_lm":
        settings["--batch"] = "6"
    return ranks, t.random.randrange(ranks), settings


def launch(t, name, usual, odd, ranks, which, variables=None):
    """mpiexec's arguments for which one rank gets others."""
    path = str(t.world.program(name))
    parts = []
    for first, count, arguments, own in ((0, which, usual, {}), (which, 1, odd, variables or {}), (which + 1, ranks - which - 1, usual, {})):
        if count:
            settings = [text for variable, value in own.items() for text in ("-env", variable, value)]
            parts += [":"] * bool(parts) + ["-n", str(count), *settings, path, *arguments]
    return parts


def resolved(t, value):
    return str(t.world.corpus / value[1:]) if value and value.startswith("@") else value


def differing(t, name, launched, which, ranks, what):
    """Refused; of three ranks or more it is clear which one is the odd one."""
    says = rf"rank {which}\b.*{what}|{what}.*rank {which}\b" if ranks > 2 else rf"rank \d.*{what}|{what}.*rank \d"
    ended = t.run(name, [], ranks, launch=launched)
    t.judge(ended, name, {REFUSED}, says=says)
    t.expect_no_temporaries()


def flags(t):
    ranks, which, settings = job(t)
    flag = t.random.choice(list(OTHER))
    t.label = "train_lm: one rank has another flag"
    odd = settings | {flag: resolved(t, OTHER[flag])}
    launched = launch(t, "train_lm", programs.as_arguments(settings.items()), programs.as_arguments(odd.items()), ranks, which)
    differing(t, "train_lm", launched, which, ranks, flag)


def refused_alone(t):
    """What one rank would refuse."""
    ranks, which, settings = job(t)
    flag, value = t.random.choice((("--bogus", None), ("--layers", "x"), ("--heads", "3"), ("--data", "none"), ("--log", "none/log"), ("--help", None)))
    t.label = f"train_lm: one rank has {'--help' if flag == '--help' else 'a wrong flag'}"
    odd = settings | {flag: value}
    launched = launch(t, "train_lm", programs.as_arguments(settings.items()), programs.as_arguments(odd.items()), ranks, which)
    ended = t.run("train_lm", [], ranks, launch=launched)
    t.judge(ended, "train_lm", {REFUSED})


def environment(t):
    ranks, which, settings = job(t)
    name = t.random.choice(list(VARIABLES))
    t.label = f"train_lm: one rank has another {name}"
    arguments = programs.as_arguments(settings.items())
    value = resolved(t, t.random.choice(VARIABLES[name]))
    differing(t, "train_lm", launch(t, "train_lm", arguments, arguments, ranks, which, {name: value}), which, ranks, name)


def contents(t):
    """Another file under the same name, as on another host."""
    if not t.world.may_mount:
        return flags(t)
    ranks, which, settings = job(t)
    if t.chance(0.6):
        usual, odd, flag = t.world.corpus / "text", t.folder / "odd", "--data"
        content = usual.read_bytes()
        odd.write_bytes(t.random.choice((content[:-1], content[:100] + b"!" + content[101:], content + b"more", content[::-1])))
    else:
        usual, odd, flag = t.world.corpus / "one.txt", t.folder / "odd", "--schedule-file"
        settings["--mesh"] = f"dp={ranks}"
        odd.write_text(usual.read_text().replace("schedule 1f1b", "schedule other"))
    t.label = f"train_lm: one rank has another file of {flag}"
    name = t.folder / "file"
    name.write_bytes(usual.read_bytes())
    settings[flag] = str(name)
    launched = ["-n", str(ranks), sys.executable, str(pathlib.Path(__file__).parents[1] / "elsewhere.py"), str(which), str(odd), str(name),
                str(t.world.program("train_lm")), *programs.as_arguments(settings.items())]
    differing(t, "train_lm", launched, which, ranks, rf"({flag}|{name})")


def alike(t):
    """The same in another way: accepted."""
    ranks, which, settings = job(t)
    t.label = "train_lm: ranks that are alike"
    variables = {"UNRELATED": "x"} if t.chance(0.5) else {}
    path = t.folder / "another_name"
    path.symlink_to(t.world.program("train_lm"))
    arguments = programs.as_arguments(settings.items())
    launched = launch(t, "train_lm", arguments, arguments, ranks, which, variables)
    ended = t.run("train_lm", [], ranks, launch=launched)
    t.judge(ended, "train_lm", {PASSES})


def other_programs(t):
    """pentad_tune, and pentad_plan --measure."""
    name = t.random.choice(("pentad_tune", "pentad_tune", "pentad_plan"))
    if name == "pentad_tune":
        ranks, which, settings = job(t, name, dict(t.world.baseline(name)))
        flag, value = t.random.choice((("--largest", "4096"), ("--repeats", "2"), ("--out", "other"), ("--bogus", None), ("PENTAD_COLLECTIVES", "mpi"),
                                       ("PENTAD_RANKS_PER_NODE", "1")))
    else:
        ranks, which = 2, t.random.randrange(2)
        settings = {"--measure": None, "--hardware-out": "machine"}
        flag, value = t.random.choice((("--bogus", None), ("--hardware", "h100"), ("--devices", "2")))
    t.label = f"{name}: one rank is different"
    usual = programs.as_arguments(settings.items())
    odd = usual if flag.startswith("PENTAD") else programs.as_arguments((settings | {flag: value}).items())
    launched = launch(t, name, usual, odd, ranks, which, {flag: value} if flag.startswith("PENTAD") else None)
    ended = t.run(name, [], ranks, launch=launched)
    t.judge(ended, name, {REFUSED})
    t.expect_no_temporaries()

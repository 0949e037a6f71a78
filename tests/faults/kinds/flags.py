"""Command lines: nearly right, wrong in one place, nonsense, and numbers beyond all bounds. What a refusal suggests is run too."""
import re
import shlex

import programs
from trial import FAILS, LONG, PASSES, REFUSED, STOPPED

WORDS = ("--", "-", "", "-h", "--help", "--version", "junk", "=", "--=", "-x", "\\", "'", "ä", "\x7f", "*", "$HOME", "-1", "0", "--no-such-flag", "@file", "%s",
         "--data", "--log=", "--seed=1", "x" * 5000, "--mesh=dp=1", "a\nb", "--steps", "2", "--quiet", "-q", "--lr", "-inf")


def trial(t):
    rng = t.random
    name = rng.choices(programs.NAMES, (45, 22, 28, 5))[0]
    rng.choices((nearly_right, wrong, nonsense, extreme, variables), (34, 38, 20, 4, 4))[0](t, name)


def ranks_for(t, name, right):
    """pentad_tune measures groups of ranks; what is refused is refused by one."""
    if name == "pentad_tune":
        return 2 if right or t.chance(0.2) else 1
    return t.random.choices((1, 2, 3, 4), (88, 6, 2, 4))[0] if name == "train_lm" else 1


def drawn(t, name, ranks):
    """A command line that is likely to be right, as pairs."""
    program = t.world.tables[name]
    settings = dict(t.world.baseline(name, t.random))
    if ranks > 1 and name == "train_lm" and t.chance(0.7):
        settings["--mesh"] = programs.axes_text(t.random, ranks)
    for _ in range(t.random.choice((0, 1, 1, 2, 3, 4, 6))):
        flag = t.random.choice(program.flags)
        if flag.name in ("--measure", "--docs", "--weights"):
            continue  # seconds of measuring; a page of everything; a checkpoint is for one model, whatever else is drawn
        settings[flag.name] = programs.good_value(t.random, program, flag, t.world, ranks)
    pairs = list(settings.items())
    t.random.shuffle(pairs)
    return pairs


def nearly_right(t, name):
    ranks = ranks_for(t, name, True)
    arguments = programs.as_arguments(drawn(t, name, ranks))
    judge(t, name, arguments, ranks, {PASSES, REFUSED}, "nearly right")


def wrong(t, name):
    """One thing that is wrong, whatever the rest."""
    rng, program = t.random, t.world.tables[name]
    ranks = ranks_for(t, name, False)
    pairs = [pair for pair in drawn(t, name, ranks) if t.chance(0.8)]
    what = rng.choice(("value", "value", "value", "name", "word", "twice", "missing", "switch"))
    if what == "value":
        flag, value = None, None
        while value is None:
            flag = rng.choice(program.flags)
            value = programs.wrong_value(rng, program, flag)
        pairs = [pair for pair in pairs if pair[0] not in flag.names]
        pairs.insert(rng.randint(0, len(pairs)), (flag.name, value))
        arguments = programs.as_arguments(pairs)
        if t.chance(0.15) and value:
            arguments = programs.as_arguments([pair for pair in pairs if pair[0] != flag.name]) + [f"{flag.name}={value}"]
        what = f"a wrong value of {flag.kind}" if value else "an empty value"
    elif what == "name":
        flag = rng.choice(program.all_names)
        at = rng.randint(2, len(flag) - 1)
        flag = rng.choice((flag[:at] + rng.choice("xyz-Q") + flag[at:], flag[:at] + flag[at + 1:], flag + "s", flag.upper()))
        if flag in program.all_names or flag in ("--", "--help"):
            flag = "--no-such-flag"
        arguments = programs.as_arguments([*pairs, (flag, rng.choice((None, "1", "a")))])
    elif what == "word":
        arguments = ["junk", *programs.as_arguments(pairs)]
    elif what == "twice":
        flag = rng.choice([flag for flag in program.flags if flag.shown and not flag.repeats and flag.name != "--weights"])
        value = programs.good_value(rng, program, flag, t.world)
        arguments = programs.as_arguments([*pairs, (flag.name, value), (rng.choice(flag.names), value)])
    elif what == "missing":
        flag = rng.choice([flag for flag in program.flags if flag.shown])
        arguments = programs.as_arguments([*(pair for pair in pairs if pair[0] not in flag.names), (flag.name, None)])
    else:
        switches = [flag for flag in program.flags if not flag.shown]
        if not switches:
            return wrong(t, "train_lm")
        flag = rng.choice(switches)
        arguments = programs.as_arguments([*(pair for pair in pairs if pair[0] != flag.name), (flag.name, "junk")])
        what = "a value of a switch"
    judge(t, name, arguments, ranks, {REFUSED}, what)


def nonsense(t, name):
    program = t.world.tables[name]
    arguments = []
    for _ in range(t.random.choice((0, 1, 2, 3, 5, 8, 13))):
        arguments.append(t.random.choice(t.random.choice((WORDS, program.all_names, programs.NUMBERS_THAT_ARE_NONE, programs.EXTREMES))))
    arguments = [text for text in arguments if text not in ("--measure", "--docs")]
    if name == "train_lm":  # what happens to be right is to be quick
        arguments += programs.as_arguments(programs.SMALL.items())
    judge(t, name, arguments, ranks_for(t, name, False), {PASSES, REFUSED, FAILS, STOPPED}, "nonsense", limit=LONG, may_be_long=True)


def extreme(t, name):
    """May be refused, or take long, but not all memory, and it ends when it is told to."""
    program = t.world.tables[name]
    settings = dict(drawn(t, name, 1))
    flags = [flag for flag in program.flags if flag.kind in ("integer", "integers", "real")]
    for flag in t.random.sample(flags, min(len(flags), t.random.choice((1, 1, 2, 3)))):
        settings[flag.name] = t.random.choice(programs.EXTREMES)
    ranks = 2 if name == "pentad_tune" else 1
    if name == "pentad_schedule" and t.chance(0.3):
        settings["--schedule"] = "automatic"
    judge(t, name, programs.as_arguments(settings.items()), ranks, {PASSES, REFUSED, FAILS, STOPPED}, "beyond all bounds", limit=LONG,
          may_be_long=True)


# Of the variables that programs read: values that are right, and values that are wrong.
VARIABLES = {
    "PENTAD_COLLECTIVES": (("auto", "mpi", "mailbox", "direct", "process"), ("zzz", "", "MPI", "mpi,direct", " mpi", "1")),
    "PENTAD_RANKS_PER_NODE": (("1", "2"), ("0", "-1", "abc", "", "1.5", "99999999999999999999", "1 2", "nan")),
    "PENTAD_SHARED_MEMORY_LIMIT": (("1000000000", "99999999999"), ("abc", "-1", "", "1e9x", "99999999999999999999999", "1 2")),
    "PENTAD_GPU_AWARE_MPI": (("0",), ("2", "yes", "")),
    "PENTAD_TIMEOUT": (("10", "0.5"), ("0", "-1", "soon", "", "nan")),
}
OF_TOOLS = ("PENTAD_TOOLCHAIN", "PENTAD_TEST_RANKS")  # which ./dev and the tests set


def variables(t, _):
    """The environment: values that are wrong, and names that nobody reads."""
    rng = t.random
    name = rng.choice(("train_lm", "train_lm", "pentad_tune"))
    ranks = 2 if name == "pentad_tune" else rng.choice((1, 1, 2))
    variable = rng.choice(list(VARIABLES))
    right, bad = VARIABLES[variable]
    what = rng.choice(("a right value", "a wrong value", "a wrong value", "an unknown name", "a variable of the tools"))
    allowed, says = {REFUSED}, variable
    match what:
        case "a right value":
            value, allowed, says = rng.choice(right), {PASSES}, None
        case "a wrong value":
            value = rng.choice(bad)
        case "an unknown name":
            value, says = rng.choice(right), variable
            at = rng.randint(8, len(variable) - 1)
            variable = rng.choice((variable[:at] + "X" + variable[at:], variable[:at] + variable[at + 1:], variable + "S"))
        case _:
            variable, value, allowed, says = rng.choice(OF_TOOLS), "system", {PASSES}, None
    t.label = f"{name}: {what} of {variable if what != 'an unknown name' else 'PENTAD_*'}"
    ended = t.run(name, programs.as_arguments(t.world.baseline(name)), ranks, {variable: value})
    t.judge(ended, name, allowed, says=says)
    t.expect_no_temporaries()


def judge(t, name, arguments, ranks, allowed, what, **more):
    t.label = f"{name}: {what}"
    ended = t.run(name, arguments, ranks, **more)
    outcome = t.judge(ended, name, allowed)
    t.expect_no_temporaries()
    if outcome != REFUSED:
        return
    if any(t.folder.iterdir()):
        t.fault("half-written", f"refused, and yet there is {[path.name for path in t.folder.iterdir()]}")
    if found := re.search(r": try ((?:--\S.*))$", ended.errors.strip()):
        left_out = re.findall(r"--[-a-z]+", sentence[0]) if (sentence := re.findall(r"leave out (.*): try", ended.errors)) else []
        suggested = programs.apply_suggestion(arguments, shlex.split(found[1]), t.world.tables[name], left_out)
        t.label += ", as suggested"
        again = t.run(name, suggested, ranks, limit=LONG, may_be_long=True)
        before = len(t.faults)
        # More memory than there is here is no matter of flags.
        lacks_memory = re.search(r"needs [0-9.]+ .iB on its fullest rank, and", again.errors)
        # Nor is it of flags what a wild --lr, which is accepted, makes of the numbers, or what is in a file of tokens.
        overflows = re.search(r"not finite, and so were|the loss .* is not finite|is not in a vocabulary", again.errors)
        t.judge(again, name, {REFUSED} if lacks_memory else {FAILS} if overflows else {PASSES, STOPPED})
        if len(t.faults) > before:
            t.fault(t.faults.pop().what, f"{again.errors.strip()[:600]}\n    after the suggestion of: {ended.errors.strip()[:600]}")
        t.expect_no_temporaries()

"""The programs as their --help describes them: which flags there are, what they take, and values to give them, right and wrong. A new
flag is covered because it is in the help."""
import dataclasses
import re
import subprocess

COLUMN = 30  # where the help's descriptions begin
SMALL = {"--layers": "2", "--hidden": "32", "--heads": "2", "--kv-heads": "2", "--ffn": "64", "--seq": "32", "--batch": "8", "--steps": "2",
         "--quiet": None}
NAMES = ("train_lm", "pentad_plan", "pentad_schedule", "pentad_tune")


@dataclasses.dataclass
class Flag:
    names: list
    shown: str  # how the help writes its value; empty: it takes none
    help: str
    kind: str = ""

    @property
    def name(self):
        return self.names[0]

    @property
    def repeats(self):
        return "repeat for more" in self.help or self.kind == "integers"


def kind_of(flag):
    if not flag.shown:
        return "switch"
    if flag.shown in ("FILE", "TRACE") or flag.shown == "TEXT" and "file" in flag.help:
        return "file"
    if flag.shown in ("DIR", "FOLDER"):
        return "folder"
    if re.fullmatch(r"(N|B|INT|UINT)(:.*)?", flag.shown):
        return "integer"
    if flag.shown in ("X", "FLOAT"):
        return "real"
    if re.match(r"N or N,|N,N", flag.shown):
        return "integers"
    if "|" in flag.shown:
        return "choice"
    return {"AXES": "axes", "AXIS,AXIS,...": "axis names", "NAME": "name"}.get(flag.shown, "text")


def parse_help(text):
    flags = []
    for line in text.splitlines():
        if re.match(r" {2,12}-", line):  # deeper: a wrapped help text
            line = line.rstrip()
            fits = len(line) > COLUMN and line[COLUMN - 1] == " " and line[COLUMN] != " "
            names, _, shown = (line[:COLUMN] if fits else line).strip().replace(", ", ",").partition(" ")
            names = re.sub(r",+", ",", names).split(",")
            if shown.strip().startswith("--"):  # "-h,     --help"
                names, shown = [*names, shown.strip()], ""
            shown = re.sub(r" *(REQUIRED|(Excludes|Needs): .*)", "", shown.strip())
            flags.append(Flag([name for name in names if name.startswith("--")], shown, line[COLUMN:] if fits else ""))
        elif flags and line.startswith(" " * COLUMN):
            flags[-1].help += " " + line.strip()
    flags = [flag for flag in flags if flag.name != "--help"]
    for flag in flags:
        flag.kind = kind_of(flag)
    return flags


def words_of(text):
    return re.findall(r"[a-z0-9][-a-z0-9.]*[a-z0-9]", text)


class Program:
    def __init__(self, name, path, environment):
        self.name, self.path = name, path
        text = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=60, env=environment, check=True).stdout
        self.flags = parse_help(text)
        if not self.flags:
            raise SystemExit(f"{name} --help lists no flag:\n{text}")
        self.all_names = [name for flag in self.flags for name in flag.names]
        self.inputs, self.outputs = [], []  # flags of files, found out by trying
        self.words = []  # names that NAME may be, beside those in the flag's help

    def flag(self, name):
        return next((flag for flag in self.flags if name in flag.names), None)


# --- values

def axes_text(rng, ranks=1):
    names = ["dp", "pp", "ep", "cp", "tp"]
    rng.shuffle(names)
    parts, left = [], ranks
    for name in names[:rng.randint(1, 3)]:
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        extent = rng.choice(divisors) if rng.random() < 0.9 else rng.randint(0, 9)
        left = left // extent if extent and left % extent == 0 else left
        parts.append(f"{name}={extent}")
    if left > 1 and rng.random() < 0.9:
        parts[-1] = f"{parts[-1].split('=')[0]}={int(parts[-1].split('=')[1]) * left}"
    return ",".join(parts)


def small_integer(rng):
    return str(rng.choice((1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16, 24, 32, 48, 64, 0)))


def good_value(rng, program, flag, world, ranks=1):
    """A value that is likely to be right, and cheap. None: the flag takes none."""
    match flag.kind:
        case "switch":
            return None
        case "integer":
            least = re.search(r"in \[(\d+) ", flag.shown + flag.help)
            return str(int(small_integer(rng)) + (int(least[1]) if least else 0) + (256 if flag.name == "--vocab" else 0))
        case "real":
            return rng.choice(("0", "0.1", "1", "1e-3", "0.5", "2", "1e2", ".25", "1.5e-8"))
        case "integers":
            if "balanced" in flag.shown and rng.random() < 0.2:
                return "balanced"
            return ",".join(small_integer(rng) for _ in range(rng.choice((1, 1, 2, 4))))
        case "choice":
            return rng.choice(flag.shown.split("|"))
        case "axes":
            return axes_text(rng, ranks)
        case "axis names":
            names = ["dp", "pp", "ep", "cp", "tp"]
            rng.shuffle(names)
            return ",".join(names[:rng.randint(1, 5)])
        case "name":
            return rng.choice(words_of(flag.help) + program.words)
        case "file" | "folder":
            return str(rng.choice(world.samples(program, flag)))
        case _:
            return rng.choice(("a", "In the beginning", "x y", "0", "ä", "a=b"))


EXTREMES = ("65536", "65535", "1048576", "16777216", "2147483647", "2147483648", "4294967296", "1000000", "100000", "9223372036854775807", "4096")
NUMBERS_THAT_ARE_NONE = ("abc", "0x", "1 2", "½", "one", "1,,2", "1e", "--", "-", " ", "1.2.3", "#", "12a", "\t4", "4\n", "٣", "9" * 30, "-1", "1;2", "%d", "\x1b[0m")


def wrong_value(rng, program, flag):
    """A value that must be refused, or None where any may be right."""
    if flag.shown and flag.kind != "text" and rng.random() < 0.1:
        return ""
    match flag.kind:
        case "integer":
            return rng.choice((*NUMBERS_THAT_ARE_NONE, "1.5", "nan", "1e3", "1,2", "1e400"))
        case "real":
            return rng.choice((*NUMBERS_THAT_ARE_NONE, "nan", "inf", "-inf", "1e400", "-0.5", "1,2"))
        case "integers":
            return rng.choice(("abc", "1,x", "-1", "1,-2", "9" * 30, "1,,x", "nan", "1.5"))
        case "choice":
            return rng.choice(flag.shown.split("|")) + rng.choice(("x", "-", " ", ",", "1"))
        case "axes":
            return rng.choice(("dp", "dp=", "=2", "xp=2", "dp=x", "dp=1,dp=1", "dp=1;tp=1", "dp=-1", "dp=1,,tp=1", "dp=0", "2", "dp=99999999999999999999", "dp=1.5", "dp==1"))
        case "axis names":
            return rng.choice(("xp", "dp,dp", "dp,xp", ",", "dp;tp"))
        case "name":
            return rng.choice(words_of(flag.help)) + rng.choice(("x!", "?", "=", "/", " "))
        case _:
            return None


def as_arguments(settings):
    """Pairs of a flag and its value, or None, as a command line."""
    return [text for name, value in settings for text in ((name,) if value is None else (name, value))]


def apply_suggestion(arguments, suggestion, program, left_out=()):
    """A command line with the flags that a refusal suggests in place of the same, and without those that it says to leave out."""
    changed = {name for name in suggestion if name.startswith("--")} | set(left_out)
    aliases = {alias for name in changed for flag in program.flags if name in flag.names for alias in flag.names}
    rest, at = [], 0
    while at < len(arguments):
        name, equals, _ = arguments[at].partition("=")
        takes = 1
        if name in aliases:
            flag = program.flag(name)
            has_value = at + 1 < len(arguments) and (not arguments[at + 1].startswith("--") or arguments[at + 1] == "--") and not equals
            takes = 2 if has_value and flag.shown else 1
            if has_value and not flag.shown and not arguments[at + 1].startswith("-"):
                takes = 2  # a switch that was given a value
        else:
            rest.append(arguments[at])
        at += takes
    return [*rest, *suggestion]

"""Files: what a program reads may be anything; what it writes may be no place for a file, or what it reads."""
import json
import os
import pathlib
import socket

import programs
from trial import FAILS, PASSES, REFUSED, WARNS, snapshot
from world import NOBODY

def trial(t):
    t.random.choices((strange_input, changed_input, strange_output, output_is_input), (26, 44, 16, 14))[0](t)


# --- what is read

def an_input(t):
    """A program, the flag or variable by which it is told of a file, a command line without it, and good files."""
    choices = [(name, flag.name) for name, program in t.world.tables.items() for flag in program.inputs]
    choices += [("train_lm", "PENTAD_TUNING"), ("pentad_tune", "PENTAD_TUNING")]
    name, flag = t.random.choice(choices)
    line = t.world.baseline(name) if flag == "PENTAD_TUNING" else t.world.line_for(name, t.world.tables[name].flag(flag))
    return name, flag, line, t.world.good_files(name, flag)


def start(t, name, flag, line, path, **more):
    ranks = 2 if name == "pentad_tune" or flag == "PENTAD_TUNING" else 1
    if name == "train_lm" and t.chance(0.1):
        ranks = 2
    if flag == "PENTAD_TUNING":
        return t.run(name, programs.as_arguments(line), ranks, {flag: str(path)}, **more)
    return t.run(name, programs.as_arguments([*line, (flag, str(path))]), ranks, **more)


def strange_input(t):
    """Nothing that holds text for a program: refused, and soon."""
    rng = t.random
    name, flag, line, good = an_input(t)
    path = t.folder / "input"
    what = rng.choice(("pipe", "folder", "device", "missing", "empty", "dangling link", "link to itself", "below a file", "long name", "socket", "sparse",
                       "unreadable", "kernel"))
    user = None
    match what:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path = pathlib.Path(rng.choice(("/dev/zero", "/dev/full", "/dev/urandom", "/dev/null", "/dev/tty", "/dev/stdin")))
        case "kernel":
            path = pathlib.Path(rng.choice(("/proc/kmsg", "/proc/self/mem", "/proc/self/pagemap", "/dev/mem", "/proc/1/environ", "/sys")))
        case "empty":
            path.write_bytes(b"")
        case "dangling link":
            path.symlink_to("nothing")
        case "link to itself":
            path.symlink_to("input")
        case "below a file":
            path.write_bytes(good[0].read_bytes())
            path = path / "input"
        case "long name":
            path = t.folder / ("x" * rng.choice((256, 300, 5000)))
        case "socket":
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(os.path.relpath(path))
        case "sparse":
            with path.open("wb") as file:
                file.write(rng.choice(good).read_bytes() if t.chance(0.5) else b"")
                file.truncate(rng.choice((1 << 30, 8 << 30, 1 << 40, (1 << 62))) if rng.random() < 0.9 else 300 << 20)
        case "unreadable":
            path.write_bytes(good[0].read_bytes())
            path.chmod(0)
            if t.world.may_change_user:
                t.folder.chmod(0o777)
                user = NOBODY
            elif os.getuid() == 0:
                what, path = "missing", t.folder / "none"
    t.label = f"{name} {flag}: {what}"
    allowed = {REFUSED}
    if what == "sparse" and flag in ("--data", "--tokens", "--validation"):
        allowed = {REFUSED, PASSES, FAILS}  # text of zeros; there may be no address space for it
    if what == "kernel":
        allowed = {REFUSED, PASSES}  # some of these are regular files, of any size
    if flag == "PENTAD_TUNING":
        allowed.add(WARNS)  # what cannot be used is ignored, and a line says so
    before = snapshot(t.folder)
    ended = start(t, name, flag, line, path, user=user)
    outcome = t.judge(ended, name, allowed)
    if outcome == REFUSED:
        t.expect_unchanged(before)


def changed_input(t):
    """A good file that was damaged: what it says may still be right, else it is refused."""
    rng = t.random
    name, flag, line, good = an_input(t)
    original = rng.choice(good)
    content, how, is_wrong = changed(rng, original.read_bytes(), original.suffix == ".json" or original.name == "trace.json")
    path = t.folder / rng.choice(("input", "input.json", "in put", "ä.json", b"\xff\xfe".decode("utf-8", "surrogateescape")))
    path.write_bytes(content)
    t.label = f"{name} {flag}: {how}"
    before = snapshot(t.folder)
    allowed = {PASSES, REFUSED}
    if is_wrong and flag not in ("--data", "--tokens", "--validation"):
        allowed = {REFUSED}
    if flag == "PENTAD_TUNING":
        allowed.add(WARNS)
        line = [pair for pair in line if pair[0] != "--out"] + ([("--out", str(t.folder / "written"))] if name == "pentad_tune" else [])
    if name == "pentad_plan" and t.chance(0.3):
        line = [*line, ("--json", None)]
    ended = start(t, name, flag, line, path)
    # Numbers in a file may ask for more than there is.
    outcome = t.judge(ended, name, allowed)
    if outcome == REFUSED:
        t.expect_unchanged(before)


def changed(rng, content, is_json):
    """The content, what was done to it, and whether it must be refused."""
    ways = ["nothing", "cut", "bits", "bytes", "lines", "number", "random", "zeros"] + (["deep", "type", "key", "not UTF-8", "huge number", "twice"] if is_json else [])
    how = rng.choice(ways)
    size = len(content)
    at = rng.randrange(size)
    match how:
        case "cut":
            return content[:at], how, is_json and bool(content[at:].strip())
        case "bits":
            changed_bytes = bytearray(content)
            for _ in range(rng.choice((1, 1, 2, 8))):
                changed_bytes[rng.randrange(size)] ^= 1 << rng.randrange(8)
            return bytes(changed_bytes), how, False
        case "bytes":
            length = rng.choice((1, 1, 3, 100))
            piece = rng.randbytes(length)
            return rng.choice((content[:at] + piece + content[at:], content[:at] + piece + content[at + length:], content[:at] + content[at + length:])), how, False
        case "lines":
            lines = content.splitlines(keepends=True)
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            rng.choice((lambda: lines.insert(a, lines[b]), lambda: lines.pop(a), lambda: lines.__setitem__(a, lines[b])))()
            return b"".join(lines), how, False
        case "number":
            digits = [i for i, byte in enumerate(content) if chr(byte).isdigit()]
            if digits:
                at = rng.choice(digits)
                number = rng.choice((b"0", b"-1", b"1e9", b"65536", b"2147483648", b"99999999999999999999", b"1.5", b"nan", b"1e400", b""))
                content = content[:at] + number + content[at + 1:]
            return content, how, False
        case "random":
            return rng.randbytes(rng.choice((1, 10, 1000, 100000))), how, True
        case "zeros":
            return bytes(rng.choice((1, 100, 4096))), how, True
        case "deep":
            depth = rng.choice((100, 1000, 10000, 70000, 1000000))
            opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
            nested = opening * depth + "1" + closing * depth * rng.choice((0, 1))
            value = json.loads(content)
            value[rng.choice(list(value))] = "DEEP"
            text = json.dumps(value).replace('"DEEP"', nested) if rng.random() < 0.8 else nested
            return text.encode(), f"JSON of {depth} levels" if depth >= 1000 else "JSON of many levels", depth >= 1000
        case "type" | "key" | "huge number" | "twice":
            return changed_json(rng, json.loads(content), how), f"JSON, {how}", False
        case "not UTF-8":
            quotes = [i for i, byte in enumerate(content) if byte == ord('"')]
            at = rng.choice(quotes) + 1
            return content[:at] + rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x80")) + content[at:], how, False
        case _:
            return content, how, False


def changed_json(rng, value, how):
    places = []

    def collect(node):
        if isinstance(node, (dict, list)):
            for key in (list(node) if isinstance(node, dict) else range(len(node))):
                places.append((node, key))
                if len(places) < 3000:
                    collect(node[key])
    collect(value)
    node, key = rng.choice(places)
    match how:
        case "type":
            node[key] = rng.choice((None, True, [], {}, "text", -1, 0, 1.5, "", [[]], {"a": 1}, "x" * 100000))
        case "key":
            if isinstance(node, dict):
                node[rng.choice(("new", "", "\x00", key + "s"))] = node.pop(key) if rng.random() < 0.5 else 1
            else:
                del node[key]
        case "huge number":
            node[key] = rng.choice((1 << 31, (1 << 63) - 1, 1 << 63, 10**30, -(1 << 63), 1e308, 1e-308, 65536))
        case "twice":
            return json.dumps(value).replace("{", '{"name": "a", "name": "b",', 1).encode()
    return json.dumps(value).encode()


# --- what is written

def an_output(t):
    """A program, one of its flags that write, and a command line without it."""
    choices = [(name, flag) for name, program in t.world.tables.items() for flag in program.outputs if flag.name != "--docs"]
    name, flag = t.random.choice(choices)
    return name, flag, t.world.line_for(name, flag)


def strange_output(t):
    """No place for a file."""
    rng = t.random
    name, flag, line = an_output(t)
    ranks = 2 if name == "pentad_tune" else rng.choice((1, 1, 1, 2)) if name == "train_lm" else 1
    what = rng.choice(("a folder", "a missing folder", "below a file", "long name", "empty name", "link to itself", "a folder that may not be written", "a pipe",
                       "a null device", "a link", "a name of bytes"))
    # train_lm looks before it begins; the others may find out when they write.
    path, user, allowed, reader = t.folder / "output", None, {REFUSED} if name == "train_lm" else {REFUSED, FAILS}, None
    is_folder = flag.kind == "folder"
    match what:
        case "a folder":
            path.mkdir()
            if is_folder:
                path = path / "none"
        case "a missing folder":
            path = path / "none"
        case "below a file":
            path.write_text("x")
            path = path / "none"
        case "long name":
            path = t.folder / ("x" * rng.choice((256, 300, 5000)))
        case "empty name":
            path, allowed = "", {REFUSED}
        case "link to itself":
            path.symlink_to("output")
            allowed = {PASSES, REFUSED, FAILS}  # a new file may take its place
        case "a folder that may not be written":
            if not t.world.may_change_user or ranks > 1:
                return strange_output(t)
            folder = t.folder / "closed"
            folder.mkdir(mode=0o555)
            t.folder.chmod(0o755)
            user, path = NOBODY, folder if is_folder else folder / "output"
        case "a pipe":
            os.mkfifo(path)
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            allowed = {REFUSED} if is_folder else {PASSES, REFUSED, FAILS}
        case "a null device":
            path = pathlib.Path("/dev/null")
            allowed = {REFUSED} if is_folder else {PASSES, REFUSED}
        case "a link":
            (t.folder / "target").mkdir() if is_folder else (t.folder / "target").write_text("old")
            path.symlink_to("target")
            allowed = {PASSES}
        case "a name of bytes":
            path = t.folder / os.fsdecode(rng.choice((b"\xff\xfe", b"a\nb", b" ", "ä".encode(), b"-", b"%s")))
            if is_folder:
                path.mkdir()
            allowed = {PASSES, REFUSED}
    t.label = f"{name} {flag.name}: {what}"
    before = snapshot(t.folder)
    ended = t.run(name, programs.as_arguments([*line, (flag.name, str(path))]), ranks, user=user)
    outcome = t.judge(ended, name, allowed)
    if reader is not None:
        os.close(reader)
    if outcome == REFUSED:
        t.expect_unchanged(before)
    elif what == "a link" and outcome == PASSES:
        if not path.is_symlink() or not is_folder and (t.folder / "target").read_text() == "old":
            t.fault("half-written", "the link was replaced, and not what it points at")
    t.expect_no_temporaries()


def another_name(t, path):
    """Another name of the same file."""
    rng = t.random
    way = rng.choice(("the same name", "./", "a link", "a hard link", "by a linked folder", "../"))
    other = t.folder / "other"
    match way:
        case "./":
            return way, f"{path.parent}/./{path.name}"
        case "../":
            return way, f"{path.parent}/../{path.parent.name}/{path.name}"
        case "a link":
            other.symlink_to(path)
        case "a hard link":
            if not path.exists():
                return another_name(t, path)
            os.link(path, other)
        case "by a linked folder":
            other.symlink_to(path.parent)
            other = other / path.name
        case _:
            return way, str(path)
    return way, str(other)


def output_is_input(t):
    """What is read, or written already, is written: refused, and the file is as it was."""
    rng = t.random
    name = rng.choices(programs.NAMES, (60, 12, 25, 3))[0]
    program = t.world.tables[name]
    outputs = [flag for flag in program.outputs if flag.name != "--docs"]
    output = rng.choice(outputs)
    partners = [flag for flag in [*program.inputs, *outputs] if flag is not output]
    partners += ["PENTAD_TUNING"] if name in ("train_lm", "pentad_tune") else []
    if "--hardware-out" in (output.name, *(flag.name for flag in outputs)):  # it is alone with the machine
        partners = [flag for flag in partners if (flag.name == "--hardware-json" if output.name == "--hardware-out" else flag.name != "--hardware-out")]
    partner = rng.choice(partners)
    is_variable = partner == "PENTAD_TUNING"
    partner_name = partner if is_variable else partner.name
    line = t.world.line_for(name, output, *([] if is_variable else [partner]))
    folder_flag = next((flag for flag in (output, partner) if flag != "PENTAD_TUNING" and flag.kind == "folder"), None)
    path = t.folder / "file"
    if folder_flag:
        (t.folder / "weights").mkdir()
        written = (".lock",) if folder_flag.name == "--save" else ("model.safetensors", "config.json")
        path = t.folder / "weights" / rng.choice(written)
    if is_variable or partner in program.inputs:
        path.write_bytes(rng.choice(t.world.good_files(name, partner_name)).read_bytes())
    elif t.chance(0.5):
        path.write_text("old")
    way, other = another_name(t, path)
    values = {partner_name: str(path), output.name: other}
    if folder_flag:
        values = {flag: str(path.parent) if flag == folder_flag.name else other for flag in values}
    environment = {partner_name: values.pop(partner_name)} if is_variable else {}
    t.label = f"{name} {output.name}: the file of {partner_name}"
    before = snapshot(t.folder)
    ranks = 2 if is_variable or name == "pentad_tune" else rng.choice((1, 1, 2)) if name == "train_lm" else 1
    ended = t.run(name, programs.as_arguments([*line, *values.items()]), ranks, environment)
    t.judge(ended, name, {REFUSED})
    t.expect_unchanged(before, what=f"both name a file ({way})")
    t.expect_no_temporaries()

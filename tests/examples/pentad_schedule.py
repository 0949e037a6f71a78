#!/usr/bin/env python3
"""Runs pentad_schedule as users do: pentad_schedule.py PENTAD_SCHEDULE DOCS. What it prints and writes, that docs/schedules.md and
its pictures are what it writes now, and that bad input ends in one sentence."""
import filecmp
import json
import os
import pathlib
import pty
import re
import resource
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from common import busy, expect

PROGRAM, DOCS = sys.argv[1], pathlib.Path(sys.argv[2])
SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("gpipe terapipe 1f1b eager-1f1b pipedream pipedream-2bw zb-h1 zb-h2 interleaved-1f1b looped-bfs zb-v v-half v-min dualpipe-v "
         "hanayo dualpipe chimera").split()


def run(line):
    return subprocess.run([PROGRAM, *shlex.split(line)], capture_output=True, text=True, timeout=60)


def output_of(line):
    done = run(line)
    expect(done.returncode == 0 and not done.stderr, f"{line}: {done}")
    return done.stdout


def charts(folder):
    text = output_of("--schedule zb-v --stages 8 --micro-batches 16 --width 120")
    expect(len(re.findall(r"^rank \d  ", text, re.M)) == 8 and "\x1b" not in text and "cut" not in text, text)
    for wanted in ("zb-v on 8 ranks, 16 stages, 16 micro-batches: bubble 0.0 %", "time      103 (1f1b 138)", "bubble    0.0 % (1f1b 30.4 %)",
                   "memory    16 16 16 16 16 16 16 16:", "messages  4:", "weights   1 x 1:"):
        expect(wanted in text, f"no {wanted!r} in\n{text}")
    expect("cut: the whole is 112 columns wide" in output_of("--schedule zb-v --stages 8 --micro-batches 16"), "80 columns are assumed in a pipe")
    text = output_of("--schedule zb-h1 --activation 100 --weight-part 30")
    expect("memory    400 330 260 190:" in text, text)
    text = output_of("--schedule gpipe --stages 2 --micro-batches 1 --forward 3,5 --backward-data 1 --backward-weight 2 --message 10")
    expect("time      34 (1f1b 34)" in text, text)  # 3 + 10 + 5 + 3 + 10 + 3
    expect("\x1b[48;5;" in output_of("--schedule 1f1b --colour always"), "--colour always has none")
    text = output_of("--schedule automatic --forward 10,10,15,10 --backward-data 10,10,15,10 --backward-weight 10,10,15,10 --memory 4")
    for wanted in ("automatic: no order of the computes is faster", "time      380 (1f1b 435)", "memory    4 4 4 "):
        expect(wanted in text, f"no {wanted!r} in\n{text}")
    faster = output_of("--schedule automatic --forward 10,10,15,10 --backward-data 10,10,15,10 --backward-weight 10,10,15,10 --two-copies")
    expect(int(re.search(r"time +(\d+)", faster)[1]) < 380, faster)


def terminal(folder):
    """On a terminal there are colours, and lines as wide as it is."""
    for flags, colours in (([], True), (["--colour", "never"], False)):
        child, terminal = pty.fork()
        if child == 0:
            os.execv(PROGRAM, [PROGRAM, "--schedule", "gpipe", *flags])
        text = b""
        while True:
            try:
                piece = os.read(terminal, 1 << 16)
            except OSError:
                break
            if not piece:
                break
            text += piece
        expect(os.waitpid(child, 0)[1] == 0 and (b"\x1b[" in text) == colours, f"on a terminal, {flags}: {text}")


def large(folder):
    """Schedules too large for a chart are written and counted in time and memory linear in their length, and say how far they are."""
    text = folder / "large"
    # Two stages a rank: what looks at each stage for each rank, or at each rank for each line, takes minutes.
    start = busy()
    output = output_of(f"--schedule interleaved-1f1b --chunks 2 --stages 40000 --micro-batches 1 --text {text}")
    again = output_of(f"--schedule-file {text} --json {folder}/json")
    expect(busy() - start < 20, f"{busy() - start:.0f} s for 40000 ranks")
    for wanted in ("interleaved-1f1b on 40000 ranks, 80000 stages", "not drawn: a chart shows at most 1024 ranks", "memory    2 to 2: the ranks' peaks"):
        expect(wanted in output and wanted in again, f"no {wanted!r} in\n{output}{again}")
    expect(len(output_of("--schedule gpipe --stages 1024 --micro-batches 4").splitlines()) == 1024 + 11, "1024 ranks are drawn")
    # Not enough memory for it.
    done = subprocess.run([PROGRAM, *f"--schedule 1f1b --stages 2000 --micro-batches 2000 --text {text}".split()], capture_output=True, text=True,
                          timeout=60, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29)))
    expect(done.returncode == 3 and done.stderr == "pentad_schedule: there is not enough memory: ask for fewer --stages or --micro-batches\n",
           done)
    expect("interleaved" in text.read_text()[:100], "the old file is not left as it was")


def interrupted(folder):
    """On a terminal a long run says what it does, and Ctrl-C ends it at once."""
    line = "--forward 10 --backward-data 11 --backward-weight 7 --message 2 --schedule automatic --stages 128 --micro-batches 128".split()
    child, terminal = pty.fork()
    if child == 0:
        os.execv(PROGRAM, [PROGRAM, *line, "--text", str(folder / "interrupted")])
    text, begin = b"", time.monotonic()
    while text.count(b"left\x1b[K") < 3 and time.monotonic() - begin < 60:
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 1 << 16)
    expect(re.search(rb"\rsearching: \d+ %, \S+( \S+)? left\x1b\[K", text), f"no progress in {text}")
    pressed = time.monotonic()
    os.write(terminal, b"\x03")
    status = os.waitpid(child, 0)[1]
    expect(os.WTERMSIG(status) == signal.SIGINT and time.monotonic() - pressed < 10, f"{status} after {time.monotonic() - pressed} s")
    expect(not (folder / "interrupted").exists(), "an interrupted run has written its file")


def full_output(folder):
    """What cannot be printed is no success."""
    with open("/dev/full", "w") as full:
        for line in ("--schedule 1f1b", "--help", "--schedule automatic"):
            done = subprocess.run([PROGRAM, *line.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            expect(done.returncode == 3 and done.stderr == "pentad_schedule: cannot write to standard output: No space left on device\n", f"{line}: {done}")


def search_ends(folder):
    """Ranks that wait for each other, where they recompute: this was searched for ever."""
    text = output_of("--schedule automatic --recompute --stages 2 --micro-batches 1 --chunks 2 --forward 4,3,1,3 --backward-data 0,3,0,3 "
                     "--backward-weight 1,1,2,2")
    expect("no order of the computes is faster" in text, text)


def computes_of(path):
    schedule = json.loads(path.read_text())
    return sum(1 for rank in schedule["ranks"] for symbol in rank if symbol[0] in "FBDWR")


def files(folder):
    for name in NAMES:
        flags = f"--schedule {name} --stages 4 --micro-batches 8" + (" --slices 2" if name == "terapipe" else "")
        paths = {kind: folder / f"{name}.{kind}" for kind in ("svg", "json", "text", "perfetto")}
        text = output_of(flags + "".join(f" --{kind} {path}" for kind, path in paths.items()))
        computes = computes_of(paths["json"])
        picture = xml.etree.ElementTree.parse(paths["svg"]).getroot()
        width, height = float(picture.get("width")), float(picture.get("height"))
        rows = [row for row in picture.iter(SVG + "g") if row.get("transform")]
        expect(len(rows) == 4 and len(list(picture.iter(SVG + "rect"))) == computes, f"{name}: not {computes} boxes in 4 rows")
        for row in rows:
            left, top = map(float, re.fullmatch(r"translate\((\S+) (\S+)\)", row.get("transform")).groups())
            boxes = sorted((float(box.get("x")), float(box.get("width"))) for box in row.iter(SVG + "rect"))
            expect(all(x + w <= y for (x, w), (y, _) in zip(boxes, boxes[1:])), f"{name}: boxes lie on each other")
            expect(left + sum(boxes[-1]) <= width and top + 22 <= height, f"{name}: a box is outside of the picture")
        events = json.loads(paths["perfetto"].read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X" and event["name"] != "optimizer-step"]
        expect(len(spans) == computes and {"micro_batch", "stage", "slice"} <= spans[0]["args"].keys(), f"{name}: timeline {spans[:1]}")
        # The schedule comes back from its files; so does the plan, as a run that went as planned.
        for kind in ("json", "text"):
            expect(output_of(f"--schedule-file {paths[kind]}") == text, f"{name}: another schedule in its {kind}")
        planned, measured = re.findall(r"bubble (\S+) %", output_of(f"{flags} --ran {paths['perfetto']}"))[:2]
        expect(planned == measured, f"{name}: ran as planned, but waits {measured} %, not {planned} %")


def ran(folder):
    trace, picture, timeline = folder / "trace", folder / "both.svg", folder / "both.json"
    output_of(f"--schedule gpipe --stages 2 --micro-batches 2 --forward 2,3 --perfetto {trace}")
    text = output_of(f"--schedule gpipe --stages 2 --micro-batches 2 --ran {trace} --svg {picture} --perfetto {timeline}")
    expect("measured: step 1 of 1" in text and text.count("rank 1") == 2, text)
    expect("time      14.0 us (1f1b 14.0 us)" in text, f"the plan does not take the times of the run:\n{text}")
    text = output_of(f"--schedule gpipe --stages 2 --micro-batches 2 --forward 1 --ran {trace} --ran-ranks 0,1")
    expect("time      9 " in text, f"the plan does not take the times that are given:\n{text}")
    expect(len(list(xml.etree.ElementTree.parse(picture).getroot().iter(SVG + "rect"))) == 16, "not the boxes of both")
    labels = [event["args"]["name"] for event in json.loads(timeline.read_text())["traceEvents"] if event["name"] == "process_name"]
    expect(labels == ["planned, rank 0", "planned, rank 1", "measured, rank 0", "measured, rank 1"], labels)


def bad_input(folder):
    wrong = folder / "wrong"
    wrong.write_text("schedule x\nmicro-batches 1\nstages on ranks 0\nrank 0: B0 F0\n")
    no_schedule = folder / "none"
    no_schedule.write_text("schedule x\nmicro-batches\n")
    trace, link = folder / "trace", folder / "link"
    link.symlink_to("wrong")
    for line, status, message in [
            ("", 2, "--schedule NAME or --schedule-file FILE says which; there are gpipe"),
            ("--schedule gpip", 2, "gpip is no schedule; there are gpipe, "),
            ("--schedule chimera --stages 3", 2, "even number of ranks, not 3"),
            ("--schedule 1f1b --stages 0", 2, "--stages: 0 is not a whole number from 1 to 65536"),
            ("--schedule 1f1b --stages 010", 2, "--stages: 010 is not a whole number"),
            ("--schedule 1f1b --stages 0x10", 2, "--stages: 0x10 is not a whole number"),
            ("--schedule 1f1b --message 1,2", 2, "--message: 1,2 is not a whole number"),
            ("--schedule 1f1b --forward 1\\'0", 2, "--forward: 1'0 is not a whole number"),
            ("--schedule 1f1b --micro-batches x", 2, "--micro-batches"),
            ("--schedule 1f1b --stages 60000 --micro-batches 60000", 2, "21.6 G instructions, and a proof of it takes 563 GiB"),
            ("--schedule 1f1b --stages 60000 --micro-batches 60000", 2, "ask for 372 or fewer --micro-batches"),
            ("--schedule 1f1b --stages 4096 --micro-batches 4096", 2, "a chart shows at most 1024 ranks"),
            ("--schedule zb-v --stages 8 --micro-batches 65536 --svg x", 2, "--svg is for at most 262 k computes, and zb-v has about 3.15 M"),
            ("--schedule gpipe --stages 512 --width 1048576", 2, "--width 1048576 is too wide for 512 ranks: ask for 131072 columns"),
            ("--schedule zb-v --stages 65536 --micro-batches 1 --text x", 2, "8.59 G steps to make, however few its micro-batches: ask for 11585"),
            ("--schedule automatic --stages 65536", 2, "have 1572864: ask for 2083 or fewer stages"),
            ("--schedule automatic --stages 128 --micro-batches 200", 2, "ask for 130 or fewer --micro-batches"),
            ("--schedule 1f1b --forward 1,2", 2, "--forward has 2 numbers, and there are 4 stages"),
            ("--schedule 1f1b --forward 0", 2, "--forward"),
            ("--schedule 1f1b --colour red", 2, "--colour"),
            ("--schedule 1f1b --slice 2", 2, "--slice"),
            ("--schedule 1f1b --memory 3", 2, "--memory and --two-copies are for --schedule automatic"),
            ("--schedule automatic --memory 0", 2, "that takes 1 on rank 0, whose limit is 0; recomputation takes less"),
            ("--schedule automatic --slices 2", 2, "no slices"),
            (f"--schedule 1f1b --schedule-file {wrong}", 2, "excludes"),
            (f"--stages 2 --schedule-file {wrong}", 2, "excludes"),
            (f"--schedule-file {wrong}", 2, "wrong: rank 0: backward of micro-batch 0 on stage 0: comes before the forward"),
            (f"--schedule-file {no_schedule}", 2, "line 2: micro-batches takes one number"),
            (f"--schedule-file {folder}/nothing", 2, "No such file"),
            (f"--schedule 1f1b --ran {folder}/nothing", 2, "No such file"),
            (f"--schedule 1f1b --ran {wrong}", 2, "it is none that train_lm --trace writes"),
            (f"--schedule 1f1b --stages 2 --micro-batches 2 --ran {trace}", 2, "is it a run of this schedule"),
            ("--schedule 1f1b --ran-ranks 0", 2, "--ran"),
            (f"--docs {folder} --schedule 1f1b", 2, "--docs is alone, without --schedule"),
            (f"--docs={folder} --recompute", 2, "--docs is alone, without --recompute"),
            ("--schedule 1f1b --svg /dev/full", 3, "/dev/full: No space left on device"),
            (f"--schedule 1f1b --text {folder}/nothing/x", 2, "No such file"),
            (f"--schedule 1f1b --json {folder}", 2, "Is a directory"),
            *((f"--schedule 1f1b --{flag} ''", 2, f"--{flag} '' names no file") for flag in ("svg", "perfetto", "text", "json", "ran")),
            ("--schedule-file ''", 2, "--schedule-file '' names no file"),
            ("--docs ''", 2, "--docs '' names no file"),
            (f"--schedule 1f1b --text {folder}/a --json {folder}/./a", 2, "are the same file"),
            (f"--schedule-file {wrong} --text {link}", 2, f"--text {link} would overwrite --schedule-file {wrong}"),
            (f"--schedule 1f1b --ran {trace} --svg {trace}", 2, "would overwrite --ran"),
            (f"--docs {wrong}", 3, "cannot write")]:
        done = run(line)
        expect(done.returncode == status and re.fullmatch(r"pentad_schedule: [^\n]+\n", done.stderr) and message in done.stderr
               and (status != 2 or not done.stdout), f"{line}: {done}")
    done = run("--help")
    expect(done.returncode == 0 and not done.stderr and "--micro-batches" in done.stdout, "--help")


def hostile_files(folder):
    """Files that are deep, huge, endless or no text end in one sentence, at once."""
    deep, large, pipe, named = (folder / name for name in ("deep", "large", "pipe", "named"))
    deep.write_text('{"schedule":' + "[" * 70_000 + "]" * 70_000 + "}")
    large.write_text("{")
    os.truncate(large, 10**9)
    os.mkfifo(pipe)
    named.write_bytes(b"schedule \xff\nmicro-batches 1\nstages on ranks 0\nrank 0: F0 B0\n")
    out = folder / "out"
    for line, message in [
            (f"--schedule-file {deep}", "the file: expected lists and objects at most 64 deep"),
            (f"--schedule-file {large}", "it has 1000000000 bytes, and at most 67108864 are allowed"),
            (f"--schedule-file {pipe}", "it is no regular file"),
            ("--schedule-file /dev/zero", "it is no regular file"),
            (f"--schedule-file {named} --json {out}", r"line 1: the name '\xff' is not UTF-8"),
            (f"--schedule 1f1b --ran {deep}", "lists and objects at most 64 deep"),
            (f"--schedule 1f1b --ran {large}", "line 1, column 2"),
            (f"--schedule 1f1b --ran {pipe}", "it is no regular file"),
            ("--schedule 1f1b --ran /dev/zero", "it is no regular file")]:
        start = busy()
        done = run(line)
        expect(done.returncode == 2 and re.fullmatch(r"pentad_schedule: [^\n]{1,300}\n", done.stderr) and message in done.stderr,
               f"{line}: {done.returncode}, {done.stderr[:1000]}")
        expect(busy() - start < 5 and not out.exists(), f"{line}: {busy() - start} s")


def docs(folder):
    written = folder / "docs"
    output_of(f"--docs {written}")
    names = sorted(str(path.relative_to(written)) for path in written.rglob("*") if path.is_file())
    pictures = [*NAMES, "automatic"]
    expect(len(names) == 1 + len(pictures), names)
    expect(sorted(path.name for path in (DOCS / "schedules").iterdir()) == sorted(name + ".svg" for name in pictures), "pictures of no schedule")
    _, different, missing = filecmp.cmpfiles(written, DOCS, names, shallow=False)
    expect(not different and not missing, f"{different + missing} of docs/ are not what the program writes: run pentad_schedule --docs docs")
    expect(sum((written / name).stat().st_size for name in names) < 400_000, "the pictures are too large")


with tempfile.TemporaryDirectory() as name:
    for check in (charts, terminal, files, ran, bad_input, hostile_files, large, interrupted, full_output, search_ends, docs):
        check(pathlib.Path(name))
        print(f"{check.__name__}: ok", flush=True)

#!/usr/bin/env python3
"""Runs pentad_schedule as users do: pentad_schedule.py PENTAD_SCHEDULE DOCS. What it prints and writes, that docs/schedules.md and
its pictures are what it writes now, and that bad input ends in one sentence."""
import filecmp
import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PROGRAM, DOCS = sys.argv[1], pathlib.Path(sys.argv[2])
SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("gpipe terapipe 1f1b eager-1f1b pipedream pipedream-2bw zb-h1 zb-h2 interleaved-1f1b looped-bfs zb-v v-half v-min dualpipe-v "
         "hanayo dualpipe chimera").split()


def expect(condition, what):
    if not condition:
        raise SystemExit(what)


def run(line):
    return subprocess.run([PROGRAM, *line.split()], capture_output=True, text=True, timeout=60)


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
    trace = folder / "trace"
    for line, status, message in [
            ("", 2, "--schedule NAME or --schedule-file FILE says which; there are gpipe"),
            ("--schedule gpip", 2, "gpip is no schedule; there are gpipe, "),
            ("--schedule chimera --stages 3", 2, "even number of ranks, not 3"),
            ("--schedule 1f1b --stages 0", 2, "--stages: Value 0 not in range"),
            ("--schedule 1f1b --micro-batches x", 2, "--micro-batches"),
            ("--schedule 1f1b --stages 60000 --micro-batches 60000", 2, "fewer --micro-batches"),
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
            (f"--docs {folder} --schedule 1f1b", 2, "--docs is alone"),
            ("--schedule 1f1b --svg /dev/full", 3, "/dev/full: No space left on device"),
            (f"--schedule 1f1b --text {folder}/nothing/x", 3, "No such file"),
            (f"--docs {wrong}", 3, "cannot write")]:
        done = run(line)
        expect(done.returncode == status and re.fullmatch(r"pentad_schedule: [^\n]+\n", done.stderr) and message in done.stderr
               and (status != 2 or not done.stdout), f"{line}: {done}")
    done = run("--help")
    expect(done.returncode == 0 and not done.stderr and "--micro-batches" in done.stdout, "--help")


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
    for check in (charts, terminal, files, ran, bad_input, docs):
        check(pathlib.Path(name))
        print(f"{check.__name__}: ok", flush=True)

#!/usr/bin/env python3
"""Runs train_lm as users do, also where it must refuse or fail: command_lines.py TRAIN_LM MPIEXEC. Of each run the exit
status, what it prints, and that it ends. Also: a timeline holds every transfer, and a short run learns, in bf16 as in f32."""
import collections
import json
import math
import os
import pathlib
import re
import sys
import tempfile
import threading
import time

import launch

TRAIN_LM, MPIEXEC = sys.argv[1:]
SMALL = "--layers 2 --hidden 32 --heads 4 --ffn 32 --seq 16 --batch 8 --micro-batches 2"
TEXT = pathlib.Path(__file__).parents[2] / "LICENSE"
Done = collections.namedtuple("Done", "status output errors")


def train_lm(ranks, line):
    command = [MPIEXEC, "-n", str(ranks), TRAIN_LM, *line.split()]
    try:
        return Done(*launch.run(command, timeout=120))
    except TimeoutError as error:
        raise SystemExit(f"{error}: {' '.join(command)}")


def expect(condition, what):
    if not condition:
        raise SystemExit(what)


def refuses(ranks, line, status, message):
    """One sentence from one rank, and this exit status."""
    done = train_lm(ranks, line)
    expect(done.status == status, f"{line}: exit status {done.status}, not {status}:\n{done.errors}")
    expect(re.fullmatch(rf"train_lm: [^\n]*{message}[^\n]*\n", done.errors), f"{line}: one line with /{message}/, not\n{done.errors}")
    expect(status != 2 or not done.output, f"{line}: refused, but prints\n{done.output}")


def bad_command_lines(folder):
    os.mkfifo(folder / "pipe")
    (folder / "dump").mkdir()
    for ranks, line, message in [
            (1, "--layer 3", "--layers"),
            (2, "--mesh dp=2,dp=1", "dp"),
            (4, "--mesh dp=3", "try --mesh"),
            (2, f"--data {folder}/none", "No such file"),
            (2, f"--data {folder}/pipe", "no regular file"),
            (2, f"--data {'x' * 300}", "name too long"),
            (2, f"--log {folder}/none/log", "try --log"),
            (4, f"{SMALL} --mesh tp=4 --heads 6", "--heads")]:
        refuses(ranks, line, 2, message)
    full = "/dev/full: No space left on device"
    for ranks, line in [
            (2, f"{SMALL} --quiet --mesh pp=2 --steps 3 --log /dev/full"),
            # the last line fails, and what comes after it is collective
            (2, f"{SMALL} --quiet --mesh tp=2 --steps 0 --log /dev/full --dump-weights {folder}/dump"),
            (2, f"{SMALL} --quiet --mesh cp=2 --steps 1 --trace /dev/full")]:
        refuses(ranks, line, 3, full)
    expect(not any((folder / "dump").iterdir()), "a run that failed leaves files behind")


def good_command_lines(folder):
    done = train_lm(2, "--help")
    expect(done.status == 0 and not done.errors and done.output.count("--micro-batches") == 1, f"--help: {done}")
    done = train_lm(2, f"{SMALL} --steps 2")
    expect(done.status == 0 and "step 2/2" in done.output and "% of the GEMM speed of all 2 ranks" in done.output, f"a plain run: {done}")
    done = train_lm(2, f"{SMALL} --steps 0")
    expect(done == (0, "", ""), f"--steps 0: {done}")
    done = train_lm(2, f"{SMALL} --steps 1 --quiet --sample 5 --prompt ab")
    expect(done.status == 0 and done.output.startswith("\nab|") and len(done.output) >= 10, f"--sample: {done}")
    # A run that diverges still logs JSON.
    log = folder / "diverged"
    done = train_lm(1, f"{SMALL} --quiet --steps 20 --lr 1e6 --clip 0 --warmup 0 --max-bad-steps 100 --log {log}")
    lines = [json.loads(text, parse_constant=lambda name: sys.exit(f"{name} is not JSON")) for text in log.read_text().splitlines()]
    expect(done.status == 3 and len(lines) == 20 and lines[19]["loss"] is None, f"diverged: {done}\n{lines}")


def data_cut_short(folder):
    """Data that become shorter during a run end it with a sentence."""
    data, log = folder / "data", folder / "cut.log"
    for ranks, mesh in [(1, "dp=1"), (2, "pp=2"), (4, "dp=2,tp=2")]:
        data.write_bytes(TEXT.read_bytes())
        log.write_text("")
        command = [MPIEXEC, "-n", str(ranks), TRAIN_LM, *SMALL.split(), "--mesh", mesh, "--quiet", "--steps", "1000000",
                   "--data", str(data), "--log", str(log)]

        def cut():
            while log.read_text().count("\n") < 3:
                time.sleep(0.01)
            os.truncate(data, 100)

        threading.Thread(target=cut, daemon=True).start()
        status, _, errors = launch.run(command, timeout=120)
        expect(status == 3 and re.search(rf"^train_lm: (rank \d: )?cannot read {data}: it has 100 bytes, and had \d+ or more", errors, re.M),
               f"data cut short, {mesh}: {status}, {errors}")


def timeline(folder):
    """Compute, each transfer with its axis and bytes, each pipeline step."""
    trace = folder / "trace"
    done = train_lm(8, f"{SMALL} --mesh pp=2,cp=2,tp=2 --quiet --steps 1 --trace {trace}")
    expect(done.status == 0, f"--trace: {done}")
    events = json.loads(trace.read_text())["traceEvents"]
    seen = {(event["cat"], event["name"], event.get("args", {}).get("axis")) for event in events if "cat" in event}
    transfers = [event for event in events if event.get("cat") == "communication" and event["ph"] in "Xb"]
    nameless = [event for event in transfers if not {"axis", "bytes"} <= event.get("args", {}).keys()]
    expect(not nameless, f"a transfer without axis or bytes: {nameless[:1]}")
    for wanted in [("communication", "send", "pp"), ("communication", "receive", "pp"), ("communication", "send", "cp"),
                   ("communication", "all_reduce", "tp"), ("pipeline", "forward", None), ("pipeline", "backward", None)]:
        expect(wanted in seen, f"--trace: no {wanted} among {sorted(map(str, seen))}")
    expect({event["pid"] for event in events} == set(range(8)), "--trace: not every rank is there")
    # A stage sends the activations of two micro-batches in training and, at the end, in evaluation.
    sends = [event["args"]["bytes"] for event in transfers
             if (event["ph"], event["name"], event["args"]["axis"], event["pid"]) == ("b", "send", "pp", 0)]
    expect(sends == [4 * (16 // 2) * 32 * 4] * 4, f"--trace: bytes of the sends of rank 0 along pp: {sends}")


def learning(folder):
    counts = collections.Counter(TEXT.read_bytes())
    entropy = -sum(n / counts.total() * math.log(n / counts.total()) for n in counts.values())
    losses = {}
    for dtype in ("f32", "bf16"):
        log = folder / dtype
        done = train_lm(4, f"--mesh ep=2,tp=2 --experts 4 --data {TEXT} --dtype {dtype} --log {log} --quiet --layers 2 --hidden 64 "
                        "--heads 4 --ffn 128 --seq 64 --batch 16 --micro-batches 2 --steps 120 --lr 2e-3")
        expect(done.status == 0, f"learning: {done}")
        losses[dtype] = json.loads(log.read_text().splitlines()[-1])["final_loss"]
    print(f"entropy of single bytes {entropy:.3f}; loss {losses}")
    expect(losses["f32"] < entropy - 0.3, "it does not learn more than how frequent each byte is")
    expect(abs(losses["bf16"] / losses["f32"] - 1) < 0.02, "bf16 does not end where f32 does")


with tempfile.TemporaryDirectory() as name:
    for check in (bad_command_lines, good_command_lines, data_cut_short, timeline, learning):
        check(pathlib.Path(name))
        print(f"{check.__name__}: ok", flush=True)

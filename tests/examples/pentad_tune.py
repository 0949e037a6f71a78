#!/usr/bin/env python3
"""Runs pentad_tune as users do: pentad_tune.py PENTAD_TUNE MPIEXEC. What it writes and prints, that bad input ends in one sentence before
anything is measured, and that an interrupted run leaves nothing behind."""
import os
import pathlib
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from common import expect

PROGRAM, MPIEXEC = sys.argv[1:]
SHORT = "--largest 4096 --repeats 1"


def run(ranks, line, limit=None, **environment):
    return subprocess.run([MPIEXEC, "-n", str(ranks), PROGRAM, *shlex.split(line)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **environment}, preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))))


def refuses(status, message, ranks, line, **settings):
    """One sentence from one rank, nothing printed, and this exit status."""
    done = run(ranks, line, **settings)
    expect(done.returncode == status and re.fullmatch(r"pentad_tune: [^\n]+\n", done.stderr) and message in done.stderr and not done.stdout,
           f"{ranks} ranks, {line}: {done}")


def measures(folder):
    out = folder / "tuning"
    out.write_text("old")
    done = run(3, f"--out {out} {SHORT}")
    expect(done.returncode == 0, done)
    lines = out.read_text().splitlines()
    expect(lines[0] == "pentad tuning 1" and lines[1].startswith("machine "), lines)
    expect([line for line in lines if line.startswith("group")] == ["group 2 ranks 1 nodes", "group 3 ranks 1 nodes"], lines)
    expect(done.stdout.splitlines() == lines[2:], f"printed is {done.stdout}, written {lines}")
    # What it writes is read.
    done = run(2, f"--out {folder}/again {SHORT}", PENTAD_TUNING=str(out))
    expect(done.returncode == 0 and "ignored" not in done.stderr, done)


def bad_input(folder):
    out, link = folder / "out", folder / "link"
    link.symlink_to("out")
    for line, message in [
            ("", "--out is required"),
            ("--out ''", "--out '' names no file"),
            (f"--out {folder}", "Is a directory"),
            (f"--out {folder}/none/out", "No such file or directory"),
            (f"--out {out} --largest 1023", "--largest: 1023 is not a whole number from 1024 to 8589934592"),
            (f"--out {out} --largest 1,024", "1,024 is not a whole number"),
            (f"--out {out} --repeats 0", "--repeats: 0 is not a whole number from 1 to 1000"),
            (f"--out {out} --bogus", "--bogus")]:
        refuses(2, message, 2, line)
    refuses(2, "start it on 2 or more", 1, f"--out {out}")
    refuses(2, "PENTAD_COLLECTIVES=zzz: it is one of auto, mpi", 3, f"--out {out}", PENTAD_COLLECTIVES="zzz")
    refuses(2, f"--out {link} would overwrite PENTAD_TUNING {out}", 2, f"--out {link}", PENTAD_TUNING=str(out))
    memory = int(re.search(r"MemAvailable: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) << 10
    if memory < 250 << 30:
        refuses(2, "takes 4 buffers of that size on each of 8 ranks, 256 GiB on this host, where", 8, f"--out {out} --largest 8589934592")
    expect(not out.exists(), "a file is left")


def outside_failures(folder):
    done = run(2, f"--out /dev/full {SHORT}")
    sentences = [line for line in done.stderr.splitlines() if not re.search(r"\(\d+ of \d+\)", line)]  # on a slow machine it says how far it is
    expect(done.returncode == 3 and sentences == ["pentad_tune: cannot write /dev/full: No space left on device"], done)
    with open("/dev/full", "w") as full:  # mpiexec would not pass it on
        done = subprocess.run([PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    expect(done.returncode == 3 and done.stderr == "pentad_tune: cannot write to standard output: No space left on device\n", done)
    refuses(3, "not enough memory for 4 buffers of --largest 1073741824", 2, f"--out {folder}/x --largest 1073741824", limit=3 << 30)


def interrupted(folder):
    (folder / "empty").mkdir()
    with subprocess.Popen([MPIEXEC, "-n", "2", PROGRAM, "--out", f"{folder}/empty/out", "--repeats", "1000"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as job:
        line = job.stderr.readline()
        expect(re.fullmatch(r"pentad_tune: 2 ranks, \w+ of \S+ \S+ \(\d+ of \d+\), about \S+.* left\n", line), f"not its progress: {line}")
        job.send_signal(signal.SIGINT)
        start = time.monotonic()
        job.communicate(timeout=20)
    expect(time.monotonic() - start < 15 and job.returncode != 0, f"{job.returncode} after {time.monotonic() - start} s")
    expect(not list((folder / "empty").iterdir()), list((folder / "empty").iterdir()))


with tempfile.TemporaryDirectory() as name:
    for check in (measures, bad_input, outside_failures, interrupted):
        check(pathlib.Path(name))
        print(f"{check.__name__}: ok", flush=True)

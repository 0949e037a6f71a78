#!/usr/bin/env python3
"""Ctrl-C ends `./dev run` at any moment: interrupt.py DEV. The tools that it starts are stand-ins, of which ninja survives the interrupt, as
a process does that has not yet begun to listen for it."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def interrupted_in(checkout, tool):
    """The exit status when Ctrl-C comes while `tool` runs."""
    environment = {**os.environ, "PATH": f"{checkout}/tools:{os.environ['PATH']}", "PENTAD_TOOLCHAIN": "system", "REACHED": tool}
    reached = checkout / "reached"
    reached.unlink(missing_ok=True)
    with subprocess.Popen([checkout / "dev", "run", "-n", "2", "program"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as dev:
        begin = time.monotonic()
        while not reached.exists() and time.monotonic() - begin < 20:
            time.sleep(0.01)
        os.killpg(dev.pid, signal.SIGINT)
        try:
            return dev.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(dev.pid, signal.SIGKILL)
            return None


with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    for folder in ("examples/program", "build/default", "tools"):
        (root / folder).mkdir(parents=True)
    shutil.copy(sys.argv[1], root / "dev")
    stand_in = '[ "$REACHED" != {0} ] || {{ touch ' + f"{root}/reached" + '; {1}; }}'
    for tool, text in (("cmake", "trap '' INT; " + stand_in.format("cmake", "sleep 0.3")),
                       ("ninja", "trap '' INT; " + stand_in.format("ninja", "sleep 0.3")),
                       ("mpiexec", stand_in.format("mpiexec", "exec sleep 60"))):
        (root / "tools" / tool).write_text(f"#!/bin/sh\n{text}\n")
        (root / "tools" / tool).chmod(0o755)
    for tool in ("cmake", "ninja", "mpiexec"):
        status = interrupted_in(root, tool)
        if status not in (130, -signal.SIGINT):
            raise SystemExit(f"an interrupt during {tool}: " + ("it went on" if status is None else f"status {status}"))

#!/usr/bin/env python3
"""A rank stays away from a collective of a checked build: stays_away.py TEST_COMM_CHECKED MPIEXEC. The others say who it is
and what it called last, on one rank, and the job ends."""
import os
import pathlib
import re
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "reference"))
import launch

PROGRAM, MPIEXEC = sys.argv[1:]
CASE = [PROGRAM, "--no-skip", "--test-case=a rank stays away"]

for settings, last in [
        ({}, r"broadcast of 256 x f32 with root 0 over dp, \d\.\d s ago"),
        ({"PENTAD_TEST_RECEIVES": "1"}, r"receive of 1024 bytes over dp, \d\.\d s ago"),
        ({"PENTAD_RANKS_PER_NODE": "1"}, r"broadcast of 256 x f32 with root 0 over dp, \d\.\d s ago")]:
    begin = time.monotonic()
    environment = {**os.environ, "PENTAD_TIMEOUT": "1", **settings}
    status, output, errors = launch.run([MPIEXEC, "-n", "3", *CASE], timeout=60, environment=environment)
    seconds = time.monotonic() - begin
    said = "".join(line + "\n" for line in errors.splitlines() if line.startswith("pentad: "))
    want = ("pentad: start_all_reduce of 256 x f32 over dp: rank 1 of 3 has not come within 1 s \\(PENTAD_TIMEOUT\\); the job ends\n"
            f"pentad: rank 1 last called broadcast of 256 x f32 with root 0 over dp, and of all {last}\n")
    if status == 0 or not re.fullmatch(want, said) or seconds > 30:
        raise SystemExit(f"{settings}: exit status {status} after {seconds:.1f} s, and not /{want}/:\n{errors}")
    print(f"{settings}: ended after {seconds:.1f} s")

#!/usr/bin/env python3
"""The programs on fields: fields.py fft|stencil|conjugate_gradient PROGRAM MPIEXEC. On 1, 2, 4 and 6 ranks, extents that ranks do not divide and
fewer cells than ranks among them, each finds its own numbers right; what does not fit is refused in one sentence from one rank."""
import re
import shlex
import subprocess
import sys

from common import expect

NAME, PROGRAM, MPIEXEC = sys.argv[1:]

# Flags, and what is printed. Programs end with 0 only where their own checks hold.
FFT = [(f"--size {size} --decomposition {decomposition} --field {field} --repeats 1", r"sent +(\d+) bytes by all ranks in both, planned \1\nerror")
       for size, decomposition, field in [("30x31x17", "slabs", "real"), ("30x31x17", "pencils", "complex"), ("6x5x8", "pencils", "real"),
                                          ("2x1x3", "slabs", "complex")]] + [("--size 16x256x257 --field real --repeats 1", "of a plane wave")]
SAME = r"check +the bits of one rank\nsteps.* of it is hidden\n"
STENCIL = [(f"--size {flags} --steps 10 --check", SAME) for flags in [
    "31x17 --equation wave", "31x17 --width 2 --ends periodic --overlap off", "13x12x11 --ends periodic --width 2 --equation wave",
    "13x12x11 --overlap off", "3x2 --ends periodic", "1x1x1 --width 2"]]
SOLVED = r"sent +(\d+) bytes, planned \1\none rank +(\d+) iterations"
CONJUGATE_GRADIENT = [(f"--size {flags} --check", SOLVED) for flags in ["30x31x17 --tolerance 1e-6", "9x8x7 --degree 0", "6x6x6 --degree 3", "2x1x1"]]

RANGE = "whole numbers from 1 to 1048576 with x between them"
# On 4 ranks: the status, flags, and a part of the sentence.
WRONG = [(2, "--bogus", "--bogus"), (2, "--size 12x0x12", f"12x0x12 is not"), (2, "--size 8x8xx8", RANGE), (2, "--size 1,2", RANGE), (2, "--size 08x8x8", RANGE),
         (2, "--size 1048576x1048576x1048576", "are free: give a smaller one"), (2, "--mesh", "--mesh")]
WRONG += {
    "fft": [(2, "--size 8x8", "is not 3 whole numbers"), (2, "--mesh 3x1", "has to be 2 numbers whose product is 4, the number of ranks"),
            (2, "--decomposition slabs --mesh 2x2", "slabs lie along one axis: --mesh 4x1"), (2, "--decomposition slab", "slab not in {slabs,pencils}"),
            (2, "--field f32", "f32 not in"), (2, "--repeats 0", "0 is not a whole number from 1")],
    "stencil": [(2, "--size 8", "is not 2 or 3 whole numbers"), (2, "--size 8x8 --mesh 2x2x1", "has to be 2 numbers whose product is 4"), (2, "--width 3", "3 is not a whole"),
                (2, "--ends closed", "closed not in"), (2, "--steps 1e3", "1e3 is not a whole number"), (2, "--overlap maybe", "maybe not in"),
                (2, "--size 1x31 --ends periodic --width 2", "y = 1 is periodic, and has fewer elements than its halo of 2")],
    "conjugate_gradient": [(2, "--size 8x8", "is not 3 whole numbers"), (2, "--mesh 2x2x2", "has to be 3 numbers whose product is 4"), (2, "--degree -1", "-1 is not a whole"),
                           (2, "--tolerance 0", "0 not in range"), (3, "--size 12x12x12 --most 2", "--most 2 iterations are not enough")],
}[NAME]


def run(ranks, line):
    return subprocess.run([MPIEXEC, "-n", str(ranks), PROGRAM, *shlex.split(line)], capture_output=True, text=True, timeout=100)


for ranks in (1, 2, 4, 6):
    for line, printed in {"fft": FFT, "stencil": STENCIL, "conjugate_gradient": CONJUGATE_GRADIENT}[NAME]:
        done = run(ranks, line)
        expect(done.returncode == 0 and not done.stderr and re.search(printed, done.stdout), f"{ranks} ranks, {line}: {done}")
    print(f"{ranks} ranks: ok", flush=True)
for status, line, message in WRONG:
    done = run(4, line)
    expect(done.returncode == status and re.fullmatch(rf"{NAME}: [^\n]+\n", done.stderr) and message in done.stderr, f"{line}: {done}")
done = run(2, "--help")
expect(done.returncode == 0 and done.stdout.count("--size") == 1, done)

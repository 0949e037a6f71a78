#!/usr/bin/env python3
"""No unit of train_lm but the trainers defines a kernel.

    optimised_kernels.py OBJECTS...

Where units that are compiled with different flags define a kernel, the linker takes any one of them: a kernel of a unit with
little optimisation would be used by the whole program.
"""

import pathlib
import re
import subprocess
import sys

KERNELS = re.compile(r"^[0-9a-f]* [a-zA-Z] .*\b(pentad::kernels::\w+(?:::\w+)*|pentad::comm::node::detail::reduce\w*)")


def kernels_of(unit):
    symbols = subprocess.run(["nm", "--demangle", "--defined-only", unit], check=True, capture_output=True, text=True).stdout
    return sorted({found[1] for found in map(KERNELS.match, symbols.splitlines()) if found})


trainers = wrong = 0
for unit in map(pathlib.Path, sys.argv[1:]):
    found = kernels_of(unit)
    if unit.name.startswith("make_"):
        trainers += bool(found)
    elif found:
        wrong += 1
        print(f"{unit.name} defines {', '.join(found)}")
if not trainers:
    print("no unit make_* defines a kernel: is nm's output read wrongly?")
sys.exit(1 if wrong or not trainers else 0)

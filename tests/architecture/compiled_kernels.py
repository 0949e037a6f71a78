"""Kernels are compiled with all optimisations, once. compiled_kernels.py KERNELS... -- OTHERS...

The objects of pentad::compiled_kernels and pentad::compiled_tensor come first. No object of the others, which are compiled with
less, has a kernel of its own: where two objects define one, the linker takes any of them for the whole program."""
import pathlib
import re
import subprocess
import sys

FUNCTOR = re.compile(r"Kokkos::Impl::TypeInfo<(.*)>::value_$") # which Kokkos keeps for each functor that it runs


def kernels_of(unit):
    symbols = subprocess.run(["nm", "--demangle", "--defined-only", unit], check=True, capture_output=True, text=True).stdout
    return sorted({found[1] for found in map(FUNCTOR.search, symbols.splitlines()) if found})


at = sys.argv.index("--")
kernels, others = ([pathlib.Path(name) for name in names if name.endswith(".o")] for names in (sys.argv[1:at], sys.argv[at + 1 :]))
wrong = 0
for unit in others:
    for kernel in kernels_of(unit):
        wrong += 1
        print(f"{unit.name} has {kernel[:300]}")
seen = sum(len(kernels_of(unit)) for unit in kernels)
if seen < 100 or len(others) < 10:
    sys.exit(f"{seen} kernels in {len(kernels)} objects, {len(others)} others: this test no longer sees them")
sys.exit(1 if wrong else 0)

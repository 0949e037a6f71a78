"""The libraries of products that are compared: which kernels each of them runs here, and how fast these are.

    library_kernels.py FOLDER [torch]    a line for Pentad, whose programs are in FOLDER, and for peers
    library_kernels.py --variables       the variables that are taken out of the environment

Some machines choose a library's kernels by variables, for the sake of other programs. Where one party's products go through that library
and the other's do not, this slows down one of the two. So importing this module takes such variables out of the environment, of this process
and of all that it starts. Each program of bench/ imports it before it loads such a library, and says at the head of what it prints what all
parties run.
"""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import time

VARIABLES = (
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_BLOCK_FACTOR", "GOTO_BLOCK_FACTOR",
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS", "DNNL_CPU_ISA_HINTS", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
    "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "ATEN_CPU_CAPABILITY",
)
for variable in VARIABLES:
    os.environ.pop(variable, None)

ELEMENTS = ("f64", "f32", "bf16")
SIZE = 1024


def pentad(folder):
    """What bench_product_speed in this folder prints."""
    program = pathlib.Path(folder) / "bench_product_speed"
    if not program.exists():
        sys.exit(f"bench: there is no {program}: ./dev build benchmarks makes it")
    done = subprocess.run([program], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def blas_of_this_process():
    """The loaded BLAS libraries: OpenBLAS with its kernels, others by their files."""
    found = set()
    files = {line.split(None, 5)[5].strip() for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if len(line.split(None, 5)) == 6}
    for file in files:
        if not re.search(r"/lib\w*(blas|mkl|blis)[^/]*\.so", file):
            continue
        library = ctypes.CDLL(file)
        if hasattr(library, "openblas_get_corename"):
            for function in (library.openblas_get_config, library.openblas_get_corename):
                function.restype = ctypes.c_char_p
            version = " ".join(library.openblas_get_config().decode().split()[:2])
            found.add(f"{version} ({library.openblas_get_corename().decode()})")
        else:
            found.add(pathlib.Path(file).name)
    return sorted(found)


def torch():
    """The same of PyTorch, in this process."""
    import torch
    torch.set_num_threads(1)
    speeds = {}
    for element, kind in zip(ELEMENTS, (torch.float64, torch.float32, torch.bfloat16)):
        a, b = (torch.rand(SIZE, SIZE).to(kind) for _ in range(2))
        fastest, end = float("inf"), time.perf_counter() + 0.3
        while time.perf_counter() < end:  # the first one warms up
            start = time.perf_counter()
            torch.matmul(a, b)
            fastest = min(fastest, time.perf_counter() - start)
        speeds[element] = 2 * SIZE**3 / fastest / 1e9
    built = torch.__config__.show()
    others = [name + re.search(version, built)[1] for name, version in (("MKL ", r"Math Kernel Library Version (\S+)"), ("oneDNN ", r"MKL-DNN v(\S+)"))
              if re.search(version, built)]
    return {"name": f"PyTorch {torch.__version__}", "libraries": ", ".join([*blas_of_this_process(), *others, torch.backends.cpu.get_cpu_capability()]), **speeds}


PEERS = {"torch": torch}


def say(folder, *peers):
    """Prints what Pentad and these peers run, and the speed of a plain product. A peer is measured in this process, which loads it."""
    parties = [{"name": "Pentad", **pentad(folder)}, *(PEERS[peer]() for peer in peers)]
    print(f"GFLOP/s of products of {SIZE} x {SIZE} matrices on one thread:")
    for party in parties:
        print(f"  {party['name']:24}" + "".join(f"{element} {party[element]:6.1f}   " for element in ELEMENTS) + party["libraries"])
    sys.stdout.flush()


if __name__ == "__main__":
    print("\n".join(VARIABLES)) if sys.argv[1:] == ["--variables"] else say(*sys.argv[1:])

"""Starting a PyTorch program on several ranks of one thread, over gloo."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import library_kernels  # takes what chooses kernels out of os.environ


def run(name, ranks, arguments):
    """The JSON lines that rank 0 of bench/NAME printed. Ends the program when a rank fails."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "USE_LIBUV": "0", "GLOO_SOCKET_IFNAME": "lo",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    script = pathlib.Path(__file__).with_name(name)
    processes = [subprocess.Popen([sys.executable, script, *map(str, arguments)], env={**environment, "RANK": str(rank)},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
    printed = [process.communicate() for process in processes]  # gloo's remarks among it
    if any(process.returncode != 0 for process in processes):
        sys.exit(f"{name}: PyTorch failed:\n" + "".join(errors for _, errors in printed))
    return [json.loads(line) for line in printed[0][0].splitlines() if line.startswith("{")]

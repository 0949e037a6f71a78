#!/usr/bin/env python3
"""What comes from outside, all of it: `./dev test oracle`, or

    oracle.py --train-lm TRAIN_LM --mpiexec MPIEXEC

PyTorch computes the tensors of golden/ again (golden.py, with deepseek.py); the losses of checkpoints that train_lm has dumped, in plain PyTorch and by
Hugging Face's transformers (llama_mixtral.py), are its own; each family of published models trains as in transformers (families.py). Takes torch, safetensors
and transformers.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import drawn_weights

HERE = pathlib.Path(__file__).parent


def run(*command):
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True, env=os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1"})


def golden(_):
    run(sys.executable, HERE / "golden.py", "--check")


def checkpoints(arguments):
    """Of dense models and of experts, after a few steps: the log of train_lm ends with the loss of what it has dumped."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text").write_bytes(bytes(drawn_weights.tokens("text", 9000, 256)))
        where = ["--data", folder / "text", "--seq", 64, "--batch", 8]
        for experts in (0, 4):
            dump = folder / f"dump{experts}"
            dump.mkdir()
            run(arguments.mpiexec, "-n", 2, arguments.train_lm, *where, "--experts", experts, "--steps", 20, "--dump-weights", dump, "--log", dump / "log", "--quiet")
            for more in ([], ["--transformers"]):
                run(sys.executable, HERE / "llama_mixtral.py", dump, *where, "--step", 20, "--log", dump / "log", *more)


def families(arguments):
    run(sys.executable, HERE / "families.py", "--train-lm", arguments.train_lm, "--mpiexec", arguments.mpiexec)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-lm", required=True)
    parser.add_argument("--mpiexec", required=True)
    arguments = parser.parse_args()
    wrong = []
    parts = (golden, checkpoints, families)
    for part in parts:
        print(f"== {part.__name__}", flush=True)
        try:
            part(arguments)
        except subprocess.CalledProcessError:
            wrong.append(part.__name__)
    print(f"{len(parts) - len(wrong)} of {len(parts)} oracles agree{': not ' if wrong else ''}{', '.join(wrong)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Each family of published models trains as in Hugging Face's transformers: train_lm_families.py TRAIN_LM MPIEXEC. The losses that transformers computes are
in tests/reference/golden/families.json, with the config.json that it wrote and the names and shapes of its tensors; weights and tokens are drawn again.
tests/reference/families.py makes and checks that file."""
import json
import pathlib
import subprocess
import sys
import tempfile

from common import expect

REFERENCE = pathlib.Path(__file__).parent.parent / "reference"
sys.path.insert(0, str(REFERENCE))
import drawn_weights

TRAIN_LM, MPIEXEC = sys.argv[1:]
TOKENS = 4000


def losses(name, family, folder):
    drawn_weights.write(folder, family["config"], family["tensors"])
    drawn_weights.write_tokens(folder / "tokens", drawn_weights.tokens(name, TOKENS, family["config"]["vocab_size"]))
    log = folder / "log"
    command = [MPIEXEC, "-n", "1", TRAIN_LM, "--model", folder, "--weights", folder, "--tokens", folder / "tokens", "--dtype", "f64", "--log", log, *family["flags"]]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0 and not done.stderr, f"{name}: {done}")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["loss"] for line in lines if "step" in line] + [line["final_loss"] for line in lines if "final_loss" in line]


for name, family in json.loads((REFERENCE / "golden" / "families.json").read_text()).items():
    with tempfile.TemporaryDirectory() as folder:
        found = losses(name, family, pathlib.Path(folder))
    expect(len(found) == len(family["losses"]), f"{name}: {len(found)} losses, and not {len(family['losses'])}")
    worst = max(abs(a - b) for a, b in zip(found, family["losses"]))
    expect(worst < 1e-12, f"{name}: the losses are {found}, and transformers' {family['losses']}")
    print(f"{name}: within {worst:.1e} of transformers' losses", flush=True)

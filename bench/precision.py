"""What fewer bits cost and save: trains a model in bf16 with each precision of gradients that travel and of optimizer state.

    precision.py --train-lm BINARY --data FILE [--seeds N] [--steps N] [--ranks N]

The loss is that on held-out text after the last step, the mean over seeds of parameters and data, with how far each
precision is from full precision with the same seed (mean and largest). The step time is a median over steps and seeds
beside that of full precision.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

import library_kernels

SHAPE = {"layers": 4, "hidden": 128, "heads": 4, "kv-heads": 2, "ffn": 384, "seq": 128, "batch": 16, "lr": 2e-3}
FORMS = {
    "full precision, f32 masters": [],
    "gradients travel in bf16": ["--reduce-dtype", "bf16"],
    "gradients travel in fp8": ["--reduce-dtype", "fp8"],
    "moments in bf16": ["--moment-dtype", "bf16"],
    "moments in fp8": ["--moment-dtype", "fp8"],
    "no masters": ["--master-weights", "off"],
    "no masters, moments and gradients in fp8": ["--master-weights", "off", "--moment-dtype", "fp8", "--reduce-dtype", "fp8"],
}
SENT = re.compile(r"^dp +\d+ +\S+ \S+ +([\d.]+ \w+)", re.M)
WARM_UP = 5


class Run:
    def __init__(self, o, texts, seed, flags):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            shape = [x for name, value in {**SHAPE, "steps": o.steps, "seed": seed}.items() for x in (f"--{name}", str(value))]
            done = subprocess.run(["mpiexec", "-n", str(o.ranks), o.train_lm, "--dtype", "bf16", "--zero", "1", "--data", texts[0], "--validation", texts[1],
                                   "--validation-batches", "16", "--log", log, *shape, *flags], check=True, capture_output=True, text=True)
            lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.loss = next(line["validation_loss"] for line in reversed(lines) if "validation_loss" in line)
        self.seconds = statistics.median(1 / line["tokens_per_s"] for line in lines[WARM_UP:] if "tokens_per_s" in line)
        self.sent = SENT.search(done.stdout)[1] if o.ranks > 1 else "0 B"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=2)
    o = parser.parse_args()
    library_kernels.say(pathlib.Path(o.train_lm).parent)
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(o.data).read_bytes()
        texts = [pathlib.Path(folder) / name for name in ("train", "validation")]
        cut = len(text) * 9 // 10
        texts[0].write_bytes(text[:cut])
        texts[1].write_bytes(text[cut:])
        runs = {name: [] for name in FORMS}
        for seed in range(1, o.seeds + 1):
            for name, flags in FORMS.items():
                runs[name].append(Run(o, texts, seed, flags))
    full = runs[next(iter(FORMS))]
    print(f"{o.ranks} ranks, ZeRO 1, {o.steps} steps, {o.seeds} seeds; sent in a step over dp by all ranks")
    print(f"{'':42} loss    from full: mean, most   step time  sent")
    for name, found in runs.items():
        apart = [one.loss - other.loss for one, other in zip(found, full)]
        ratio = statistics.median(one.seconds / other.seconds for one, other in zip(found, full))
        print(f"{name:42} {statistics.mean(one.loss for one in found):.4f}  {statistics.mean(apart):+.4f}, {max(apart, key=abs):+.4f}       {ratio:.2f}       "
              f"{found[0].sent}", flush=True)


main()

"""What recomputation costs: trains the model of training.py with none, full and automatic recomputation, in turn.

    recomputation.py --train-lm BINARY --pentad-plan BINARY --data FILE [--rounds N] [--steps N] [--parts X,X,...]

Automatic recomputation gets the memory of parameters, gradients and optimizer state, as planned, and a part X (0.5, 0.6 and 0.7 in turn) of what
activations and workspace take without recomputation. Each round is a run of each; the figures are medians over the steps after the first two, and over
the rounds.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

import library_kernels

SHAPE = {"layers": 4, "hidden": 512, "heads": 8, "ffn": 1408, "vocab": 4096, "seq": 512}
RANKS, SEQUENCES = 2, 4
WARM_UP = 2
BESIDE = 64 * 2**20  # what train_lm takes beside its tensors, as it plans


def planned(o):
    """The planned bytes of a rank without recomputation, by kind."""
    with tempfile.TemporaryDirectory() as folder:
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": SHAPE["layers"], "hidden_size": SHAPE["hidden"],
                  "num_attention_heads": SHAPE["heads"], "num_key_value_heads": SHAPE["heads"], "intermediate_size": SHAPE["ffn"],
                  "vocab_size": SHAPE["vocab"], "max_position_embeddings": SHAPE["seq"], "rms_norm_eps": 1e-5, "hidden_act": "silu",
                  "tie_word_embeddings": False}
        path = pathlib.Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        text = subprocess.run([o.pentad_plan, "--model-json", path, "--hardware", "h100", "--evaluate", f"dp={RANKS}", "--dtype", "f32",
                               "--seq", str(SHAPE["seq"]), "--global-batch", str(RANKS * SEQUENCES), "--micro-batch", str(SEQUENCES), "--json"],
                              check=True, capture_output=True, text=True).stdout
    return json.loads(text)["memory_bytes"]


class Run:
    def __init__(self, o, *flags):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            shape = [x for name, value in {**SHAPE, "batch": RANKS * SEQUENCES, "steps": o.steps}.items() for x in (f"--{name}", str(value))]
            done = subprocess.run(["mpiexec", "-n", str(RANKS), o.train_lm, "--mesh", f"dp={RANKS}", "--dtype", "f32", "--data", o.data, "--log", log,
                                   *shape, *flags], check=True, capture_output=True, text=True)
            lines = [json.loads(line) for line in log.read_text().splitlines()]
        tokens = RANKS * SEQUENCES * SHAPE["seq"]
        self.seconds = statistics.median(tokens / line["tokens_per_s"] for line in lines[WARM_UP:-1])
        self.peak = re.search(r"peak memory of a rank ([\d.]+ \w+)", done.stdout)[1]
        self.loss = lines[-1]["final_loss"]
        said = re.search(r"--recompute auto, for .*", done.stdout)
        self.said = said[0] if said else ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-lm", required=True)
    parser.add_argument("--pentad-plan", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--parts", default="0.5,0.6,0.7")
    o = parser.parse_args()
    library_kernels.say(pathlib.Path(o.train_lm).parent)
    memory = planned(o)
    kept = memory["activations"] + memory["workspace"]
    rest = memory["weights"] + memory["gradients"] + memory["optimizer state"]
    limits = {part: str(round(BESIDE + rest + float(part) * kept)) for part in o.parts.split(",")}
    print(f"planned for a rank: parameters, gradients and optimizer state {rest / 2**20:.0f} MiB, activations and workspace {kept / 2**20:.0f} MiB; limits of auto " +
          ", ".join(f"{int(limit) / 2**20:.0f} MiB ({part})" for part, limit in limits.items()) + f" with {BESIDE >> 20} MiB beside them")
    rounds, runs = [], {}
    for number in range(o.rounds):
        runs = {"none": Run(o), "full": Run(o, "--recompute", "full")}
        runs |= {f"auto {part}": Run(o, "--recompute", "auto", "--memory-limit", limit) for part, limit in limits.items()}
        if len({run.loss for run in runs.values()}) > 1:
            raise SystemExit(f"the losses differ: {[run.loss for run in runs.values()]}")
        rounds.append({name: run.seconds for name, run in runs.items()})
        print(f"  round {number + 1}: " + ", ".join(f"{name} {1e3 * run.seconds:.0f} ms (peak {run.peak})" for name, run in runs.items()), flush=True)
    none = statistics.median(one["none"] for one in rounds)
    added = {name: statistics.median(one[name] - one["none"] for one in rounds) for name in runs if name != "none"}
    print(f"medians of {o.rounds} rounds: a step takes {1e3 * none:.0f} ms, full recomputation adds {100 * added['full'] / none:.1f} %")
    for part in limits:
        name = f"auto {part}"
        ratio = statistics.median((one[name] - one["none"]) / (one["full"] - one["none"]) for one in rounds)
        print(f"  auto with {part} of the memory adds {100 * added[name] / none:.1f} %: {added[name] / added['full']:.3f} of it (median of the ratios {ratio:.3f}); "
              f"{runs[name].said.partition(': ')[2]}")


main()

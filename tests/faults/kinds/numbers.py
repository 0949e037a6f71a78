"""Numbers at which training cannot go well: a step that is not finite is not applied, never dumped, and three in a row end the run."""
import json
import math
import struct

import programs
from trial import ACCEPTED, FAILS, HALF, PASSES, REFUSED

FORMATS = {"F32": "f", "F64": "d"}


def trial(t):
    rng = t.random
    settings = dict(programs.SMALL) | {"--steps": str(rng.choice((2, 4, 8, 12)))}
    ranks = rng.choice((1, 1, 1, 2, 4))
    if ranks > 1:
        settings["--mesh"] = rng.choice((f"dp={ranks}", "tp=2" if ranks == 2 else "pp=2,dp=2", "pp=2" if ranks == 2 else "dp=2,cp=2"))
        settings["--micro-batches"] = "2"
    extreme = {"--lr": ("1e6", "1e5", "1e3", "100", "1e-300"), "--clip": ("0", "1e6", "1e-30"), "--warmup": ("0", "1000000"), "--weight-decay": ("1e6", "0", "1e3"),
               "--seed": ("0", "9223372036854775806"), "--dtype": ("f32", "bf16", "f64"), "--zero": ("0", "1"), "--schedule": ("1f1b", "gpipe", "zb-h1")}
    if t.chance(0.3):
        settings |= {"--experts": "2", "--aux-coef": rng.choice(("1e6", "0", "1e3")), "--z-coef": rng.choice(("1e6", "0", "1e3"))}
    for flag in rng.sample(list(extreme), rng.randint(1, 5)):
        settings[flag] = rng.choice(extreme[flag])
    if t.chance(0.5):
        settings |= {"--lr": rng.choice(("1e6", "1e5")), "--clip": "0", "--warmup": "0"}
    t.label = f"train_lm {settings.get('--dtype', 'f32')}: extreme numbers"
    if t.chance(0.1):
        settings |= {"--ignore-token": "32", "--data": "spaces"}
        (t.folder / "spaces").write_bytes(b" " * 1000)
        t.label = "train_lm: no target carries a loss"
    dump = t.folder / "dump"
    dump.mkdir()
    old = b"old"
    (dump / "model.safetensors").write_bytes(old)
    settings |= {"--dump-weights": "dump", "--log": "log"}
    ended = t.run("train_lm", programs.as_arguments(settings.items()), ranks)
    outcome = t.judge(ended, "train_lm", {PASSES, FAILS, REFUSED}, warns=True, spoken=False)
    lines = [line for line in ended.errors.splitlines() if line.startswith("train_lm: ")]
    if outcome == FAILS and not (lines and "finite" in lines[-1]):
        t.fault("not one sentence", f"status 3, and the last sentence does not say what is not finite:\n{ended.errors[-500:]}")
    if outcome != PASSES:
        if (dump / "model.safetensors").read_bytes() != old:
            t.fault(HALF, "the run failed, and the old weights are gone")
        return
    weights = (dump / "model.safetensors").read_bytes()
    bad = not_finite(weights)
    if bad:
        t.fault(ACCEPTED, f"weights that are not finite are dumped with status 0: {bad}")
    for line in (t.folder / "log").read_text().splitlines():
        step = json.loads(line)
        if step.get("event"):
            if step.get("final_loss") is None:
                t.fault(ACCEPTED, f"the final loss is not finite, and the status is 0: {line}")
            continue
        said = any(f"step {step['step']}" in sentence for sentence in lines)
        if (step["loss"] is None or step["grad_norm"] is None) and not said and "grad_norm" in step:
            asynchronous = "--schedule" in settings and settings["--schedule"] == "pipedream"
            if not asynchronous:
                t.fault(ACCEPTED, f"a step that is not finite, without a word: {line}")
                break
        hidden = step["loss"] is not None and step["grad_norm"] == 0 and abs(step["loss"] - math.log(256)) < 1e-6
        if hidden:
            t.fault(ACCEPTED, f"an overflow hides as a loss of ln 256 and a norm of 0: {line}")
            break


def not_finite(content):
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind = FORMATS[entry["dtype"]]
        width = struct.calcsize(kind)
        values = struct.unpack(f"<{(end - begin) // width}{kind}", content[8 + size + begin:8 + size + end])
        if not all(map(math.isfinite, values)):
            return f"{name}"
    return ""

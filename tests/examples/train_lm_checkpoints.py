#!/usr/bin/env python3
"""train_lm_checkpoints.py TRAIN_LM PENTAD_CHECKPOINT MPIEXEC [--kills N] [--flips N] [--interrupted STEPS]: runs that are saved, stopped,
killed and continued; checkpoints that are damaged; disks that are full. The numbers are those of CI; longer runs: 100 kills, 200 flips,
300 steps."""
import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time

from common import expect

parser = argparse.ArgumentParser()
parser.add_argument("train_lm")
parser.add_argument("pentad_checkpoint")
parser.add_argument("mpiexec")
parser.add_argument("--kills", type=int, default=6)
parser.add_argument("--flips", type=int, default=12)
parser.add_argument("--interrupted", type=int, default=60, help="steps of the run that is killed five times")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--only", help="one part")
options = parser.parse_args()
SMALL = {"--layers": 2, "--hidden": 32, "--heads": 4, "--ffn": 48, "--seq": 16, "--batch": 8, "--warmup": 4}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(ranks, *flags):
    """Flags that are given replace those of the small model."""
    sizes = [word for name, size in SMALL.items() if name not in flags for word in (name, str(size))]
    return [options.mpiexec, "-n", str(ranks), options.train_lm, *sizes, *map(str, flags)]


def run(ranks, *flags, status=0):
    done = subprocess.run(command(ranks, *flags), capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    expect(done.returncode == status, f"status {done.returncode}, not {status}: {done}")
    return done


def tool(*words, status=0):
    done = subprocess.run([options.pentad_checkpoint, *map(str, words)], capture_output=True, text=True, timeout=100)
    expect(done.returncode == status, f"status {done.returncode}, not {status}: {done}")
    return done


def log_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps_of(path):
    return {line["step"]: line for line in log_of(path) if "loss" in line}


def final_loss(path):
    return log_of(path)[-1]["final_loss"]


def tensors_of(folder):
    data = (folder / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    return {name: data[start + tensor["data_offsets"][0]:start + tensor["data_offsets"][1]] for name, tensor in header.items() if name != "__metadata__"}


def saved(folder):
    return sorted(int(path.name[5:]) for path in folder.iterdir() if path.name.startswith("step-") and path.name[5:].isdigit())


def ranks_of(process):
    """The processes of the ranks: children of the launcher's proxy."""
    def children(pid):
        try:
            return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []
    return [rank for proxy in children(process.pid) for rank in children(proxy)]


# Biases of experts are in checkpoints, too.
BALANCED = ["--experts", "4", "--router", "sigmoid", "--balance", "bias", "--bias-rate", "0.01"]


def continued(folder):
    """A run that is stopped and goes on, with the same numbers as one that is not, and what is said of it."""
    f64 = ["--dtype", "f64", "--experts", "4"]
    run(1, *f64, "--steps", 20, "--log", folder / "whole", "--quiet")
    def save(every, keep):
        return ["--save", folder / "saved", "--save-every", every, "--keep", keep, "--log", folder / "log"]
    run(4, *f64, "--steps", 10, "--mesh", "dp=2,tp=2", "--zero", 1, *save(3, 2), "--quiet")
    expect(saved(folder / "saved") == [9, 10], saved(folder / "saved"))
    done = run(2, *f64, "--steps", 20, "--mesh", "pp=2", "--resume", "auto", *save(3, 2))
    expect(f"goes on from {folder}/saved/step-00000010, after step 10\n" in done.stdout, done.stdout)
    expect("with other settings than before: --steps 20 (was 10)\n" in done.stdout, done.stdout)
    expect(saved(folder / "saved") == [18, 20], saved(folder / "saved"))
    # Learning rates until step 10 are those of a run of 10 steps, so the whole run is not the same; its first half is continued below.
    shutil.rmtree(folder / "saved")
    run(4, *f64, "--steps", 20, "--mesh", "dp=2,cp=2", "--zero", 1, *save(7, 9), "--quiet")
    expect(saved(folder / "saved") == [7, 14, 20], saved(folder / "saved"))
    shutil.rmtree(folder / "saved/step-00000020")
    (folder / "log").write_text((folder / "log").read_text() + '{"step":99,"loss":1')  # the line of a run that was killed
    run(2, *f64, "--steps", 20, "--mesh", "ep=2", "--resume", "auto", *save(3, 9), "--quiet")
    whole, resumed = steps_of(folder / "whole"), steps_of(folder / "log")
    expect(sorted(resumed) == list(range(1, 21)), sorted(resumed))
    for step, line in whole.items():
        for key in ("loss", "grad_norm", "lr"):
            expect(abs(line[key] - resumed[step][key]) < 1e-10, f"step {step}: {line}, {resumed[step]}")
    expect(abs(final_loss(folder / "whole") - final_loss(folder / "log")) < 1e-10, "final losses differ")
    # A run that has come to its end ends again with the same numbers.
    run(1, *f64, "--steps", 20, "--resume", folder / "saved", "--log", folder / "again", "--quiet")
    expect(abs(final_loss(folder / "again") - final_loss(folder / "whole")) < 1e-10, "final losses differ")

    refused = run(1, *f64, "--steps", 20, "--save", folder / "saved", status=2).stderr
    expect("has the checkpoint of step 20: go on from it with --resume auto, or save to another folder" in refused, refused)
    refused = run(2, *f64, "--steps", 20, "--resume", folder / "saved/step-00000014", "--save", folder / "saved", status=2).stderr
    expect("has the checkpoint of step" in refused and "after step 14 of --resume" in refused and refused.count("\n") == 1, refused)
    refused = run(2, *f64, "--steps", 12, "--resume", folder / "saved", status=2).stderr
    expect("is of step 20, and --steps 12 ends before it" in refused, refused)
    refused = run(2, *f64, "--hidden", 64, "--steps", 30, "--resume", folder / "saved", status=2).stderr
    expect("is of another model: its hidden_size is 32, and the run has 64" in refused and refused.count("\n") == 1, refused)
    for flags, sentence in [
        (["--save-every", "soon", "--save", folder / "other"], "--save-every soon is neither steps (100) nor a time (30s, 10min): try --save-every 10min"),
        (["--save-every", "5"], "--save-every 5 needs a folder: --save FOLDER"),
        (["--resume", "auto"], "--resume auto needs the folder of the checkpoints: --save FOLDER"),
        (["--resume", folder], f"--resume {folder}: there is no checkpoint in it"),
        (["--resume", folder, "--weights", folder], "--resume and --weights: a checkpoint has the weights"),
        (["--resume", folder / "none"], f"--resume: cannot read {folder}/none: No such file or directory"),
        (["--save", folder / "none/none"], "--save"),
    ]:
        said = run(1, *flags, status=2).stderr
        expect(said.startswith(f"train_lm: {sentence}") and said.count("\n") == 1, said)

    shown = tool("show", folder / "saved").stdout
    expect("step 20" in shown and "second_moment" in shown and "model.layers.1.block_sparse_moe.experts.3.w2.weight" in shown, shown)
    expect(len(tool("list", folder / "saved").stdout.splitlines()) == len(saved(folder / "saved")), "list")
    expect("is complete" in tool("verify", folder / "saved").stdout, "verify")
    tool("convert", folder / "saved", folder / "published") # which makes its folder
    tool("convert", folder / "published", folder / "back")
    again = tool("show", folder / "back").stdout
    expect("step 0" in again and "first_moment" not in again, again)
    run(2, *f64, "--steps", 1, "--resume", folder / "back", "--log", folder / "from-weights", "--quiet")
    tool("convert", folder / "back", folder / "published")
    refused = tool("convert", folder / "published", folder / "back", status=2).stderr
    expect("has the checkpoint of step 0 already" in refused, refused)
    refused = tool("convert", folder / "published", folder / "none/none", status=2).stderr
    expect("none/none: No such file or directory" in refused, refused)
    # A checkpoint that is not of the step that its folder is called by.
    (folder / "saved/step-00000020").rename(folder / "saved/step-00000003")
    for command, status in (("list", 0), ("verify", 3)):
        done = tool(command, folder / "saved/step-00000003" if command == "verify" else folder / "saved", status=status)
        expect("is of step 20, and its folder is called step-00000003" in done.stdout + done.stderr, done)


def described(folder):
    """A model that a file describes: its checkpoints go on however a file writes the model, and a job that begins with weights can be queued again."""
    small = {"--seq": 16, "--batch": 4, "--warmup": 2, "--dtype": "f64"}
    sizes = {"--layers": 1, "--hidden": 32, "--heads": 4, "--ffn": 48}

    def train(*flags, **sized):
        words = [str(word) for pair in (small | sized).items() for word in pair]
        done = subprocess.run([options.train_lm, *words, *map(str, flags)], capture_output=True, text=True, timeout=100, env=ENVIRONMENT)
        expect(done.returncode == 0, done)
        return done.stdout

    model = folder / "model"
    model.mkdir()
    train("--steps", 0, "--seed", 5, "--dump-weights", model, "--quiet", **sizes)
    config = json.loads((model / "config.json").read_text())
    written = {"bos_token_id": 1, "eos_token_id": [2, 3], "rope_theta": 10000, "attention_bias": False,
               "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}
    config |= written
    del config["head_dim"], config["tie_word_embeddings"]
    (model / "config.json").write_text(json.dumps(config))
    queued = ["--model", model, "--weights", model, "--save", folder / "saved", "--resume", "auto"]
    first = train(*queued, "--steps", 1, "--log", folder / "first")
    expect("goes on" not in first and "is not read" not in first, first)
    tool("convert", model, folder / "begun")
    train("--model", model, "--steps", 1, "--resume", folder / "begun", "--log", folder / "begun-log")
    expect(steps_of(folder / "first")[1]["loss"] == steps_of(folder / "begun-log")[1]["loss"], "the weights are not those of the model")
    (model / "model.safetensors").rename(model / "away")
    second = train(*queued, "--steps", 2, "--log", folder / "second")
    expect("after step 1\n" in second and f"--weights {model} is not read: the checkpoint has the weights\n" in second, second)
    # To transformers' form, where keys come in another order, and back.
    tool("convert", folder / "saved", folder / "published")
    tool("convert", folder / "published", folder / "back")
    train("--model", model, "--steps", 1, "--resume", folder / "back", "--quiet")
    # Nothing is trained: the same losses, and the weights.
    (folder / "dumped").mkdir()
    said = train("--model", model, "--steps", 0, "--resume", folder / "saved", "--log", folder / "evaluated", "--dump-weights", folder / "dumped")
    expect("after step 2" in said and final_loss(folder / "evaluated") == final_loss(folder / "second"), said)
    expect(tensors_of(folder / "dumped") == tensors_of(folder / "published"), "other weights")


def signals(folder):
    """SIGTERM and SIGUSR1, to the launcher or a rank, save and end the run with status 0."""
    for number, to_rank in ((signal.SIGTERM, False), (signal.SIGUSR1, True), (signal.SIGUSR1, False)):
        place = folder / f"{number.name}-{to_rank}"
        flags = ["--steps", 100000, "--mesh", "dp=2", "--save", place, "--log", folder / "log", "--resume", "auto", "--quiet"]
        process = subprocess.Popen(command(2, *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        wait_for(lambda: len(steps_of(folder / "log")) > 3 if (folder / "log").exists() else False, process)
        os.kill(ranks_of(process)[1] if to_rank else process.pid, number)
        out, errors = process.communicate(timeout=60)
        expect(process.returncode == 0, f"{number.name}: status {process.returncode}: {errors}")
        last = max(steps_of(folder / "log"))
        expect(f"train_lm: stopped by {number.name} after step {last}, whose checkpoint is complete: the same command with --resume auto goes on from it\n" == errors, errors)
        expect(saved(place) == [last], saved(place))
        (folder / "log").unlink()


def wait_for(condition, process, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        expect(process.poll() is None and time.monotonic() < end, f"the run ended or stands still: {process.poll()}")
        time.sleep(0.01)


def kills(folder):
    """kill -9 at random moments, half of them while a checkpoint is being written: the run goes on from a complete one that is not older than
    the interval."""
    draw = random.Random(options.seed)
    place, log = folder / "saved", folder / "log"
    every, at = 5, 0
    while_saving = 0
    meshes = ["dp=4", "dp=2,tp=2", "pp=2,dp=2", "cp=2,dp=2", "tp=4"]
    for number in range(options.kills):
        flags = ["--steps", 100000, "--mesh", draw.choice(meshes), "--zero", draw.choice([0, 1]), "--hidden", 128, "--ffn", 512, "--dtype", "f64",
                 "--save", place, "--save-every", every, "--keep", 2, "--resume", "auto", "--log", log, "--lr", "1e-4"]
        process = subprocess.Popen(command(4, *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        begun = at
        wait_for(lambda: place.exists() and saved(place) and saved(place)[-1] > begun, process)
        if number % 2 == 0:
            wait_for(lambda: any(path.name.endswith(".partial") for path in place.iterdir()), process)
        else:
            time.sleep(draw.random() * 0.3)
        victims = ranks_of(process)
        for victim in victims if draw.random() < 0.5 else [draw.choice(victims)]:
            os.kill(victim, signal.SIGKILL)
        out, errors = process.communicate(timeout=60)
        expect(process.returncode != 0, "a killed run ends with status 0")
        expect(f"goes on from {place}/step-{at:08}, after step {at}\n" in out if at > 0 else "goes on from" not in out, out)
        while_saving += any(path.name.endswith(".partial") for path in place.iterdir())
        done = max(steps_of_whole_lines(log))
        complete = saved(place)
        expect(complete and complete[-1] > begun, f"no checkpoint since step {begun}: {complete}, {errors}")
        at = complete[-1]
        # Written in the background, a checkpoint is complete before the next one begins.
        expect(at >= done - 2 * every, f"step {done} was done, and the newest checkpoint is of {at}")
        tool("verify", place)
    print(f"{options.kills} kills, {while_saving} while a checkpoint was written; step {at}")


def steps_of_whole_lines(log):
    found = []
    for line in log.read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "loss" in entry:
            found.append(entry["step"])
    return found


def damage(folder):
    """One flipped byte is found and named, and the checkpoint before is taken."""
    draw = random.Random(options.seed)
    place = folder / "saved"
    flags = ["--mesh", "dp=2", "--zero", 1, "--save", place, "--save-every", 2, "--quiet"]
    run(2, *flags, "--steps", 4)
    shutil.copytree(place, folder / "whole")
    for number in range(options.flips):
        shutil.rmtree(place)
        shutil.copytree(folder / "whole", place)
        file = draw.choice(sorted((place / "step-00000004").iterdir()))
        data = bytearray(file.read_bytes())
        data[draw.randrange(min(len(data), 2000) if draw.random() < 0.3 else len(data))] ^= 1 << draw.randrange(8)
        file.write_bytes(data)
        said = tool("verify", place / "step-00000004", status=3).stderr
        expect(file.name in said and "is damaged" in said, said)
        if file.name != "manifest.json" and "header" not in said:
            expect("/weight is not what was written" in said or "_moment is not what was written" in said, said)
        done = run(2, *flags, "--steps", 5, "--resume", "auto", "--log", folder / "log")
        expect(done.stderr.startswith("train_lm: passed over: ") and file.name in done.stderr and done.stderr.count("\n") == 1, done.stderr)
        expect(log_of(folder / "log")[0] == {"event": "resume", "step": 2, "from": f"{place}/step-00000002"}, log_of(folder / "log")[0])
        expect(saved(place) == [2, 4, 5] and (place / "step-00000004.damaged").exists(), sorted(place.iterdir()))
    # A whole checkpoint under the name of another step, which --resume auto would go on from as if it were that one.
    (place / "step-00000005").rename(place / "step-00000007")
    misnamed = f"the checkpoint {place}/step-00000007 is of step 5, and its folder is called step-00000007"
    expect(misnamed in tool("verify", place / "step-00000007", status=3).stderr, misnamed)
    expect(run(2, *flags[:4], "--quiet", "--steps", 8, "--resume", place / "step-00000007", status=3).stderr
           == f"train_lm: --resume {place}/step-00000007: {misnamed}\n", misnamed)
    done = run(2, *flags, "--steps", 5, "--resume", "auto")
    expect(done.stderr == f"train_lm: passed over: {misnamed}\n" and saved(place) == [2, 4, 5], done.stderr)
    for path in (place / "step-00000002", place / "step-00000004", place / "step-00000005"):
        (path / "rank-00001.safetensors").write_bytes(b"")
    done = run(2, *flags, "--steps", 6, "--resume", "auto", status=3)
    expect(f"no checkpoint in {place} can be read" in done.stderr.splitlines()[-1], done.stderr)


def disks(folder):
    """Full disk, read-only folder, folder that is removed: the run goes on or ends with one sentence, and older checkpoints stay."""
    place = folder / "saved"
    flags = ["--mesh", "dp=2", "--save", place, "--save-every", 3, "--quiet"]
    run(2, *flags, "--steps", 3)
    log = folder / "log"

    def begun(steps):
        log.unlink(missing_ok=True)
        process = subprocess.Popen(command(2, *flags, "--steps", steps, "--resume", "auto", "--log", log), stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        wait_for(lambda: log.exists() and len(steps_of_whole_lines(log)) > 20, process)
        return process
    # A disk that is full, for whoever writes more than this to a file.
    process = begun(300)
    for rank in ranks_of(process):
        resource.prlimit(rank, resource.RLIMIT_FSIZE, (120000, 120000))
    complete = saved(place)[-1]
    lines = process.communicate(timeout=100)[1].splitlines()
    expect(process.returncode == 3 and len(lines) > 10, f"{process.returncode}: {lines}")
    expect(all("is not saved: cannot write" in line and line.endswith("File too large; the run goes on") for line in lines[:-1]), lines)
    expect("the last checkpoint is not saved: cannot write" in lines[-1] and lines[-1].endswith(" is complete"), lines)
    expect(saved(place)[-1] >= complete and not any(path.name.endswith(".partial") for path in place.iterdir()), sorted(place.iterdir()))
    expect(len(steps_of(log)) == 297, "the run did not go on")
    for step in saved(place):
        tool("verify", place / f"step-{step:08}")

    process = begun(1000)
    place.rename(folder / "gone")
    lines = process.communicate(timeout=100)[1].splitlines()
    if "is saved, but older ones are not removed: cannot" in lines[0]:  # the folder was renamed between the two
        lines = lines[1:]
    expect(process.returncode == 3 and all("is not saved: cannot " in line for line in lines) and len(lines) > 10, lines)
    expect(all(line.endswith("the run goes on") for line in lines[:-1]) and "the last checkpoint is not saved" in lines[-1], lines)
    expect(max(steps_of(log)) == 1000, "the run did not go on")
    tool("verify", folder / "gone")
    done = run(2, "--save", folder / "log", status=2)
    expect("--save" in done.stderr and done.stderr.count("\n") == 1, done.stderr)


def interrupted(folder):
    """A run that is killed five times and goes on each time on another mesh ends at the loss of the run that is not."""
    draw = random.Random(options.seed)
    count = options.interrupted
    f64 = ["--dtype", "f64", "--steps", count, *BALANCED, "--micro-batches", 2]
    run(2, *f64, "--mesh", "dp=2", "--log", folder / "whole", "--quiet")
    place, log = folder / "saved", folder / "log"
    meshes = [("dp=2,tp=2", 1), ("pp=2,dp=2", 1), ("ep=4", 0), ("cp=2,ep=2", 1), ("tp=4", 0), ("dp=2,cp=2", 1)]
    stops = sorted(draw.sample(range(5, count - 5), 5)) + [None]
    for (mesh, zero), stop in zip(meshes, stops):
        flags = [*f64, "--mesh", mesh, "--zero", zero, "--save", place, "--save-every", 2, "--keep", 2, "--resume", "auto", "--log", log, "--quiet"]
        process = subprocess.Popen(command(4, *flags), stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        if stop is not None:
            wait_for(lambda: log.exists() and max(steps_of_whole_lines(log), default=0) >= stop, process)
            for victim in ranks_of(process):
                os.kill(victim, signal.SIGKILL)
        process.communicate(timeout=300)
        expect((process.returncode == 0) == (stop is None), f"status {process.returncode} at {stop}")
    difference = abs(final_loss(folder / "whole") - final_loss(log))
    expect(difference < 1e-9, f"the final losses differ by {difference}")
    whole, resumed = steps_of(folder / "whole"), steps_of(log)
    expect(sorted(resumed) == list(range(1, count + 1)), "steps are missing")
    for layer, other in zip(whole[count]["experts"], resumed[count]["experts"], strict=True):
        expect(max(abs(a - b) for a, b in zip(layer["bias"], other["bias"])) < 1e-12 and layer["load"] == other["load"], f"{layer}, {other}")
    print(f"{count} steps, killed after {stops[:-1]}: the final losses differ by {difference:.1e}")


def moved(folder):
    """A run whose experts move is continued with the experts where they were: the same bits."""
    mesh = ["--mesh", "ep=2,dp=2", "--zero", 1]
    flags = ["--steps", 12, "--experts", 8, "--balance", "none", "--rebalance-experts", 2, "--quiet"]
    run(4, *mesh, *flags, "--log", folder / "whole")
    log = ["--save", folder / "saved", "--save-every", 7, "--keep", 9, "--log", folder / "log"]
    run(4, *mesh, *flags, *log)
    shutil.rmtree(folder / "saved/step-00000012")
    manifest = (folder / "saved/step-00000007/manifest.json").read_text()
    expect("expert_orders" in manifest, manifest[:2000])
    run(4, *mesh, *flags, *log, "--resume", "auto")
    whole, resumed = steps_of(folder / "whole"), steps_of(folder / "log")
    expect(sum(line["moved_experts"] for line in whole.values()) > 0, "no expert has moved")
    for step, line in whole.items():
        for key in ("loss", "grad_norm", "moved_experts", "experts"):
            expect(line[key] == resumed[step][key], f"step {step}: {line}, {resumed[step]}")
    # On a mesh where nothing moves the numbers are the same but for rounding, and the places stay as they were.
    shutil.rmtree(folder / "saved/step-00000012")
    run(1, *flags, "--resume", folder / "saved", "--log", folder / "alone")
    expect(abs(final_loss(folder / "alone") - final_loss(folder / "whole")) < 1e-4, "final losses differ")


for part in (continued, described, moved, signals, kills, damage, disks, interrupted):
    if options.only in (None, part.__name__):
        with tempfile.TemporaryDirectory() as name:
            began = time.monotonic()
            part(pathlib.Path(name))
            print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)

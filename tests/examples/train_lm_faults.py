#!/usr/bin/env python3
"""What train_lm does when something is wrong: train_lm_faults.py TRAIN_LM MPIEXEC. Numbers that are not finite, ranks that
were started differently, memory that does not suffice, the environment, flags at their edges, a rank that is killed."""
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

from common import busy, expect

TRAIN_LM, MPIEXEC = sys.argv[1:]
T = "--hidden 32 --heads 2 --kv-heads 2 --ffn 64 --seq 32 --layers 2 --batch 8 --steps 2 --quiet".split()
MPI_NOISE = re.compile(r"^(Abort\(|application called MPI_Abort|\s*$|=+$|=\s|YOUR APPLICATION|This typically|Please see)")


class Done:
    def __init__(self, status, output, errors):
        self.status, self.output, self.errors = status, output, errors
        self.said = [line for line in errors.splitlines() if not MPI_NOISE.match(line)]


def run(command, timeout=60, environment=None, limit=None):
    process = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                             timeout=timeout, env={**os.environ, **(environment or {})}, preexec_fn=limit)
    return Done(process.returncode, process.stdout, process.stderr)


def on(ranks, *arguments, **how):
    return run([MPIEXEC, "-n", ranks, TRAIN_LM, *arguments], **how)


def apart(*commands, **how):
    """Each rank with a command line of its own: lists of arguments, or (environment, arguments)."""
    line = [MPIEXEC]
    for command in commands:
        environment, arguments = command if isinstance(command, tuple) else ({}, command)
        line += [":"] if len(line) > 1 else []
        for name, value in environment.items():
            line += ["-env", name, value]
        line += ["-n", "1", TRAIN_LM, *arguments]
    return run(line, **how)


def says(done, status, *sentences):
    """This status, and these sentences, each of them once; nothing else."""
    expect(done.status == status, f"status {done.status}, not {status}: {done.errors}")
    expect(len(done.said) == len(sentences), f"{len(sentences)} sentences, not\n{done.errors}")
    for said, wanted in zip(done.said, sentences):
        expect(re.fullmatch(f"train_lm: {wanted}", said), f"/train_lm: {wanted}/, not\n{said}")


def steps(count):
    return [*T[:-2], str(count), "--quiet"]


def sized(**sizes):
    """The flags of a small model, with other sizes."""
    given = dict(zip(T[:-3:2], T[1:-2:2])) | {"--" + name.replace("_", "-"): str(size) for name, size in sizes.items()}
    return [word for pair in given.items() for word in pair] + ["--quiet"]


def not_finite(folder):
    good = on(1, *T, "--dump-weights", folder)
    expect(good.status == 0, good.errors)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    wild = ["--lr", "1e6", "--clip", "0", "--warmup", "0", "--dump-weights", str(folder)]
    for ranks, mesh, dtype in [(1, "dp=1", "f32"), (4, "dp=2,pp=2", "f32"), (2, "tp=2", "bf16")]:
        log = folder / "log"
        done = on(ranks, *steps(9), *wild, "--mesh", mesh, "--dtype", dtype, "--log", log)
        step = re.search(r"step (\d+) is not applied", done.errors)
        expect(step, f"no step was refused: {done.errors}")
        first = int(step[1])
        says(done, 3, *(rf"step {first + i} is not applied: the (loss|gradient of [\w.]+) on rank \d \(stage \d\) is not finite" for i in range(2)),
             rf"step {first + 2}: the .* is not finite, and so were the 2 steps before.*")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        expect("not_finite" in lines[first - 1], f"the log of step {first}: {lines[first - 1]}")
        log.unlink()
        expect({path.name: path.read_bytes() for path in folder.iterdir()} == before, "weights were replaced")
    # The last step may be the one that ruins the weights.
    done = on(1, *steps(1), *wild)
    says(done, 3, "the loss after the last step is not finite: no weights are written") if done.status else None
    says(on(2, *steps(9), *wild[:6], "--max-bad-steps", "1"), 3, r"step \d: the .* is not finite.*")


def started_differently(folder):
    for odd, what in [(["--seed", "2"], r"its arguments: --seed 2 where that has nothing"),
                      (["--bogus"], r"its arguments: --bogus where that has nothing"),
                      (["--help"], r"its arguments: --help where that has nothing"),
                      (({"PENTAD_COLLECTIVES": "mpi"}, []), r"its environment: PENTAD_COLLECTIVES=mpi where that has nothing"),
                      (({"OMP_NUM_THREADS": "3"}, []), r"its environment: OMP_NUM_THREADS=3 where that has .*")]:
        command = (odd[0], [*T, *odd[1]]) if isinstance(odd, tuple) else [*T, *odd]
        says(apart(T, T, command, T, timeout=20), 2, rf"rank 2 differs from rank 0 in {what}; start all ranks alike")
    # A file that is another one where one of the ranks runs: its host has the same name for it.
    script, data = folder / "rank", folder / "text"
    data.write_bytes(b"abcd" * 100)
    other = folder / "other"
    other.mkdir()
    (other / "text").write_bytes(b"abce" * 100)
    script.write_text(f'#!/bin/sh\n[ "$PMI_RANK" != 1 ] || cd {other}\nexec {TRAIN_LM} "$@"\n')
    script.chmod(0o755)
    done = subprocess.run([MPIEXEC, "-n", "2", script, *T, "--data", "text"], cwd=folder, capture_output=True, text=True, timeout=30)
    says(Done(done.returncode, done.stdout, done.stderr), 2,
         r"rank 1 differs from rank 0 in its input files: text \(400 bytes, \w+\) where that has text \(400 bytes, \w+\); start all ranks alike")


def memory(folder):
    large = sized(hidden=8192, ffn=32768, heads=64, kv_heads=64, layers=2000)  # more than any host has
    begin = busy()
    done = on(1, *large)
    expect(busy() - begin < 10, "refusing took too long")
    says(done, 2, r"the run needs [\d.]+ TiB on its fullest rank, and the host of rank 0 has [\d.]+ [GT]iB \(.*\).*")

    def address_space(bytes):
        return lambda: resource.setrlimit(resource.RLIMIT_AS, (bytes, bytes))
    medium = sized(hidden=1024, ffn=4096, heads=16, kv_heads=16, layers=4)
    done = run([TRAIN_LM, *medium], limit=address_space(1 << 30))
    says(done, 2, r"the run needs .* rank 0 can have .* \(the limit of its address space \(ulimit -v\)\).*")
    # What is suggested fits, and runs.
    deep = sized(hidden=64, heads=4, kv_heads=4, ffn=256, seq=512, batch=96, layers=8, steps=1)
    done = run([TRAIN_LM, *deep], limit=address_space(1600 << 20))
    if ": try " in done.errors:
        flags = done.errors.rsplit(": try ", 1)[1].split()
        done = run([TRAIN_LM, *deep, *flags], limit=address_space(1600 << 20))
        expect(done.status == 0, f"what was suggested, {flags}, is refused: {done.errors}")
    else:
        raise SystemExit(f"nothing is suggested: {done.errors}")
    # Memory that is gone when it is asked for after all.
    begin = busy()
    done = on(1, *sized(micro_batches=1 << 20, batch=1 << 20))
    expect(busy() - begin < 10 and done.status == 2, f"--micro-batches 1048576: {busy() - begin:.0f} s, {done.errors}")


def environment(folder):
    for name, value, sentence in [("PENTAD_COLLECTIVES", "zzz", "PENTAD_COLLECTIVES=zzz: it is one of .*"),
                                  ("PENTAD_RANKS_PER_NODE", "0", "PENTAD_RANKS_PER_NODE=0: it is a number of ranks, 1 or more"),
                                  ("PENTAD_COLECTIVES", "mpi", r"there is no variable PENTAD_COLECTIVES: did you mean PENTAD_COLLECTIVES\?")]:
        for ranks in (1, 3):
            says(on(ranks, *T, environment={name: value}), 2, sentence)
    # Every program on ranks, started by a launcher that its MPI does not know; and with more threads than there is room for.
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "SLURM", "OMPI", "MPI_"))}
    for name in ("train_lm", "pentad_tune", "own_block", "fft", "stencil", "conjugate_gradient"):
        program = pathlib.Path(TRAIN_LM).with_name(name)
        if not program.exists():
            continue
        for more, wanted in (({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}, r"Slurm's srun has started several processes \(SLURM_STEP_NUM_TASKS=2\), .*"),
                             ({"WORLD_SIZE": "2", "RANK": "0"}, r"torchrun, or a launcher like it, has started several processes \(WORLD_SIZE=2\), .*"),
                             ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, None),
                             ({"OMP_NUM_THREADS": "513"}, "OMP_NUM_THREADS=513: a rank has 512 threads at most: .*")):
            done = subprocess.run([program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=bare | more)
            expect(done.returncode == 2 and not done.stdout and (re.fullmatch(f"{name}: {wanted}\n", done.stderr) if wanted else not done.stderr), f"{name}, {more}: {done}")


def inputs_and_outputs(folder):
    text = folder / "c.txt"
    text.write_bytes(b"some text " * 100)
    (folder / "link").symlink_to(text)
    (folder / "hard").hardlink_to(text)
    for flags in (["--log", text], ["--trace", text], ["--log", folder / "link"], ["--trace", folder / "hard"], ["--log", f"{folder}/./c.txt"]):
        says(on(2, *T, "--data", text, *flags), 2, r"--(log|trace) .* would overwrite --data .*, which is read: write another file")
        expect(text.read_bytes() == b"some text " * 100, "the input was changed")
    says(on(1, *T, "--log", folder / "a", "--trace", f"{folder}/./a"), 2, r"--trace .* and --log .* are the same file: give each a file of its own")


def edges(folder):
    says(on(1, *T, "--bucket-elements", "9" * 20), 2, "--bucket-elements 9+ is not between .*")
    says(on(1, *T, "--lr", "-inf"), 2, r"--lr -inf is not between 0 and .*")
    says(on(1, *T, "--log", "x" * 300), 2, r"--log x+: File name too long.*")
    done = on(1, *T, "--prompt", "", "--sample", "3")
    expect(done.status == 0 and done.output.startswith("\n|"), f"an empty prompt: {done.errors}{done.output}")
    says(on(1, *T, "--prompt"), 2, "--prompt needs a value, TEXT.*")
    # What is suggested works, or nothing is.
    says(on(1, *T, "--weights", "--kv-heads", "3"), 2, "--weights needs a value, FILE")
    says(on(1, *T, "--min-lr", "-2"), 2, r"--min-lr -2 is not between 0 and [^:]*")
    says(on(1, *T, "--log", "it's b", "--log", "a"), 2, r"--log is given twice: try --log 'it'\\''s b'")
    with open("/dev/full", "w") as full:
        done = subprocess.run([TRAIN_LM, *T[:-1]], stdout=full, stderr=subprocess.PIPE, text=True)
    says(Done(done.returncode, "", done.stderr), 3, "cannot write to standard output: No space left on device")
    begin = busy()
    short = ["1" if flag == "32" and before == "--seq" else flag for before, flag in zip(["", *T], T)]
    says(on(3, *short, "--mesh", "auto"), 2, r"--mesh auto: no mesh of 3 ranks divides this model and batch.*")
    expect(busy() - begin < 8, "the machine was measured first")


def nothing_to_learn(folder):
    """Steps without a target say so once and have no loss; a warm-up that the run does not get through is said."""
    (folder / "zeros").write_bytes(bytes(800))
    loud = [*T[:-1], "--steps", "3", "--log", folder / "log"]
    del loud[loud.index("--steps"):loud.index("--steps") + 2]  # that of T
    done = on(2, *loud, "--tokens", folder / "zeros", "--vocab", "97", "--ignore-token", "0", "--validation", folder / "zeros")
    says(done, 0, "step 1 has no target that counts, by --ignore-token 0: .*")
    expect(len(re.findall(r"^step \d/3  loss none  ", done.output, re.M)) == 3 and "validation loss none" in done.output, done.output)
    expect("the warm-up (--warmup 10) is no shorter than the run: the learning rate ends at 0.3 of --lr" in done.output, done.output)
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    expect([line["loss"] for line in lines[:-1]] == [None] * 3 and lines[-1]["final_loss"] is None and lines[-1]["validation_loss"] is None, lines)


def lost_rank(folder):
    """MPICH's launcher kills the other ranks at once, so that none can say anything. This script keeps it from noticing for a second."""
    script = folder / "rank"
    script.write_text(f'#!/bin/sh\n{TRAIN_LM} "$@" 2>>{folder}/errors\nstatus=$?\nsleep 1\nexit $status\n')
    script.chmod(0o755)
    for victim in range(5):
        speaks = victim < 4
        victim %= 4
        (folder / "errors").write_text("")
        process = subprocess.Popen([MPIEXEC, "-n", "4", script if speaks else TRAIN_LM, *steps(1000000), "--mesh", "dp=2,pp=2", "--log", folder / "log"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        begin, ranks = time.monotonic(), {}
        while not (folder / "log").exists() and time.monotonic() < begin + 20:
            time.sleep(0.1)
        while len(ranks) < 4 and time.monotonic() < begin + 20:
            time.sleep(0.1)
            for entry in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if pathlib.Path(TRAIN_LM).samefile(entry / "exe"):
                        rank = re.search(rb"\0PMI_RANK=(\d+)", b"\0" + (entry / "environ").read_bytes())
                        above = {int(entry.name)}
                        for _ in range(4):
                            above |= {int(pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()[1]) for one in above if one > 1}
                        if rank and process.pid in above:
                            ranks[int(rank[1])] = int(entry.name)
                except (OSError, ValueError):
                    pass
        expect(len(ranks) == 4, f"only ranks {ranks} were found")
        begin = time.monotonic()
        os.kill(ranks[victim], signal.SIGKILL)
        process.wait(timeout=20)
        errors = (folder / "errors").read_text()
        (folder / "log").unlink()
        expect(process.returncode != 0 and time.monotonic() - begin < 15, f"after rank {victim} was killed: status {process.returncode}")
        lost = [line for line in errors.splitlines() if "is lost" in line]
        expect(not speaks or len(lost) == 1 and re.fullmatch(rf"train_lm: rank {victim} on \S+ \(dp {victim // 2}, pp {victim % 2}, stage {victim % 2}\) is lost: .*: start it again",
                                               lost[0]), f"rank {victim} was killed:\n{errors}")


def offload(folder):
    """Optimizer state and activations in files: the same losses, what it waited for, and a disk that is missing or full."""
    small = [*T[:-3], "--bucket-elements", "1000", "--steps", "6"]
    small[small.index("--layers") + 1] = "6"
    disk = pathlib.Path(TRAIN_LM).resolve().parent  # the folder of temporary files may be in memory, and is refused then
    there = ["--offload", "optimizer", "--offload-folder", disk]
    losses = []
    for flags in ([], *([there[0], what, *there[2:]] for what in ("optimizer", "activations", "both"))):
        done = on(2, *small, *flags, "--log", folder / "log")
        expect(done.status == 0 and not done.said, done.errors)
        lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
        losses.append([line.get("loss", line.get("final_loss")) for line in lines])
        expect(all(("offload_wait_s" in line) == bool(flags) for line in lines if "step" in line), lines)
        told = re.findall(r"^offload: .* of (.*) in .*, windows .*; the disk gave [1-9].*/s to a rank", done.output, re.M)
        both = ["optimizer state", "activations"]
        expect(told == ([name for name in both if flags[1] == "both" or flags[1] in name] if flags else []), done.output)
        (folder / "log").unlink()
    expect(all(other == losses[0] for other in losses) and len(losses) == 4 and len(losses[0]) == 7, losses)
    says(on(2, *small, *there[:-1], disk / "gone"), 2, f"--offload-folder {disk}/gone: the folder {disk}/gone cannot be used: No such file or "
                                                         f"directory: try --offload-folder {disk}")
    large = "--hidden 256 --heads 4 --kv-heads 4 --ffn 1024 --seq 32 --layers 6 --batch 2 --steps 2 --bucket-elements 100000 --quiet".split()
    full = run([TRAIN_LM, *large, *there], limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, 32 << 20)))  # of 50 MiB of state
    says(full, 3, rf"cannot take \d+ bytes for a file in {disk}: File too large")
    large[large.index("--seq") + 1], large[large.index("--batch") + 1] = "256", "4"  # 100 MiB of activations
    full = run([TRAIN_LM, *large, there[0], "activations", *there[2:]], limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, 32 << 20)))
    says(full, 3, rf"cannot write {disk}.*: File too large")


with tempfile.TemporaryDirectory() as name:
    wanted = os.environ.get("CASES", "").split()
    for check in (not_finite, started_differently, memory, environment, inputs_and_outputs, edges, offload, nothing_to_learn, lost_rank):
        if wanted and check.__name__ not in wanted:
            continue
        folder = pathlib.Path(name) / check.__name__
        folder.mkdir()
        check(folder)
        print(f"{check.__name__}: ok", flush=True)

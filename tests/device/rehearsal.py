"""Rehearses run-on-gpu with the programs of a build for the host: rehearsal.py BUILD. Every part runs; a test that fails, twice, a run of train_lm whose
reference is made wrong, and nothing else, are told as failures; what hangs is ended with all that it started."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
TRAINED, WRONG = 3, 1
PROGRAMS = ("memory.kokkos", "train_lm", "bench_kernels_gemm_attention", "bench_kernels_rows", "bench_kernels_scan", "bench_experts",
            "bench_mixers", "bench_device_collectives")


def expect(condition, what):
    if not condition:
        raise SystemExit(f"rehearsal: {what}")


def run(*command, **environment):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, env={**os.environ, **environment})


def check_results(results):
    parts = {name: part["entries"] for name, part in results["parts"].items()}
    failed = [(name, entry["name"], entry["text"]) for name, entries in parts.items() for entry in entries if entry["outcome"] == "failed"]
    said = [text for _, _, text in failed]
    expect([name for name, _, _ in failed] == ["tests", "train", "repeats"], failed)
    expect("rank 1 of 2: wrong" in said[0] and "should be 1.0" in said[1] and "rank 1 of 2: wrong" in said[2], failed)
    expect(sum(entry["outcome"] == "passed" for entry in parts["train"]) == TRAINED - 1, parts["train"])
    for part, least in {"tests": 1, "kernels": 12, "step": 1, "sanitizer": 1}.items():
        expect(sum(entry["outcome"] in ("passed", "measured") for entry in parts[part]) >= least, f"{part}: {parts[part]}")


def check_hang():
    """A program that has started another and never ends."""
    loader = importlib.machinery.SourceFileLoader("run_on_gpu", str(HERE / "run-on-gpu"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_on_gpu", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    session = types.SimpleNamespace(left=lambda: 100.0, environment={}, patience=1, scratch=types.SimpleNamespace(name="/tmp"))
    start = time.monotonic()
    try:
        module.Session.run(session, ["bash", "-c", "echo begun; sleep 50 & sleep 50"], 1)
    except TimeoutError as error:
        expect("begun" in str(error), error)
    else:
        expect(False, "what hangs was not ended")
    expect(time.monotonic() - start < 10, "what hangs was ended late")


def main():
    with tempfile.TemporaryDirectory(prefix="pentad-rehearsal-") as scratch:
        folder, out = pathlib.Path(scratch) / "bundle", pathlib.Path(scratch) / "results.json"
        logs = pathlib.Path(scratch) / "logs"
        trained = run(HERE / "training.py", sys.argv[1], logs, "--runs", TRAINED)
        expect(trained.returncode == 0, trained.stdout + trained.stderr)
        packed = run(HERE / "bundle", sys.argv[1], folder, "--host", logs, "--links", "--only", *PROGRAMS)
        expect(packed.returncode == 0, packed.stdout + packed.stderr)
        log = folder / "host" / f"{WRONG}.log"
        first, *others = log.read_text().splitlines(keepends=True)
        log.write_text(json.dumps({**json.loads(first), "loss": 1.0}) + "\n" + "".join(others))
        program = folder / "bin" / "fails"
        program.write_text("#!/bin/sh\necho rank 1 of 2: wrong >&2\nexit 3\n")
        program.chmod(0o755)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["tests"].append({"name": "fails", "program": "fails", "arguments": [], "ranks": 2, "environment": {}})
        (folder / "manifest.json").write_text(json.dumps(manifest))
        done = run(HERE / "run-on-gpu", "--rehearse", folder, "--out", out, "--minutes", 20)
        print(done.stdout)
        expect(done.returncode == 1, f"exit status {done.returncode}: {done.stderr}")
        check_results(json.loads(out.read_text()))
        made = run(HERE / "tables.py", out)
        expect(made.returncode == 0 and "| kernel |" in made.stdout and "FLOP/s" in made.stdout, made.stdout + made.stderr)
        page = pathlib.Path(scratch) / "page.md"
        page.write_text("<!-- gpu -->\n<!-- end of gpu -->\n")
        expect(run(HERE / "tables.py", out, page).returncode == 1, "the results of a rehearsal were written into a page")
        real = json.loads(out.read_text()) | {"rehearsed": False}
        out.write_text(json.dumps(real))
        for _ in range(2):  # again over its own
            expect(run(HERE / "tables.py", out, page).returncode == 0 and page.read_text() == f"<!-- gpu -->\n{made.stdout}<!-- end of gpu -->\n", page.read_text())
        smi = pathlib.Path(scratch) / "nvidia-smi"
        smi.write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
        smi.chmod(0o755)
        refused = run(HERE / "run-on-gpu", folder, "--out", out, PATH=scratch)
        expect(refused.returncode == 2 and refused.stderr == "run-on-gpu: there is no GPU here: nvidia-smi: No devices were found\n", f"without a GPU: {refused.stderr}")
    check_hang()


main()

"""Benchmarks compare libraries as they are: benchmarks.py CHECKOUT. Each program of bench/ takes the variables that choose a library's kernels out of
the environment before it loads such a library (bench/library_kernels.py), and so does bench/run.sh, which says at its head what Pentad's products run."""
import ast
import os
import pathlib
import subprocess
import sys
import tempfile

bench = pathlib.Path(sys.argv[1]).resolve() / "bench"
problems = []
sys.path.insert(0, str(bench))
import library_kernels


def imports(path):
    """The modules that running a file imports at its start, in order, those of bench/ with theirs."""
    found = []
    for node in ast.parse(path.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            inner = next((file for folder in (path.parent, bench) if (file := folder / f"{name}.py").exists()), None)
            found += [*(imports(inner) if inner else []), name.split(".")[0]]
    return found


programs = [path for path in sorted(bench.rglob("*.py")) if path.stem not in ("library_kernels", "paired") and path != bench / "lab/training.py"]
for program in programs:
    names = imports(program)
    first = min((names.index(name) for name in ("numpy", "torch", "transformers") if name in names), default=len(names))
    if "library_kernels" not in names[:first]:
        problems.append(f"bench/{program.relative_to(bench)}: does not import library_kernels, or only behind a library whose kernels the environment may choose")
if len(programs) < 20:
    problems.append(f"there are only {len(programs)} programs in {bench}")

slow = {variable: "slow" for variable in library_kernels.VARIABLES}
left = subprocess.run([sys.executable, "-c", "import library_kernels, os; print([v for v in library_kernels.VARIABLES if os.environ.get(v)])"], cwd=bench,
                      env={**os.environ, **slow}, capture_output=True, text=True).stdout
if left != "[]\n":
    problems.append(f"library_kernels.py leaves {left!r} in the environment")

with tempfile.TemporaryDirectory() as name:  # as if it were a build folder
    build = pathlib.Path(name)
    for file, text in {"demo/bible.txt": "In the beginning\n", "bin/bench_kernels_seen": "#!/bin/sh\nenv | grep =slow\ntrue\n", "bin/bench_product_speed":
                       """#!/bin/sh\nenv | grep =slow\necho '{"libraries": "a library (its kernels)", "f64": 1, "f32": 2, "bf16": 3}'\n"""}.items():
        (build / file).parent.mkdir(exist_ok=True)
        (build / file).write_text(text)
        (build / file).chmod(0o755)
    done = subprocess.run([bench / "run.sh", build, "kernels"], env={**os.environ, **slow}, capture_output=True, text=True)
    if done.returncode != 0 or "slow" in done.stdout or "f64    1.0   f32    2.0   bf16    3.0   a library (its kernels)" not in done.stdout.split("== kernels")[0]:
        problems.append(f"bench/run.sh leaves variables in the environment, or does not say what Pentad runs:\n{done.stdout}{done.stderr}")

for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)

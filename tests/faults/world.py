"""What all trials share: the programs, good files of every kind that they read, and what this machine allows."""
import os
import pathlib
import resource
import subprocess

import harness
import programs

NOBODY = 65534
REPLACES = {"--model-json": ["--model"], "--hardware-json": ["--hardware"], "--schedule-file": ["--schedule", "--stages", "--micro-batches"],
            "--model": ["--layers", "--hidden", "--heads", "--kv-heads", "--ffn"]}
TEXT = ("Pentad trains language models over a mesh of ranks; this text is what the trials read. " * 250).encode()


class World:
    def __init__(self, folder, mpiexec, scratch, sanitized=False):
        self.bin, self.mpiexec, self.scratch, self.sanitized = pathlib.Path(folder).resolve(), mpiexec, pathlib.Path(scratch), sanitized
        keep = ("PATH", "HOME", "LANG", "TMPDIR", "HYDRA_LAUNCHER")
        self.environment = {name: os.environ[name] for name in keep if name in os.environ} | {
            "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false", "KOKKOS_DISABLE_WARNINGS": "1"}
        if sanitized:
            self.environment |= {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
        self.tables = {name: programs.Program(name, str(self.program(name)), self.environment) for name in programs.NAMES}
        self.references = {}  # what jobs.py knows that a job writes
        self.corpus = self.scratch / "corpus"
        self.corpus.mkdir()
        self.make_corpus()
        self.find_files()
        self.may_mount = self.try_mount()
        self.cgroup = self.find_cgroup()
        self.may_change_user = os.getuid() == 0 and self.try_user()

    def program(self, name):
        return self.bin / name

    def limits(self, memory):
        """A sanitizer takes terabytes of address space."""
        return [(resource.RLIMIT_CORE, 0)] + ([(resource.RLIMIT_AS, memory)] if memory and not self.sanitized else [])

    # --- the command lines from which trials start

    def baseline(self, program, rng=None):
        """A command line that is right, as pairs."""
        match program:
            case "train_lm":
                return list(programs.SMALL.items())
            case "pentad_schedule":
                return [("--schedule", "1f1b"), ("--stages", "4"), ("--micro-batches", "8")]
            case "pentad_plan":
                machine = [("--model", "llama-3-8b"), ("--hardware", "h100")]
                step = [("--seq", "512"), ("--global-batch", "16")]
                lines = [machine + step + [("--evaluate", "dp=8")], machine + step + [("--explain", "dp=4,tp=2")], machine + step + [("--devices", "8")],
                         machine + [("--serve", None), ("--prompt", "128"), ("--output", "64"), ("--devices", "8")]]
                return lines[rng.randrange(len(lines)) if rng else 0]
            case "pentad_tune":
                return [("--out", "tuning"), ("--largest", "1024"), ("--repeats", "1")]

    # --- files

    def run(self, program, settings, ranks=1):
        command = [str(self.program(program)), *programs.as_arguments(settings)]
        if ranks > 1:
            command = [self.mpiexec, "-n", str(ranks), *command]
        done = subprocess.run(command, cwd=self.corpus, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr.decode()}")
        return done.stdout

    def make_corpus(self):
        (self.corpus / "text").write_bytes(TEXT)
        (self.corpus / "tokens").write_bytes(b"".join(bytes([byte, 0]) for byte in TEXT))
        (self.corpus / "weights").mkdir()
        self.run("pentad_schedule", [*self.baseline("pentad_schedule"), ("--text", "schedule.txt"), ("--json", "schedule.json")])
        self.run("pentad_schedule", [("--schedule", "zb-v"), ("--stages", "2"), ("--micro-batches", "4"), ("--text", "zb-v.txt"), ("--json", "zb-v.json")])
        self.run("pentad_plan", [("--hardware", "h100"), ("--hardware-out", "machine.json")])
        self.run("train_lm", [*self.baseline("train_lm"), ("--mesh", "pp=2"), ("--trace", "trace.json"), ("--dump-weights", "weights")], 2)
        self.run("pentad_tune", self.baseline("pentad_tune"), 2)
        # For a schedule of one rank, as train_lm alone needs it.
        self.run("pentad_schedule", [("--schedule", "1f1b"), ("--stages", "1"), ("--micro-batches", "1"), ("--text", "one.txt"), ("--json", "one.json")])
        self.good = {
            "--data": ["text"],
            "--tokens": ["tokens"],
            "--validation": ["text"],
            ("train_lm", "--schedule-file"): ["one.txt", "one.json"],
            "--schedule-file": ["schedule.txt", "schedule.json", "zb-v.txt", "zb-v.json"],
            "--ran": ["trace.json"],
            "--model-json": ["weights/config.json"],
            ("train_lm", "--model"): ["weights/config.json"],
            "--weights": ["weights/model.safetensors"],
            "--hardware-json": ["machine.json"],
            "PENTAD_TUNING": ["tuning"],
        }

    def find_files(self):
        """Which flags name files that are read, and which name files that are written: what a program does with one that is not there."""
        for name, program in self.tables.items():
            for flag in program.flags:
                if flag.kind not in ("file", "folder"):
                    continue
                if (name, flag.name) == ("pentad_tune", "--out"):
                    program.outputs.append(flag)
                    continue
                folder = self.scratch / "probe"
                folder.mkdir()
                target = folder / "target"
                if flag.kind == "folder":
                    target.mkdir()
                settings = [*self.line_for(name, flag), (flag.name, str(target))]
                done = subprocess.run([str(self.program(name)), *programs.as_arguments(settings)], cwd=folder, env=self.environment,
                                      stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
                written = any(path.is_file() for path in folder.rglob("*"))
                (program.outputs if done.returncode == 0 and written else program.inputs).append(flag)
                subprocess.run(["rm", "-rf", str(folder)], check=True)
            if name == "pentad_plan":
                words = self.run(name, [("--list", None)]).decode()
                program.words = programs.words_of(words)

    def line_for(self, program, *flags):
        """A command line in which these flags of files make sense, without them."""
        names = [flag if isinstance(flag, str) else flag.name for flag in flags]
        match program:
            case "pentad_plan" if "--hardware-out" in names:
                line = [("--hardware", "h100")]
            case "pentad_plan":
                line = [("--model", "llama-3-8b"), ("--hardware", "h100"), ("--devices", "8"), ("--seq", "32"), ("--global-batch", "16")]
            case "pentad_schedule":
                line = [] if "--docs" in names else [("--schedule", "1f1b"), ("--stages", "2"), ("--micro-batches", "1")]
            case _:
                line = self.baseline(program)
        left_out = {*names, *(other for name in names for other in REPLACES.get(name, ()))}
        return [pair for pair in line if pair[0] not in left_out]

    def good_files(self, program, name):
        found = self.good.get((program, name)) or self.good.get(name) or ["text"]
        return [self.corpus / file for file in found]

    def samples(self, program, flag):
        """Values for a flag of a file in a command line that is to be right."""
        if flag in program.inputs:
            return self.good_files(program.name, flag.name)
        return ["."] if flag.kind == "folder" else ["written", "written too", "./written"]

    # --- the machine

    def try_mount(self):
        target = self.scratch / "mounted"
        target.mkdir()
        try:
            harness.mount("none", target, "tmpfs", 0, "size=64k")
            harness.unmount(target)
            return True
        except OSError:
            return False

    def find_cgroup(self):
        """A folder in which memory cgroups can be made, or none."""
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "memory":
                folder = pathlib.Path("/sys/fs/cgroup/memory" + path)
            elif controllers == "" and pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
                folder = pathlib.Path("/sys/fs/cgroup" + path)
            else:
                continue
            child = folder / f"pentad-faults-{os.getpid()}"
            try:
                child.mkdir()
                usable = any((child / file).exists() for file in ("memory.limit_in_bytes", "memory.max"))
                child.rmdir()
                if usable:
                    return folder
            except OSError:
                pass
        return None

    def try_user(self):
        try:
            done = subprocess.run([str(self.program("pentad_schedule")), "--schedule", "1f1b"], user=NOBODY, group=NOBODY, extra_groups=[],
                                  capture_output=True, env=self.environment, cwd="/")
            return done.returncode == 0
        except (OSError, ValueError):
            return False

    def describe(self):
        yes = lambda value: "yes" if value else "no"
        lines = [f"mounts: {yes(self.may_mount)}; memory cgroups: {yes(self.cgroup)}; another user: {yes(self.may_change_user)}"]
        for name, program in self.tables.items():
            lines.append(f"{name}: {len(program.flags)} flags; reads {' '.join(f.name for f in program.inputs) or '-'}; writes "
                         f"{' '.join(f.name for f in program.outputs) or '-'}")
        return "\n".join(lines)

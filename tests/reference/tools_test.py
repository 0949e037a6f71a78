#!/usr/bin/env python3
"""Tests of the tools in this folder, with a train_lm that only pretends: the tools notice what they are there to notice."""
import json
import math
import pathlib
import random
import re
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER))
import check_equivalence
import drawn_weights
import equivalence
import io_files
import text_windows
import variety

# Its numbers depend on the model alone; FAULT in its name of the moment spoils the runs over more than one rank.
PRETENDER = """
    import json, pathlib, struct, sys, time
    fault = {fault!r}
    flags, words = {{}}, sys.argv[1:]
    while words:
        word = words.pop(0)
        flags[word] = words.pop(0) if words and not words[0].startswith("--") else "on"
    ranks = 1
    for axis in flags["--mesh"].split(","):
        ranks *= int(axis.split("=")[1])
    wrong = fault if ranks > 1 else ""
    if wrong == "crash":
        print("rank 1 has lost its way")
        sys.exit(3)
    if wrong == "hang":
        time.sleep(600)
    if wrong == "chatter":
        print("hello")
    silent = flags["--data"].endswith("none.0") and fault != "phantom loss"
    loss = 3.0 + int(flags["--hidden"]) / 64
    shown = lambda name: None if silent or wrong == "no " + name else loss * nudge(name, 2e-10)
    nudge = lambda name, size: 1 + size if wrong == name else 1
    with open(flags["--log"], "w") as log:
        for step in range(1, int(flags["--steps"]) + (0 if wrong == "short log" else 1)):
            entry = {{"step": step, "loss": shown("loss"), "aux_loss": 1.5 * nudge("aux_loss", 2e-10), "z_loss": 2.5,
                      "grad_norm": 0.5 * nudge("grad_norm", 2e-10), "lr": 0.003, "tokens_per_s": 10 * ranks,
                      "bytes": {{"dp": ranks, "pp": 0, "ep": 0, "cp": 0, "tp": 0}}}}
            log.write(json.dumps(entry).replace("2.5", "NaN" if wrong == "nan" else "2.5") + "\\n")
        if wrong != "no end":
            log.write(json.dumps({{"event": "end", "final_loss": shown("final_loss")}}) + "\\n")
    values = [-0.5, 0.25 + (2e-9 if wrong == "weights" else 4e-10)]
    header = json.dumps({{"__metadata__": {{"format": "pt"}}, "other" if wrong == "name" else "w":
                          {{"dtype": "F64", "shape": [2, 1] if wrong == "shape" else [2], "data_offsets": [0, 16]}}}}).encode()
    folder = pathlib.Path(flags["--dump-weights"])
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2d", *values))
    (folder / "config.json").write_text(json.dumps({{"ranks": ranks if wrong == "config" else 1}}))
"""
MPIEXEC = """
    import os, sys
    os.execv(sys.argv[3], sys.argv[3:])
"""


class Equivalence(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def program(self, name, text):
        path = pathlib.Path(self.scratch.name) / name
        path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(text))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def run_over(self, fault, *arguments):
        command = [sys.executable, str(FOLDER / "equivalence.py"), "--train-lm", self.program("train_lm", PRETENDER.format(fault=fault)),
                   "--mpiexec", self.program("mpiexec", MPIEXEC), *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def test_right_runs_pass(self):
        for arguments in (("--max-ranks", "4"), ("--random", "5", "--max-ranks", "4")):
            done = self.run_over("", *arguments)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"(\d+) of \1 the same as on one rank\n$")

    def test_each_fault_is_noticed(self):
        for fault, message in {
            "loss": "loss is", "aux_loss": "aux_loss is", "grad_norm": "grad_norm is", "final_loss": "final_loss is",
            "no loss": "there were targets", "no final_loss": "there were targets",
            "weights": "w: max|a-b| is", "nan": "NaN is not a number", "short log": "has 4 steps", "no end": "does not end",
            "name": "tensors in only one", "shape": "w is F64[2, 1]", "config": "config.json differs", "crash": "exit status 3",
            "chatter": "prints although --quiet",
        }.items():
            with self.subTest(fault):
                done = self.run_over(fault, "--only", "dp=4 --zero 1", "--max-ranks", "4")
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(message, done.stdout)
                self.assertNotIn("Traceback", done.stdout + done.stderr)

    def test_a_loss_without_targets_is_noticed(self):
        done = self.run_over("phantom loss", "--only", "[none]", "--max-ranks", "1")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("there was no target", done.stdout)

    def test_a_hang_is_ended(self):
        done = self.run_over("hang", "--only", "dp=4 --zero 1", "--timeout", "1", "--max-ranks", "4")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("no end after 1.0 s", done.stdout)

    def test_the_fixed_list_has_what_it_should(self):
        lines = [str(case) for case in equivalence.FIXED]
        self.assertEqual(len(lines), len(set(lines)))
        self.assertGreaterEqual(sum(case.ranks() == 32 for case in equivalence.FIXED), 3)
        for wanted in ("dp=3", "cp=3", "tp=3", "pp=3", "tp=4", "--zigzag", "--sequence-parallel on", "--schedule gpipe", "--zero 1",
                       "--experts 4", "--tie-embeddings", "--recompute", "--cp allgather", "--latent-attention q=0", "one cp rank", "one sequence", "none", "f32"):
            self.assertTrue(any(wanted in line for line in lines), wanted)

    def test_random_cases_divide(self):
        draw = random.Random(3)
        for _ in range(2000):
            case = equivalence.random_case(draw, 32)
            extent = {"dp": 1, "pp": 1, "ep": 1, "cp": 1, "tp": 1} | {a: int(n) for a, n in (axis.split("=") for axis in case.mesh.split(","))}
            m = {**equivalence.MODEL, **case.model}
            self.assertEqual(m["kv-heads"] is None, "latent-attention" in m)
            m["kv-heads"] = m["kv-heads"] or m["heads"]
            self.assertLessEqual(case.ranks(), 32)
            kind = next((kind for kind in equivalence.GRIDS if f"--tp-kind {kind} " in f"{case.ways} "), "1d")
            sequences, widths, columns = next((divisors for ranks, *divisors in equivalence.GRIDS.get(kind, ()) if ranks == extent["tp"]),
                                              (1, extent["tp"], extent["tp"]))
            self.assertEqual(m["batch"] % (extent["dp"] * extent["ep"] * sequences * m["micro-batches"]), 0)
            self.assertEqual((m["layers"] % extent["pp"], m["heads"] % widths, m["ffn"] % widths, m["heads"] % m["kv-heads"]), (0, 0, 0, 0))
            self.assertTrue(m["kv-heads"] % columns == 0 or kind == "1d" and columns % m["kv-heads"] == 0)
            self.assertTrue(kind == "1d" or extent["ep"] == 1 and extent["tp"] in {ranks for ranks, *_ in equivalence.GRIDS[kind]})
            self.assertEqual(m["hidden"] // m["heads"] % 2, 0)
            self.assertEqual(m.get("experts", 0) % extent["ep"], 0)
            self.assertLessEqual(m.get("top-k", 1), m.get("experts", 1))

    def test_one_sequence_a_batch_is_valid(self):
        with tempfile.TemporaryDirectory() as folder:
            files = equivalence.write_data(pathlib.Path(folder))["one sequence"]
            seed = equivalence.seed_for_one_sequence(files, 4, 5)
            texts = [file.read_bytes() for file in files]
            for step in range(6):
                rows = text_windows.batch(texts, 16, seed, 4, step)
                self.assertEqual(sum(set(row[1:]) != {equivalence.IGNORED} for row in rows), 1)


class CheckEquivalence(unittest.TestCase):
    def test_the_command_compares_two_logs(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            step = {"step": 1, "loss": 3.0, "aux_loss": 1, "z_loss": 1, "grad_norm": 1, "lr": 1, "tokens_per_s": 1,
                    "bytes": dict.fromkeys(("dp", "pp", "ep", "cp", "tp"), 0)}
            log.write_text(json.dumps(step) + '\n{"event":"end","final_loss":2}\n')
            other = pathlib.Path(folder) / "other"
            other.write_text(json.dumps(step | {"loss": 3.0001}) + '\n{"event":"end","final_loss":2}\n')
            command = [sys.executable, str(FOLDER / "check_equivalence.py")]
            self.assertEqual(subprocess.run([*command, log, log], capture_output=True).returncode, 0)
            self.assertEqual(subprocess.run([*command, log, other], capture_output=True).returncode, 1)
            self.assertEqual(subprocess.run([*command, "--dtype", "f32", log, other], capture_output=True).returncode, 0)
            self.assertEqual(subprocess.run([*command, log, "/no/such/log"], capture_output=True).returncode, 1)

    def test_tensor_difference(self):
        difference = check_equivalence.tensor_difference
        self.assertEqual(difference([1.0, -4.0], [1.0, -4.0]), 0)
        self.assertEqual(difference([1.5, -4.0], [1.0, -4.0]), 0.125)
        self.assertEqual(difference([0.0], [0.0]), 0)
        self.assertEqual(difference([1e-300], [0.0]), float("inf"))
        self.assertEqual(difference([float("nan")], [1.0]), float("inf"))
        self.assertEqual(difference([1.0], [float("nan")]), float("inf"))


class TextWindows(unittest.TestCase):
    def test_philox_gives_the_published_answers(self):
        ones = 0xFFFFFFFF
        self.assertEqual(text_windows.philox4x32_10((0, 0, 0, 0), (0, 0)), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8))
        self.assertEqual(text_windows.philox4x32_10((ones,) * 4, (ones,) * 2), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD))
        self.assertEqual(text_windows.philox4x32_10((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)),
                         (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1))

    def test_the_windows_are_those_of_the_library(self):
        # The same numbers stand in tests/io/token_data.cpp.
        texts = [bytes(range(100)), bytes(range(100, 150))]
        self.assertEqual([row[0] for row in text_windows.batch(texts, 9, 12345678901234, 8, 3)], [81, 108, 69, 8, 60, 87, 69, 43])


class Variety(unittest.TestCase):
    def test_inputs_that_are_too_alike_are_refused(self):
        words = drawn_weights.tokens("words", 400, 300)
        sentences = [words[i:i + 40] for i in range(0, 400, 40)]
        variety.tokens("they", sentences, 300, words[:1])
        text = bytes(random.Random(5).randrange(256) for _ in range(4000))  # a generator for each of them: one byte
        for alike, why in {
            "1 distinct of 4000": lambda: variety.tokens("they", [text], 300),
            "there are none": lambda: variety.tokens("they", [[], []]),
            "1 distinct of 10 sequences": lambda: variety.tokens("they", sentences[:1] * 10),
            "repeat the one before": lambda: variety.tokens("they", [[token for token in words for _ in range(3)]]),
            "more than half of them are 9": lambda: variety.tokens("they", [[9] + [word for token in words for word in (token, 9)]]),
            r"in these eighths of a vocabulary of 600: \[4, 5, 6, 7\]": lambda: variety.tokens("they", [words[:200], list(range(100))], 600),
            "777 is not among them": lambda: variety.tokens("they", sentences, 300, [777]),
            "1 distinct lengths of 4": lambda: variety.lengths("they", variety.document_lengths([[1, 0, 1, 0, 2, 0], [3, 0]], 0)),
            "64 of 64 are zero": lambda: variety.numbers("they", [0.0] * 64),
            "1 distinct of 64 numbers": lambda: variety.numbers("they", [0.5] * 64),
            "not finite": lambda: variety.numbers("they", [1.0, math.inf]),
        }.items():
            with self.subTest(alike), self.assertRaisesRegex(SystemExit, f"^they are too alike to show anything: .*{alike}"):
                why()

    def test_the_golden_files_are_varied(self):
        files = sorted((FOLDER / "golden").glob("*.safetensors"))
        self.assertGreater(len(files), 25)
        for file in files:
            with self.subTest(file.stem):
                found = variety.safetensors(file)
                variety.tensors(file.stem, found)
                if "packed" in file.stem:
                    shape, tokens, _ = found["tokens"]
                    variety.lengths(file.stem, variety.document_lengths(variety.rows(tokens, shape), 0))

    def test_each_family_is_golden_and_its_tokens_are_varied(self):
        golden = json.loads((FOLDER / "golden" / "families.json").read_text())
        names = re.search(r"family_names\{([^}]*)\}", (FOLDER.parent.parent / "include/pentad/model/family.hpp").read_text())[1]
        self.assertEqual({one["config"]["model_type"] for one in golden.values()}, set(re.findall(r'"(\w+)"', names)))
        for name, one in golden.items():
            with self.subTest(name):
                vocabulary, flags = one["config"]["vocab_size"], dict(zip(one["flags"], one["flags"][1:]))
                tokens = drawn_weights.tokens(name, 4000, vocabulary)
                rows = [row for step in range(int(flags["--steps"])) for row in
                        text_windows.batch([tokens], int(flags["--seq"]), int(flags["--seed"]), int(flags["--batch"]), step)]
                padding = one["config"].get("pad_token_id")
                variety.tokens(name, rows, vocabulary, [] if padding is None else [padding % vocabulary])
                variety.numbers(name, one["losses"])

    def test_every_script_that_makes_inputs_asks(self):
        others = {"check_equivalence.py": "compares what others have made", "command_lines.py": "reads the project's own pages",
                  "oracle.py": "starts the other scripts", "text_windows.py": "prints what it is given", "tools_test.py": "this"}
        for path in FOLDER.glob("*.py"):
            text = path.read_text()
            if "__main__" in text and path.name not in others:
                self.assertRegex(text, r"variety\.(tokens|tensors|numbers)\(", path.name)


class IoFiles(unittest.TestCase):
    def test_the_golden_files_are_what_the_formats_say(self):
        with tempfile.TemporaryDirectory() as scratch:
            io_files.write(scratch)
            for root in FOLDER / "golden" / "io", pathlib.Path(scratch):
                names = {path.relative_to(root) for path in root.rglob("*") if path.is_file()}
                self.assertEqual(len(names), 11)
                for name in names:
                    self.assertEqual((FOLDER / "golden" / "io" / name).read_bytes(), (pathlib.Path(scratch) / name).read_bytes(), name)


if __name__ == "__main__":
    unittest.main()

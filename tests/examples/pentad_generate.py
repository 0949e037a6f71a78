#!/usr/bin/env python3
"""Runs pentad_generate as users do: pentad_generate.py PENTAD_GENERATE TRAIN_LM MPIEXEC. A model that train_lm has written answers the same on every
mesh, whatever is asked beside it; bad input ends in one sentence."""
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from common import expect

PROGRAM, TRAIN_LM, MPIEXEC = sys.argv[1:]


def run(ranks, *arguments, lines="", **more):
    return subprocess.run([MPIEXEC, "-n", str(ranks), PROGRAM, *map(str, arguments)], input=lines, capture_output=True, text=True, timeout=100, **more)


def answers(ranks, *arguments, requests):
    done = run(ranks, "--prompts", "-", "--quiet", *arguments, lines="".join(json.dumps(one) + "\n" for one in requests))
    expect(done.returncode == 0 and not done.stderr, f"{ranks} ranks, {arguments}: {done}")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    expect([one["index"] for one in found] == list(range(len(requests))), done.stdout)
    for one in found:
        del one["first_token_seconds"], one["seconds"]
    return found


def make_models(folder):
    text = folder / "text"
    text.write_text("".join(f"{i * i} is the square of {i}\n" for i in range(300)))
    model, experts, saved = folder / "model", folder / "experts", folder / "saved"
    model.mkdir(), experts.mkdir()
    size = "--hidden 32 --heads 4 --kv-heads 2 --ffn 48 --seq 64 --batch 4 --dtype f64 --quiet".split()
    for more in (["--layers", 2, "--steps", 20, "--dump-weights", model, "--save", saved],
                 ["--layers", 2, "--steps", 2, "--experts", 4, "--dump-weights", experts]):
        done = subprocess.run([TRAIN_LM, "--data", str(text), *size, *map(str, more)], capture_output=True, text=True, timeout=100)
        expect(done.returncode == 0, done)
    return model, experts, saved


def same_on_every_mesh(model, meshes):
    requests = [{"prompt": "12", "max_tokens": 9, "temperature": 0}, {"prompt": "7 is", "id": "seven", "seed": 3, "log_probabilities": 2},
                {"tokens": [52, 57, 32], "top_k": 5, "temperature": 0.7, "max_tokens": 30}, {"prompt": "1 is the square of 1\n2", "top_p": 0.8, "min_p": 0.01},
                {"prompt": "16", "repetition_penalty": 1.3, "max_tokens": 1, "priority": 4}]
    alone = [answers(1, "--model", model, "--dtype", "f64", "--sequences", 1, requests=[one])[0] for one in requests]
    for number, one in enumerate(alone):
        one["index"] = number
        expect(one["end"] == "length" and len(one["tokens"]) == requests[number].get("max_tokens", 42 if number == 3 else 60), one)
        expect(one["prompt_tokens"] == len(requests[number].get("prompt", "abc")), one)
    expect(alone[1]["id"] == "seven" and "id" not in alone[0], alone)
    for token, told in zip(alone[1]["tokens"], alone[1]["log_probabilities"]):
        best = [other for _, other in told["likely"]]
        expect(best == sorted(best, reverse=True) and len(best) == 2 and told["log_probability"] <= best[0] + 1e-12, told)
        expect(all(math.isclose(other, told["log_probability"], rel_tol=1e-9) for number, other in told["likely"] if number == token), told)
    for ranks, flags in meshes:
        found = answers(ranks, "--model", model, "--dtype", "f64", *flags.split(), requests=requests)
        for one, expected in zip(found, alone):
            for a, b in zip(one.pop("log_probabilities", []), expected.get("log_probabilities", [])):
                expect(math.isclose(a["log_probability"], b["log_probability"], rel_tol=1e-9), (flags, a, b))
            expect(one == {key: value for key, value in expected.items() if key != "log_probabilities"}, f"{flags}: {one} and {expected}")


def stops(model):
    plain = answers(1, "--model", model, "--max-tokens", 20, "--temperature", 0, requests=[{"prompt": "1"}])[0]
    stop = plain["text"][5:8]
    at = plain["text"].find(stop)
    for arguments, request in ((["--stop", stop], {"prompt": "1"}), ([], {"prompt": "1", "stop": ["never there", stop]}), ([], {"prompt": "1", "stop": stop})):
        found = answers(1, "--model", model, "--max-tokens", 20, "--temperature", 0, *arguments, requests=[request])[0]
        expect(found["end"] == "stop_text" and found["text"] == plain["text"][:at] and len(found["tokens"]) == at + len(stop), found)
    found = answers(1, "--model", model, "--max-tokens", 20, "--temperature", 0, requests=[{"prompt": "1", "stop_tokens": [plain["tokens"][3]]}])[0]
    at = plain["tokens"].index(plain["tokens"][3])
    expect(found["end"] == "stop_token" and found["tokens"] == plain["tokens"][:at + 1] and found["text"] == plain["text"][:at], found)
    done = run(1, "--model", model, "--prompts", "-", "--text", "--max-tokens", 3, lines="a\n\nb\n")
    expect(done.returncode == 0 and len(done.stdout.splitlines()) == 2 and "2 requests, 2 tokens of prompts, 6 tokens written" in done.stderr, done)


def refuses(ranks, message, *arguments, lines='{"prompt": "a"}'):
    done = run(ranks, *arguments, lines=lines)
    expect(done.returncode == 2 and re.fullmatch(r"pentad_generate: [^\n]+\n", done.stderr) and message in done.stderr and not done.stdout,
           f"{ranks} ranks, {arguments}: {done}")


def bad_input(model, folder):
    usual = ["--model", model, "--prompts", "-"]
    for ranks, arguments, message in [
            (1, ["--prompts", "-"], "--model is required"), (1, ["--model", model], "--prompts is required"),
            (1, ["--model", folder / "none", "--prompts", "-"], "No such file"), (1, ["--model", model, "--prompts", folder / "none"], "cannot be read"),
            (2, [*usual, "--mesh", "dp=1"], "--mesh dp=1 is of 1 ranks on 2: start it with mpiexec -n 1"),
            (2, [*usual, "--mesh", "tq=2"], "did you mean tp?"), (2, [*usual, "--mesh", "tp=2,tp=1"], "twice"), (2, [*usual, "--mesh", "tp"], "AXIS=EXTENT"),
            (3, [*usual, "--mesh", "tp=3"], "not divisible by tp = 3"), (1, [*usual, "--temperature", "-1"], "temperature = -1"),
            (1, [*usual, "--top-p", "0"], "top_p = 0"), (1, [*usual, "--max-tokens", "0"], "--max-tokens: 0 is not a whole number"),
            (1, [*usual, "--dtype", "f16"], "f16 is none of"), (1, [*usual, "--bogus"], "--bogus")]:
        refuses(ranks, message, *arguments)
    for lines, message in [
            ("", "has no request"), ("hello", "line 1 of --prompts is no JSON"), ("3", "line 1 of --prompts: it is no object"),
            ('\n{"prompt": 3}', "line 2 of --prompts: prompt = 3 is no text"), ('{"prompt": ""}', "its prompt is empty"), ("{}", "it has a prompt or tokens"),
            ('{"prompt": "a", "tokens": [1]}', "one of them"), ('{"tokens": [1, 1000]}', "token 1000 for a model of 256 tokens"),
            ('{"tokens": [-1]}', "token -1"), ('{"prompt": "a", "max_token": 3}', "it has 'max_token'"), ('{"prompt": "a", "max_tokens": -3}', "max_tokens = -3"),
            ('{"prompt": "a", "temperature": "hot"}', "temperature = \"hot\" is no number"), ('{"prompt": "a", "stop": ""}', "a text of stop is empty"),
            ('{"prompt": "%s"}' % ("a" * 64), "its prompt has 64 tokens, and a sequence 64")]:
        refuses(1, message, *usual, lines=lines)
    draw = random.Random(1)
    whole = '{"prompt": "12 is", "max_tokens": 2, "temperature": 0.5, "top_k": 3, "stop": ["x"], "tokens_": [1, 2], "seed": 7, "id": {"a": null}}'
    for _ in range(30):
        at, count = draw.randrange(len(whole)), draw.randrange(1, 8)
        line = whole[:at] + draw.choice(["", "\x01", "[", '"', "1e999", "\\u00", "null,"]) + whole[at + count:]
        done = run(1, *usual, "--quiet", lines=line)
        fine = done.returncode == 0 and not done.stderr or done.returncode == 2 and re.fullmatch(r"pentad_generate: [^\n]+\n", done.stderr)
        expect(fine, f"{line}: {done}")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    model, experts, saved = make_models(folder)
    same_on_every_mesh(model, [(2, "--mesh tp=2 --sequences 2"), (4, "--mesh cp=2,tp=2 --page 2 --pass-tokens 5 --sequence-parallel on"), (4, "--mesh dp=2,pp=2"),
                               (4, "--mesh tp=4 --sequences 3"), (4, "--mesh tp=4 --tp-kind 2d"), (2, "--mesh dp=2 --zero 3")])
    same_on_every_mesh(experts, [(4, "--mesh ep=2,cp=2 --page 1"), (2, "--mesh pp=2 --pass-tokens 3")])
    expect(answers(2, "--model", saved, "--dtype", "f64", requests=[{"prompt": "5"}]) == answers(1, "--model", model, "--dtype", "f64", requests=[{"prompt": "5"}]),
           "a checkpoint and the weights of the same step differ")
    stops(model)
    bad_input(model, folder)

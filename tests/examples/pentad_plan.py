#!/usr/bin/env python3
"""Runs pentad_plan as users do: pentad_plan.py PENTAD_PLAN CHECKOUT MPIEXEC [update]. What it prints and writes, the contract of --evaluate, that the
commands of the pages give what the pages show, and that bad input ends in one sentence."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from common import busy, expect

PROGRAM, CHECKOUT, MPIEXEC = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
UPDATE = sys.argv[4:] == ["update"]
SVG = "{http://www.w3.org/2000/svg}"
SMALL = "--model llama-3-8b --hardware h100 --devices 16 --seq 4096 --global-batch 256 --zigzag on --attention-output reduce-scatter"
SERVE = "--model llama-3-70b --hardware h100 --serve --prompt 2000 --output 300"
CONTRACT = ["step_s", "tokens_per_s", "mfu", "memory_peak_bytes", "memory_mean_bytes", "fits", "bytes"]


def run(line):
    return subprocess.run([PROGRAM, *shlex.split(line)], capture_output=True, text=True, timeout=100)


KNOWN = {}  # what a command prints that reads no file: many checks ask for it


def output_of(line):
    if line in KNOWN:
        return KNOWN[line]
    done = run(line)
    expect(done.returncode == 0 and not done.stderr, f"{line}: {done}")
    if "/" not in line:
        KNOWN[line] = done.stdout
    return done.stdout


def json_of(line):
    return json.loads(output_of(line + " --json"))


def llama(folder):
    """The config.json of a small LLaMA."""
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "vocab_size": 4096,
                                "intermediate_size": 1408, "num_attention_heads": 8, "num_key_value_heads": 4}))
    return path


def machine(folder, **changes):
    path = folder / "machine.json"
    path.write_text(json.dumps({"name": "two nodes", "devices": 16, "devices_per_node": 8, "peak_flops": {"bf16": 3e14, "f32": 2e13},
                                "memory_bytes": 8e10, "memory_bandwidth": 2e12,
                                "links": [{"devices": 8, "latency_s": 3e-6, "bandwidth": 3e11},
                                          {"devices": 16, "latency_s": 1e-5, "bandwidth": 2.5e10}]} | changes))
    return path


def contract(folder):
    """The evaluating call, word for word."""
    files = f"--model-json {llama(folder)} --hardware-json {machine(folder)}"
    call = (f"{files} --evaluate dp=4,pp=2,tp=1,cp=1,ep=1 --seq 1024 --global-batch 64 --micro-batch 2 --zero 1 --schedule 1f1b "
            "--recompute selective --dtype bf16")
    made = json_of(call)
    expect(list(made)[:7] == CONTRACT, list(made))
    expect(list(made["bytes"]) == ["dp", "pp", "ep", "cp", "tp"] and all(isinstance(x, int) for x in made["bytes"].values()), made)
    expect(made["fits"] is True and 0 < made["mfu"] < 1 and made["memory_mean_bytes"] <= made["memory_peak_bytes"], made)
    expect(abs(made["tokens_per_s"] * made["step_s"] / (64 * 1024) - 1) < 1e-9, made)
    expect(made["bytes"]["dp"] > 0 and made["bytes"]["pp"] > 0 and made["bytes"]["tp"] == 0, made)
    expect(abs(sum(made["memory_bytes"].values()) - made["memory_peak_bytes"]) < 10, made)
    for zero in "0123":
        for recompute in ("none", "selective", "full"):
            json_of(call.replace("--zero 1", f"--zero {zero}").replace("selective", recompute))
    # That it does not fit is an answer too.
    machine(folder, memory_bytes=1e6)
    tight = json_of(call)
    expect(tight["fits"] is False and tight | {"fits": True} == made, "what does not fit has other numbers")
    expect("exceeds memory by" in output_of(call), "it is not said what lacks")
    # Every setting reaches the estimate.
    machine(folder)
    for change in ("--micro-batch 4", "--zero 3", "--schedule gpipe", "--recompute full", "--dtype f32", "--seq 2048", "--global-batch 128"):
        flag = change.split()[0]
        other = json_of(re.sub(flag + r" \S+", change, call))
        expect(other != made, f"{change} changes nothing")
    expect(json_of(call.replace("tp=1", "tp=2"))["bytes"]["tp"] > 0, "tp sends nothing")
    context = "--model llama-3-8b --hardware h100 --evaluate cp=8 --seq 32768 --global-batch 8"
    more = call.replace("tp=1", "tp=2")
    for change in ("--sequence-parallel on", "--order tp,dp,pp", "--zero-ranks 2", "--stages 1,3"):
        expect(json_of(f"{more} {change}") != json_of(more), f"{change} changes nothing")
    ways = {}
    for way in ("ring", "allgather", "ulysses", "two-level", "double-ring", "two-level --cp-heads 2", "two-level --cp-inner 4 --cp-heads 2",
                "double-ring --cp-inner 2", "auto"):
        ways[way] = json_of(f"{context} --cp {way}")
    expect(ways["ring"] == json_of(context), "--cp ring is not the default")
    expect(json_of(f"{context} --zigzag on") == ways["ring"], "--zigzag on is not the default")
    expect(json_of(f"{context} --zigzag off") != ways["ring"], "--zigzag off changes nothing")
    expect(ways["two-level"] == ways["ulysses"], "one node splits cp in other parts than all of it")
    expect(len({way["bytes"]["cp"] for way in ways.values()}) == 3, "rings send as much as gathers, heads less, and fewer ranks of heads more")
    expect(len({ways[way]["step_s"] for way in ("ring", "allgather", "ulysses", "two-level --cp-heads 2", "double-ring --cp-inner 2")}) == 5,
           "two strategies take as long")
    expect(ways["auto"]["step_s"] == min(way["step_s"] for way in ways.values()), "--cp auto is not the fastest")
    sharded = call.replace("--zero 1", "--zero 3")
    for change in ("--zero-keep on", "--zero-accumulate on"):
        expect(json_of(f"{sharded} {change}") != json_of(sharded), f"{change} changes nothing")
    single = call.replace("--micro-batch 2", "--micro-batch 16")  # of several micro-batches the gradients are summed up
    expect(json_of(f"{single} --gradient-release")["memory_peak_bytes"] < json_of(single)["memory_peak_bytes"], "--gradient-release")
    expect(json_of(f"{call} --schedule zb-v --chunks 2".replace("--schedule 1f1b ", "")) != made, "--chunks")


def search(folder):
    text = output_of(SMALL)
    expect(re.search(r"^1  \S+=.* %", text, re.M) and re.search(r"^5  ", text, re.M) and not re.search(r"^6  ", text, re.M), text)
    tight = SMALL + " --memory-limit 40GiB"
    expect(re.search(r"^-  .*exceeds memory by [\d.]+ GiB in (optimizer state|activations|gradients|weights)$", output_of(tight), re.M), tight)
    found = json_of(SMALL)
    steps = [plan["step_s"] for plan in found["plans"]]
    expect(len(steps) == 5 and steps == sorted(steps) and all(plan["fits"] for plan in found["plans"]), steps)
    missed = json_of(tight)
    expect(missed["near_misses"] and all(not x["fits"] and x["step_s"] < missed["plans"][0]["step_s"] for x in missed["near_misses"]), "near misses")
    expect(len(json_of(SMALL + " --top 2")["plans"]) == 2, "--top 2")
    # What is said of the winner is what --explain and --evaluate say of it.
    more = re.search(r"--explain (.*)", text)[1]
    one = json_of(f"{SMALL} --evaluate {more}")
    expect(one == {key: found["plans"][0][key] for key in one}, f"{more} is another plan")
    account = output_of(f"{SMALL} --explain {more}")
    for wanted in ("a step, on average over the ranks of the pipeline", "waits for the slowest stage", "layers of the stages: ", "memory of the fullest rank", "sent in a step, by axis", "bound by", "guidelines"):
        expect(wanted in account, f"no {wanted!r} in\n{account}")
    expect(output_of(f"{SMALL} --explain {more} --types") == output_of(f"{SMALL} --types"), "other types")
    # What is given is kept.
    for flag, key, value in (("--mesh tp=4", "mesh", 4), ("--zero 2", "zero", 2), ("--zero-ranks 2", "zero_ranks", 2),
                             ("--zero-keep on", "zero_keep", True), ("--zero-accumulate on", "zero_accumulate", True),
                             ("--gradient-release", "gradient_release", True), ("--recompute full", "recompute", "full"),
                             ("--micro-batch 1", "micro_batch", 1), ("--mesh tp=2 --sequence-parallel on", "sequence_parallel", True),
                             ("--mesh tp=2 --sequence-parallel off", "sequence_parallel", False),
                             ("--mesh pp=4 --schedule zb-h1", "schedule", "zb-h1"), ("--mesh pp=2 --schedule interleaved-1f1b --chunks 2", "chunks", 2),
                             ("--local-steps 8", "local_steps", 8), ("--chunks 2", "chunks", 2), ("--mesh cp=2 --cp allgather", "cp", "allgather"),
                             ("--mesh cp=4 --cp two-level --cp-heads 2", "cp_heads", 2), ("--mesh cp=4 --cp double-ring --cp-inner 2", "cp_inner", 2)):
        plans = json_of(f"{SMALL} {flag}")["plans"]
        kept = [plan[key]["tp"] if key == "mesh" else plan[key] for plan in plans]
        expect(plans and all(x == value for x in kept), f"{flag}: {kept}")
    # Groups that train apart exclude hybrid sharding, and orders of the axes in which they do not hold the experts.
    apart = output_of("--model mixtral-8x7b --hardware h100 --devices 64 --seq 4096 --global-batch 256 --micro-batch 1 --recompute none --schedule 1f1b --local-steps 8")
    expect(" --local-steps 8" in apart, apart)
    rows = re.findall(r"^[1-5-]  (\S+)", text, re.M)
    expect(("attention" in text.split("memory")[0]) == any("cp=" in mesh for mesh in rows), "a column for cp where a plan has it")
    expect("attention" not in output_of(f"{SMALL} --mesh cp=1").split("memory")[0], "a column for cp, which no plan has")
    # Not given, these are searched.
    plans = json_of(SMALL.replace("--zigzag on --attention-output reduce-scatter", "--mesh pp=1,tp=4,cp=2 --top 99"))["plans"]
    expect({plan["attention_output"] for plan in plans} == {"reduce-scatter", "all-to-all"}, "--attention-output is not searched")
    expect({plan["strategy"].get("block", {}).get("zigzag", False) for plan in plans} == {True, False}, "--zigzag is not searched")
    long = "--model llama-3-8b --hardware h100 --devices 16 --seq 65536 --global-batch 8 --mesh cp=16 --recompute auto --zero 3"
    text, found = output_of(long), json_of(long)
    shown = re.search(r"^1  cp=16 +(two-level heads=8|ulysses) ", text, re.M)
    expect(shown and shown[1].startswith(found["plans"][0]["cp"]), text)
    more = re.search(r"--explain (.*)", text)[1]
    one = json_of(f"{long} --evaluate {more}".replace("--mesh cp=16 --recompute auto --zero 3 ", ""))
    expect(" --cp " in more and one == {key: found["plans"][0][key] for key in one}, f"{more} is another plan")
    # So is what the optimizer keeps, and in which numbers.
    state = f"{SMALL} --mesh pp=1,cp=1,tp=1 --top 1 --optimizer muon --moment-dtype fp8 --reduce-dtype bf16 --offload optimizer --dtype f32"
    more, found = re.search(r"--explain (.*)", output_of(state))[1], json_of(state)
    one = json_of(f"{SMALL} --evaluate {more}")
    expect(one == {key: found["plans"][0][key] for key in one}, f"{more} is another plan")
    slower = json_of(SMALL + " --dtype f32")["plans"][0]
    expect(slower["step_s"] > 2 * steps[0], "f32 is as fast as bf16")


def stages(folder):
    """Stages by cost: a head as long as some layers is a stage of its own, the account says who waits, and the search finds it."""
    head = "--model llama-1b --hardware h100 --seq 4096 --global-batch 256"
    even, balanced = (json_of(f"{head} --evaluate pp=8 --zero 1 {flag}") for flag in ("", "--stages balanced"))
    expect(balanced["step_s"] < 3.1 < 4.4 < even["step_s"] and balanced["stage_layers"][-1] == 0 and sum(balanced["stage_layers"]) == 16, balanced)
    expect(even["time_s"]["waits for the slowest stage"] > 0.5 * even["step_s"] > 10 * even["time_s"]["waits for other stages"], even)
    expect(abs(even["time_s"]["matrix products"] / balanced["time_s"]["matrix products"] - 1) < 1e-9, "the mean of the ranks' work depends on its deal")
    listed = ",".join(map(str, balanced["stage_layers"]))
    expect(json_of(f"{head} --evaluate pp=8 --zero 1 --stages {listed}") == balanced, "balanced is another plan than its list")
    text = output_of(f"{head} --explain pp=8 --zero 1")
    expect(f"; --stages {listed} takes " in text and "wait for the slowest stage" in text, text)
    for flag in ("", f"--stages {listed}", "--stages balanced"):
        found = json_of(f"{head} --mesh pp=8 --zero 1 --schedule 1f1b --recompute none --micro-batch 1 {flag}")["plans"][0]
        expect(found["stage_layers"] == balanced["stage_layers"], f"{flag}: the search finds {found['stage_layers']}")
    plans = json_of(SMALL)["plans"]
    keys = [[plan.get(key) for key in ("micro_batch", "zero", "zero_ranks", "schedule", "recompute", "sequence_parallel", "cp")]
            + sorted(plan["mesh"].items()) for plan in plans]
    expect(all(keys.count(key) == 1 for key in keys), f"plans that differ in chunks, order or stages alone: {keys}")


def picture(folder):
    path = folder / "plans.svg"
    output_of(f"{SMALL} --svg {path}")
    found = json_of(SMALL)
    root = xml.etree.ElementTree.parse(path).getroot()
    width, height = float(root.get("width")), float(root.get("height"))
    points = [circle for circle in root.iter(SVG + "circle") if circle.find(SVG + "title") is not None]
    expect(len(points) == sum(len(found[kind]) for kind in ("plans", "near_misses", "front")), f"{len(points)} points")
    expect(all(0 < float(p.get("cx")) < width and 0 < float(p.get("cy")) < height for p in points), "a point is outside")
    limit = float(re.match(r"M([\d.]+)", next(p for p in root.iter(SVG + "path") if p.get("id") == "limit").get("d"))[1])
    for point in points:
        is_miss = point.get("stroke") is not None
        expect((float(point.get("cx")) > limit) == is_miss, "a plan is on the wrong side of the limit")


def machines(folder):
    path = folder / "h100.json"
    expect(output_of(f"--hardware h100 --devices 16 --hardware-out {path}") == "", "--hardware-out prints")
    of_file = SMALL.replace("--hardware h100 --devices 16", f"--hardware-json {path}")
    expect(json_of(of_file) == json_of(SMALL), "the file of a machine is another machine")
    half = json.loads(path.read_text())
    half["peak_flops"] = {key: value / 2 for key, value in half["peak_flops"].items()}
    path.write_text(json.dumps(half))
    expect(json_of(of_file)["plans"][0]["step_s"] > 1.5 * json_of(SMALL)["plans"][0]["step_s"], "an edited machine is as fast")
    names = output_of("--list")
    expect("deepseek-v3" in names and "h800" in names and "zb-v" in names, names)
    # One plan may be larger than a node of the preset, as far as its links go.
    json_of("--model llama-3-8b --hardware h100 --evaluate dp=64,tp=8 --seq 4096 --global-batch 256 --zero 1")


def serving(folder):
    plans = json_of(SERVE)["plans"]
    rates = [plan["requests_per_s"] for plan in plans]
    expect(rates == sorted(rates, reverse=True) and len(rates) == 5, rates)
    within = json_of(SERVE + " --ttft-p95-ms 400")["plans"]
    expect(all(plan["first_token_p95_s"] <= 0.4 * (1 + 1e-6) for plan in within) and within[0]["requests_per_s"] <= rates[0], within)
    at = json_of(SERVE + " --ttft-p95-ms 400 --rate 2")["plans"]
    expect(all(plan["requests_per_s"] == 2 and plan["first_token_p95_s"] <= 0.4 for plan in at), at)
    quick = json_of(SERVE + " --objective latency")["plans"]
    answer = [plan["first_token_s"] + 299 * plan["token_s"] for plan in quick]
    expect(answer == sorted(answer) and answer[0] < plans[0]["first_token_s"] + 299 * plans[0]["token_s"], answer)
    expect(all(plan["mesh"]["tp"] == 8 for plan in json_of(SERVE + " --mesh tp=8")["plans"]), "--mesh")
    text = output_of(SERVE)
    expect("each token" in text and re.search(r"^1  \S+ +[\d.]+ ms", text, re.M), text)


def shown(lines, old):
    """As much of the output as the page shows: `...` stands for the rest."""
    if "..." not in old:
        return lines
    before, after = old.index("..."), len(old) - old.index("...") - 1
    return lines[:before] + ["..."] + (lines[-after:] if after else [])


def printed_lines(folder):
    """What a search prints to look further and to run its first plan is accepted and complete: mixers without heads, layers that stages do not
    divide."""
    for model, more, stages in [("--model mamba2-7b --hardware h100 --seq 32768 --global-batch 16", "--devices 16 --mesh cp=4,pp=1", None),
                                ("--model llama-3-8b --hardware h100 --seq 4096 --global-batch 96",
                                 "--devices 24 --mesh pp=3 --micro-batch 1 --schedule 1f1b --chunks 1 --stages 11,11,10", "11,11,10"),
                                ("--model llama-3-8b --hardware h100 --seq 4096 --global-batch 96", "--explain pp=3,dp=8", "11,11,10")]:
        text = output_of(f"{model} {more}")
        if "--explain" not in more:
            first = re.search(r"^More of the first: (.*)$", text, re.M).group(1)
            expect("step " in output_of(f"{model} {first}"), first)
        command = re.search(r"^to run it: (.*)$", text, re.M | re.I).group(1)
        found = re.search(r" --stages (\S+)", command)
        expect((found and found.group(1)) == stages, f"{more}: {command}")


def explained_blocks(folder):
    """The account of a plan whose blocks have meshes of their own is made on these meshes."""
    text = output_of("--model llama-3-8b --hardware h100 --seq 4096 --global-batch 64 --explain dp=4,tp=2 --blocks 0:cp=1,tp=4,tp-kind=2d/1-2:cp=2,tp=2")
    expect(" --blocks 0:cp=1,tp=4,tp-kind=2d/1-2:cp=2,tp=2 " in text and "step " in text, text)


def pages(folder):
    """Commands in the pages give what the pages show below them; with `update` it is written there."""
    blocks = 0
    for page in (CHECKOUT / "README.md", CHECKOUT / "docs/planner.md"):
        text = page.read_text()
        for command, old in re.findall(r"```\n\$ pentad_plan (.*?)\n(.*?)\n```", text, re.S):
            now = shown(output_of(command).splitlines(), old.splitlines())
            if UPDATE:
                text = text.replace(old, "\n".join(now))
            else:
                expect(now == old.splitlines(), f"{page.name}: pentad_plan {command} prints\n" + "\n".join(now)
                       + "\n(pentad_plan.py PENTAD_PLAN CHECKOUT MPIEXEC update writes it there)")
            blocks += 1
        if UPDATE:
            page.write_text(text)
    expect(blocks >= 4, f"the pages show {blocks} commands")


def hostile_files(folder):
    """Files that are deep, huge, endless or no text end in one sentence, at once; a file's name that is no text becomes one."""
    deep, large, pipe = (folder / name for name in ("deep", "large", "pipe"))
    deep.write_text('{"name":' + "[" * 70_000 + "]" * 70_000 + "}")
    large.write_text("{")
    os.truncate(large, 10**9)
    os.mkfifo(pipe)
    for flag, rest, most in [("--hardware-json", "--model llama-3-8b", 1048576), ("--model-json", "--hardware h100", 16777216)]:
        for path, message in [(deep, "the file: expected lists and objects at most 64 deep"),
                              (large, f"it has 1000000000 bytes, and at most {most} are allowed"),
                              (pipe, "it is no regular file"), ("/dev/zero", "it is no regular file")]:
            start = busy()
            done = run(f"{flag} {path} {rest} --seq 4096 --global-batch 256")
            expect(done.returncode == 2 and re.fullmatch(r"pentad_plan: [^\n]{1,300}\n", done.stderr) and message in done.stderr,
                   f"{flag} {path}: {done.returncode}, {done.stderr[:1000]}")
            expect(busy() - start < 5, f"{flag} {path}: {busy() - start} s")
    nameless, written = folder / os.fsdecode(b"\xff.json"), folder / "written.json"
    nameless.write_text(json.dumps({key: value for key, value in json.loads(machine(folder).read_text()).items() if key != "name"}))
    output_of(f"--hardware-json {nameless} --hardware-out {written}")
    expect(json.loads(written.read_text())["name"].endswith(r"/\xff.json"), written.read_text())


def bad_input(folder):
    config, hardware = llama(folder), machine(folder)
    bad = folder / "bad.json"
    bad.write_text("{\"name\": ")
    odd = folder / "odd.json"
    odd.write_text(hardware.read_text().replace("memory_bytes", "memory_byte"))
    negative = folder / "negative.json"
    negative.write_text(hardware.read_text().replace("80000000000.0", "-1"))
    other = folder / "other.json"
    other.write_text(json.dumps({"model_type": "bert"}))
    one = "--model llama-3-8b --hardware h100 --evaluate dp=2,tp=2 --seq 4096 --global-batch 256"
    for line, status, message in [
            ("", 2, "give --model NAME or --model-json FILE"),
            ("--model llama-3-8b", 2, "give --hardware NAME, --hardware-json FILE, or --measure"),
            ("--model llama-3-8b --hardware h100", 2, "give --seq N"),
            ("--model llama-3-8b --hardware h100 --seq 4096 --global-batch 256 --expert-imbalance 2", 2, "llama-3-8b has no experts"),
            ("--model mixtral-8x7b --hardware h100 --seq 4096 --global-batch 256 --expert-imbalance 0.5", 2, "is below 1"),
            ("--model llama-3-8b --hardware h100 --seq 4096", 2, "give --global-batch N"),
            (f"--model llama-3-8b --model-json {config} --hardware h100", 2, "--model and --model-json are both given: give one"),
            (SMALL.replace("llama-3-8b", "lama-3-8"), 2, "--model lama-3-8 is unknown: did you mean llama-3-8b?"),
            (SMALL.replace("h100", "h1000"), 2, "--hardware h1000 is unknown: did you mean h100?"),
            (SMALL + " --schedule 1fb1", 2, "--schedule 1fb1 is unknown: did you mean 1f1b?"),
            (SMALL + " --recompute selectiv", 2, "--recompute selectiv is unknown: did you mean selective?"),
            (SMALL + " --dtype fp16", 2, "--dtype fp16 is unknown: did you mean"),
            (SMALL + " --sequence-parallel yes", 2, "--sequence-parallel yes is unknown: did you mean"),
            (SMALL + " --zero 4", 2, "--zero 4 is not a whole number from 0 to 3"),
            (SMALL + " --micro-bach 4", 2, "there is no flag --micro-bach: did you mean --micro-batch?"),
            (SMALL + " 4", 2, "'4' belongs to no flag"),
            (SMALL + " --micro-batch 0", 2, "--micro-batch 0 is not a whole number from 1"),
            (SMALL + " --micro-batch 1.5", 2, "--micro-batch 1.5 is not a whole number from 1"),
            (SMALL.replace("4096", "-4096"), 2, "--seq -4096 is not a whole number from 1"),
            (SMALL.replace("4096", "4k"), 2, "--seq 4k is not a whole number from 1"),
            (SMALL.replace("256", "1e9"), 2, "--global-batch 1e9 is not a whole number"),
            (SMALL.replace("--devices 16", "--devices 0"), 2, "--devices 0 is not a whole number from 1"),
            (SMALL.replace("--devices 16", "--devices 12"), 2, "they do not fill nodes of 8: give 8 or 16"),
            (SMALL + " --devices 8", 2, "--devices"),
            (SMALL + " --top 0", 2, "--top 0 is not a whole number from 1 to 1000"),
            (SMALL + " --mesh dp", 2, "--mesh dp is not a list of AXIS=EXTENT, as in dp=4,pp=2"),
            (SMALL + " --mesh dp=2,xp=2", 2, "axis xp is unknown: did you mean"),
            (SMALL + " --mesh dp=2,dp=4", 2, "--mesh dp=2,dp=4 names dp twice"),
            (SMALL + " --mesh dp=0", 2, "--mesh dp = 0 is not a whole number from 1"),
            (SMALL + " --mesh dp=3", 2, "the mesh has 3 ranks, which do not divide the 16 devices"),
            (SMALL.replace("256", "7") + " --mesh dp=16", 2, "the global batch = 7 is not divisible by dp x ep x micro-batch = 16"),
            (SMALL.replace("256", "7") + " --mesh tp=1,pp=1,cp=1,ep=1", 2,
             "with dp=16, the global batch = 7 is not divisible by dp x ep x micro-batch = 16"),
            (SMALL + " --cp rings", 2, "--cp rings is unknown: did you mean ring?"),
            (SMALL + " --cp-heads 2", 2, "--cp-heads 2 says nothing without --cp two-level"),
            (SMALL + " --cp ring --cp-inner 2", 2, "--cp-inner 2 says nothing without --cp two-level or double-ring"),
            (SMALL + " --cp two-level --cp-heads 1", 2, "--cp-heads 1 is not a whole number from 2"),
            (SMALL + " --mesh cp=4 --cp two-level --cp-heads 3", 2, "--cp-heads 3 does not divide cp = 4"),
            (SMALL + " --mesh cp=8 --cp two-level --cp-heads 8 --cp-inner 4", 2, "--cp-heads 8 is neither --cp-inner 4 nor cp / --cp-inner = 2"),
            (one.replace("dp=2,tp=2", "tp=8,cp=4") + " --cp double-ring", 2, "--cp double-ring splits cp = 4 by nodes, and not every node has 2 or more"),
            (one.replace("dp=2,tp=2", "tp=8,cp=8") + " --cp ulysses", 2,
             "heads = 32 over tp = 8 gives 4, which are not divisible by the 8 ranks of cp that exchange heads"),
            (one.replace("llama-3-8b", "deepseek-v3") + " --cp ulysses", 2,
             "--cp ulysses: deepseek-v3 has no attention that goes over cp so: give --cp ring or allgather"),
            (SERVE + " --cp ring", 2, "--cp has no meaning with --serve"),
            (SMALL + " --gradient-release=off", 2, "--gradient-release takes no value, and was given off"),
            (SMALL + " --outer-lr 0.7", 2, "--outer-lr says nothing without --local-steps"),
            (SMALL + " --row-dtype fp8", 2, "--row-dtype is of experts, and llama-3-8b has none"),
            (SMALL + " --schedule zb-v --chunks 3", 2, "zb-v is defined for 2 chunks a rank, not 3"),
            (SMALL + " --order dp,tp", 2, "--order is for --evaluate and --explain"),
            (SMALL + " --prompt 5", 2, "--prompt is for --serve"),
            (SMALL + " --json --types", 2, "--json and --types are two answers"),
            (SMALL + " --evaluate dp=16 --mesh dp=4", 2, "--mesh has no meaning with --evaluate"),
            (SMALL + " --evaluate dp=8", 2, "the mesh has 8 ranks, and --devices says 16"),
            (one.replace("dp=2,tp=2", "dp=99999"), 2, "h100 joins 16384 devices"),
            (one.replace("tp=2", "tp=3"), 2, "heads = 32 is not divisible by tp = 3"),
            (one.replace("tp=2", "pp=3") + " --schedule chimera", 2, "--schedule chimera is defined for an even number of ranks, not 3"),
            (one.replace("tp=2", "pp=2") + " --schedule 1f1b --chunks 2", 2, "1f1b is defined for 1 chunk a rank, not 2"),
            (one.replace("tp=2", "pp=64"), 2, "layers = 32 is less than the stages of the pipeline, pp = 64"),
            (one + " --zero 1 --zero-ranks 3", 2, "--zero-ranks 3 does not divide dp = 2"),
            (one + " --zero-ranks 2", 2, "--zero-ranks 2 shards nothing with --zero 0"),
            (SMALL + " --zero 2 --zero-keep on", 2, "--zero-keep on keeps gathered parameters, and --zero 2 gathers none"),
            (one.replace("tp=2", "pp=2") + " --schedule dualpipe --gradient-release", 2, "they cannot be released"),
            (one.replace("tp=2", "pp=2") + " --stages 16,15", 2, "--stages 16,15 is of 31 layers, and the model has 32"),
            (one.replace("tp=2", "pp=2") + " --stages 32", 2, "--stages 32 is for 1 stages, and the pipeline has 2"),
            (one.replace("tp=2", "pp=2") + " --stages even", 2, "--stages even is neither a list of numbers nor balanced"),
            (one + " --order dp", 2, "--order dp does not name tp, which has 2 ranks"),
            (one + " --order dp,tp,dp", 2, "names dp twice"),
            (one + " --svg x", 2, "--svg has no meaning with --evaluate"),
            (one.replace("llama-3-8b", "llama-3-70b").replace("--evaluate dp=2,tp=2", ""), 2, "no plan fits h100 x 8: the nearest, "),
            (one.replace("--model llama-3-8b", f"--model-json {folder}/none"), 2, "No such file"),
            (one.replace("--model llama-3-8b", f"--model-json {bad}"), 2, "bad.json: "),
            (one.replace("--model llama-3-8b", f"--model-json {other}"), 2, "other.json: "),
            (one.replace("--hardware h100", f"--hardware-json {bad}"), 2, "bad.json: line 1"),
            (one.replace("--hardware h100", f"--hardware-json {odd}"), 2, "did you mean memory_bytes?"),
            (one.replace("--hardware h100", f"--hardware-json {negative}"), 2, "memory_bytes: expected a number"),
            (SERVE.replace("--prompt 2000", ""), 2, "give --prompt N"),
            (SERVE + " --seq 5", 2, "--seq has no meaning with --serve"),
            (SERVE + " --rate 0", 2, "--rate 0 is not a number above 0"),
            (SERVE + " --rate nan", 2, "--rate nan is not a number above 0"),
            (SERVE + " --ttft-p95-ms -3", 2, "--ttft-p95-ms -3 is not a number above 0"),
            (SERVE + " --objective fast", 2, "--objective fast is unknown: did you mean"),
            (SERVE + " --mesh cp=2", 2, "--mesh: cp is 1 with --serve"),
            (SERVE + " --ttft-p95-ms 10", 2, "where no prompt waits the first token takes "),
            (SERVE + " --rate 1000", 2, "no plan does it: pp=4,tp=2 comes nearest, with "),
            (SERVE + " --devices 1", 2, "no plan fits: the nearest, dp=1, exceeds memory by "),
            ("--hardware-out /dev/null --model llama-3-8b --hardware h100", 2, "--model has no meaning with --hardware-out"),
            ("--list --json", 2, "--json has no meaning with --list"),
            (SMALL + " --svg /dev/full", 3, "/dev/full: No space left on device"),
            (f"--hardware h100 --hardware-out {folder}/none/x", 2, "No such file"),
            (f"--hardware h100 --hardware-out {folder}", 2, "Is a directory"),
            ("--hardware h100 --hardware-out ''", 2, "--hardware-out '' names no file"),
            (SMALL + " --svg ''", 2, "--svg '' names no file"),
            (one.replace("--model llama-3-8b", "--model-json ''"), 2, "--model-json '' names no file"),
            (one.replace("--hardware h100", "--hardware-json ''"), 2, "--hardware-json '' names no file"),
            (f"--hardware-json {odd} --hardware-out {folder}/./odd.json", 2, "would overwrite --hardware-json"),
            (SMALL.replace("--hardware h100", f"--hardware-json {odd}") + f" --svg {odd}", 2, "would overwrite --hardware-json"),
            (SMALL + " '--bo\ngus'", 2, "there is no flag --bo\\x0agus")]:
        done = run(line)
        expect(done.returncode == status and re.fullmatch(r"pentad_plan: [^\n]+\n", done.stderr) and message in done.stderr
               and not done.stdout, f"{line}:\nwanted {status}, {message}\n{done}")
    done = run("--help")
    expect(done.returncode == 0 and not done.stderr and "--evaluate" in done.stdout, "--help")


def ranks(folder):
    """On several ranks one answers, and all end alike; with --measure too."""
    def on_ranks(count, line):
        return subprocess.run([MPIEXEC, "-n", str(count), PROGRAM, *shlex.split(line)], capture_output=True, text=True, timeout=100)
    for count, line in ((3, "--list"), (2, "--help"), (2, "--measure --help")):
        done = on_ranks(count, line)
        expect(done.returncode == 0 and not done.stderr and done.stdout == run(line.replace("--measure ", "")).stdout, f"{count}, {line}: {done}")
    out = folder / "measured.json"
    done = on_ranks(2, f"--measure --hardware-out {out}")
    expect(done.returncode == 0 and not done.stderr and json.loads(out.read_text())["devices"] == 2, done)
    for count, line, status, message in [
            (3, "--bogus", 2, "there is no flag --bogus"),
            (2, "--measure --list", 2, "--measure has no meaning with --list"),
            (2, "--measure --hardware-out ''", 2, "--hardware-out '' names no file"),
            (2, f"--measure --hardware-json {out}", 2, "give --model NAME"),
            (2, "--measure --hardware-out /dev/full", 3, "No space left on device")]:
        done = on_ranks(count, line)
        expect(done.returncode == status and re.fullmatch(r"pentad_plan: [^\n]+\n", done.stderr) and message in done.stderr
               and not done.stdout, f"{count} ranks, {line}:\nwanted {status}, {message}\n{done}")


def full_output(folder):
    with open("/dev/full", "w") as full:
        for line in ("--list", "--help", SMALL):
            done = subprocess.run([PROGRAM, *line.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            expect(done.returncode == 3 and done.stderr == "pentad_plan: cannot write to standard output: No space left on device\n", f"{line}: {done}")


with tempfile.TemporaryDirectory() as name:
    for check in (contract, search, stages, printed_lines, explained_blocks, picture, machines, serving, pages, bad_input, ranks, full_output, hostile_files):
        check(pathlib.Path(name))
        print(f"{check.__name__}: ok", flush=True)

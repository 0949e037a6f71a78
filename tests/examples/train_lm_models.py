#!/usr/bin/env python3
"""train_lm with models and weights from files: train_lm_models.py TRAIN_LM MPIEXEC. Each family trains from its config.json, is dumped, and
goes on from the dump on another mesh with the same numbers; what does not fit is refused in one sentence."""
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from common import expect

TRAIN_LM, MPIEXEC = sys.argv[1:]
RUN = "--seq 16 --batch 8 --micro-batches 2 --dtype f64 --quiet --warmup 0 --lr 0.01".split()
BYTES = ["--tokens", __file__, "--token-type", "uint8"]  # of any vocabulary that has as many
COMMON = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 257,
          "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
          "bos_token_id": 1, "eos_token_id": [2, 3], "max_position_embeddings": 4096, "transformers.js_config": {"dtype": "q4"}, "pretraining_tp": 1}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
EXPERTS = {"num_experts_per_tok": 2, "router_aux_loss_coef": 0.01}
FAMILIES = {
    "llama": {"rope_theta": 500000.0, "rope_scaling": LLAMA3, "head_dim": 16, "tie_word_embeddings": True},
    "mistral": {"sliding_window": None},
    "mixtral": {**EXPERTS, "num_local_experts": 4, "sliding_window": None},
    "qwen2": {"use_sliding_window": False, "sliding_window": 4096},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 24, "norm_topk_prob": False, "mlp_only_layers": [1], "decoder_sparse_step": 1},
}


def train(ranks, *flags):
    return subprocess.run([MPIEXEC, "-n", str(ranks), TRAIN_LM, *RUN, *map(str, flags)], capture_output=True, text=True, timeout=120)


def losses(ranks, log, *flags):
    done = train(ranks, "--log", log, *flags)
    expect(done.returncode == 0 and not done.stderr, f"{ranks} ranks, {flags}: {done}")
    return [step["loss"] for step in map(json.loads, log.read_text().splitlines()) if "step" in step]


def refuses(message, ranks, *flags):
    done = train(ranks, *flags)
    expect(done.returncode == 2 and re.fullmatch(r"train_lm: [^\n]+\n", done.stderr) and re.search(message, done.stderr) and not done.stdout,
           f"{flags}: wanted {message}, got {done}")


def family(name, folder):
    config, dump, log = folder / "config.json", folder / "dump", folder / "log"
    config.write_text(json.dumps({"model_type": name, **COMMON, **FAMILIES[name]}))
    dump.mkdir()
    drawn = losses(1, log, "--model", config, *BYTES, "--steps", 2, "--dump-weights", dump, "--seed", 3)
    expect(drawn[1] < drawn[0], f"{name} does not learn: {drawn}")
    written = json.loads((dump / "config.json").read_text())
    expect(written == {**json.loads(config.read_text()), "torch_dtype": "float64"}, f"{name} is another model now: {written}")
    # On from there, with other data, on one rank and on a mesh: another loss than with drawn weights, and the same one.
    go_on = ["--model", dump, "--weights", dump, *BYTES, "--steps", 3, "--seed", 4]
    alone = losses(1, log, *go_on)
    fresh = losses(1, log, "--model", dump, *BYTES, "--steps", 1, "--seed", 4)
    expect(abs(alone[0] - fresh[0]) > 1e-3, f"{name}: the weights were not read: {alone[0]}, {fresh[0]}")
    mesh = "pp=2,ep=2,tp=2" if "experts" in str(FAMILIES[name]) else "pp=2,cp=2,tp=2"
    spread = losses(8, log, *go_on, "--mesh", mesh, "--zero", 1)
    expect(max(abs(a - b) for a, b in zip(alone, spread)) < 1e-10, f"{name} on {mesh}: {spread}, alone {alone}")
    return config, dump


def own_attention(folder):
    """A model that no family has, with capped scores, ALiBi and sinks: its dump is read again with the same flags, on any mesh."""
    dump, log = folder / "own", folder / "log"
    dump.mkdir()
    sizes = "--layers 2 --hidden 32 --heads 4 --kv-heads 2 --ffn 48".split()
    flags = [*sizes, "--positions", "alibi", "--soft-cap", 0.5, "--attention-sinks"]
    drawn = losses(1, log, *flags, "--steps", 3, "--dump-weights", dump, "--seed", 3)
    written = json.loads((dump / "config.json").read_text())
    expect(written["model_type"] == "pentad" and "scores capped at 0.5, ALiBi, sinks" in written["pentad_blocks"], written)
    expect(b"model.layers.1.self_attn.sinks" in (dump / "model.safetensors").read_bytes(), "the sinks are not in the dump")
    go_on = [*flags, "--weights", dump, "--steps", 3, "--seed", 4]
    alone, spread = losses(1, log, *go_on), losses(8, log, *go_on, "--mesh", "pp=2,cp=2,tp=2", "--zero", 1)
    expect(abs(alone[0] - drawn[0]) > 1e-3, f"the weights were not read: {alone[0]}, {drawn[0]}")
    expect(max(abs(a - b) for a, b in zip(alone, spread)) < 1e-10, f"{spread}, alone {alone}")
    others = [losses(1, log, *sizes, "--steps", 1, *changed)[0] for changed in (
        [], ["--positions", "alibi"], ["--positions", "none"], ["--soft-cap", 0.5])]
    expect(len(set(others)) == 4, f"flags of attention that change nothing: {others}")
    refuses(r"own does not fit the model: .*self_attn.sinks", 2, *sizes, "--positions", "alibi", "--weights", dump)
    refuses("--model .*own: .*model_type", 1, "--model", dump)


def latent_attention(folder):
    """Its dump has the names of DeepSeek's checkpoints, and is read again with the same flags, on any mesh."""
    dump, log = folder / "latent", folder / "log"
    dump.mkdir()
    sizes = "--layers 2 --hidden 32 --heads 4 --ffn 48".split()
    flags = [*sizes, "--latent-attention", "q=12,kv=16,rope=4,nope=6,v=5"]
    drawn = losses(1, log, *flags, "--steps", 3, "--dump-weights", dump, "--seed", 3)
    weights = (dump / "model.safetensors").read_bytes()
    header = json.loads(weights[8:8 + struct.unpack("<Q", weights[:8])[0]])
    for name, shape in {"q_a_proj": [12, 32], "q_a_layernorm": [12], "q_b_proj": [40, 12], "kv_a_proj_with_mqa": [20, 32], "kv_a_layernorm": [16],
                        "kv_b_proj": [44, 16], "o_proj": [32, 20]}.items():
        expect(header[f"model.layers.1.self_attn.{name}.weight"]["shape"] == shape, f"{name}: {header}")
    go_on = [*flags, "--weights", dump, "--steps", 3, "--seed", 4]
    alone, spread = losses(1, log, *go_on), losses(8, log, *go_on, "--mesh", "pp=2,cp=2,tp=2", "--zero", 1, "--zigzag")
    expect(abs(alone[0] - drawn[0]) > 1e-3, f"the weights were not read: {alone[0]}, {drawn[0]}")
    expect(max(abs(a - b) for a, b in zip(alone, spread)) < 1e-10, f"{spread}, alone {alone}")
    refuses(r"latent does not fit the model: .*self_attn.q_", 2, *sizes, "--latent-attention", "q=0,kv=16,rope=4,nope=6,v=5", "--weights", dump)


def tokens(config, folder):
    """Tokens of any vocabulary, in the three forms: the same numbers."""
    numbers = [(i * i + 3 * i) % 1000 for i in range(2000)]
    large = folder / "large.json"
    large.write_text(json.dumps({**json.loads(config.read_text()), "vocab_size": 1000}))
    (folder / "u16").write_bytes(struct.pack(f"<{len(numbers)}H", *numbers))
    (folder / "u32").write_bytes(struct.pack(f"<{len(numbers)}I", *numbers))
    head = "{'descr': '<i4', 'fortran_order': False, 'shape': (2000,), }".ljust(117) + "\n"
    (folder / "t.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"<{len(numbers)}i", *numbers))
    usual = ["--model", large, "--steps", 2, "--min-lr", 0.001, "--beta1", 0.8, "--beta2", 0.99, "--epsilon", 1e-6]
    found = [losses(ranks, folder / "log", *usual, *flags) for ranks, flags in (
        (1, ["--tokens", folder / "u16"]), (2, ["--tokens", folder / "u32", "--token-type", "uint32"]), (4, ["--tokens", folder / "t.npy"]))]
    expect(all(abs(a - b) < 1e-12 for one in found[1:] for a, b in zip(found[0], one)), f"tokens: {found}")
    other = losses(1, folder / "log", "--model", large, "--steps", 2, "--tokens", folder / "u16")
    expect(other[0] == found[0][0] and other[1] != found[0][1], f"the optimizer's flags change nothing: {other}, {found[0]}")
    refuses("--tokens and --data: give files of tokens or of text", 1, "--model", large, "--tokens", folder / "u16", "--data", folder / "u16")
    refuses("--sample 3 is for text", 1, "--model", large, "--tokens", folder / "u16", "--sample", 3)


def bad_input(config, dump):
    folder = config.parent
    other = folder / "other.json"
    other.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": {"bits": 4}}))
    refuses("--model .*other.json: .* 'quantization_config': its weights are quantized, and .*: take the model before quantization", 2, "--model", other)
    short = folder / "short.json"
    short.write_text(json.dumps({**json.loads(config.read_text()), "max_position_embeddings": 15}))
    done = subprocess.run([MPIEXEC, "-n", "1", TRAIN_LM, *(flag for flag in RUN if flag != "--quiet"), "--model", short, *BYTES, "--steps", "1"],
                          capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0 and "--seq 16 is more than the 15 positions that --model is made for (max_position_embeddings)\n" in done.stdout, done)
    refuses("--hidden and --model: the file says all of the model; leave out --hidden", 1, "--model", config, "--hidden", 64)
    refuses("No such file", 2, "--model", folder / "none.json")
    refuses(r"--model .*: --heads 4 is not divisible by tp = 8: try --mesh", 8, "--model", config, *BYTES, "--mesh", "tp=8")
    wider = folder / "wider.json"
    wider.write_text(json.dumps({**json.loads(config.read_text()), "intermediate_size": 64}))
    refuses(r"dump does not fit the model: it has 12 tensors of another shape \(model.layers.0.mlp.gate_proj.weight", 2, "--model", wider, *BYTES, "--weights", dump)
    shards = dump / "model.safetensors"
    whole = shards.read_bytes()
    shards.write_bytes(whole[:len(whole) // 2])
    refuses("cannot read", 2, "--model", config, *BYTES, "--weights", dump)
    shards.write_bytes(whole)
    refuses("--dump-weights .* would overwrite --weights", 1, "--model", config, *BYTES, "--weights", dump, "--dump-weights", dump)


with tempfile.TemporaryDirectory() as name:
    made = {}
    for one in FAMILIES:
        folder = pathlib.Path(name) / one
        folder.mkdir()
        made[one] = family(one, folder)
        print(f"{one}: ok", flush=True)
    own_attention(pathlib.Path(name))
    print("own_attention: ok", flush=True)
    latent_attention(pathlib.Path(name))
    print("latent_attention: ok", flush=True)
    tokens(made["llama"][0], pathlib.Path(name))
    print("tokens: ok", flush=True)
    bad_input(*made["qwen2"])
    print("bad_input: ok", flush=True)

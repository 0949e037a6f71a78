#!/usr/bin/env python3
"""Public models against Hugging Face's transformers: `./dev test oracle`, or

    families.py --train-lm TRAIN_LM --mpiexec MPIEXEC [FAMILY...]

For each family a small model is made by transformers and saved in shards, with drawn weights (drawn_weights.py). train_lm loads it on 1 rank and on 8; its
loss at each of 10 steps of AdamW and after them, and the weights that it dumps, are those of PyTorch on the same batches. In f64 transformers' own casts to
f32 are turned off. The losses are in golden/families.json too, where the gate finds them without transformers: --write-golden writes that file, and a run
without it says where it is no longer what transformers computes.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import torch
import torch.nn.functional as F

import deepseek
import drawn_weights
import text_windows
import variety

GOLDEN = pathlib.Path(__file__).parent / "golden" / "families.json"
SEQ, BATCH, STEPS, SEED, RATE = 24, 8, 10, 3, 3e-3
SIZES = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 64}
TOKENS = 4000
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 5e5}
DEEPSEEK = {"num_key_value_heads": 4, "moe_intermediate_size": 24, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "n_shared_experts": 1,
            "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12}
FAMILIES = {
    "llama": ("LlamaConfig", {"rope_parameters": LLAMA3, "head_dim": 16, "tie_word_embeddings": True, "pad_token_id": 7}, "pp=2,cp=2,tp=2"),
    "mistral": ("MistralConfig", {"sliding_window": 9}, "cp=2,pp=2,tp=2"),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}, "pp=2,ep=2,tp=2"),
    "qwen2": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2, "pad_token_id": 150}, "pp=2,cp=2,tp=2"),
    "qwen3": ("Qwen3Config", {"head_dim": 16, "pad_token_id": -1}, "pp=2,dp=2,tp=2"),
    "qwen3_moe": ("Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": False, "head_dim": 16,
                                     "mlp_only_layers": [1], "decoder_sparse_step": 1}, "pp=2,ep=2,tp=2"),
    "qwen3_moe_aux": ("Qwen3MoeConfig", {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True, "head_dim": 16,
                                         "mlp_only_layers": [0, 1, 3], "decoder_sparse_step": 1}, "pp=2,cp=2,ep=2"),
    "deepseek_v3": ("DeepseekV3Config", DEEPSEEK, "pp=2,ep=2,tp=2"),
    "deepseek_v3_balanced": ("DeepseekV3Config", {**DEEPSEEK, "q_lora_rank": None}, "dp=2,ep=2,cp=2"),
    "deepseek_v3_mtp": ("DeepseekV3Config", {**DEEPSEEK, "pad_token_id": 11}, "pp=2,ep=2,tp=2"),
    "llama_mtp": ("LlamaConfig", {"head_dim": 16}, "pp=2,cp=2,dp=2"),
    "mamba2": ("Mamba2Config", {"num_heads": 8, "head_dim": 8, "state_size": 12, "n_groups": 2, "chunk_size": 8, "hidden_act": "silu", "use_bias": False,
                                "residual_in_fp32": False}, "pp=2,cp=2,tp=2"),
    "mamba2_groups": ("Mamba2Config", {"num_heads": 8, "head_dim": 8, "state_size": 12, "n_groups": 1, "chunk_size": 16, "use_bias": False,
                                       "time_step_limit": (0.2, 0.9), "tie_word_embeddings": True, "residual_in_fp32": False}, "dp=2,cp=2,tp=2"),
    "bamba": ("BambaConfig", {"attn_layer_indices": [1, 2], "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 12,
                              "mamba_chunk_size": 8}, "pp=2,cp=2,tp=2"),
}
# Losses of routers, and biases that balance, which transformers does not move. It adds up the tokens of all layers before it makes the loss, Pentad a loss of
# each layer: the same where one layer has experts.
AUX = {"qwen3_moe_aux": 0.05}
BIAS_RATE = {"deepseek_v3_balanced": 0.02}
MTP = {"deepseek_v3_mtp": 2, "llama_mtp": 1}  # modules of multi-token prediction, which transformers leaves out
EXACT = {torch.float64: 1e-12, torch.float32: 1e-5}  # of losses
WEIGHTS = {torch.float64: 1e-10, torch.float32: 1e-2}  # a gradient of almost 0 has a sign, and AdamW a step, by rounding
LOADED = {torch.float64: 1e-6, torch.float32: 1e-5}  # what is read with transformers' own casts is not exact


USUAL = torch.float32, torch.Tensor.float


def everything_in_f64(on=True):
    torch.float32 = torch.float = torch.float64 if on else USUAL[0]
    torch.Tensor.float = torch.Tensor.double if on else USUAL[1]


class Predictor(torch.nn.Module):
    """A module of multi-token prediction (DeepSeek-V3, section 2.2) behind the last layer: its names are those of the published weights."""

    def __init__(self, model, number):
        super().__init__()
        config, norm = model.config, type(model.model.norm)
        self.number = number
        self.enorm, self.hnorm = (norm(config.hidden_size, eps=config.rms_norm_eps) for _ in range(2))
        self.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.shared_head = torch.nn.ModuleDict({"norm": norm(config.hidden_size, eps=config.rms_norm_eps)})
        self.layer = type(model.model.layers[-1])(config, config.num_hidden_layers + number)
        with torch.no_grad():  # a layer of its own is not initialised with the model
            for parameter in self.layer.parameters():
                torch.nn.init.ones_(parameter) if parameter.dim() == 1 else parameter.normal_(std=0.02)
            for buffer in self.layer.buffers():
                buffer.zero_()

    def forward(self, model, h, windows):
        """h of the next module, and the sum of the losses of the tokens `number` + 1 further ahead."""
        ahead = self.number + 1
        tokens = F.pad(windows[:, ahead:-1], (0, ahead))
        x = self.eh_proj(torch.cat([self.enorm(model.model.embed_tokens(tokens)), self.hnorm(h)], dim=-1))
        positions = torch.arange(x.shape[1])[None]
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), dtype=x.dtype).triu(1)[None, None]
        x = self.layer(x, attention_mask=mask, position_ids=positions, position_embeddings=model.model.rotary_emb(x, positions))
        logits = model.lm_head(self.shared_head["norm"](x))[:, :-ahead]
        return x, F.cross_entropy(logits.reshape(-1, logits.shape[-1]), windows[:, ahead + 1:].reshape(-1), reduction="sum")


def published(model):
    """The tensors of a model with predictors under the names that they have in files: views of the model's own."""
    found = model.state_dict()
    for name in [name for name in found if name.startswith("predictors.")]:
        number, rest = name.removeprefix("predictors.").split(".", 1)
        found[f"model.layers.{model.config.num_hidden_layers + int(number)}.{rest.removeprefix('layer.')}"] = found.pop(name)
    for name in [name for name in found if ".mlp.experts." in name and name.endswith("_proj") and found[name].ndim == 3]:  # all experts in one tensor
        stacked = found.pop(name)
        prefix = name.rsplit(".", 1)[0]
        for expert, weight in enumerate(stacked):
            if name.endswith("gate_up_proj"):
                found[f"{prefix}.{expert}.gate_proj.weight"], found[f"{prefix}.{expert}.up_proj.weight"] = weight.chunk(2)
            else:
                found[f"{prefix}.{expert}.down_proj.weight"] = weight
    return found


def drawn(name, tensor):
    values = drawn_weights.elements(name, list(tensor.shape))
    variety.numbers(f"the elements of {name}", values)
    return torch.tensor(values, dtype=torch.float64).reshape(tensor.shape)


def draw_and_save(model, folder, element):
    """Gives the model drawn weights and saves it. The names and shapes in its files."""
    import safetensors.torch
    import transformers
    if hasattr(model, "predictors"):
        named = published(model)
        for name, tensor in named.items():
            tensor.copy_(drawn(name, tensor))
        folder.mkdir()
        model.config.save_pretrained(folder)
        safetensors.torch.save_file({name: tensor.clone() for name, tensor in named.items()}, folder / "model.safetensors", {"format": "pt"})
        return {name: list(tensor.shape) for name, tensor in named.items()}
    model.generation_config.pad_token_id = None  # it refuses -1, which the embedding takes
    model.save_pretrained(folder, max_shard_size="60KB")  # the names are transformers' own
    shapes = {}
    for shard in sorted(folder.glob("*.safetensors")):
        named = {name: drawn(name, tensor).to(element) for name, tensor in safetensors.torch.load_file(shard).items()}
        safetensors.torch.save_file(named, shard, {"format": "pt"})
        shapes |= {name: list(tensor.shape) for name, tensor in named.items()}
    everything_in_f64(False)  # files are read as they say
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=element, attn_implementation="eager").state_dict()
    everything_in_f64(element == torch.float64)
    model.load_state_dict(loaded)
    return shapes


def loss_of(model, windows, aux=0):
    """The loss of the logits and, times its weight, that of the routers, or of the tokens further ahead."""
    if hasattr(model, "predictors"):
        h = model.model(windows[:, :-1]).last_hidden_state
        loss = F.cross_entropy(model.lm_head(h).reshape(-1, model.config.vocab_size), windows[:, 1:].reshape(-1))
        more = 0.0
        for predictor in model.predictors:
            h, one = predictor(model, h, windows)
            more = more + one / windows[:, 1:].numel()
        return loss, 0.3 * more / len(model.predictors)
    output = model(windows[:, :-1], **({"output_router_logits": True} if aux else {}))
    loss = F.cross_entropy(output.logits.reshape(-1, output.logits.shape[-1]), windows[:, 1:].reshape(-1))
    return loss, aux * output.aux_loss if aux else 0.0


def routers(model):
    """Pairs of a router with biases and its experts, which are told what it chose in all versions of transformers."""
    return [(module.gate, module.experts) for module in model.modules() if hasattr(getattr(module, "gate", None), "e_score_correction_bias")]


def batch(tokens, step):
    return torch.tensor(text_windows.batch([tokens], SEQ, SEED, BATCH, step))


def train(model, tokens, aux, bias_rate):
    """The losses before each of the steps and after them."""
    chosen = {}
    for router, experts in routers(model):
        experts.register_forward_pre_hook(lambda _, arguments, router=router: chosen.update({router: arguments[1]}))
    decayed, others = [], []
    for parameter in model.parameters():
        (decayed if parameter.ndim > 1 else others).append(parameter)
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(STEPS):
        loss, of_routers = loss_of(model, batch(tokens, step), aux)
        losses.append(loss.item())
        optimizer.zero_grad()
        (loss + of_routers).backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters()))
        for parameter in model.parameters():
            parameter.grad *= min(1.0, 1 / (norm.item() + 1e-6))
        optimizer.step()
        for router, _ in routers(model):
            excess = deepseek.excess_load(chosen[router], router.e_score_correction_bias.numel())
            router.e_score_correction_bias.copy_(deepseek.moved(router.e_score_correction_bias, excess, bias_rate))
    with torch.no_grad():
        losses.append(loss_of(model, batch(tokens, STEPS))[0].item())
    return losses


FLAGS = ["--seq", SEQ, "--batch", BATCH, "--seed", SEED, "--steps", STEPS, "--lr", RATE, "--min-lr", RATE, "--warmup", 0, "--z-coef", 0, "--quiet"]


def run(arguments, ranks, mesh, folder, data, log, *more):
    command = [arguments.mpiexec, "-n", ranks, arguments.train_lm, "--model", folder, "--weights", folder, "--tokens", data, "--log", log,
               *(["--mesh", mesh] if ranks > 1 else []), *more]
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr}")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["loss"] for line in lines if "step" in line] + [line["final_loss"] for line in lines if "final_loss" in line]


def without_casts(model):
    """Experts computed as everything else is: the others know no f64."""
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model


def without_faults(model):
    """Two faults of transformers 5.12 that 5.24 does not have are mended: its Mamba-2 norms all channels together, where the published models (mamba_ssm)
    norm those of each group; and its Bamba turns whole heads, where half of each is meant."""
    for mixer in model.modules():
        if not hasattr(mixer, "n_groups") or hasattr(mixer.norm, "group_size"):
            continue

        def forward(hidden_states, gate, norm=mixer.norm, groups=mixer.n_groups):
            gated = (hidden_states * F.silu(gate)).unflatten(-1, (groups, -1))
            gated = gated * torch.rsqrt(gated.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
            return norm.weight * gated.flatten(-2)

        mixer.norm.forward = forward
    if model.config.model_type == "bamba":
        width = int(model.config.rope_parameters["partial_rotary_factor"] * model.config.hidden_size // model.config.num_attention_heads)
        pairs = torch.arange(0, width, 2, dtype=model.dtype)
        model.model.rotary_emb.inv_freq = model.config.rope_parameters["rope_theta"] ** (-pairs / width)
    return model


def distance(found, expected):
    if len(found) != len(expected):
        raise SystemExit(f"{len(found)} losses, and not {len(expected)}")
    return max(abs(a - b) for a, b in zip(found, expected))


def learn(name, folder, element):
    """Makes the model of a family, saves it and its tokens, and trains it: the model, its tokens, and what the golden file says of it."""
    import transformers
    config_class, more, _ = FAMILIES[name]
    of_attention = {"intermediate_size", "num_attention_heads", "num_key_value_heads", "max_position_embeddings"}
    sizes = {key: value for key, value in SIZES.items() if config_class != "Mamba2Config" or key not in of_attention}
    config = getattr(transformers, config_class)(**(sizes | more), attn_implementation="eager")
    model = without_faults(without_casts(transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(element)))
    if name in MTP:
        model.predictors = torch.nn.ModuleList(Predictor(model, number) for number in range(MTP[name])).to(element)
    with torch.no_grad():
        shapes = draw_and_save(model, folder / "model", element)
    tokens = drawn_weights.tokens(name, TOKENS, config.vocab_size)
    drawn_weights.write_tokens(folder / "tokens", tokens)
    windows = [row for step in range(STEPS + 1) for row in text_windows.batch([tokens], SEQ, SEED, BATCH, step)]
    padding = [] if config.pad_token_id is None else [config.pad_token_id % config.vocab_size]
    variety.tokens(f"{name}: the tokens of {STEPS} steps", windows, config.vocab_size, padding)
    aux, bias_rate = AUX.get(name, 0), BIAS_RATE.get(name, 0)
    losses = train(model, tokens, aux, bias_rate)
    variety.numbers(f"{name}: the losses", losses)
    flags = [*FLAGS, "--aux-coef", aux, *(["--bias-rate", bias_rate] if routers(model) else []), *(["--mtp", MTP[name]] if name in MTP else [])]
    written = json.loads((folder / "model" / "config.json").read_text())
    return model, tokens, {"config": written, "tensors": shapes, "flags": [str(flag) for flag in flags], "losses": losses}


def check(name, arguments, folder, element):
    """What the golden file says of a family; exits where train_lm does not compute what transformers does."""
    import transformers
    model, tokens, golden = learn(name, folder, element)
    expected, dtype = golden["losses"], "f64" if element == torch.float64 else "f32"
    shards = len(list((folder / "model").glob("*.safetensors")))
    for ranks in (1, 8):
        dump = folder / "dump"
        dump.mkdir()
        found = run(arguments, ranks, FAMILIES[name][2], folder / "model", folder / "tokens", folder / "log", "--dtype", dtype, "--dump-weights", dump, *golden["flags"])
        everything_in_f64(False)
        again = without_faults(without_casts(transformers.AutoModelForCausalLM.from_pretrained(dump, dtype=element, attn_implementation="eager")))
        everything_in_f64(element == torch.float64)
        with torch.no_grad():
            loaded = abs(loss_of(again, batch(tokens, STEPS))[0].item() - found[-1])
        own = model.state_dict()
        weights = max((own[key] - b).abs().max().item() for key, b in again.state_dict().items())
        shutil.rmtree(dump)
        print(f"{name} {dtype} on {ranks}: {shards} shards, first loss {found[0]:.12f} ({found[0] - expected[0]:+.1e}), in {STEPS} steps "
              f"{distance(found, expected):.1e}, weights {weights:.1e}, loaded back {loaded:.1e}", flush=True)
        if loaded > LOADED[element]:
            raise SystemExit(f"{name}: what was dumped gives another loss")
        if distance(found, expected) > EXACT[element] or weights > WEIGHTS[element]:
            raise SystemExit(f"{name} {dtype} on {ranks}: not PyTorch's numbers")
    return golden


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-lm")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--f32", action="store_true", help="in f32, as transformers computes")
    parser.add_argument("--write-golden", action="store_true", help="instead of comparing train_lm")
    parser.add_argument("families", nargs="*", help="all, where none is named")
    arguments = parser.parse_args()
    if not arguments.train_lm and not arguments.write_golden:
        parser.error("needs --train-lm, or --write-golden")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    element = torch.float64 if arguments.write_golden or not arguments.f32 else USUAL[0]
    everything_in_f64(element == torch.float64)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    names = arguments.families or list(FAMILIES)
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            if arguments.write_golden:
                golden[name] = learn(name, pathlib.Path(scratch), element)[2]
                continue
            made = check(name, arguments, pathlib.Path(scratch), element)
        known = golden.get(name, {"tensors": {}})
        if element == torch.float64 and (known["tensors"] != made["tensors"] or distance(known["losses"], made["losses"]) > EXACT[element]):
            raise SystemExit(f"golden/families.json is not what transformers computes for {name}: see --write-golden")
    if arguments.write_golden:
        lines = [f"{json.dumps(name)}: {json.dumps(golden[name], separators=(',', ':'))}" for name in FAMILIES if name in golden]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    else:
        print(f"{len(names)} of {len(names)} families within {EXACT[element]:g} of transformers in {STEPS} steps, on 1 and 8 ranks")


if __name__ == "__main__":
    main()

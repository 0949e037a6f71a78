#!/usr/bin/env python3
"""Public models against Hugging Face's transformers (PyPI: transformers, safetensors, and a CPU torch):

    families.py --train-lm TRAIN_LM --mpiexec MPIEXEC [FAMILY...]

For each family a small random model is made by transformers and saved in shards. train_lm loads it on 1 rank and on 8; its first loss, its loss after 10
steps of AdamW, and the weights that it dumps are those of PyTorch on the same batches. In f64 transformers' own casts to f32 are turned off.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile

import torch
import torch.nn.functional as F

import deepseek
import text_windows

SEQ, BATCH, STEPS, SEED, RATE = 24, 8, 10, 3, 3e-3
SIZES = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 5e5}
DEEPSEEK = {"num_key_value_heads": 4, "moe_intermediate_size": 24, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "n_shared_experts": 1,
            "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12}
FAMILIES = {
    "llama": ("LlamaConfig", {"rope_parameters": LLAMA3, "head_dim": 16, "tie_word_embeddings": True}, "pp=2,cp=2,tp=2"),
    "mistral": ("MistralConfig", {"sliding_window": None}, "dp=2,pp=2,tp=2"),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}, "pp=2,ep=2,tp=2"),
    "qwen2": ("Qwen2Config", {"use_sliding_window": False}, "pp=2,cp=2,tp=2"),
    "qwen3": ("Qwen3Config", {"head_dim": 16}, "pp=2,dp=2,tp=2"),
    "qwen3_moe": ("Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": False, "head_dim": 16,
                                     "mlp_only_layers": [1], "decoder_sparse_step": 1}, "pp=2,ep=2,tp=2"),
    "qwen3_moe_aux": ("Qwen3MoeConfig", {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True, "head_dim": 16,
                                         "mlp_only_layers": [0, 1, 3], "decoder_sparse_step": 1}, "pp=2,cp=2,ep=2"),
    "deepseek_v3": ("DeepseekV3Config", DEEPSEEK, "pp=2,ep=2,tp=2"),
    "deepseek_v3_balanced": ("DeepseekV3Config", {**DEEPSEEK, "q_lora_rank": None}, "dp=2,ep=2,cp=2"),
    "deepseek_v3_mtp": ("DeepseekV3Config", DEEPSEEK, "pp=2,ep=2,tp=2"),
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
EXACT = {torch.float64: 1e-9, torch.float32: 1e-5}  # of losses


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


def save_with_predictors(model, folder):
    import safetensors.torch
    weights = model.state_dict()
    for name in [name for name in weights if name.startswith("predictors.")]:
        number, rest = name.removeprefix("predictors.").split(".", 1)
        weights[f"model.layers.{model.config.num_hidden_layers + int(number)}.{rest.removeprefix('layer.')}"] = weights.pop(name)
    for name in [name for name in weights if ".mlp.experts." in name and name.endswith("_proj") and weights[name].ndim == 3]:  # all experts in one tensor
        stacked = weights.pop(name)
        prefix = name.rsplit(".", 1)[0]
        for expert, weight in enumerate(stacked):
            if name.endswith("gate_up_proj"):
                weights[f"{prefix}.{expert}.gate_proj.weight"], weights[f"{prefix}.{expert}.up_proj.weight"] = (half.clone() for half in weight.chunk(2))
            else:
                weights[f"{prefix}.{expert}.down_proj.weight"] = weight.clone()
    folder.mkdir()
    model.config.save_pretrained(folder)
    safetensors.torch.save_file({name: weight.contiguous() for name, weight in weights.items()}, folder / "model.safetensors")


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
    return [module for module in model.modules() if hasattr(module, "e_score_correction_bias")]


def batch(text, step):
    return torch.tensor([list(row) for row in text_windows.batch([text], SEQ, SEED, BATCH, step)])


def train(model, text, aux, bias_rate):
    """The losses before each of the steps and after them."""
    chosen = {}
    for router in routers(model):
        router.register_forward_hook(lambda module, _, output: chosen.update({module: output[2]}))
    decayed, others = [], []
    for parameter in model.parameters():
        (decayed if parameter.ndim > 1 else others).append(parameter)
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(STEPS):
        loss, of_routers = loss_of(model, batch(text, step), aux)
        losses.append(loss.item())
        optimizer.zero_grad()
        (loss + of_routers).backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters()))
        for parameter in model.parameters():
            parameter.grad *= min(1.0, 1 / (norm.item() + 1e-6))
        optimizer.step()
        for router in routers(model):
            excess = deepseek.excess_load(chosen[router], router.num_experts)
            router.e_score_correction_bias.copy_(deepseek.moved(router.e_score_correction_bias, excess, bias_rate))
    with torch.no_grad():
        losses.append(loss_of(model, batch(text, STEPS))[0].item())
    return losses


def run(arguments, ranks, mesh, dtype, folder, data, log, *more):
    command = [arguments.mpiexec, "-n", str(ranks), arguments.train_lm, "--model", folder, "--weights", folder, "--data", data, "--seq", SEQ, "--batch", BATCH,
               "--seed", SEED, "--steps", STEPS, "--lr", RATE, "--min-lr", RATE, "--warmup", 0, "--z-coef", 0, "--dtype", dtype, "--log", log,
               "--quiet", *(["--mesh", mesh] if ranks > 1 else []), *more]
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr}")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["loss"] for line in lines if "step" in line] + [line["final_loss"] for line in lines if "final_loss" in line]


def check(name, arguments, folder, element):
    import transformers
    config_class, more, mesh = FAMILIES[name]
    torch.manual_seed(7)
    of_attention = {"intermediate_size", "num_attention_heads", "num_key_value_heads", "max_position_embeddings"}
    sizes = {key: value for key, value in SIZES.items() if config_class != "Mamba2Config" or key not in of_attention}
    config = getattr(transformers, config_class)(**(sizes | more), attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(element)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    if name in MTP:
        model.predictors = torch.nn.ModuleList(Predictor(model, number) for number in range(MTP[name])).to(element)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
        for router in routers(model):
            router.e_score_correction_bias += 0.1 * torch.randn_like(router.e_score_correction_bias)
    if name in MTP:
        save_with_predictors(model, folder / "model")
    else:
        model.save_pretrained(folder / "model", max_shard_size="60KB")
    shards = len(list((folder / "model").glob("*.safetensors")))
    text = bytes(random.Random(5).randrange(256) for _ in range(4000))
    (folder / "data").write_bytes(text)
    aux, bias_rate = AUX.get(name, 0), BIAS_RATE.get(name, 0)
    expected = train(model, text, aux, bias_rate)
    balance = ["--aux-coef", aux, *(["--bias-rate", bias_rate] if routers(model) else []), *(["--mtp", MTP[name]] if name in MTP else [])]
    dtype = "f64" if element == torch.float64 else "f32"
    worst_first = worst_last = 0.0
    for ranks in (1, 8):
        dump = folder / f"dump{ranks}"
        dump.mkdir()
        found = run(arguments, ranks, mesh, dtype, folder / "model", folder / "data", folder / "log", "--dump-weights", dump, *balance)
        worst_first = max(worst_first, abs(found[0] - expected[0]))
        worst_last = max(worst_last, abs(found[-1] - expected[-1]))
        everything_in_f64(False)  # files are read as they say
        again = transformers.AutoModelForCausalLM.from_pretrained(dump, dtype=element, attn_implementation="eager")
        everything_in_f64(element == torch.float64)
        if hasattr(again, "set_experts_implementation"):
            again.set_experts_implementation("eager")
        with torch.no_grad():
            loaded = abs(loss_of(again, batch(text, STEPS))[0].item() - found[-1])
        own = model.state_dict()
        weights = max((own[key] - b).abs().max().item() for key, b in again.state_dict().items())
        print(f"{name} {dtype} on {ranks}: {shards} shards, first loss {found[0]:.12f} ({found[0] - expected[0]:+.1e}), after {STEPS} steps "
              f"{found[-1] - expected[-1]:+.1e}, weights {weights:.1e}, loaded back {loaded:.1e}", flush=True)
        if loaded > 10 * EXACT[element]:
            raise SystemExit(f"{name}: what was dumped gives another loss")
    if worst_first > EXACT[element] or worst_last > 10 * EXACT[element]:
        raise SystemExit(f"{name} {dtype}: not PyTorch's numbers")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-lm", required=True)
    parser.add_argument("--mpiexec", required=True)
    parser.add_argument("--f32", action="store_true", help="in f32, as transformers computes")
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    everything_in_f64(not arguments.f32)
    for name in arguments.families:
        with tempfile.TemporaryDirectory() as folder:
            check(name, arguments, pathlib.Path(folder), torch.float64 if not arguments.f32 else USUAL[0])


if __name__ == "__main__":
    main()

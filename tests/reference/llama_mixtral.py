#!/usr/bin/env python3
"""LlamaForCausalLM and MixtralForCausalLM in plain PyTorch, following Hugging Face's modeling_llama.py and
modeling_mixtral.py function by function, for checkpoints that train_lm has dumped.

    llama_mixtral.py FOLDER --data FILE... --seq N --batch B [--seed S] [--step K] [--ignore-token B]
    llama_mixtral.py FOLDER --windows FILE [--ignore-token B]

prints the cross-entropy (with --log, compares it) of the model in FOLDER (config.json, model.safetensors): on the batch that train_lm draws at step
K, counted from 0 (after `train_lm --steps K`, its final_loss); or on windows of tokens, a JSON list of lists.

With --transformers, Hugging Face's own implementation computes it (PyPI: transformers). In f32 the two agree within rounding.
Sums are in the type of the weights, but in f32 at least, as there; an f64 model is f64 throughout, which there it is not.
"""
import argparse
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import text_windows
import variety


def rms_norm(hidden_states, weight, eps):
    """LlamaRMSNorm.forward"""
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.promote_types(input_dtype, torch.float32))
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + eps)
    return weight * hidden_states.to(input_dtype)


def rotary_cos_sin(positions, head_dim, theta, dtype):
    """LlamaRotaryEmbedding.forward: [seq, head_dim] each, or of positions [batch, seq] [batch, 1, seq, head_dim]"""
    wide = torch.promote_types(dtype, torch.float32)
    inv_freq = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).to(wide) / head_dim))
    freqs = positions.to(wide)[..., None] * inv_freq
    if positions.dim() == 2:
        freqs = freqs[:, None]
    emb = torch.cat((freqs, freqs), dim=-1)
    return emb.cos().to(dtype), emb.sin().to(dtype)


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2:]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin):
    """q, k: [batch, heads, seq, head_dim]"""
    return (q * cos) + (rotate_half(q) * sin), (k * cos) + (rotate_half(k) * sin)


def repeat_kv(hidden_states, n_rep):
    batch, num_key_value_heads, slen, head_dim = hidden_states.shape
    if n_rep == 1:
        return hidden_states
    hidden_states = hidden_states[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim)
    return hidden_states.reshape(batch, num_key_value_heads * n_rep, slen, head_dim)


def causal_attention(q, k, v, sees=None, change=None, sinks=None):
    """eager_attention_forward with the causal mask, or with a mask of booleans that broadcasts to [batch, heads, seq, seq];
    q [batch, heads, seq, head_dim], k and v with kv_heads. change: of the scores, before the mask; sinks: [heads], as in
    eager_attention_forward of modeling_gpt_oss.py"""
    key_states = repeat_kv(k, q.shape[1] // k.shape[1])
    value_states = repeat_kv(v, q.shape[1] // v.shape[1])
    attn_weights = torch.matmul(q, key_states.transpose(2, 3)) * q.shape[-1] ** -0.5
    if change is not None:
        attn_weights = change(attn_weights)
    seq = q.shape[2]
    if sees is None:
        sees = torch.ones(seq, seq, dtype=torch.bool).tril()
    mask = torch.zeros(sees.shape, dtype=q.dtype).masked_fill(~sees, torch.finfo(q.dtype).min)
    attn_weights = attn_weights + mask
    if sinks is not None:
        attn_weights = torch.cat((attn_weights, sinks.reshape(1, -1, 1, 1).expand(q.shape[0], -1, seq, -1)), dim=-1)
    attn_weights = F.softmax(attn_weights, dim=-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)
    return torch.matmul(attn_weights[..., :seq], value_states)


def self_attention(hidden_states, weights, prefix, config, cos, sin, sees=None, change=None):
    """LlamaAttention.forward, with the sinks of GptOssAttention where there are any"""
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    hidden_shape = (*hidden_states.shape[:-1], -1, head_dim)
    project = lambda name: F.linear(hidden_states, weights[prefix + name + ".weight"]).view(hidden_shape).transpose(1, 2)
    q, k = apply_rotary_pos_emb(project("q_proj"), project("k_proj"), cos, sin)
    attn_output = causal_attention(q, k, project("v_proj"), sees, change, weights.get(prefix + "sinks")).transpose(1, 2)
    return F.linear(attn_output.reshape(*hidden_states.shape[:-1], -1), weights[prefix + "o_proj.weight"])


def swiglu(x, gate, up, down):
    """LlamaMLP.forward, and MixtralBlockSparseTop2MLP.forward with w1, w3, w2"""
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def route(router_logits, top_k):
    """The router of MixtralSparseMoeBlock.forward: softmax over all, top-k, weights that sum to one."""
    routing_weights = F.softmax(router_logits, dim=1, dtype=torch.promote_types(router_logits.dtype, torch.float32))
    routing_weights, selected_experts = torch.topk(routing_weights, top_k, dim=-1)
    routing_weights = routing_weights / routing_weights.sum(dim=-1, keepdim=True)
    return routing_weights.to(router_logits.dtype), selected_experts


def sparse_moe(hidden_states, gate, experts, top_k):
    """MixtralSparseMoeBlock.forward; experts: a list of (w1, w3, w2). Gives the output and the router's logits."""
    shape = hidden_states.shape
    hidden_states = hidden_states.reshape(-1, shape[-1])
    router_logits = F.linear(hidden_states, gate)
    routing_weights, selected_experts = route(router_logits, top_k)
    final_hidden_states = torch.zeros_like(hidden_states)
    expert_mask = F.one_hot(selected_experts, num_classes=len(experts)).permute(2, 1, 0)
    for expert_idx, (w1, w3, w2) in enumerate(experts):
        idx, top_x = torch.where(expert_mask[expert_idx])
        current = swiglu(hidden_states[top_x], w1, w3, w2) * routing_weights[top_x, idx, None]
        final_hidden_states = final_hidden_states.index_add(0, top_x, current)
    return final_hidden_states.reshape(shape), router_logits


def load_balancing_loss(router_logits, top_k):
    """load_balancing_loss_func of one layer: E * sum over experts of (share of assignments) * (mean probability)"""
    num_experts = router_logits.shape[-1]
    routing_weights = F.softmax(router_logits, dim=-1)
    _, selected_experts = torch.topk(routing_weights, top_k, dim=-1)
    expert_mask = F.one_hot(selected_experts, num_experts)
    tokens_per_expert = torch.mean(expert_mask.to(router_logits.dtype), dim=0)  # [top_k, experts]
    router_prob_per_expert = torch.mean(routing_weights, dim=0)
    return torch.sum(tokens_per_expert * router_prob_per_expert.unsqueeze(0)) * num_experts


def z_loss(router_logits):
    """Zoph et al. 2022: the mean squared log of the softmax's denominator"""
    return torch.logsumexp(router_logits, dim=-1).pow(2).mean()


def decoder_layer(hidden_states, weights, prefix, config, cos, sin):
    """LlamaDecoderLayer.forward and MixtralDecoderLayer.forward; gives the router's logits, None for a dense layer"""
    eps = config["rms_norm_eps"]
    residual = hidden_states
    hidden_states = rms_norm(hidden_states, weights[prefix + "input_layernorm.weight"], eps)
    hidden_states = residual + self_attention(hidden_states, weights, prefix + "self_attn.", config, cos, sin)
    residual = hidden_states
    hidden_states = rms_norm(hidden_states, weights[prefix + "post_attention_layernorm.weight"], eps)
    moe = prefix + "block_sparse_moe."
    router_logits = None
    if moe + "gate.weight" in weights:
        experts = [tuple(weights[f"{moe}experts.{e}.{w}.weight"] for w in ("w1", "w3", "w2"))
                   for e in range(config["num_local_experts"])]
        hidden_states, router_logits = sparse_moe(hidden_states, weights[moe + "gate.weight"], experts,
                                                  config["num_experts_per_tok"])
    else:
        hidden_states = swiglu(hidden_states, *(weights[f"{prefix}mlp.{w}_proj.weight"] for w in ("gate", "up", "down")))
    return residual + hidden_states, router_logits


def causal_lm(tokens, weights, config):
    """LlamaForCausalLM.forward and MixtralForCausalLM.forward: logits [batch, seq, vocab], router logits of MoE layers"""
    embedding = weights["model.embed_tokens.weight"]
    hidden_states = F.embedding(tokens, embedding, padding_idx=config.get("pad_token_id"))  # a row without a gradient
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    cos, sin = rotary_cos_sin(torch.arange(tokens.shape[1]), head_dim, config["rope_theta"], embedding.dtype)
    router_logits = []
    for layer in range(config["num_hidden_layers"]):
        hidden_states, logits = decoder_layer(hidden_states, weights, f"model.layers.{layer}.", config, cos, sin)
        if logits is not None:
            router_logits.append(logits)
    hidden_states = rms_norm(hidden_states, weights["model.norm.weight"], config["rms_norm_eps"])
    return F.linear(hidden_states, weights.get("lm_head.weight", embedding)), router_logits


def cross_entropy(logits, windows, ignore=None):
    """Mean over the targets that are not ignored; 0 where all are. windows: [sequences, seq + 1] tokens"""
    targets = windows[:, 1:].reshape(-1)
    if ignore is not None:
        targets = torch.where(targets == ignore, -100, targets)
    losses = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets, ignore_index=-100, reduction="sum")
    return losses / (targets != -100).sum().clamp(min=1)


def transformers_logits(tokens, folder, dtype):
    from transformers import AutoModelForCausalLM
    published = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    if published.config.model_type == "mixtral":
        published.set_experts_implementation("eager")  # the others know no f64
    return published(tokens).logits


def check_names(weights, config):
    """Every tensor of the checkpoint is one of the model's, and has its shape."""
    hidden, ffn, vocab = (config[key] for key in ("hidden_size", "intermediate_size", "vocab_size"))
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    expected = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config.get("tie_word_embeddings", False):
        expected["lm_head.weight"] = (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        expected |= {prefix + "input_layernorm.weight": (hidden,), prefix + "post_attention_layernorm.weight": (hidden,)}
        expected |= {f"{prefix}self_attn.{n}_proj.weight": shape
                     for n, shape in {"q": (hidden, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, hidden)}.items()}
        moe = prefix + "block_sparse_moe."
        if moe + "gate.weight" in weights:
            expected[moe + "gate.weight"] = (config["num_local_experts"], hidden)
            for e in range(config["num_local_experts"]):
                expected |= {f"{moe}experts.{e}.w1.weight": (ffn, hidden), f"{moe}experts.{e}.w3.weight": (ffn, hidden),
                             f"{moe}experts.{e}.w2.weight": (hidden, ffn)}
        else:
            expected |= {prefix + "mlp.gate_proj.weight": (ffn, hidden), prefix + "mlp.up_proj.weight": (ffn, hidden),
                         prefix + "mlp.down_proj.weight": (hidden, ffn)}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    wrong = [f"{name}: is {found.get(name)}, should be {expected.get(name)}"
             for name in sorted(found.keys() | expected.keys()) if found.get(name) != expected.get(name)]
    if wrong:
        raise SystemExit("the checkpoint is not the one that its config.json describes:\n  " + "\n  ".join(wrong))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--windows", metavar="FILE")
    parser.add_argument("--ignore-token", type=int, metavar="B")
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("--log", type=pathlib.Path, help="of the run: its final_loss must be the same within 1e-5")
    text_windows.add_arguments(parser)
    arguments = parser.parse_args()

    config = json.loads((arguments.folder / "config.json").read_text())
    weights = load_file(arguments.folder / "model.safetensors")
    check_names(weights, config)
    if arguments.windows:
        windows = json.loads(pathlib.Path(arguments.windows).read_text())
    elif arguments.data and arguments.seq and arguments.batch:
        windows = [list(row) for row in text_windows.batch_of(arguments)]
    else:
        parser.error("needs --windows, or --data, --seq and --batch")
    variety.tokens("the tokens", windows)
    windows = torch.tensor(windows)
    tokens = windows[:, :-1]
    with torch.no_grad():
        if arguments.transformers:
            logits = transformers_logits(tokens, arguments.folder, weights["model.norm.weight"].dtype)
        else:
            logits, _ = causal_lm(tokens, weights, config)
    loss = cross_entropy(logits, windows, arguments.ignore_token).item()
    if not arguments.log:
        print(f"{loss:.17g}")
        return
    logged = json.loads(arguments.log.read_text().splitlines()[-1])["final_loss"]
    print(f"{config['model_type']}: {logged:.9g} and {loss:.9g}")
    if not abs(logged - loss) <= 1e-5 * loss:
        raise SystemExit("they differ by more than 1e-5 of the loss")


if __name__ == "__main__":
    main()

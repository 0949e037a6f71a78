#!/usr/bin/env python3
"""Makes the small tensors in golden/ that Pentad's layers are held against: what PyTorch computes, forward and backward,
in f64.

    golden.py [--check] [FOLDER]

With --check it compares what it computes with the files instead of writing them.

Each file has inputs, outputs and `d` + name of inputs: the gradient of sum(output * doutput). Numbers, such as eps, are
tensors without dimensions. Linear weights are [out, in]; activations [batch, seq, hidden], of sizes that meshes of up to 6
ranks divide in many ways.
The same versions on the same kind of machine give the same bytes.
"""
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import deepseek
import llama_mixtral as model
import text_windows
import variety

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


class Golden:
    """The tensors of one file. Random inputs depend on the name of the file alone."""

    def __init__(self, name, **numbers):
        self.name = name
        self.tensors = {key: torch.tensor(float(value)) for key, value in numbers.items()}
        self.generator = torch.Generator().manual_seed(sum(ord(letter) * 257**i for i, letter in enumerate(name)) % 2**31)

    def input(self, name, *shape, scale=1.0, shift=0.0):
        tensor = torch.randn(*shape, generator=self.generator) * scale + shift
        self.tensors[name] = tensor
        return tensor.requires_grad_()

    def add(self, name, tensor):
        self.tensors[name] = tensor.detach().clone().contiguous()
        return tensor

    def backward(self, name, output, inputs):
        """Draws the gradient of an output and adds those of the inputs."""
        self.add(name, output)
        upstream = torch.randn(output.shape, generator=self.generator)
        self.tensors["d" + name] = upstream
        self.gradients(torch.sum(output * upstream), inputs)

    def gradients(self, objective, inputs, suffix=""):
        names = list(inputs)
        found = torch.autograd.grad(objective, [self.tensors[n] for n in names], retain_graph=True, allow_unused=True)
        for name, gradient in zip(names, found):
            self.add("d" + name + suffix, gradient if gradient is not None else torch.zeros_like(self.tensors[name]))

    def save(self, folder):
        tensors = {name: tensor.detach().contiguous() for name, tensor in self.tensors.items()}
        variety.tensors(self.name, {name: (list(tensor.shape), tensor.reshape(-1).tolist(), not tensor.is_floating_point()) for name, tensor in tensors.items()})
        file = folder / f"{self.name}.safetensors"
        save_file(tensors, file)
        file.chmod(0o644)


def rms_norm():
    golden = Golden("rms_norm", eps=1e-5)
    x, weight = golden.input("x", 4, 12, 8), golden.input("weight", 8, scale=0.3, shift=1)
    golden.backward("y", model.rms_norm(x, weight, 1e-5), ["x", "weight"])
    return golden


def alibi_slopes(heads):
    """get_slopes of Press et al. 2022 (github.com/ofirpress/attention_with_linear_biases), for 6 heads as for any number"""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return torch.tensor(slopes + [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * (heads - power), 2)])


def attention(name, kv_heads, window=None, causal=True, packs=False, soft_cap=None, alibi=False, sinks=False):
    """The whole layer: projections, rotary embedding at positions 0, 1, ..., attention of 6 heads: causal or to all, to keys
    less than `window` away, or within documents that tokens of 0 end, in each of which positions begin anew. Scores may be
    capped as in Gemma2Attention, ALiBi takes the place of rotary embedding, and sinks are those of gpt-oss"""
    config = {"hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": kv_heads}
    golden = Golden(name, theta=1e4, **config)
    x = golden.input("x", 2, 24, 24)
    weights = {"q_proj.weight": golden.input("q", 24, 24, scale=0.4), "k_proj.weight": golden.input("k", 4 * kv_heads, 24, scale=0.4),
               "v_proj.weight": golden.input("v", 4 * kv_heads, 24, scale=0.4), "o_proj.weight": golden.input("o", 24, 24, scale=0.4)}
    at = torch.arange(24)
    positions, distance = at, at[:, None] - at[None, :]  # from a query to a key
    sees = torch.ones(24, 24, dtype=torch.bool)
    if causal:
        sees = sees & (distance >= 0)
    if window:
        sees = sees & (distance.abs() < window)
    if packs:
        same, positions = packed_documents(golden)
        sees = (sees & same)[:, None]
    cos, sin = model.rotary_cos_sin(positions, 4, 1e4, x.dtype)
    if alibi:
        cos, sin = torch.ones_like(cos), torch.zeros_like(sin)
    if sinks:
        weights["sinks"] = golden.input("sinks", 6)

    def change(scores):
        if soft_cap:
            scores = torch.tanh(scores / soft_cap) * soft_cap
        return scores - alibi_slopes(6)[:, None, None] * distance.abs() if alibi else scores

    inputs = ["x", "q", "k", "v", "o"] + ["sinks"] * sinks
    golden.backward("y", model.self_attention(x, weights, "", config, cos, sin, sees, change), inputs)
    return golden


def packed_documents(golden):
    """Draws tokens, of which those of 0 end documents. Gives each token's document and position in it."""
    tokens = golden.add("tokens", torch.randint(0, 5, (2, 24), generator=golden.generator))
    ended = torch.cumsum(tokens == 0, 1)
    document = torch.cat((torch.zeros(2, 1, dtype=ended.dtype), ended[:, :-1]), 1)
    variety.lengths(f"{golden.name}: the documents", variety.document_lengths(tokens.tolist(), 0))
    same = document[:, :, None] == document[:, None, :]
    return same, torch.arange(24) - same.int().argmax(2)  # from the first token of the document


def yarn_frequencies(width, theta, factor, original, fast, slow):
    """YaRN (Peng et al. 2023, section 3.2) with whole ends of the ramp, as its authors' code and transformers have it"""
    pairs = torch.arange(width // 2)
    plain = theta ** (-2.0 * pairs / width)
    low, high = (width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta)) for turns in (fast, slow))
    low, high = max(math.floor(low), 0), min(math.ceil(high), width - 1)
    slowed = ((pairs - low) / (high - low)).clamp(0, 1)
    return plain * (1 - slowed) + plain / factor * slowed


def latent_attention(name, query_rank=None, interleaved=True, yarn=None):
    """Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1), as DeepseekV3Attention of transformers:
    6 heads of 5 elements without a position and 8 turned ones, values of 3, a latent vector of 8. Of YaRN, mscale is 0.7
    and mscale_all_dim 0.9, which scale turned elements and scores"""
    heads, plain, turned, value, rank, width = 6, 5, 8, 3, 8, 20
    golden = Golden(name)
    x = golden.input("x", 2, 24, width)

    def weight(of, *shape, scale=0.4, shift=0.0):
        return golden.input(f"self_attn.{of}.weight", *shape, scale=scale, shift=shift)

    def norm(vector, by):
        return vector * torch.rsqrt(vector.pow(2).mean(-1, keepdim=True) + 1e-6) * by

    if query_rank:
        q = F.linear(norm(F.linear(x, weight("q_a_proj", query_rank, width)), weight("q_a_layernorm", query_rank, scale=0.3, shift=1)),
                     weight("q_b_proj", heads * (plain + turned), query_rank))
    else:
        q = F.linear(x, weight("q_proj", heads * (plain + turned), width))
    q = q.view(2, 24, heads, plain + turned)
    latent, key = F.linear(x, weight("kv_a_proj_with_mqa", rank + turned, width)).split((rank, turned), -1)
    made = F.linear(norm(latent, weight("kv_a_layernorm", rank, scale=0.3, shift=1)), weight("kv_b_proj", heads * (plain + value), rank))
    k, v = made.view(2, 24, heads, plain + value).split((plain, value), -1)
    frequencies, amplitude, factor = 1e4 ** (-2.0 * torch.arange(turned // 2) / turned), 1.0, 1.0
    if yarn:
        frequencies = yarn_frequencies(turned, 1e4, **yarn)
        mscale, all_dim = (0.1 * m * math.log(yarn["factor"]) + 1 for m in (0.7, 0.9))
        amplitude, factor = mscale / all_dim, all_dim**2
    angles = torch.arange(24)[:, None, None] * frequencies

    def turn(part):
        a, b = (part[..., 0::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
        cos, sin = amplitude * torch.cos(angles), amplitude * torch.sin(angles)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    q = torch.cat((q[..., :plain], turn(q[..., plain:])), -1).transpose(1, 2)
    k = torch.cat((k, turn(key[:, :, None]).expand(2, 24, heads, turned)), -1).transpose(1, 2)
    scores = q @ k.transpose(-1, -2) * factor / math.sqrt(plain + turned)
    sees = torch.arange(24)[:, None] >= torch.arange(24)
    y = torch.softmax(scores.masked_fill(~sees, -torch.inf), -1) @ v.transpose(1, 2)
    y = F.linear(y.transpose(1, 2).reshape(2, 24, heads * value), weight("o_proj", width, heads * value))
    golden.backward("y", y, [name for name in golden.tensors if name == "x" or name.startswith("self_attn.")])
    return golden


LATENT_YARN = {"factor": 4.0, "original": 64, "fast": 8.0, "slow": 1.0}


def mamba2(name, groups, norm_groups=1, limits=(0.0, float("inf")), packs=False):
    """The layer of Dao and Gu (2024) token by token: in-projection, causal convolution over 4 tokens with SiLU, the recurrence
    h = exp(dt A) h + dt B x^T, y = C^T h + D x, the gated norm over `norm_groups` parts of the channels, out-projection. Steps of
    time are clamped to `limits`. In packed documents convolution and state begin anew with each."""
    heads, head_dim, state, width, taps = 6, 4, 6, 24, 4
    inner, shared = heads * head_dim, groups * state
    sizes = {"z": inner, "x": inner, "B": shared, "C": shared, "dt": heads}
    golden = Golden(name, heads=heads, head_dim=head_dim, state=state, groups=groups, norm_groups=norm_groups)
    positions = packed_documents(golden)[1] if packs else torch.arange(24).expand(2, 24)
    x = golden.input("x", 2, 24, width)
    made = {part: F.linear(x, golden.input(f"mixer.in_proj.{part}.weight", rows, width, scale=0.3)) for part, rows in sizes.items()}
    mixed = {}
    for part in "xBC":
        weight, bias = (golden.input(f"mixer.conv1d.{part}.{what}", *shape, scale=0.4)
                        for what, shape in (("weight", (sizes[part], 1, taps)), ("bias", (sizes[part],))))
        if packs:
            lags = [made[part].roll(lag, 1) * (positions >= lag)[..., None] * weight[:, 0, taps - 1 - lag] for lag in range(taps)]
            mixed[part] = F.silu(sum(lags) + bias)
            continue
        padded = F.pad(made[part].transpose(1, 2), (taps - 1, 0))
        mixed[part] = F.silu(F.conv1d(padded, weight, bias, groups=sizes[part])).transpose(1, 2)
    bias, rate = golden.input("mixer.dt_bias", heads, scale=0.5), golden.input("mixer.A_log", heads, scale=0.5)
    skip, weight = golden.input("mixer.D", heads), golden.input("mixer.norm.weight", inner, scale=0.3, shift=1)
    out = golden.input("mixer.out_proj.weight", width, inner, scale=0.4)
    step = torch.clamp(F.softplus(made["dt"] + bias), *limits)
    values = mixed["x"].view(2, 24, heads, head_dim)
    keys, queries = (mixed[part].view(2, 24, groups, state).repeat_interleave(heads // groups, 2) for part in "BC")
    h, y = torch.zeros(2, heads, state, head_dim), []
    for t in range(24):
        h = torch.exp(-torch.exp(rate) * step[:, t])[..., None, None] * torch.where(positions[:, t] > 0, 1.0, 0.0)[:, None, None, None] * h
        h = h + step[:, t, :, None, None] * keys[:, t, :, :, None] * values[:, t, :, None, :]
        y.append((queries[:, t, :, :, None] * h).sum(2) + skip[:, None] * values[:, t])
    gated = torch.stack(y, 1).reshape(2, 24, inner) * F.silu(made["z"])
    parts = gated.view(2, 24, norm_groups, inner // norm_groups)
    normed = (parts * torch.rsqrt(parts.pow(2).mean(-1, keepdim=True) + 1e-5)).reshape(2, 24, inner) * weight
    golden.backward("y", F.linear(normed, out), [name for name in golden.tensors if name == "x" or name.startswith("mixer.")])
    return golden


def linear_attention(name, fading, scale=1.0):
    """Lightning attention in its quadratic form: every query with every key before it, weighed by what the state has kept since."""
    heads, head_dim, width = 6, 4, 24
    golden = Golden(name, heads=heads, head_dim=head_dim, scale=scale)
    x = golden.input("x", 2, 24, width)
    q, k, v, gate = (F.linear(x, golden.input(f"self_attn.{part}_proj.weight", heads * head_dim, width, scale=0.3)) for part in "qkvg")
    weight, out = golden.input("self_attn.norm.weight", heads * head_dim, scale=0.3, shift=1), golden.input("self_attn.o_proj.weight", width, heads * head_dim, scale=0.4)
    head = torch.arange(1, heads + 1)
    rate = {"none": torch.zeros(heads), "slopes": scale * 2.0 ** (-8 * head / heads), "retention": -torch.log1p(-(2.0 ** (-4 - head)))}[fading]
    distance = torch.arange(24)[:, None] - torch.arange(24)
    kept = torch.where(distance >= 0, torch.exp(-rate[:, None, None] * distance), 0.0)
    q, k, v = (F.silu(part).view(2, 24, heads, head_dim).transpose(1, 2) for part in (q, k, v))
    y = ((q @ k.transpose(-1, -2) * kept) @ v).transpose(1, 2).reshape(2, 24, heads * head_dim)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * weight * torch.sigmoid(gate)
    golden.backward("y", F.linear(y, out), [name for name in golden.tensors if name == "x" or name.startswith("self_attn.")])
    return golden


def swiglu():
    golden = Golden("swiglu")
    x = golden.input("x", 4, 12, 8)
    gate, up, down = golden.input("gate", 12, 8, scale=0.4), golden.input("up", 12, 8, scale=0.4), golden.input("down", 8, 12, scale=0.4)
    golden.backward("y", model.swiglu(x, gate, up, down), ["x", "gate", "up", "down"])
    return golden


def gelu():
    golden = Golden("gelu")
    x = golden.input("x", 4, 12, 8, scale=2)
    up, down = golden.input("up", 12, 8, scale=0.4), golden.input("down", 8, 12, scale=0.4)
    golden.backward("y", F.linear(F.gelu(F.linear(x, up)), down), ["x", "up", "down"])  # x * Phi(x), not its tanh approximation
    return golden


def vocabulary():
    """y: the rows of `table`, and dtable_padding its gradient where the token `padding` is nn.Embedding's padding_idx. loss_sum: over the targets that are not -1, from the hidden states x and `head`; dx and dhead
    are those of loss_sum / valid"""
    golden = Golden("vocabulary", ignored=-1)
    table, x, head = golden.input("table", 37, 8), golden.input("x", 4, 12, 8, scale=2), golden.input("head", 37, 8)
    tokens = golden.add("tokens", torch.randint(0, 37, (4, 12), generator=golden.generator))
    golden.backward("y", F.embedding(tokens, table), ["table"])
    padding = golden.add("padding", tokens[0, 1])
    golden.gradients(torch.sum(F.embedding(tokens, table, padding_idx=padding.item()) * golden.tensors["dy"]), ["table"], "_padding")
    targets = torch.randint(0, 37, (4, 12), generator=golden.generator)
    targets[0, [0, 5, 11]] = -1
    targets[2] = -1  # a whole sequence
    golden.add("targets", targets)
    loss = F.cross_entropy(F.linear(x, head).reshape(-1, 37), targets.reshape(-1), ignore_index=-1, reduction="sum")
    golden.add("loss_sum", loss)
    valid = golden.add("valid", (targets != -1).sum())
    golden.gradients(loss / valid, ["x", "head"])
    return golden


def moe():
    """dx, dgate, ... of sum(y * dy); dx_aux, dgate_aux of the load-balancing loss alone; dx_z, dgate_z of the z-loss"""
    experts, hidden, ffn, top_k = 12, 6, 12, 2
    golden = Golden("moe", top_k=top_k)
    x, gate = golden.input("x", 12, 4, hidden), golden.input("gate", experts, hidden)
    w1, w3 = golden.input("w1", experts, ffn, hidden, scale=0.4), golden.input("w3", experts, ffn, hidden, scale=0.4)
    w2 = golden.input("w2", experts, hidden, ffn, scale=0.4)
    y, logits = model.sparse_moe(x, gate, [(w1[e], w3[e], w2[e]) for e in range(experts)], top_k)
    golden.backward("y", y, ["x", "gate", "w1", "w3", "w2"])
    golden.gradients(golden.add("aux_loss", model.load_balancing_loss(logits, top_k)), ["x", "gate"], "_aux")
    golden.gradients(golden.add("z_loss", model.z_loss(logits)), ["x", "gate"], "_z")
    return golden


def deepseek_moe():
    """DeepSeek-V3's experts: dx, dgate, ... of sum(y * dy); dx_sequence, dgate_sequence of the loss of each sequence; `load`, the choices of experts
    less their mean, and `bias_after` a step at `rate`"""
    experts, hidden, ffn, top_k, groups, top_groups, scale, rate = 12, 6, 12, 3, 4, 2, 2.5, 0.01
    golden = Golden("deepseek_moe", top_k=top_k, groups=groups, top_groups=top_groups, scale=scale, rate=rate)
    x, gate = golden.input("x", 12, 4, hidden), golden.input("gate", experts, hidden)
    bias = golden.input("bias", experts, scale=0.2)
    w1, w3 = golden.input("w1", experts, ffn, hidden, scale=0.4), golden.input("w3", experts, ffn, hidden, scale=0.4)
    w2 = golden.input("w2", experts, hidden, ffn, scale=0.4)
    shared = [golden.input("shared_" + name, *shape, scale=0.4) for name, shape in (("w1", (ffn, hidden)), ("w3", (ffn, hidden)), ("w2", (hidden, ffn)))]
    y, logits, chosen = deepseek.moe(x, gate, bias, [(w1[e], w3[e], w2[e]) for e in range(experts)], shared, top_k, groups, top_groups, scale)
    golden.backward("y", y, ["x", "gate", "w1", "w3", "w2", "shared_w1", "shared_w3", "shared_w2"])
    golden.gradients(golden.add("sequence_loss", deepseek.sequence_balance_loss(logits, chosen, 12)), ["x", "gate"], "_sequence")
    load = golden.add("load", deepseek.excess_load(chosen, experts))
    golden.add("bias_after", deepseek.moved(bias, load, rate))
    return golden


def language_model(name, experts, tied):
    """A whole model: parameters under their published names, tokens [batch, seq + 1] (the last one targets only), and the
    gradient of cross-entropy + aux_coef * aux_loss + z_coef * z_loss; aux_loss and z_loss are sums over layers. The gradient of the embedding
    once more, with _padding behind its name, where the row of the token pad_token_id has none from there"""
    config = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 20, "vocab_size": 37,
              "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "num_local_experts": experts,
              "num_experts_per_tok": 2, "tie_word_embeddings": tied}
    golden = Golden(name, aux_coef=0.01, z_coef=0.001, **config)
    weights = {}
    weight = lambda name, *shape, **how: weights.update({name: golden.input(name, *shape, **how)})
    weight("model.embed_tokens.weight", 37, 16)
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        weight(prefix + "input_layernorm.weight", 16, scale=0.2, shift=1)
        for n, out in (("q", 16), ("k", 8), ("v", 8), ("o", 16)):
            weight(f"{prefix}self_attn.{n}_proj.weight", out, 16, scale=0.3)
        weight(prefix + "post_attention_layernorm.weight", 16, scale=0.2, shift=1)
        if experts:
            weight(prefix + "block_sparse_moe.gate.weight", experts, 16)
            for e in range(experts):
                for n, shape in (("w1", (20, 16)), ("w2", (16, 20)), ("w3", (20, 16))):
                    weight(f"{prefix}block_sparse_moe.experts.{e}.{n}.weight", *shape, scale=0.3)
        else:
            for n, shape in (("gate", (20, 16)), ("up", (20, 16)), ("down", (16, 20))):
                weight(f"{prefix}mlp.{n}_proj.weight", *shape, scale=0.3)
    weight("model.norm.weight", 16, scale=0.2, shift=1)
    if not tied:
        weight("lm_head.weight", 37, 16, scale=0.5)
    model.check_names(weights, config)

    tokens = golden.add("tokens", torch.randint(0, 37, (2, 13), generator=golden.generator))

    def objective(config):
        logits, router_logits = model.causal_lm(tokens[:, :-1], weights, config)
        loss = golden.add("loss", model.cross_entropy(logits, tokens))
        if not experts:
            return loss
        aux = golden.add("aux_loss", sum(model.load_balancing_loss(logits, 2) for logits in router_logits))
        z = golden.add("z_loss", sum(model.z_loss(logits) for logits in router_logits))
        return loss + 0.01 * aux + 0.001 * z

    golden.gradients(objective(config), list(weights))
    padding = golden.add("pad_token_id", tokens[0, 1])
    golden.gradients(objective(config | {"pad_token_id": padding.item()}), ["model.embed_tokens.weight"], "_padding")
    return golden


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2"""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), rate = group["betas"], group["lr"]
            for parameter in group["params"]:
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                update = torch.sign(beta1 * momentum + (1 - beta1) * parameter.grad)
                parameter -= rate * (update + group["weight_decay"] * parameter)
                self.state[parameter]["momentum"] = beta2 * momentum + (1 - beta2) * parameter.grad


def optimizers():
    """A model of experts trained for some steps by each optimizer, from the same weights and on the same windows of `text`
    (text_windows.py), with the gradient clipped: the weights after it under OPTIMIZER/NAME, and the losses before each step.
    Vectors do not decay. Muon is torch.optim.Muon without its rounding to bf16 (PyTorch 2.9 or later); what is no matrix of a
    linear map goes to AdamW."""
    config = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12, "vocab_size": 37,
              "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "num_local_experts": 4, "num_experts_per_tok": 2,
              "tie_word_embeddings": False}
    steps, batch, seq, seed, decay, clip = 4, 8, 8, 1, 0.1, 0.2
    golden = Golden("optimizers", steps=steps, batch=batch, seq=seq, seed=seed, decay=decay, clip=clip, aux_coef=0.01, z_coef=0.001, **config)
    text = bytes(torch.randint(0, 37, (150,), generator=golden.generator).tolist())
    golden.add("text", torch.tensor(list(text)))
    weights = {}
    weight = lambda name, *shape, scale=0.3, shift=0.0: weights.update({name: golden.input(name, *shape, scale=scale, shift=shift)})
    weight("model.embed_tokens.weight", 37, 16, scale=1)
    prefix = "model.layers.0."
    weight(prefix + "input_layernorm.weight", 16, shift=1)
    for n, out in (("q", 16), ("k", 8), ("v", 8), ("o", 16)):
        weight(f"{prefix}self_attn.{n}_proj.weight", out, 16)
    weight(prefix + "post_attention_layernorm.weight", 16, shift=1)
    weight(prefix + "block_sparse_moe.gate.weight", 4, 16, scale=1)
    for e in range(4):
        for n, shape in (("w1", (12, 16)), ("w2", (16, 12)), ("w3", (12, 16))):
            weight(f"{prefix}block_sparse_moe.experts.{e}.{n}.weight", *shape)
    weight("model.norm.weight", 16, shift=1)
    weight("lm_head.weight", 37, 16)
    model.check_names(weights, config)

    def groups(parameters, weight_decay=decay):
        return [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
                {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0}]

    def adamw(parameters, lr):
        return torch.optim.AdamW(groups(parameters), lr=lr, betas=(0.9, 0.95), eps=1e-8)

    def muon(named, lr, **how):
        matrices = [p for name, p in named.items() if p.ndim > 1 and name not in ("model.embed_tokens.weight", "lm_head.weight")]
        others = [p for p in named.values() if not any(p is m for m in matrices)]
        return torch.optim.Muon(matrices, lr=lr, weight_decay=decay, **how), adamw(others, lr)

    cases = {
        "adamw": lambda named, lr: (adamw(list(named.values()), lr),),
        "sgd": lambda named, lr: (torch.optim.SGD(groups(list(named.values())), lr=lr, momentum=0.9),),
        "sgd_nesterov": lambda named, lr: (torch.optim.SGD(groups(list(named.values()), 0.01), lr=lr, momentum=0.8, nesterov=True),),
        "lion": lambda named, lr: (Lion(groups(list(named.values())), lr=lr, betas=(0.9, 0.98), weight_decay=decay),),
        "muon": lambda named, lr: muon(named, lr),
        "muon_match_rms": lambda named, lr: muon(named, lr, momentum=0.9, nesterov=False, adjust_lr_fn="match_rms_adamw"),
    }
    rates = {"adamw": 0.02, "sgd": 0.5, "sgd_nesterov": 0.5, "lion": 0.01, "muon": 0.02, "muon_match_rms": 0.02}
    usual = torch.bfloat16, torch.Tensor.bfloat16
    torch.bfloat16, torch.Tensor.bfloat16 = torch.float64, torch.Tensor.clone  # what Muon rounds to
    for case, make in cases.items():
        named = {name: value.detach().clone().requires_grad_() for name, value in weights.items()}
        all_of_them = make(named, rates[case])
        losses = []
        for step in range(steps):
            rows = text_windows.batch([text], seq, seed, batch, step)
            variety.tokens(f"{golden.name}: the tokens of step {step}", rows, 37)
            windows = torch.tensor([list(row) for row in rows])
            logits, router_logits = model.causal_lm(windows[:, :-1], named, config)
            loss = model.cross_entropy(logits, windows)
            losses.append(loss.item())
            objective = loss + 0.01 * sum(model.load_balancing_loss(x, 2) for x in router_logits) + 0.001 * sum(
                model.z_loss(x) for x in router_logits)
            for parameter in named.values():
                parameter.grad = None
            objective.backward()
            torch.nn.utils.clip_grad_norm_(list(named.values()), clip)
            for optimizer in all_of_them:
                optimizer.step()
        golden.add(case + "/lr", torch.tensor(rates[case]))
        golden.add(case + "/losses", torch.tensor(losses))
        for name, value in named.items():
            golden.add(case + "/" + name, value)
    torch.bfloat16, torch.Tensor.bfloat16 = usual
    return golden


def difference(golden, folder):
    """The largest difference from a file, relative to the largest element of its tensor."""
    committed = load_file(folder / f"{golden.name}.safetensors")
    if committed.keys() != golden.tensors.keys():
        raise SystemExit(f"{golden.name}: the file has other tensors: {sorted(committed.keys() ^ golden.tensors.keys())}")
    worst = 0.0
    for name, tensor in golden.tensors.items():
        if tensor.shape != committed[name].shape:
            raise SystemExit(f"{golden.name}: {name} has another shape in the file")
        if tensor.numel() > 0:
            worst = max(worst, ((tensor - committed[name]).abs().max() / committed[name].abs().max().clamp(min=1)).item())
    return worst


def main():
    names = [name for name in sys.argv[1:] if name != "--check"]
    folder = pathlib.Path(names[0]) if names else pathlib.Path(__file__).parent / "golden"
    folder.mkdir(exist_ok=True)
    differences = {}
    for golden in (rms_norm(), attention("attention", 2), attention("attention_one_kv_head", 1),
                   attention("attention_window", 2, window=5), attention("attention_full", 2, causal=False),
                   attention("attention_packed", 2, packs=True), attention("attention_packed_window", 3, window=3, packs=True),
                   attention("attention_soft_cap", 2, soft_cap=1.5), attention("attention_alibi", 2, alibi=True),
                   attention("attention_sinks", 2, sinks=True),
                   attention("attention_packed_alibi_sinks", 3, window=9, packs=True, soft_cap=2.5, alibi=True, sinks=True), swiglu(), gelu(), vocabulary(),
                   latent_attention("latent_attention", query_rank=7), latent_attention("latent_attention_direct", interleaved=False),
                   latent_attention("latent_attention_yarn", query_rank=7, yarn=LATENT_YARN),
                   mamba2("mamba2", 1), mamba2("mamba2_groups", 3, norm_groups=3), mamba2("mamba2_limits", 2, norm_groups=6, limits=(0.3, 0.9)),
                   mamba2("mamba2_packed", 2, packs=True),
                   *(linear_attention(f"linear_attention_{fading}", fading, 0.6) for fading in ("none", "slopes", "retention")),
                   moe(), deepseek_moe(), language_model("llama", 0, False), language_model("llama_tied", 0, True),
                   language_model("mixtral", 4, False), optimizers()):
        if "--check" in sys.argv[1:]:
            differences[golden.name] = difference(golden, folder)
        else:
            golden.save(folder)
    wrong = {name: found for name, found in differences.items() if not found < 1e-12}
    if differences:
        print(f"{len(differences) - len(wrong)} of {len(differences)} golden files are what PyTorch computes")
    if wrong:
        raise SystemExit(f"not the same within 1e-12: {wrong}")


if __name__ == "__main__":
    main()

"""The experts of DeepSeek-V3 in PyTorch: what transformers' DeepseekV3MoE computes, and the balance of the paper
(DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2), which transformers leaves out. Router logits are [tokens, experts]."""
import torch
import torch.nn.functional as F

import llama_mixtral


def route(router_logits, bias, top_k, groups, top_groups, scale):
    """DeepseekV3TopkRouter.forward: the weights and the experts of each token [tokens, top_k]."""
    scores = router_logits.sigmoid()
    for_choice = scores + bias
    of_groups = for_choice.view(-1, groups, scores.shape[-1] // groups).topk(2, dim=-1)[0].sum(dim=-1)
    chosen = torch.zeros_like(of_groups).scatter_(1, of_groups.topk(top_groups, dim=-1)[1], 1).bool()
    allowed = chosen.unsqueeze(-1).expand(-1, groups, scores.shape[-1] // groups).reshape(scores.shape)
    experts = for_choice.masked_fill(~allowed, float("-inf")).topk(top_k, dim=-1)[1]
    weights = scores.gather(1, experts)
    return weights / (weights.sum(dim=-1, keepdim=True) + 1e-20) * scale, experts


def moe(hidden_states, gate, bias, experts, shared, top_k, groups, top_groups, scale):
    """DeepseekV3MoE.forward; experts: a list of (w1, w3, w2), shared: one. Gives the output, the router's logits and the choices."""
    tokens = hidden_states.reshape(-1, hidden_states.shape[-1])
    router_logits = F.linear(tokens, gate)
    weights, chosen = route(router_logits, bias, top_k, groups, top_groups, scale)
    output = torch.zeros_like(tokens)
    for number, (w1, w3, w2) in enumerate(experts):
        token, slot = torch.where(chosen == number)
        output = output.index_add(0, token, llama_mixtral.swiglu(tokens[token], w1, w3, w2) * weights[token, slot, None])
    return (output + llama_mixtral.swiglu(tokens, *shared)).reshape(hidden_states.shape), router_logits, chosen


def sequence_balance_loss(router_logits, chosen, sequences):
    """Equations 17 to 20, without alpha: the mean over sequences."""
    experts, top_k = router_logits.shape[-1], chosen.shape[-1]
    shares = router_logits.sigmoid()
    shares = (shares / shares.sum(dim=-1, keepdim=True)).view(sequences, -1, experts)
    counts = F.one_hot(chosen, experts).sum(dim=1).view(sequences, -1, experts)
    frequency = experts / top_k * counts.to(shares.dtype).mean(dim=1)
    return (frequency * shares.mean(dim=1)).sum(dim=-1).mean()


def excess_load(chosen, experts):
    """The choices of each expert less their mean."""
    load = torch.bincount(chosen.reshape(-1), minlength=experts).double()
    return load - load.mean()


def moved(bias, excess, rate):
    """The bias after a step (arXiv 2408.15664, algorithm 1)."""
    return bias - rate * torch.sign(excess)

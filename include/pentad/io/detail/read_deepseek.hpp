// config.json of DeepSeek-V3: latent attention, and experts behind its router.
#pragma once

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/io/detail/read_rotary.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/presets.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pentad::io::detail {

/// Its sizes, rotary embedding and heads.
inline model::LatentAttention read_latent_attention(ConfigFields& fields) {
    std::size_t const heads = fields.size("num_attention_heads");
    fields.require_divisor("num_key_value_heads", fields.size_or("num_key_value_heads", heads), "num_attention_heads",
                           heads);
    fields.neutral({"head_dim", "qk_head_dim"}); // sums of the others
    fields.require("attention_bias", false);
    fields.require("attention_dropout", 0.0);
    model::LatentAttention attention{.heads = heads,
                                     .head_dim = fields.size("qk_nope_head_dim"),
                                     .rope_dim = fields.size("qk_rope_head_dim"),
                                     .value_dim = fields.size("v_head_dim"),
                                     .query_rank = fields.size_or("q_lora_rank", 0),
                                     .kv_rank = fields.size("kv_lora_rank")};
    if (attention.rope_dim % 2 != 0) refuse_json("qk_rope_head_dim", "an even number, which rotary embedding needs");
    attention.rotary = read_rotary(fields, 1e4);
    attention.rotary.is_interleaved = fields.flag_or("rope_interleave", true);
    return attention;
}

/// Its experts. Biases move in training, and are in checkpoints.
inline model::Experts read_deepseek_experts(ConfigFields& fields) {
    std::size_t const count = fields.size("n_routed_experts");
    model::Experts experts{.count = count,
                           .top_k = fields.size("num_experts_per_tok", static_cast<std::int64_t>(count)),
                           .width = fields.size("moe_intermediate_size")};
    experts.shared = fields.size_or("n_shared_experts", 1);
    auto& router = experts.router;
    router = model::deepseek_v3_router;
    router.groups = fields.size_or("n_group", 8);
    router.top_groups = fields.size_or("topk_group", 4);
    router.renormalises = fields.flag_or("norm_topk_prob", true);
    router.scale = fields.number_or("routed_scaling_factor", 2.5, 1e-6, 1e6);
    fields.require("scoring_func", "sigmoid"); // of DeepSeek's own files, as the next two
    fields.require("topk_method", "noaux_tc");
    fields.require("moe_layer_freq", 1);
    if (auto const why = router.refusal(experts.count, experts.top_k); !why.empty())
        refuse_json("n_group", "such that experts can be chosen: " + why);
    return experts;
}

/// The first layers have MLPs, the others experts: what no layer has may be left out.
inline model::Model read_deepseek_v3(ConfigFields& fields) {
    fields.neutral(
        {"aux_loss_alpha", "ep_size", "output_router_logits", "quantization_config", "router_z_loss_coef", "seq_aux"});
    fields.require("hidden_act", "silu");
    std::size_t const layers = fields.size("num_hidden_layers", 10000);
    auto const attention = read_latent_attention(fields);
    auto const dense =
        std::min(layers, fields.whole_or("first_k_dense_replace", 3, 0, static_cast<std::int64_t>(layers)));
    model::Experts experts;
    std::size_t width = 0;
    if (dense < layers)
        experts = read_deepseek_experts(fields);
    else
        fields.neutral({"moe_intermediate_size", "moe_layer_freq", "n_group", "n_routed_experts", "n_shared_experts",
                        "norm_topk_prob", "num_experts_per_tok", "routed_scaling_factor", "scoring_func", "topk_group",
                        "topk_method"});
    if (dense > 0)
        width = fields.size("intermediate_size");
    else
        fields.neutral({"intermediate_size"});
    auto model = model::deepseek(layers, fields.size("hidden_size"), fields.size("vocab_size"), attention, dense, width,
                                 experts);
    model.ties_embeddings = fields.flag_or("tie_word_embeddings", false);
    model.norm_epsilon = fields.number_or("rms_norm_eps", 1e-6, 0, 1);
    return model;
}

} // namespace pentad::io::detail

// config.json of Mamba-2 and of stacks of Mamba-2 and attention.
#pragma once

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/io/detail/read_decoder.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/presets.hpp>

#include <cstddef>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace pentad::io::detail {

inline constexpr double longest_step = 1e300; ///< instead of an infinite limit, which JSON has no number for

/// The limits of steps of time. Python writes an infinite one as Infinity, which comes here in quotes, or transformers
/// in an object of its own.
inline std::pair<double, double> read_step_limits(ConfigFields& fields) {
    std::pair<double, double> limits{0, std::numeric_limits<double>::infinity()};
    if (!fields.has("time_step_limit")) return limits;
    Json const& json = fields.at("time_step_limit");
    if (!json.is_array() || json.size() != 2) refuse_json("time_step_limit", "two numbers", json);
    limits.first = ConfigFields::number(json[0], "time_step_limit[0]", 0, 1e12);
    if (json[1] == "Infinity" || json[1] == Json{{"__float__", "Infinity"}}) return limits;
    limits.second = ConfigFields::number(json[1], "time_step_limit[1]", limits.first, longest_step);
    if (limits.second == longest_step) limits.second = std::numeric_limits<double>::infinity();
    return limits;
}
/// Mamba2ForCausalLM.
inline model::Model read_mamba2(ConfigFields& fields) {
    // How parameters and residuals are made and held, not what is computed. The mixer of transformers reads neither
    // norm_before_gate nor rms_norm.
    fields.neutral({"norm_before_gate", "rescale_prenorm_residual", "residual_in_fp32", "rms_norm", "time_step_floor",
                    "time_step_init_scheme", "time_step_max", "time_step_min", "time_step_rank", "time_step_scale"});
    fields.require("use_bias", false);
    fields.require("use_conv_bias", true);
    fields.require("hidden_act", "silu");
    std::size_t const heads = fields.size("num_heads"), hidden = fields.size("hidden_size");
    model::Mamba2 mixer{.heads = heads,
                        .head_dim = fields.size_or("head_dim", 64),
                        .state = fields.size("state_size"),
                        .groups = fields.size_or("n_groups", 8),
                        .convolution = fields.size_or("conv_kernel", 4),
                        .chunk = fields.size_or("chunk_size", 256)};
    mixer.norm_groups = mixer.groups;
    std::tie(mixer.least_step, mixer.most_step) = read_step_limits(fields);
    fields.require_divisor("n_groups", mixer.groups, "num_heads", heads);
    auto const inner = fields.size_or("expand", 2) * hidden;
    if (inner != mixer.inner())
        refuse_json("num_heads", "heads that make up expand x hidden_size = " + std::to_string(inner) +
                                     " elements, not num_heads x head_dim = " + std::to_string(mixer.inner()));
    fields.require("intermediate_size", inner); // Mistral's files say it once more
    auto model = model::mamba2(fields.size("num_hidden_layers", 10000), hidden, fields.size("vocab_size"), mixer,
                               fields.flag_or("tie_word_embeddings", false));
    model.norm_epsilon = fields.number_or("layer_norm_epsilon", 1e-5, 0, 1);
    return model;
}
inline model::Attention read_bamba_attention(ConfigFields& fields, std::size_t hidden) {
    model::Attention attention{.heads = fields.size("num_attention_heads")};
    attention.kv_heads = read_kv_heads(fields, attention.heads, 8);
    fields.require_divisor("num_attention_heads", attention.heads, "hidden_size", hidden);
    attention.head_dim = hidden / attention.heads;
    if (attention.head_dim % 4 != 0)
        refuse_json("num_attention_heads", "heads of a multiple of 4 elements, of which half are turned");
    attention.rotary = read_rotary(fields, 1e4, 0.5);
    fields.require("attn_rotary_emb", attention.head_dim / 2); // says the same to other programs
    return attention;
}
/// BambaForCausalLM: Mamba-2 with attention in some layers, of whose heads the first half is turned, and gated MLPs.
inline model::Model read_bamba(ConfigFields& fields) {
    // Biases of steps of time are drawn between time_step_min and time_step_max.
    fields.neutral({"num_logits_to_keep", "z_loss_coefficient", "layer_types", "layers_block_type", "time_step_max",
                    "time_step_min"});
    fields.require("hidden_act", "silu");
    fields.require("attention_dropout", 0.0);
    fields.require("attention_bias", false);
    fields.require("mlp_bias", false);
    fields.require("mamba_proj_bias", false);
    fields.require("mamba_conv_bias", true);
    std::size_t const layers = fields.size("num_hidden_layers", 10000), hidden = fields.size("hidden_size");
    std::size_t const heads = fields.size_or("mamba_n_heads", 128), inner = fields.size_or("mamba_expand", 2) * hidden;
    fields.require_divisor("mamba_n_heads", heads, "mamba_expand x hidden_size", inner);
    bool const has_head_dim = fields.has("mamba_d_head") && fields.at("mamba_d_head") != "auto";
    model::Mamba2 mixer{.heads = heads,
                        .head_dim = has_head_dim ? fields.size("mamba_d_head") : inner / heads,
                        .state = fields.size_or("mamba_d_state", 256),
                        .groups = fields.size_or("mamba_n_groups", 1),
                        .convolution = fields.size_or("mamba_d_conv", 4),
                        .chunk = fields.size_or("mamba_chunk_size", 256)};
    if (mixer.inner() != inner)
        refuse_json("mamba_d_head", "mamba_expand x hidden_size / mamba_n_heads = " + std::to_string(inner / heads));
    mixer.norm_groups = mixer.groups;
    std::tie(mixer.least_step, mixer.most_step) = read_step_limits(fields);
    fields.require_divisor("mamba_n_groups", mixer.groups, "mamba_n_heads", heads);
    std::set<std::size_t> with_attention;
    if (fields.has("attn_layer_indices"))
        for (auto const& layer : fields.at("attn_layer_indices"))
            with_attention.insert(static_cast<std::size_t>(
                whole_number(layer, "attn_layer_indices", 0, static_cast<std::int64_t>(layers) - 1)));
    model::Attention const attention =
        with_attention.empty() ? model::Attention() : read_bamba_attention(fields, hidden);
    if (with_attention.empty()) // nothing to be said of it
        fields.neutral({"num_attention_heads", "num_key_value_heads", "rope_theta", "rope_scaling", "rope_parameters",
                        "partial_rotary_factor", "attn_rotary_emb"});
    model::Branch const mlp{model::GatedMlp{fields.size("intermediate_size")}, "feed_forward", "pre_ff_layernorm"};
    model::Model model{.hidden = hidden,
                       .vocab = fields.size("vocab_size"),
                       .ties_embeddings = fields.flag_or("tie_word_embeddings", false),
                       .norm_epsilon = fields.number_or("rms_norm_eps", 1e-5, 0, 1)};
    for (std::size_t i = 0; i < layers; ++i) {
        auto const first = with_attention.contains(i) ? model::Branch{attention, "self_attn", "input_layernorm"}
                                                      : model::Branch{mixer, "mamba", "input_layernorm"};
        model.blocks.push_back({{first, mlp}});
    }
    return model;
}

} // namespace pentad::io::detail

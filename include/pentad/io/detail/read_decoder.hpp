// config.json of the transformers whose checkpoints are read and written.
#pragma once

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/model/family.hpp>
#include <pentad/model/parts.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::io::detail {

/// The rotary embedding: rope_theta and rope_scaling, or both in rope_parameters (transformers 5).
/// @param share of a head that this family turns @param has_yarn whether the layers of this family have that scaling
inline model::Rotary read_rotary(ConfigFields& fields, double default_theta, double share = 1, bool has_yarn = false) {
    model::Rotary rotary{.theta = fields.number_or("rope_theta", default_theta, 1, 1e12), .share = share};
    fields.require("partial_rotary_factor", share);
    for (std::string const key : {"rope_scaling", "rope_parameters"}) {
        if (!fields.has(key)) continue;
        Json const& json = fields.at(key);
        if (!json.is_object()) refuse_json(key, "an object", json);
        std::set<std::string> known;
        auto const number = [&](std::string const& name, double fallback, double least) {
            known.insert(name);
            return json.contains(name) && !json[name].is_null()
                       ? ConfigFields::number(json[name], key + "." + name, least, 1e12)
                       : fallback;
        };
        known.insert({"rope_type", "type"});
        auto const type_key = json.contains("rope_type") ? "rope_type" : "type";
        std::string const type = json.contains(type_key) ? text(json[type_key], key + "." + type_key) : "default";
        rotary.theta = number("rope_theta", rotary.theta, 1);
        if (number("partial_rotary_factor", share, 0) != share)
            refuse_json(key + ".partial_rotary_factor", Json(share).dump() + ", the only value that is supported");
        if (type == "llama3") {
            auto& s = rotary.scaling;
            for (auto const* const needed :
                 {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
                (void)member(json, needed, key + "." + needed);
            s.factor = number("factor", s.factor, 1);
            s.low_frequency_factor = number("low_freq_factor", s.low_frequency_factor, 1e-6);
            s.high_frequency_factor = number("high_freq_factor", s.high_frequency_factor, 1e-6);
            s.original_positions = number("original_max_position_embeddings", s.original_positions, 1);
            if (s.high_frequency_factor <= s.low_frequency_factor)
                refuse_json(key + ".high_freq_factor", "more than low_freq_factor");
        } else if (type == "yarn" && has_yarn) {
            auto& y = rotary.yarn;
            for (auto const* const needed : {"factor", "original_max_position_embeddings"})
                (void)member(json, needed, key + "." + needed);
            y.factor = number("factor", y.factor, 1);
            y.original_positions = number("original_max_position_embeddings", y.original_positions, 1);
            y.fast = number("beta_fast", y.fast, 1e-6);
            y.slow = number("beta_slow", y.slow, 1e-6);
            y.turned_scale = number("mscale", y.turned_scale, 0);
            y.score_scale = number("mscale_all_dim", y.score_scale, 0);
            if (y.fast <= y.slow) refuse_json(key + ".beta_fast", "more than beta_slow");
            if (rotary.theta <= 1) refuse_json("rope_theta", "more than 1, which YaRN needs");
        } else if (type != "default") {
            refuse_json(key + "." + type_key, std::string(has_yarn ? "default, llama3 or yarn" : "default or llama3") +
                                                  ", which are supported, not \"" + one_line(type) + "\"");
        }
        for (auto const& [name, value] : json.items())
            if (!known.contains(name))
                throw std::invalid_argument("the field " + quoted_key(key + ".", name) + " is not known");
    }
    return rotary;
}

/// The window of each layer's attention; 0: none.
inline std::vector<std::size_t> read_windows(ConfigFields& fields, model::Family family, std::size_t layers) {
    using model::Family;
    fields.neutral({"sliding_window", "max_window_layers", "layer_types", "use_sliding_window"});
    std::vector<std::size_t> windows(layers, 0);
    bool const is_qwen = family == Family::qwen2 || family == Family::qwen3 || family == Family::qwen3_moe;
    if (!is_qwen && fields.has("layer_types"))
        for (auto const& type : fields.at("layer_types"))
            if (type != "full_attention") refuse_json("layer_types", "\"full_attention\" alone in this family", type);
    if (family == Family::llama || (is_qwen && !fields.flag_or("use_sliding_window", false))) {
        if (family == Family::llama && fields.has("sliding_window"))
            refuse_json("sliding_window", "null, as LLaMA has no windows: Mistral is LLaMA with them",
                        fields.at("sliding_window"));
        return windows;
    }
    // Where a file says nothing, these families have a window of 4096 all the same.
    bool const is_default = family == Family::mistral || is_qwen;
    if (!fields.has("sliding_window") && (fields.is_there("sliding_window") || !is_default)) return windows;
    std::size_t const window = fields.size_or("sliding_window", 4096);
    if (is_qwen && fields.has("layer_types")) {
        auto const& types = fields.at("layer_types");
        if (!types.is_array() || types.size() != layers)
            refuse_json("layer_types", "an array of " + std::to_string(layers) + " layers");
        for (std::size_t i = 0; i < layers; ++i) {
            if (types[i] == "sliding_attention")
                windows[i] = window;
            else if (types[i] != "full_attention")
                refuse_json("layer_types", "\"full_attention\" or \"sliding_attention\", which are supported",
                            types[i]);
        }
    } else {
        std::size_t const first = is_qwen ? fields.whole_or("max_window_layers", 28, 0, 10000) : 0;
        for (std::size_t i = first; i < layers; ++i) windows[i] = window;
    }
    return windows;
}

/// A model of the families whose checkpoints are read and written.
inline model::Model read_decoder(ConfigFields& fields, model::Family family) {
    using model::Family;
    fields.neutral({"output_router_logits", "router_aux_loss_coef"});
    fields.require("hidden_act", "silu");
    fields.require("attention_dropout", 0.0);
    fields.require("router_jitter_noise", 0.0);
    fields.require("pretraining_tp", 1);
    fields.require("attention_bias", false);
    fields.require("mlp_bias", false);
    fields.require("use_mrope", false);
    fields.require("rope_interleaved", false);
    model::DecoderSizes sizes{.layers = fields.size("num_hidden_layers", 10000),
                              .hidden = fields.size("hidden_size"),
                              .heads = fields.size("num_attention_heads"),
                              .ffn = fields.size("intermediate_size"),
                              .vocab = fields.size("vocab_size"),
                              .ties_embeddings = fields.flag_or("tie_word_embeddings", false),
                              .norm_epsilon =
                                  fields.number_or("rms_norm_eps", family == Family::mixtral ? 1e-5 : 1e-6, 0, 1)};
    // Where the file does not say, each family has another number of its own.
    sizes.kv_heads = family == Family::llama ? fields.size_or("num_key_value_heads", sizes.heads)
                                             : fields.size("num_key_value_heads");
    sizes.head_dim = fields.size_or("head_dim", family == Family::qwen3 ? 128 : 0);
    fields.require_divisor("num_key_value_heads", sizes.kv_heads, "num_attention_heads", sizes.heads);
    if (sizes.head_dim == 0)
        fields.require_divisor("num_attention_heads", sizes.heads, "hidden_size", sizes.hidden, ", or a head_dim");
    auto model = model::decoder(sizes);
    model::Attention attention = *model.find<model::Attention>(0);
    if (attention.head_dim % 2 != 0) refuse_json("head_dim", "an even number, which rotary embedding needs");
    attention.rotary = read_rotary(fields, family == Family::mixtral ? 1e6 : 1e4);
    attention.has_bias = family == Family::qwen2;
    attention.norms_queries_and_keys = family == Family::qwen3 || family == Family::qwen3_moe;
    model::Experts experts;
    std::size_t every = 1;
    std::set<std::size_t> dense;
    if (model::has_experts(family)) {
        bool const is_mixtral = family == Family::mixtral;
        // transformers 5 calls them local everywhere.
        experts.count = fields.size(is_mixtral || !fields.has("num_experts") ? "num_local_experts" : "num_experts");
        experts.top_k = fields.size("num_experts_per_tok", static_cast<std::int64_t>(experts.count));
        experts.width = is_mixtral ? sizes.ffn : fields.size("moe_intermediate_size");
        experts.router.renormalises = is_mixtral || fields.flag_or("norm_topk_prob", false);
        if (!is_mixtral) {
            every = fields.size_or("decoder_sparse_step", 1);
            if (fields.has("mlp_only_layers"))
                for (auto const& layer : fields.at("mlp_only_layers"))
                    dense.insert(static_cast<std::size_t>(
                        whole_number(layer, "mlp_only_layers", 0, static_cast<std::int64_t>(sizes.layers) - 1)));
        }
    }
    auto const windows = read_windows(fields, family, model.blocks.size());
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
        auto& branches = model.blocks[i].branches;
        attention.sight.window = windows[i];
        branches[0].part = attention;
        if (model::has_experts(family) && !dense.contains(i) && (i + 1) % every == 0)
            branches[1] = {experts, "block_sparse_moe", branches[1].norm};
    }
    return model;
}

} // namespace pentad::io::detail

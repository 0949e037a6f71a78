// config.json of the transformers whose checkpoints are read and written.
#pragma once

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/io/detail/read_rotary.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/model/family.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pentad::io::detail {

/// The window of each layer's attention; 0: none. Which layers have it, and by which fields, is each family's own:
/// Qwen2 and Qwen3 name the layers, all others give every layer the same, Qwen3's experts among them.
inline std::vector<std::size_t> read_windows(ConfigFields& fields, model::Family family, std::size_t layers) {
    using model::Family;
    fields.neutral({"sliding_window", "max_window_layers", "layer_types", "use_sliding_window"});
    std::vector<std::size_t> const none(layers, 0);
    bool const has_switch = family == Family::qwen2 || family == Family::qwen3 || family == Family::qwen3_moe;
    bool const names_layers = family == Family::qwen2 || family == Family::qwen3;
    if (has_switch && !fields.flag_or("use_sliding_window", false)) return none;
    if (family == Family::llama && fields.has("sliding_window"))
        refuse_json("sliding_window", "null, as LLaMA has no windows: Mistral is LLaMA with them",
                    fields.at("sliding_window"));
    // These families have a window of 4096 if the file says nothing.
    bool const is_default = family == Family::mistral || has_switch;
    bool const has_window = fields.has("sliding_window") || (is_default && !fields.is_there("sliding_window"));
    std::size_t const window = has_window ? fields.size_or("sliding_window", 4096) : 0;
    std::vector<std::size_t> windows(layers, window);
    if (!names_layers) { // and layer_types is not read by transformers: it may say the same, nothing else
        std::string const all = window > 0 ? "sliding_attention" : "full_attention";
        if (fields.has("layer_types"))
            for (auto const& type : fields.at("layer_types"))
                if (type != all) refuse_json("layer_types", "\"" + all + "\" alone in this family", type);
        return windows;
    }
    std::size_t const first = std::min(layers, fields.whole_or("max_window_layers", 28, 0, 10000));
    std::fill_n(windows.begin(), first, 0);
    if (!fields.has("layer_types")) return windows;
    auto const& types = fields.at("layer_types");
    if (!types.is_array() || types.size() != layers)
        refuse_json("layer_types", "an array of " + std::to_string(layers) + " layers");
    for (std::size_t i = 0; i < layers; ++i) {
        if (types[i] != "sliding_attention" && types[i] != "full_attention")
            refuse_json("layer_types", "\"full_attention\" or \"sliding_attention\", which are supported", types[i]);
        windows[i] = types[i] == "sliding_attention" ? window : 0;
    }
    return windows;
}

/// Heads of keys and values: null is as many as of queries, and a number of the family's own where nothing is said.
inline std::size_t read_kv_heads(ConfigFields& fields, std::size_t heads, std::optional<std::size_t> usual) {
    bool const is_said = fields.is_there("num_key_value_heads");
    auto const kv_heads = fields.has("num_key_value_heads") || (!is_said && !usual) ? fields.size("num_key_value_heads")
                          : is_said                                                 ? heads
                                                                                    : *usual;
    fields.require_divisor("num_key_value_heads", kv_heads, "num_attention_heads", heads);
    return kv_heads;
}

/// A model of the families whose checkpoints are read and written.
inline model::Model read_decoder(ConfigFields& fields, model::Family family) {
    using model::Family;
    fields.neutral({"output_router_logits", "router_aux_loss_coef", "router_z_loss_coef"});
    fields.require("hidden_act", "silu");
    fields.require("attention_dropout", 0.0);
    fields.require("router_jitter_noise", 0.0);
    if (family == Family::qwen2) fields.neutral({"attention_bias"}); // it has one, whatever is said
    fields.off("attention_bias", false);
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
    sizes.kv_heads =
        read_kv_heads(fields, sizes.heads, family == Family::llama ? std::optional(sizes.heads) : std::nullopt);
    sizes.head_dim = fields.size_or("head_dim", family == Family::qwen3 ? 128 : 0);
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

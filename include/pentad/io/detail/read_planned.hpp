// config.json of families whose checkpoints are not read.
#pragma once

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/io/detail/read_latent_attention.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/presets.hpp>

#include <cstddef>
#include <cstdint>

namespace pentad::io::detail {

// Their config.json is used for the sizes that a plan needs. Fields that
// change no size (rotary embedding, dropout, how scores are scaled) are not looked at; those that are not known are
// refused.

/// The main model: modules that predict further tokens (num_nextn_predict_layers) are left out.
inline model::Model read_deepseek_v3(ConfigFields& fields) {
    fields.neutral({"aux_loss_alpha", "ep_size", "hidden_act", "n_group", "norm_topk_prob", "num_nextn_predict_layers",
                    "pretraining_tp", "quantization_config", "routed_scaling_factor", "scoring_func", "seq_aux",
                    "topk_group", "topk_method"});
    fields.require("moe_layer_freq", 1); // of DeepSeek's own files
    std::size_t const layers = fields.size("num_hidden_layers", 10000);
    auto const attention = read_latent_attention(fields);
    std::size_t const count = fields.size("n_routed_experts");
    model::Experts experts{.count = count,
                           .top_k = fields.size("num_experts_per_tok", static_cast<std::int64_t>(count)),
                           .width = fields.size("moe_intermediate_size")};
    experts.shared = fields.size_or("n_shared_experts", 0);
    experts.has_balance_bias = true;
    std::size_t const dense = fields.whole("first_k_dense_replace", 0, static_cast<std::int64_t>(layers));
    auto model = model::deepseek(layers, fields.size("hidden_size"), fields.size("vocab_size"), attention, dense,
                                 fields.size("intermediate_size"), experts);
    model.ties_embeddings = fields.flag_or("tie_word_embeddings", false);
    model.norm_epsilon = fields.number_or("rms_norm_eps", 1e-6, 0, 1);
    return model;
}
inline model::Model read_gpt2(ConfigFields& fields) {
    fields.neutral({"activation_function",
                    "_num_labels",
                    "attn_pdrop",
                    "embd_pdrop",
                    "gradient_checkpointing",
                    "n_special",
                    "output_past",
                    "predict_special_tokens",
                    "resid_pdrop",
                    "layer_norm_epsilon",
                    "n_ctx",
                    "reorder_and_upcast_attn",
                    "scale_attn_by_inverse_layer_idx",
                    "scale_attn_weights",
                    "summary_activation",
                    "summary_first_dropout",
                    "summary_proj_to_labels",
                    "summary_type",
                    "summary_use_proj",
                    "task_specific_params"});
    fields.require("add_cross_attention", false);
    std::size_t const hidden = fields.size("n_embd"), heads = fields.size("n_head");
    fields.require_divisor("n_head", heads, "n_embd", hidden);
    auto model = model::gpt2(fields.size("n_layer", 10000), hidden, heads, fields.size_or("n_inner", 4 * hidden),
                             fields.size("vocab_size"), fields.size("n_positions"));
    model.ties_embeddings = fields.flag_or("tie_word_embeddings", true);
    return model;
}

} // namespace pentad::io::detail

// config.json of families whose checkpoints are not read.
#pragma once

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/model/presets.hpp>

#include <cstddef>
#include <cstdint>

namespace pentad::io::detail {

// Their config.json is used for the sizes that a plan needs. Fields that
// change no size (rotary embedding, dropout, how scores are scaled) are not looked at; those that are not known are
// refused.

inline model::Model read_gpt2(ConfigFields& fields) {
    fields.neutral({"activation_function", "_num_labels", "attn_pdrop", "embd_pdrop", "n_special", "output_past",
                    "predict_special_tokens", "resid_pdrop", "layer_norm_epsilon", "n_ctx", "reorder_and_upcast_attn",
                    "scale_attn_by_inverse_layer_idx", "scale_attn_weights", "summary_activation",
                    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"});
    std::size_t const hidden = fields.size("n_embd"), heads = fields.size("n_head");
    fields.require_divisor("n_head", heads, "n_embd", hidden);
    auto model = model::gpt2(fields.size("n_layer", 10000), hidden, heads, fields.size_or("n_inner", 4 * hidden),
                             fields.size("vocab_size"), fields.size("n_positions"));
    model.ties_embeddings = fields.flag_or("tie_word_embeddings", true);
    return model;
}

} // namespace pentad::io::detail

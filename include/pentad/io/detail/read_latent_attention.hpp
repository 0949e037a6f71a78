// config.json of models with latent attention: DeepSeek-V3.
#pragma once

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/io/detail/read_decoder.hpp>
#include <pentad/model/parts.hpp>

#include <cstddef>

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
    attention.rotary = read_rotary(fields, 1e4, 1, true);
    attention.rotary.is_interleaved = fields.flag_or("rope_interleave", true);
    return attention;
}

} // namespace pentad::io::detail

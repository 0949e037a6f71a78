// The sizes of a transformer language model, as plain numbers.
#pragma once

#include <cstddef>

namespace pentad {

/// The sizes of a transformer language model.
struct ModelShape {
    std::size_t layers = 4;
    std::size_t hidden = 128;
    std::size_t heads = 4;
    std::size_t kv_heads = 4;
    std::size_t ffn = 384;
    std::size_t vocab = 256;
    std::size_t experts = 0; ///< 0: dense
    std::size_t top_k = 2;
    std::size_t moe_every = 1; ///< every n-th layer has experts: layers n - 1, 2 n - 1, ...
    bool tie_embeddings = false;
    double norm_epsilon = 1e-5;
    double rope_theta = 1e4;

    [[nodiscard]] std::size_t head_dim() const { return hidden / heads; }
    [[nodiscard]] bool has_experts(std::size_t layer) const { return experts > 0 && (layer + 1) % moe_every == 0; }
};

/// How context parallelism gathers keys and values.
enum class ContextStrategy { ring, all_gather };

} // namespace pentad

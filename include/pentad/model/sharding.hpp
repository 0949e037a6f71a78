// What the parts of a model ask of the mesh.
#pragma once

#include <pentad/model/model.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>

namespace pentad::model {

/// How many neighbours along tp hold the same heads of keys and values, where tp exceeds these: the extent of
/// inner(tp). All blocks are taken to have as many as the first that has attention.
inline int key_value_copies(Model const& model, int tp) {
    auto const* attention = model.first<Attention>();
    int const heads = attention == nullptr ? tp : static_cast<int>(std::max<std::size_t>(attention->kv_heads, 1));
    return tp % heads == 0 ? tp / heads : 1;
}

/// Query heads of a rank of tp, which strategies of attention may exchange over cp: where blocks differ, the greatest
/// common divisor. 0: no block has attention whose keys and values go by a strategy.
inline std::int64_t query_heads(Model const& model, std::int64_t tp) {
    std::int64_t heads = 0;
    for (std::size_t block = 0; block < model.blocks.size(); ++block)
        if (auto const* attention = model.find<Attention>(block))
            heads = std::gcd(heads, static_cast<std::int64_t>(attention->heads));
    return heads / tp;
}

/// Why the ranks of tp cannot share its recurrent layers; empty where they can.
inline std::string recurrence_refusal(Model const& model, std::size_t tp) {
    for (std::size_t block = 0; block < model.blocks.size(); ++block)
        if (auto const* mixer = model.find<Mamba2>(block))
            if (auto why = mixer->refusal(tp); !why.empty()) return why;
    return {};
}

} // namespace pentad::model

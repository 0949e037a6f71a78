// What the parts of a model ask of the mesh.
#pragma once

#include <pentad/model/model.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <cstddef>

namespace pentad::model {

/// How many neighbours along tp hold the same heads of keys and values, where tp exceeds these: the extent of
/// inner(tp). All blocks are taken to have as many as the first that has attention.
inline int key_value_copies(Model const& model, int tp) {
    auto const* attention = model.first<Attention>();
    int const heads = attention == nullptr ? tp : static_cast<int>(std::max<std::size_t>(attention->kv_heads, 1));
    return tp % heads == 0 ? tp / heads : 1;
}

} // namespace pentad::model

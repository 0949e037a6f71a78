// What the parts of a model ask of the mesh.
#pragma once

#include <pentad/model/model.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>

namespace pentad::model {

namespace detail {
/// f(part) for each part of a model's blocks and predictors, until it returns true.
template <class F>
void for_each_part(Model const& model, F&& f) {
    for (std::size_t i = 0; i < model.block_count(); ++i)
        for (auto const& branch : model.block(i).branches)
            if (f(branch.part)) return;
}
} // namespace detail

/// How many neighbours along tp hold the same heads of keys and values, where tp exceeds these: the extent of
/// inner(tp). All blocks are taken to have as many as the first that has any.
inline int key_value_copies(Model const& model, int tp) {
    std::size_t heads = 0;
    detail::for_each_part(model, [&](Part const& part) { return (heads = part.key_value_heads()) > 0; });
    auto const shares = static_cast<int>(heads);
    return shares > 0 && tp % shares == 0 ? tp / shares : 1;
}

/// Query heads of a rank of tp, which strategies of attention may exchange over cp: where blocks differ, the greatest
/// common divisor. 0: no block has attention whose keys and values go by a strategy.
inline std::int64_t query_heads(Model const& model, std::int64_t tp) {
    std::int64_t heads = 0;
    for (auto const& block : model.blocks)
        for (auto const& branch : block.branches)
            heads = std::gcd(heads, static_cast<std::int64_t>(branch.part.query_heads()));
    return heads / tp;
}

/// Why these ranks cannot share its layers; nothing where they can.
inline std::optional<Refusal> part_refusal(Model const& model, PartRanks const& on) {
    std::optional<Refusal> refused;
    detail::for_each_part(model, [&](Part const& part) { return (refused = part.refusal(on)).has_value(); });
    if (refused) return refused;
    return indivisible_by_tensor("hidden", model.hidden, on.by.hidden, on);
}

/// Whether some part sees later tokens, and has to be told where padding begins.
inline bool sees_later_tokens(Model const& model) {
    bool sees = false;
    detail::for_each_part(model, [&](Part const& part) { return sees = part.sees_later_tokens().value_or(false); });
    return sees;
}
/// Why sequences of a model cannot be padded; empty where they can: each part says what its tokens see.
inline std::string padding_refusal(Model const& model) {
    std::string why;
    detail::for_each_part(model, [&](Part const& part) {
        if (!part.sees_later_tokens())
            why = "the part '" + std::string(part.kind()) +
                  "' does not say whether its tokens see later ones, which may be padding (sees_later_tokens())";
        return !why.empty();
    });
    return why;
}
/// Why documents cannot be packed into sequences of a model; empty where they can.
inline std::string packing_refusal(Model const& model) {
    std::string why;
    detail::for_each_part(model, [&](Part const& part) {
        if (!part.keeps_documents_apart())
            why = "the part '" + std::string(part.kind()) +
                  "' does not say that its tokens see none of other documents (keeps_documents_apart())";
        return !why.empty();
    });
    return why;
}

} // namespace pentad::model

// The functions of <pentad/model/recomputation.hpp>.
#pragma once

#include <pentad/model/recomputation.hpp>

#include <pentad/mesh/inline.hpp>

namespace pentad::model {

PENTAD_INLINE BlockRecomputation Recomputation::of(std::size_t block) const {
    if (kind == Kind::planned) return block < blocks.size() ? blocks[block] : BlockRecomputation{};
    if (block % every != 0) return {};
    if (kind == Kind::full) return {.whole = true};
    return kind == Kind::selective ? BlockRecomputation{.pieces = pieces} : BlockRecomputation{};
}

PENTAD_INLINE Recomputation each_block(BlockRecomputation block) {
    using Kind = Recomputation::Kind;
    return {.kind = block.whole            ? Kind::full
                    : block.pieces.empty() ? Kind::none
                                           : Kind::selective,
            .pieces = block.pieces};
}

PENTAD_INLINE std::string text(PieceSet pieces) {
    std::string text;
    for (std::size_t i = 0; i < piece_names.size(); ++i)
        if (pieces.contains(static_cast<Piece>(i))) text += (text.empty() ? "" : ",") + std::string(piece_names[i]);
    return text;
}

PENTAD_INLINE std::string text(Recomputation const& recompute) {
    std::string text(name(recompute.kind));
    if (recompute.kind == Recomputation::Kind::selective) text += " (" + model::text(recompute.pieces) + ")";
    if (recompute.kind == Recomputation::Kind::planned) {
        std::size_t count = 0;
        for (auto const& block : recompute.blocks) count += block.is_none() ? 0 : 1;
        text += " (" + std::to_string(count) + " of " + std::to_string(recompute.blocks.size()) + " blocks)";
    }
    return text + (recompute.every > 1 ? " /" + std::to_string(recompute.every) : "");
}

PENTAD_INLINE std::optional<PieceSet> pieces_of(std::string_view list) {
    PieceSet pieces;
    for (bool more = true; more;) {
        auto const end = list.find(',');
        auto const word = list.substr(0, end);
        std::size_t i = 0;
        while (i < piece_names.size() && piece_names[i] != word) ++i;
        if (i == piece_names.size()) return std::nullopt;
        pieces.add(static_cast<Piece>(i));
        more = end != std::string_view::npos;
        if (more) list.remove_prefix(end + 1);
    }
    return pieces;
}

} // namespace pentad::model

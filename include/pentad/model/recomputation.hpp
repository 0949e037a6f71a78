// Activation recomputation: which of the activations that a forward pass saves are dropped, and computed again in the
// backward pass. A value of a run, from none to a choice for each block.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::model {

/// Saved activations of a block that can be recomputed by themselves.
enum class Piece : std::uint8_t {
    inputs,      ///< the inputs of products, gathered over tp under sequence parallelism: the shards are kept, and
                 ///< gathered again (Korthikanti et al. 2022, section 4.2.2)
    norms,       ///< the outputs of norms, which products have as inputs; they are gathered again where need be
    activations, ///< what lies between the products of an MLP or of experts
    attention,   ///< from queries, keys and values to the output of attention
    rows,        ///< the rows that were dispatched to experts: they are dispatched again
};
inline constexpr std::array<std::string_view, 5> piece_names{"inputs", "norms", "activations", "attention", "rows"};

class PieceSet {
  public:
    constexpr PieceSet() = default;
    constexpr PieceSet(std::initializer_list<Piece> pieces) {
        for (auto const piece : pieces) add(piece);
    }
    constexpr void add(Piece piece) { bits_ = static_cast<std::uint8_t>(bits_ | bit(piece)); }
    [[nodiscard]] constexpr bool contains(Piece piece) const { return (bits_ & bit(piece)) != 0; }
    [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
    /// The pieces that are in both.
    [[nodiscard]] constexpr PieceSet operator&(PieceSet other) const {
        PieceSet both;
        both.bits_ = static_cast<std::uint8_t>(bits_ & other.bits_);
        return both;
    }
    friend constexpr bool operator==(PieceSet const&, PieceSet const&) = default;
    friend constexpr auto operator<=>(PieceSet const&, PieceSet const&) = default;

  private:
    static constexpr unsigned bit(Piece piece) { return 1U << static_cast<unsigned>(piece); }
    std::uint8_t bits_ = 0;
};

/// Whether a layer that recomputes these drops its input.
[[nodiscard]] constexpr bool drops_input(PieceSet pieces) {
    return pieces.contains(Piece::inputs) || pieces.contains(Piece::norms);
}

/// What a block recomputes: all of it, from its input, or some pieces.
struct BlockRecomputation {
    bool whole = false;
    PieceSet pieces{}; ///< those that its layers do not have are ignored; all are where the block is `whole`

    [[nodiscard]] constexpr bool is_none() const { return !whole && pieces.empty(); }
    friend constexpr bool operator==(BlockRecomputation const&, BlockRecomputation const&) = default;
    friend constexpr auto operator<=>(BlockRecomputation const&, BlockRecomputation const&) = default;
};

/// What the blocks of a model recompute.
struct Recomputation {
    enum class Kind : std::uint8_t {
        none,
        selective, ///< `pieces` of every k-th block
        full,      ///< every k-th block, from its input
        automatic, ///< the least work within a memory limit: made `planned` by planner/automatic_recomputation.hpp
                   ///< before a run
        planned,   ///< each block as `blocks` says
    };
    Kind kind = Kind::none;
    std::size_t every = 1; ///< k: blocks 0, k, 2k, ...
    PieceSet pieces{Piece::activations};
    std::vector<BlockRecomputation> blocks{}; ///< of each block of the model; blocks beyond recompute nothing

    [[nodiscard]] BlockRecomputation of(std::size_t block) const;
    friend bool operator==(Recomputation const&, Recomputation const&) = default;
};
inline constexpr std::array<std::string_view, 5> recomputation_names{"none", "selective", "full", "auto", "planned"};

[[nodiscard]] constexpr std::string_view name(Recomputation::Kind kind) {
    return recomputation_names[static_cast<std::size_t>(kind)];
}
/// Every block alike.
[[nodiscard]] Recomputation each_block(BlockRecomputation block);

/// "norms,attention"
[[nodiscard]] std::string text(PieceSet pieces);
/// "all", "norms,attention", "none"
[[nodiscard]] inline std::string text(BlockRecomputation const& block) {
    return block.whole ? "all" : block.pieces.empty() ? "none" : text(block.pieces);
}
/// "none", "full", "full /2": every second block; "selective (norms)", "planned (2 of 8 blocks)".
[[nodiscard]] std::string text(Recomputation const& recompute);
/// The pieces of such a list; none where it names something else or nothing.
[[nodiscard]] std::optional<PieceSet> pieces_of(std::string_view list);

} // namespace pentad::model

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/model/impl/recomputation.hpp>
#endif

// Which global index of a dimension lives where: contiguous shards, the zigzag order that balances causal attention
// (shard r of n holds the pieces r and 2n-1-r of 2n), and pieces dealt by a list.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad {

/// How context parallelism brings keys and values together.
enum class ContextStrategy {
    ring,        ///< round a ring over cp
    all_gather,  ///< gathered over cp
    double_ring, ///< rings over inner(cp) and over outer(cp)
    heads_ring,  ///< heads for sequence over inner(cp), a ring over outer(cp): Ulysses where that has one rank
    ring_heads,  ///< a ring over inner(cp), heads for sequence over outer(cp)
};

/// "double_ring"
constexpr std::string_view name(ContextStrategy strategy) {
    constexpr std::array<std::string_view, 5> names{"ring", "all_gather", "double_ring", "heads_ring", "ring_heads"};
    return names[static_cast<std::size_t>(strategy)];
}

/// The ranks of cp = outer(cp) x inner(cp) among which a strategy exchanges heads for sequence; 1: none.
template <class Extent>
constexpr Extent head_ranks(ContextStrategy strategy, Extent outer, Extent inner) {
    return strategy == ContextStrategy::heads_ring ? inner : strategy == ContextStrategy::ring_heads ? outer : 1;
}

/// The order in which the pieces of a dimension are dealt to the shards.
enum class Order { contiguous, zigzag };

/// A run of consecutive global indexes that lies in one piece in a shard.
struct Segment {
    std::size_t global = 0; ///< first global index
    std::size_t local = 0;  ///< first local index
    std::size_t length = 0;
};

/// A dimension of `extent` elements dealt to `shards` shards of equal size.
/// @throws std::invalid_argument when the extent is not divisible by the number of shards (zigzag: twice that number).
class Partition {
  public:
    constexpr Partition(Order order, std::size_t extent, std::size_t shards)
        : pieces_(order == Order::zigzag ? 2 : 1), shards_(shards), piece_(extent / (pieces_ * shards)) {
        if (extent % (pieces_ * shards) != 0)
            throw std::invalid_argument("an extent of " + std::to_string(extent) + " cannot be dealt " +
                                        (order == Order::zigzag ? "in zigzag order" : "evenly") + " to " +
                                        std::to_string(shards) + " shards");
    }

    /// Pieces of equal size: shard s holds dealt[s * n], ..., dealt[s * n + n - 1] where it has n.
    /// @throws std::invalid_argument when each piece is not in the list once, or they cannot be of equal size
    Partition(std::size_t extent, std::size_t shards, std::vector<std::uint32_t> dealt)
        : pieces_(dealt.size() / shards), shards_(shards), piece_(extent / dealt.size()), dealt_(std::move(dealt)),
          places_(dealt_.size(), static_cast<std::uint32_t>(dealt_.size())) {
        bool fits = pieces_ * shards == dealt_.size() && piece_ * dealt_.size() == extent;
        for (std::size_t i = 0; fits && i < dealt_.size(); ++i) {
            fits = dealt_[i] < dealt_.size() && places_[dealt_[i]] == dealt_.size();
            if (fits) places_[dealt_[i]] = static_cast<std::uint32_t>(i);
        }
        if (!fits)
            throw std::invalid_argument("a list of " + std::to_string(dealt_.size()) +
                                        " pieces does not deal an extent of " + std::to_string(extent) + " to " +
                                        std::to_string(shards) + " shards");
    }

    /// Pieces of a shard: 1 when contiguous, 2 in zigzag order.
    [[nodiscard]] constexpr std::size_t pieces() const { return pieces_; }
    [[nodiscard]] constexpr std::size_t shards() const { return shards_; }
    [[nodiscard]] constexpr std::size_t local_extent() const { return pieces() * piece_; }

    /// Piece `piece` of a shard.
    [[nodiscard]] constexpr Segment segment(std::size_t shard, std::size_t piece) const {
        std::size_t const at = !dealt_.empty() ? dealt_[shard * pieces_ + piece]
                               : piece == 0    ? shard
                                               : 2 * shards_ - 1 - shard;
        return {at * piece_, piece * piece_, piece_};
    }
    /// A shard as its runs of consecutive elements: pieces that follow each other are one.
    [[nodiscard]] std::vector<Segment> segments(std::size_t shard) const {
        std::vector<Segment> runs;
        for (std::size_t i = 0; i < pieces_; ++i) {
            auto const piece = segment(shard, i);
            if (!runs.empty() && runs.back().global + runs.back().length == piece.global)
                runs.back().length += piece.length;
            else
                runs.push_back(piece);
        }
        return runs;
    }
    /// The global index of element `local` of a shard.
    [[nodiscard]] constexpr std::size_t global_index(std::size_t shard, std::size_t local) const {
        return segment(shard, local / piece_).global + local % piece_;
    }
    /// The shard that holds a global index.
    [[nodiscard]] constexpr std::size_t shard_of(std::size_t global) const { return place_of(global) / pieces_; }
    /// Where a global index lies in its shard.
    [[nodiscard]] constexpr std::size_t local_index(std::size_t global) const {
        return place_of(global) % pieces_ * piece_ + global % piece_;
    }

  private:
    /// The place of a global index's piece in the list that deals them.
    [[nodiscard]] constexpr std::size_t place_of(std::size_t global) const {
        std::size_t const at = global / piece_;
        if (!dealt_.empty()) return places_[at];
        return at < shards_ ? at * pieces_ : (2 * shards_ - 1 - at) * pieces_ + 1;
    }

    std::size_t pieces_;
    std::size_t shards_;
    std::size_t piece_;
    std::vector<std::uint32_t> dealt_{}, places_{}; ///< none: in the order given
};

/// A dimension whose shards are dealt to several ranks each, in contiguous parts of equal size.
/// @throws std::invalid_argument when a shard is not divisible by their number
class DealtSequence {
  public:
    /// @param parts_are_major whether ranks that hold the same part of different shards follow each other
    constexpr DealtSequence(Partition shards, std::size_t parts = 1, bool parts_are_major = false)
        : shards_(std::move(shards)), parts_(parts), parts_are_major_(parts_are_major),
          length_(shards_.local_extent() / parts) {
        if (shards_.local_extent() % parts != 0)
            throw std::invalid_argument("a shard of " + std::to_string(shards_.local_extent()) +
                                        " elements cannot be dealt evenly to " + std::to_string(parts) + " ranks");
    }

    /// A sequence as a strategy has it, over cp = outer(cp) x inner(cp). One shard is contiguous, whatever the order.
    static constexpr DealtSequence of(Order order, ContextStrategy strategy, std::size_t extent, std::size_t outer,
                                      std::size_t inner) {
        std::size_t const parts = head_ranks(strategy, outer, inner), shards = outer * inner / parts;
        return {Partition(shards == 1 ? Order::contiguous : order, extent, shards), parts,
                strategy == ContextStrategy::ring_heads};
    }

    /// The ranks of this sequence, with the elements of the shards dealt in another way.
    [[nodiscard]] DealtSequence with(Partition shards) const { return {std::move(shards), parts_, parts_are_major_}; }

    [[nodiscard]] constexpr Partition const& shards() const { return shards_; }
    [[nodiscard]] constexpr std::size_t ranks() const { return shards_.shards() * parts_; }
    [[nodiscard]] constexpr std::size_t local_extent() const { return length_; }
    /// Whether every rank holds what follows the elements of the rank before.
    [[nodiscard]] constexpr bool is_contiguous() const {
        return shards_.pieces() == 1 && (parts_ == 1 || !parts_are_major_ || shards_.shards() == 1);
    }
    /// The global index of element `local` of a rank.
    [[nodiscard]] constexpr std::size_t global_index(std::size_t rank, std::size_t local) const {
        return shards_.global_index(shard_of_rank(rank), first_of_rank(rank) + local);
    }
    /// The elements of a rank as runs of consecutive ones.
    [[nodiscard]] std::vector<Segment> segments(std::size_t rank) const {
        std::vector<Segment> runs;
        std::size_t const first = first_of_rank(rank);
        for (auto const& run : shards_.segments(shard_of_rank(rank))) {
            std::size_t const begin = std::max(run.local, first),
                              end = std::min(run.local + run.length, first + length_);
            if (begin < end) runs.push_back({run.global + (begin - run.local), begin - first, end - begin});
        }
        return runs;
    }
    /// The rank that holds a global index.
    [[nodiscard]] constexpr std::size_t rank_of(std::size_t global) const {
        std::size_t const shard = shards_.shard_of(global), part = shards_.local_index(global) / length_;
        return parts_are_major_ ? part * shards_.shards() + shard : shard * parts_ + part;
    }
    /// Where a global index lies on its rank.
    [[nodiscard]] constexpr std::size_t local_index(std::size_t global) const {
        return shards_.local_index(global) % length_;
    }

  private:
    [[nodiscard]] constexpr std::size_t shard_of_rank(std::size_t rank) const {
        return parts_are_major_ ? rank % shards_.shards() : rank / parts_;
    }
    /// The first element of a rank, of its shard.
    [[nodiscard]] constexpr std::size_t first_of_rank(std::size_t rank) const {
        return (parts_are_major_ ? rank / shards_.shards() : rank % parts_) * length_;
    }

    Partition shards_;
    std::size_t parts_;
    bool parts_are_major_;
    std::size_t length_;
};

} // namespace pentad

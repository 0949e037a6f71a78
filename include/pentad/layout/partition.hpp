// Which global index of a dimension lives where: contiguous shards, and the zigzag order
// that balances causal attention (shard r of n holds the pieces r and 2n-1-r of 2n).
#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace pentad {

/// How context parallelism brings keys and values together.
enum class ContextStrategy { ring, all_gather };

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
        : order_(order), shards_(shards), piece_(extent / (pieces() * shards)) {
        if (extent % (pieces() * shards) != 0)
            throw std::invalid_argument("an extent of " + std::to_string(extent) + " cannot be dealt " +
                                        (order == Order::zigzag ? "in zigzag order" : "evenly") + " to " +
                                        std::to_string(shards) + " shards");
    }

    /// Pieces of a shard: 1 when contiguous, 2 in zigzag order.
    [[nodiscard]] constexpr std::size_t pieces() const { return order_ == Order::zigzag ? 2 : 1; }
    [[nodiscard]] constexpr std::size_t shards() const { return shards_; }
    [[nodiscard]] constexpr std::size_t local_extent() const { return pieces() * piece_; }

    /// Piece `piece` of a shard.
    [[nodiscard]] constexpr Segment segment(std::size_t shard, std::size_t piece) const {
        std::size_t const at = piece == 0 ? shard : 2 * shards_ - 1 - shard;
        return {at * piece_, piece * piece_, piece_};
    }
    /// The global index of element `local` of a shard.
    [[nodiscard]] constexpr std::size_t global_index(std::size_t shard, std::size_t local) const {
        return segment(shard, local / piece_).global + local % piece_;
    }
    /// The shard that holds a global index.
    [[nodiscard]] constexpr std::size_t shard_of(std::size_t global) const {
        std::size_t const at = global / piece_;
        return at < shards_ ? at : 2 * shards_ - 1 - at;
    }
    /// Where a global index lies in its shard.
    [[nodiscard]] constexpr std::size_t local_index(std::size_t global) const {
        return (global / piece_ < shards_ ? 0 : piece_) + global % piece_;
    }

  private:
    Order order_;
    std::size_t shards_;
    std::size_t piece_;
};

} // namespace pentad

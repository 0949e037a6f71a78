// Which elements an exchange moves from which rank to which: boxes, since shards are contiguous in each dimension.
#pragma once

#include <pentad/layout/block.hpp>
#include <pentad/layout/step.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace pentad {

/// An exchange among the ranks of a group along its axes, which are numbered as in a communicator along them. Elements
/// are counted from where the shards of the group begin.
class ExchangeShape {
  public:
    /// @param shard before the exchange, of any rank of the group
    constexpr ExchangeShape(PlanStep const& step, ExchangeValue const& exchange, ShardShape const& shard,
                            std::span<MeshAxisValue const> mesh)
        : exchange_(&exchange), axes_(&step.axes), rank_(shard.rank) {
        for (std::size_t i = 0; i < axes_->size(); ++i)
            size_ *= extents_[i] = static_cast<std::size_t>(find_axis(mesh, (*axes_)[i]).extent);
        for (std::size_t d = 0; d < rank_; ++d) {
            std::size_t const n = pieces(exchange_->before[d]);
            bool const is_equal = shard.blocks[d].extent == 0;
            whole_[d] = is_equal ? Block{shard.local[d] * n} : shard.blocks[d].whole(n);
        }
    }

    /// Ranks of the group.
    [[nodiscard]] constexpr std::size_t size() const { return size_; }
    /// Changes a shard's shape as the exchange does on a rank.
    constexpr void reshape(ShardShape& shard, std::size_t rank) const {
        for (std::size_t d = 0; d < rank_; ++d) {
            auto const block = part_of(exchange_->after[d], d, rank);
            shard.local[d] = block.size();
            if (shard.blocks[d].extent != 0) shard.blocks[d] = block;
        }
    }
    /// What a rank holds before and after.
    [[nodiscard]] constexpr ElementBox before_of(std::size_t rank) const { return box(exchange_->before, rank); }
    [[nodiscard]] constexpr ElementBox after_of(std::size_t rank) const { return box(exchange_->after, rank); }
    /// The box that rank `from` sends to rank `to`; that it keeps, where they are the same.
    [[nodiscard]] constexpr ElementBox given(std::size_t from, std::size_t to) const {
        for (auto const axis : exchange_->same)
            if (coordinate(from, axis) != coordinate(to, axis)) return {};
        return before_of(from).common(after_of(to), rank_);
    }
    /// Whether a rank is the first of those that hold summands of the same elements.
    [[nodiscard]] constexpr bool is_first_summand(std::size_t rank) const {
        for (auto const axis : exchange_->summed)
            if (coordinate(rank, axis) != 0) return false;
        return true;
    }
    /// The number of summands of an element.
    [[nodiscard]] constexpr std::size_t summands() const { return pieces(exchange_->summed); }
    /// The rank that holds summand i, where rank `first` holds summand 0.
    [[nodiscard]] constexpr std::size_t summand(std::size_t first, std::size_t i) const {
        for (std::size_t a = exchange_->summed.size(); a-- > 0;) {
            std::size_t const at = index(exchange_->summed[a]);
            first += i % extents_[at] * stride(at);
            i /= extents_[at];
        }
        return first;
    }
    /// Elements that a rank gives to others.
    [[nodiscard]] constexpr std::size_t sent_by(std::size_t rank) const {
        std::size_t sum = 0;
        for (std::size_t to = 0; to < size_; ++to)
            if (to != rank) sum += given(rank, to).size(rank_);
        return sum;
    }

  private:
    using Cuts = std::array<AxisNames, max_dimensions>;

    [[nodiscard]] constexpr std::size_t index(std::string_view axis) const {
        std::size_t i = 0;
        while ((*axes_)[i] != axis) ++i;
        return i;
    }
    [[nodiscard]] constexpr std::size_t stride(std::size_t axis) const {
        std::size_t product = 1;
        for (std::size_t i = axis + 1; i < axes_->size(); ++i) product *= extents_[i];
        return product;
    }
    [[nodiscard]] constexpr std::size_t coordinate(std::size_t rank, std::string_view axis) const {
        std::size_t const at = index(axis);
        return rank / stride(at) % extents_[at];
    }
    [[nodiscard]] constexpr std::size_t pieces(AxisNames const& axes) const {
        std::size_t product = 1;
        for (auto const axis : axes) product *= extents_[index(axis)];
        return product;
    }
    [[nodiscard]] constexpr ElementBox box(Cuts const& cuts, std::size_t rank) const {
        ElementBox result;
        for (std::size_t d = 0; d < rank_; ++d) {
            auto const block = part_of(cuts[d], d, rank);
            result.begin[d] = block.begin() - whole_[d].begin();
            result.end[d] = block.end() - whole_[d].begin();
        }
        return result;
    }
    /// The block of dimension d that a rank has where `axes` cut it.
    [[nodiscard]] constexpr Block part_of(AxisNames const& axes, std::size_t d, std::size_t rank) const {
        std::size_t piece = 0;
        for (auto const axis : axes) piece = piece * extents_[index(axis)] + coordinate(rank, axis);
        return whole_[d].part(pieces(axes), piece);
    }

    ExchangeValue const* exchange_;
    AxisNames const* axes_;
    std::size_t rank_, size_ = 1;
    std::array<std::size_t, max_axes> extents_{};
    std::array<Block, max_dimensions> whole_{}; ///< what the group holds
};

} // namespace pentad

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
        : rank_(shard.rank), axes_(step.axes.size()) {
        for (std::size_t i = axes_; i-- > 0;) {
            auto const axis = step.axes[i];
            along_[i].stride = size_;
            size_ *= along_[i].extent = static_cast<std::size_t>(find_axis(mesh, axis).extent);
            along_[i].is_same = exchange.same.contains(axis);
            along_[i].is_summed = exchange.summed.contains(axis);
            if (along_[i].is_summed) summands_ *= along_[i].extent;
            // An axis that cuts nothing afterwards, and along which each rank takes from all.
            auto const cuts = [axis](AxisNames const& names) { return names.contains(axis); };
            if (!along_[i].is_same && std::none_of(exchange.after.begin(), exchange.after.end(), cuts))
                copies_ *= along_[i].extent;
        }
        for (std::size_t d = 0; d < rank_; ++d) {
            before_[d] = cut_of(step.axes, exchange.before[d]);
            after_[d] = cut_of(step.axes, exchange.after[d]);
            bool const is_equal = shard.blocks[d].extent == 0;
            whole_[d] = is_equal ? Block{shard.local[d] * before_[d].pieces} : shard.blocks[d].whole(before_[d].pieces);
        }
    }

    /// Ranks of the group.
    [[nodiscard]] constexpr std::size_t size() const { return size_; }
    /// Changes a shard's shape as the exchange does on a rank.
    constexpr void reshape(ShardShape& shard, std::size_t rank) const {
        for (std::size_t d = 0; d < rank_; ++d) {
            auto const block = part_of(after_[d], d, rank);
            shard.local[d] = block.size();
            if (shard.blocks[d].extent != 0) shard.blocks[d] = block;
        }
    }
    /// What a rank holds before and after.
    [[nodiscard]] constexpr ElementBox before_of(std::size_t rank) const { return box(before_, rank); }
    [[nodiscard]] constexpr ElementBox after_of(std::size_t rank) const { return box(after_, rank); }
    /// The box that rank `from` sends to rank `to`; that it keeps, where they are the same.
    [[nodiscard]] constexpr ElementBox given(std::size_t from, std::size_t to) const {
        for (std::size_t i = 0; i < axes_; ++i)
            if (along_[i].is_same && along_[i].coordinate(from) != along_[i].coordinate(to)) return {};
        return before_of(from).common(after_of(to), rank_);
    }
    /// Whether a rank is the first of those that hold summands of the same elements.
    [[nodiscard]] constexpr bool is_first_summand(std::size_t rank) const {
        for (std::size_t i = 0; i < axes_; ++i)
            if (along_[i].is_summed && along_[i].coordinate(rank) != 0) return false;
        return true;
    }
    /// The number of summands of an element.
    [[nodiscard]] constexpr std::size_t summands() const { return summands_; }
    /// The rank that holds summand i, where rank `first` holds summand 0.
    [[nodiscard]] constexpr std::size_t summand(std::size_t first, std::size_t i) const {
        for (std::size_t a = axes_; a-- > 0;) {
            if (!along_[a].is_summed) continue;
            first += i % along_[a].extent * along_[a].stride;
            i /= along_[a].extent;
        }
        return first;
    }
    /// Elements that a rank keeps, gives to others and takes from them.
    [[nodiscard]] constexpr std::size_t kept_by(std::size_t rank) const {
        return before_of(rank).common(after_of(rank), rank_).size(rank_);
    }
    [[nodiscard]] constexpr std::size_t sent_by(std::size_t rank) const {
        return copies_ * matching(before_, after_, rank) - kept_by(rank);
    }
    [[nodiscard]] constexpr std::size_t taken_by(std::size_t rank) const {
        return summands_ * matching(after_, before_, rank) - kept_by(rank);
    }
    /// Elements that all ranks together give to others.
    [[nodiscard]] constexpr std::size_t sent() const {
        std::size_t sum = copies_ * summands_;
        for (std::size_t d = 0; d < rank_; ++d) sum *= whole_[d].size();
        for (std::size_t rank = 0; rank < size_; ++rank) sum -= kept_by(rank);
        return sum;
    }

  private:
    /// An axis of the group.
    struct Along {
        std::size_t extent = 1, stride = 1;
        bool is_same = false, is_summed = false;

        [[nodiscard]] constexpr std::size_t coordinate(std::size_t rank) const { return rank / stride % extent; }
    };
    /// The axes that cut a dimension, major to minor.
    struct Cut {
        std::array<std::size_t, max_axes> axes{};
        std::size_t count = 0, pieces = 1;
        bool has_same = false; ///< senders and receivers have the same coordinate along one of them
    };
    using Cuts = std::array<Cut, max_dimensions>;

    constexpr Cut cut_of(AxisNames const& axes, AxisNames const& names) const {
        Cut cut;
        for (auto const name : names) {
            std::size_t i = 0;
            while (axes[i] != name) ++i;
            cut.axes[cut.count++] = i;
            cut.pieces *= along_[i].extent;
            cut.has_same = cut.has_same || along_[i].is_same;
        }
        return cut;
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
    /// The block of dimension d that a rank has where it is cut so.
    [[nodiscard]] constexpr Block part_of(Cut const& cut, std::size_t d, std::size_t rank) const {
        std::size_t piece = 0;
        for (std::size_t i = 0; i < cut.count; ++i) {
            auto const& along = along_[cut.axes[i]];
            piece = piece * along.extent + along.coordinate(rank);
        }
        return whole_[d].part(cut.pieces, piece);
    }
    /// Whether the ranks that have a piece of a cut may exchange it with a rank.
    [[nodiscard]] constexpr bool matches(Cut const& cut, std::size_t piece, std::size_t rank) const {
        for (std::size_t i = cut.count; i-- > 0;) {
            auto const& along = along_[cut.axes[i]];
            if (along.is_same && piece % along.extent != along.coordinate(rank)) return false;
            piece /= along.extent;
        }
        return true;
    }
    /// Elements of a rank's box in the pieces of others that match it.
    [[nodiscard]] constexpr std::size_t matching(Cuts const& own, Cuts const& others, std::size_t rank) const {
        std::size_t product = 1;
        for (std::size_t d = 0; d < rank_; ++d) {
            auto const block = part_of(own[d], d, rank);
            auto const& cut = others[d];
            std::size_t elements = cut.has_same ? 0 : block.size();
            for (std::size_t piece = 0; cut.has_same && piece < cut.pieces; ++piece) {
                if (!matches(cut, piece, rank)) continue;
                auto const other = whole_[d].part(cut.pieces, piece);
                std::size_t const begin = std::max(block.begin(), other.begin());
                elements += std::max(begin, std::min(block.end(), other.end())) - begin;
            }
            product *= elements;
        }
        return product;
    }

    std::size_t rank_, axes_, size_ = 1;
    std::size_t copies_ = 1, summands_ = 1; ///< of an element: ranks that a holder gives it to, and that give it
    std::array<Along, max_axes> along_{};
    Cuts before_{}, after_{};
    std::array<Block, max_dimensions> whole_{}; ///< what the group holds
};

} // namespace pentad

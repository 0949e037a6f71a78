// Which cells the ranks of a group send each other to fill the ghost cells of their shards, or to add them back.
#pragma once

#include <pentad/layout/block.hpp>
#include <pentad/layout/step.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace pentad {

/// The halos of some dimensions of shards. A rank of the group is numbered by its blocks of these dimensions,
/// row-major.
class HaloShape {
  public:
    /// @param shard of any rank of the group, with its ghost cells
    constexpr HaloShape(PlanStep const& step, ShardShape const& shard) : shard_(shard), halo_(step.halo) {
        for (std::size_t d = 0; d < shard_.rank; ++d)
            if (halo_.width[d] > 0) size_ *= shard_.blocks[d].count;
    }

    /// Ranks of the group.
    [[nodiscard]] constexpr std::size_t size() const { return size_; }
    /// f(in_owner, in_holder) for each box of cells that rank `owner` owns and of which rank `holder` has ghost cells:
    /// where they are in the memory of both. Where boundaries are periodic these may be the same rank.
    template <class F>
    constexpr void for_each_box(std::size_t owner, std::size_t holder, F&& f) const {
        std::size_t turns = 1; // -1, 0 and 1 times round each periodic dimension
        for (std::size_t d = 0; d < shard_.rank; ++d) turns *= is_periodic(d) ? 3 : 1;
        for (std::size_t turn = 0; turn < turns; ++turn) {
            ElementBox in_owner, in_holder;
            bool is_empty = false, is_own = owner == holder;
            std::size_t rest = turn;
            for (std::size_t d = 0; d < shard_.rank; ++d) {
                if (halo_.width[d] == 0) {
                    in_owner.end[d] = in_holder.end[d] = shard_.local[d];
                    continue;
                }
                auto const owned = block_of(owner, d), around = block_of(holder, d);
                auto const width = static_cast<Place>(halo_.width[d]);
                Place shift = 0; // of the owner's cells, as the holder sees them
                if (is_periodic(d)) {
                    shift = (static_cast<Place>(rest % 3) - 1) * static_cast<Place>(owned.extent);
                    rest /= 3;
                }
                is_own = is_own && shift == 0;
                Place const first = static_cast<Place>(owned.begin()) + shift - width;
                Place const holders_first = static_cast<Place>(around.begin()) - width;
                Place const begin = std::max(first + width, holders_first);
                Place const end =
                    std::min(static_cast<Place>(owned.end()) + shift, static_cast<Place>(around.end()) + width);
                is_empty = is_empty || begin >= end;
                if (is_empty) break;
                in_owner.begin[d] = static_cast<std::size_t>(begin - first);
                in_owner.end[d] = static_cast<std::size_t>(end - first);
                in_holder.begin[d] = static_cast<std::size_t>(begin - holders_first);
                in_holder.end[d] = static_cast<std::size_t>(end - holders_first);
            }
            if (!is_empty && !is_own) f(in_owner, in_holder);
        }
    }
    /// Cells that rank `owner` owns and of which rank `holder` has ghost cells.
    [[nodiscard]] constexpr std::size_t shared(std::size_t owner, std::size_t holder) const {
        std::size_t cells = 0;
        for_each_box(owner, holder, [&](ElementBox const& box, ElementBox const&) { cells += box.size(shard_.rank); });
        return cells;
    }
    /// Cells that a rank sends to others in a step.
    [[nodiscard]] constexpr std::size_t sent_by(StepKind kind, std::size_t rank) const {
        std::size_t sum = 0;
        for (std::size_t p = 0; p < size_; ++p)
            if (p != rank) sum += kind == StepKind::fill_halo ? shared(rank, p) : shared(p, rank);
        return sum;
    }

  private:
    using Place = std::ptrdiff_t;

    [[nodiscard]] constexpr bool is_periodic(std::size_t d) const {
        return halo_.width[d] > 0 && halo_.boundary[d] == Boundary::periodic;
    }
    /// The block of dimension d that a rank of the group owns.
    [[nodiscard]] constexpr Block block_of(std::size_t rank, std::size_t d) const {
        for (std::size_t e = shard_.rank; --e > d;)
            if (halo_.width[e] > 0) rank /= shard_.blocks[e].count;
        auto const& mine = shard_.blocks[d];
        return {mine.extent, mine.count, rank % mine.count};
    }

    ShardShape shard_;
    HaloValue halo_;
    std::size_t size_ = 1;
};

} // namespace pentad

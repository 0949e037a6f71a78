// A sequence that is dealt to ranks, as stretches of equal length that are contiguous each.
#pragma once

#include <pentad/layout/partition.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace pentad {

/// What a recurrence along the sequence needs to know of how it lies.
struct Stretches {
    std::size_t length = 0;           ///< tokens of each
    std::size_t here = 1;             ///< of each rank
    std::vector<std::uint32_t> order; ///< of all ranks, as they follow each other: rank * here + place on the rank

    explicit Stretches(DealtSequence const& dealt)
        : length(std::gcd(dealt.shards().local_extent() / dealt.shards().pieces(), dealt.local_extent())),
          here(dealt.local_extent() / length), order(dealt.ranks() * here) {
        for (std::size_t rank = 0; rank < dealt.ranks(); ++rank)
            for (std::size_t i = 0; i < here; ++i)
                order[dealt.global_index(rank, i * length) / length] = static_cast<std::uint32_t>(rank * here + i);
    }
    /// Whether each rank has what follows the tokens of the rank before.
    [[nodiscard]] bool is_contiguous() const {
        for (std::size_t i = 0; i < order.size(); ++i)
            if (order[i] != i) return false;
        return here == 1;
    }
};

} // namespace pentad

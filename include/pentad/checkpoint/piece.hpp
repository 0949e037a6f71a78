// A part of a tensor as a rank holds it: of the box that its layout gives it, a contiguous range, as ZeRO shards it.
#pragma once

#include <pentad/io/tensor_box.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pentad::checkpoint {

/// Elements [begin, end) of a box of a tensor, in row-major order of the box.
struct Piece {
    io::Box box;
    std::uint64_t begin = 0, end = 0;

    [[nodiscard]] std::uint64_t size() const { return end - begin; }
};

/// Calls use(from, to, count) for each run of elements that are in both pieces, where they are contiguous in both:
/// `from` and `to` are its places in a and in b. Both ascend from call to call.
template <class Use>
void for_each_common_run(Piece const& a, Piece const& b, Use const& use) {
    std::size_t const rank = a.box.extents.size();
    if (a.size() == 0 || b.size() == 0) return;
    std::vector<std::int64_t> low(rank), high(rank);
    for (std::size_t d = 0; d < rank; ++d) {
        low[d] = std::max(a.box.offsets[d], b.box.offsets[d]);
        high[d] = std::min(a.box.offsets[d] + a.box.extents[d], b.box.offsets[d] + b.box.extents[d]);
        if (low[d] >= high[d]) return;
    }
    // A run goes through the last dimensions that both boxes have whole, and a part of the dimension before.
    std::size_t outer = rank;
    std::int64_t length = 1;
    while (outer > 0) {
        --outer;
        length *= high[outer] - low[outer];
        if (high[outer] - low[outer] != a.box.extents[outer] || high[outer] - low[outer] != b.box.extents[outer]) break;
    }
    auto const place = [rank](io::Box const& box, std::vector<std::int64_t> const& at) {
        std::int64_t index = 0;
        for (std::size_t d = 0; d < rank; ++d) index = index * box.extents[d] + (at[d] - box.offsets[d]);
        return index;
    };
    if (outer > 0) { // rows outside of either range are passed over at once
        auto const limit = [&](Piece const& piece) {
            std::int64_t row = 1;
            for (std::size_t d = 1; d < rank; ++d) row *= piece.box.extents[d];
            low[0] = std::max(low[0], piece.box.offsets[0] + static_cast<std::int64_t>(piece.begin) / row);
            high[0] = std::min(high[0], piece.box.offsets[0] + (static_cast<std::int64_t>(piece.end) + row - 1) / row);
        };
        limit(a);
        limit(b);
        if (low[0] >= high[0]) return;
    }
    auto at = low;
    for (;;) {
        std::int64_t const in_a = place(a.box, at) - static_cast<std::int64_t>(a.begin);
        std::int64_t const in_b = place(b.box, at) - static_cast<std::int64_t>(b.begin);
        std::int64_t const skipped = std::max<std::int64_t>({0, -in_a, -in_b});
        std::int64_t const end =
            std::min({length, static_cast<std::int64_t>(a.size()) - in_a, static_cast<std::int64_t>(b.size()) - in_b});
        if (skipped < end)
            use(static_cast<std::uint64_t>(in_a + skipped), static_cast<std::uint64_t>(in_b + skipped),
                static_cast<std::uint64_t>(end - skipped));
        std::size_t d = outer;
        while (d > 0 && ++at[d - 1] == high[d - 1]) {
            at[d - 1] = low[d - 1];
            --d;
        }
        if (d == 0) return;
    }
}

} // namespace pentad::checkpoint

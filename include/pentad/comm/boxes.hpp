// Boxes of elements that the ranks of a group move between their arrays, and the strided copy that each of them is.
#pragma once

#include <pentad/layout/exchange.hpp>
#include <pentad/memory/runs.hpp>

#include <cstddef>
#include <vector>

namespace pentad::comm {

/// What goes from the row-major array of each rank of a group to that of each other: boxes that count the elements
/// alike on all ranks, in `rank` dimensions.
struct Boxes {
    Boxes(std::size_t dimensions, std::size_t ranks) : rank(dimensions), held(ranks), given(ranks), taken(ranks) {}

    std::size_t rank;
    std::vector<ElementBox> held;  ///< what the array of each rank holds
    ElementBox needed{};           ///< what the result of this rank holds
    std::vector<ElementBox> given; ///< what this rank gives to each, and keeps: parts of what it holds
    std::vector<ElementBox> taken; ///< what it takes of each, and keeps: parts of what is held there and needed here
    std::size_t longest = 0;       ///< elements that no box has more of, the same number on all ranks
};

/// A strided copy, and where it begins in the target and in the source, in bytes.
struct BoxCopy {
    memory::Runs runs;
    std::size_t to = 0, from = 0;
};
/// That of a box between two row-major arrays which hold it, of elements of so many bytes.
inline BoxCopy box_copy(std::size_t rank, std::size_t element, ElementBox const& box, ElementBox const& target,
                        ElementBox const& source) {
    BoxCopy copy{memory::Runs(element)};
    std::size_t to_stride = element, from_stride = element;
    for (std::size_t d = rank; d-- > 0;) {
        copy.runs.add(box.extent(d), to_stride, from_stride);
        copy.to += (box.begin[d] - target.begin[d]) * to_stride;
        copy.from += (box.begin[d] - source.begin[d]) * from_stride;
        to_stride *= target.extent(d);
        from_stride *= source.extent(d);
    }
    return copy;
}

} // namespace pentad::comm

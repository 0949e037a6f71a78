// Boxes of elements that the ranks of a group move between their arrays, and the strided copy that each of them is.
#pragma once

#include <pentad/layout/block.hpp>
#include <pentad/memory/runs.hpp>

#include <array>
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

/// A box in a row-major array that holds it, in elements.
struct BoxInMemory {
    std::size_t first = 0;
    std::array<std::size_t, max_dimensions> extents{}, strides{};
    std::size_t rank = 0;

    /// @param array what the array holds; of a box without anything between its elements, the box itself
    BoxInMemory(std::size_t dimensions, ElementBox const& box, ElementBox const& array) : rank(dimensions) {
        std::size_t stride = 1;
        for (std::size_t d = rank; d-- > 0; stride *= array.extent(d)) {
            extents[d] = box.extent(d);
            strides[d] = stride;
            first += (box.begin[d] - array.begin[d]) * stride;
        }
    }
    [[nodiscard]] std::size_t size() const {
        std::size_t product = 1;
        for (std::size_t d = 0; d < rank; ++d) product *= extents[d];
        return product;
    }
};

/// A strided copy, and where it begins in the target and in the source, in bytes.
struct BoxCopy {
    memory::Runs runs;
    std::size_t to, from;

    /// A copy between two boxes of the same extents, with elements of `element` bytes.
    BoxCopy(std::size_t element, BoxInMemory const& target, BoxInMemory const& source)
        : runs(element), to(target.first * element), from(source.first * element) {
        for (std::size_t d = target.rank; d-- > 0;)
            runs.add(target.extents[d], target.strides[d] * element, source.strides[d] * element);
    }
};
/// That of a box between two row-major arrays which hold it.
inline BoxCopy box_copy(std::size_t rank, std::size_t element, ElementBox const& box, ElementBox const& target,
                        ElementBox const& source) {
    return {element, BoxInMemory(rank, box, target), BoxInMemory(rank, box, source)};
}

} // namespace pentad::comm

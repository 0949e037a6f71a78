// Rows of a number that depends on data.
#pragma once

#include <pentad/memory/view.hpp>
#include <pentad/tensor/context.hpp>

#include <cstddef>

namespace pentad::experts {

/// Rows of varying number in a buffer of the pool.
template <class T, class Exec>
struct RowBuffer {
    memory::Buffer<typename Exec::memory_space> block;
    std::size_t count = 0, columns = 0;

    RowBuffer() = default;
    RowBuffer(Context<Exec> const& context, std::size_t rows, std::size_t width)
        : block(context.take(rows * width * sizeof(T))), count(rows), columns(width) {}
    [[nodiscard]] View<T, 2, Exec> view() const {
        return View<T, 2, Exec>(static_cast<T*>(block.data()), count, columns);
    }
    [[nodiscard]] View<T, 1, Exec> flat() const {
        return View<T, 1, Exec>(static_cast<T*>(block.data()), count * columns);
    }
    /// The elements, to be read.
    [[nodiscard]] View<T const, 1, Exec> elements() const { return flat(); }
};

/// Rows [first, end) of a matrix without gaps.
template <class V>
V row_range(V const& all, std::size_t first, std::size_t end) {
    return V(all.data() + first * all.extent(1), end - first, all.extent(1));
}

} // namespace pentad::experts

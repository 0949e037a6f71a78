// Tiles of one host thread in team scratch, filled from rows in memory, and the launch of one work item for each
// thread: what attention and scans on the host share.
#pragma once

#include <pentad/kernels/detail/simd.hpp>
#include <pentad/kernels/detail/tile_operand.hpp>
#include <pentad/kernels/detail/tile_product.hpp>
#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pentad::kernels::detail {

/// An extent rounded up to whole vectors of operands. Tiles hold zeros beyond the extent.
template <class In>
int padded_dim(i64 extent) {
    constexpr int whole = lanes<In> * depth_of<In>;
    return static_cast<int>((extent + whole - 1) / whole * whole);
}

/// Hands out pieces of a thread's scratch, each on a cache line. Without memory it only adds up what is asked for.
class TileScratch {
  public:
    explicit TileScratch(void* memory)
        : begin_(reinterpret_cast<std::uintptr_t>(memory)), next_((begin_ + line - 1) / line * line) {}

    /// So many elements for each of the pieces.
    template <class... Element>
    void take(i64 elements, Element*&... pieces) {
        ((pieces = reinterpret_cast<Element*>(next_),
          next_ += (static_cast<std::size_t>(elements) * sizeof(Element) + line - 1) / line * line),
         ...);
    }
    /// A tile across of as many elements as a tile along; where an operand is one number, the same memory.
    template <class In>
    In* across(i64 elements, In* along) {
        if constexpr (depth_of<In> > 1) take(elements / depth_of<In>, along);
        return along;
    }
    /// Enough for what was handed out, wherever the memory begins.
    std::size_t bytes() const { return next_ - begin_ + line; }

  private:
    static constexpr std::size_t line = 64;
    std::uintptr_t begin_, next_;
};

/// Copies `rows` rows of head_dim elements into a tile along, [capacity, padded], converted, zeros elsewhere.
template <class T, class In>
void load_tile(T const* from, i64 from_stride, int rows, i64 head_dim, In* to, int capacity, int padded) {
    using Element = typename Operand<In>::Element;
    auto* const elements = reinterpret_cast<Element*>(to);
    for (int r = 0; r < rows; ++r) {
        T const* const source = from + r * from_stride;
        Element* const target = elements + static_cast<i64>(r) * padded;
        if constexpr (std::is_same_v<T, Element> && std::is_class_v<T>)
            std::copy_n(source, head_dim, target); // GCC does not vectorise a loop that copies bf16
        else
            for (i64 d = 0; d < head_dim; ++d) target[d] = static_cast<Element>(source[d]);
        for (i64 d = head_dim; d < padded; ++d) target[d] = Element(0);
    }
    std::fill(elements + static_cast<i64>(rows) * padded, elements + static_cast<i64>(capacity) * padded, Element(0));
}

/// Loads a tile across, whose depth are the rows. @param capacity whole operands @param rows_along memory for the
/// tile along, where that is another one @return the tile along
template <class T, class In>
In* load_across(T const* from, i64 from_stride, int rows, i64 head_dim, In* across, int capacity, int padded,
                In* rows_along) {
    In* const along = depth_of<In> == 1 ? across : rows_along;
    load_tile(from, from_stride, rows, head_dim, along, capacity, padded);
    turn_depth(along, capacity, padded, across);
    return along;
}

/// Writes a tile's rows to rows in memory, converted.
template <class Acc, class T>
void store_tile(Acc const* from, int padded, int rows, i64 head_dim, T* to, i64 to_stride) {
    for (int r = 0; r < rows; ++r) {
        Acc const* const source = from + static_cast<i64>(r) * padded;
        T* const target = to + r * to_stride;
        for (i64 d = 0; d < head_dim; ++d) target[d] = T(source[d]);
    }
}

/// Adds a tile's rows to rows in memory.
template <class Acc>
void add_tile(Acc const* from, int padded, int rows, i64 head_dim, Acc* to, i64 to_stride) {
    for (int r = 0; r < rows; ++r) {
        Acc const* const source = from + static_cast<i64>(r) * padded;
        Acc* const target = to + r * to_stride;
        for (i64 d = 0; d < head_dim; ++d) target[d] += source[d];
    }
}

/// Rows that a thread is about to load. They lie apart, so that no processor foresees them: here they are fetched to
/// the cache a few at a time, beside products.
class RowsAhead {
  public:
    /// Forgets all rows. @param steps in which those that are added now are fetched
    void start(int steps) {
        steps_ = steps;
        per_step_ = count_ = at_ = 0;
    }
    /// @param stride in elements @param length of a row
    template <class T>
    void add(T const* from, i64 stride, int rows, i64 length) {
        tensors_[count_++] = {reinterpret_cast<char const*>(from), stride * static_cast<i64>(sizeof(T)),
                              length * static_cast<i64>(sizeof(T)), rows};
        per_step_ += (rows + steps_ - 1) / steps_;
    }
    /// One step.
    void fetch() {
        for (int left = per_step_; left > 0 && at_ < count_; --left) {
            auto& tensor = tensors_[at_];
            for (i64 byte = 0; byte < tensor.length; byte += line) __builtin_prefetch(tensor.from + byte, 0, 2);
            tensor.from += tensor.stride;
            if (--tensor.rows == 0) ++at_;
        }
    }

  private:
    static constexpr i64 line = 64;
    struct Rows {
        char const* from;
        i64 stride, length;
        int rows;
    };

    Rows tensors_[4];
    int steps_ = 1, per_step_ = 0, count_ = 0, at_ = 0;
};

/// to[columns, rows] = transpose of from[rows, columns]; both sizes are whole vectors of operands.
template <class In>
void transpose_tile(In const* from, int rows, int columns, In* to) {
    for (int r = 0; r < rows; r += lanes<In>)
        for (int c = 0; c < columns; c += lanes<In>)
            transpose_square(from + static_cast<i64>(r) * columns + c, columns, to + static_cast<i64>(c) * rows + r,
                             rows);
}

inline constexpr int rows_at_once = 2 * block_rows;
constexpr int row_blocks(int rows) { return (rows + rows_at_once - 1) / rows_at_once; }
/// Calls f(begin, end) for the rows of a tile, some blocks of a product at once.
template <class F>
void for_each_row_block(int rows, F const& f) {
    for (int begin = 0; begin < rows; begin += rows_at_once) f(begin, std::min(begin + rows_at_once, rows));
}

/// Runs work(item, scratch) for items 0 .. items - 1, each on one host thread that owns `scratch_bytes` of scratch.
/// Items are handed out in order as threads become free.
template <class Exec, class Work>
void for_each_item(char const* label, Exec const& exec, i64 items, std::size_t scratch_bytes, Work const& work) {
    using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
    constexpr int level = 1; // of the scratch: large
    Kokkos::parallel_for(label,
                         Policy(exec, static_cast<int>(items), 1)
                             .set_scratch_size(level, Kokkos::PerTeam(static_cast<int>(scratch_bytes))),
                         [=](typename Policy::member_type const& team) {
                             work(team.league_rank(),
                                  team.team_scratch(level).get_shmem(static_cast<std::ptrdiff_t>(scratch_bytes)));
                         });
}

} // namespace pentad::kernels::detail

// Strided copies by one thread of a host: no division for a run, and no call for a short one.
#pragma once

#include <pentad/memory/runs.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace pentad::memory {

namespace detail {

/// Where the runs begin, one after the other.
class RunWalk {
  public:
    /// From run `i` on.
    RunWalk(Runs const& runs, std::size_t i) : runs_(&runs) {
        for (std::size_t d = 0; d < runs.rank(); ++d) {
            index_[d] = i % runs.extent(d);
            i /= runs.extent(d);
            to_ += index_[d] * runs.to_stride(d);
            from_ += index_[d] * runs.from_stride(d);
        }
    }
    [[nodiscard]] std::size_t to() const { return to_; }
    [[nodiscard]] std::size_t from() const { return from_; }
    /// Runs from this one on that lie at equal distances.
    [[nodiscard]] std::size_t in_line() const { return runs_->rank() == 0 ? 1 : runs_->extent(0) - index_[0]; }
    /// Goes `count` runs on: at most to the end of a line.
    void go(std::size_t count) {
        if (runs_->rank() == 0) return;
        index_[0] += count;
        to_ += count * runs_->to_stride(0);
        from_ += count * runs_->from_stride(0);
        for (std::size_t d = 0; index_[d] == runs_->extent(d);) {
            index_[d] = 0;
            to_ -= runs_->extent(d) * runs_->to_stride(d);
            from_ -= runs_->extent(d) * runs_->from_stride(d);
            if (++d == runs_->rank()) return;
            ++index_[d];
            to_ += runs_->to_stride(d);
            from_ += runs_->from_stride(d);
        }
    }

  private:
    Runs const* runs_;
    std::array<std::size_t, Runs::most_dimensions> index_{};
    std::size_t to_ = 0, from_ = 0;
};

template <std::size_t Bytes>
void copy_words(std::size_t count, std::byte* __restrict to, std::size_t to_stride, std::byte const* __restrict from,
                std::size_t from_stride) {
    for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, Bytes);
}

} // namespace detail

/// Copies `count` runs of `bytes` bytes at equal distances.
inline void copy_line(std::size_t count, std::size_t bytes, std::byte* to, std::size_t to_stride, std::byte const* from,
                      std::size_t from_stride) {
    switch (bytes) {
    case 1:
        return detail::copy_words<1>(count, to, to_stride, from, from_stride);
    case 2:
        return detail::copy_words<2>(count, to, to_stride, from, from_stride);
    case 4:
        return detail::copy_words<4>(count, to, to_stride, from, from_stride);
    case 8:
        return detail::copy_words<8>(count, to, to_stride, from, from_stride);
    case 16:
        return detail::copy_words<16>(count, to, to_stride, from, from_stride);
    case 32:
        return detail::copy_words<32>(count, to, to_stride, from, from_stride);
    case 64:
        return detail::copy_words<64>(count, to, to_stride, from, from_stride);
    default:
        for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, bytes);
    }
}

/// Copies a part of the runs: bytes [first, first + bytes), counted in the order of the runs. Source and target do not
/// overlap. `line(count, bytes, to, to_stride, from, from_stride)` copies as `copy_line` does.
template <class Line>
void copy_part(Runs const& runs, std::size_t first, std::size_t bytes, std::byte* to, std::byte const* from,
               Line const& line) {
    if (bytes == 0) return;
    std::size_t const length = runs.bytes();
    detail::RunWalk at(runs, first / length);
    if (std::size_t const skipped = first % length; skipped > 0) {
        std::size_t const rest = std::min(bytes, length - skipped);
        line(1, rest, to + at.to() + skipped, 0, from + at.from() + skipped, 0);
        bytes -= rest;
        at.go(1);
    }
    std::size_t const to_stride = runs.rank() == 0 ? 0 : runs.to_stride(0);
    std::size_t const from_stride = runs.rank() == 0 ? 0 : runs.from_stride(0);
    for (std::size_t whole = bytes / length; whole > 0;) {
        std::size_t const count = std::min(whole, at.in_line());
        line(count, length, to + at.to(), to_stride, from + at.from(), from_stride);
        whole -= count;
        at.go(count);
    }
    if (std::size_t const rest = bytes % length; rest > 0) line(1, rest, to + at.to(), 0, from + at.from(), 0);
}

} // namespace pentad::memory

// Copies between arrays of different strides, by bytes: one instantiation, whatever the elements.
#pragma once

#include <pentad/memory/copy.hpp>
#include <pentad/memory/view.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>

namespace pentad::memory {

/// The shape of a strided copy: runs of contiguous bytes, the distances between which differ in source and target.
class Runs {
  public:
    /// @param bytes of an element
    explicit Runs(std::size_t bytes) : bytes_(bytes) {}

    /// Adds a dimension outside of those that are there; strides in bytes. Dimensions that are contiguous in both
    /// become one. At most 8 that are not.
    Runs& add(std::size_t extent, std::size_t to_stride, std::size_t from_stride) {
        if (extent == 1) return *this;
        if (rank_ == 0 && to_stride == bytes_ && from_stride == bytes_) {
            bytes_ *= extent;
            return *this;
        }
        count_ *= extent;
        if (rank_ > 0 && to_stride == to_[rank_ - 1] * extents_[rank_ - 1] &&
            from_stride == from_[rank_ - 1] * extents_[rank_ - 1]) {
            extents_[rank_ - 1] *= extent;
        } else {
            extents_[rank_] = extent;
            to_[rank_] = to_stride;
            from_[rank_] = from_stride;
            ++rank_;
        }
        return *this;
    }

    [[nodiscard]] KOKKOS_FUNCTION std::size_t bytes() const { return bytes_; } ///< of one run
    [[nodiscard]] KOKKOS_FUNCTION std::size_t count() const { return count_; } ///< of runs
    /// Sets where run i begins in the target and in the source.
    KOKKOS_FUNCTION void find(std::size_t i, std::size_t& to, std::size_t& from) const {
        to = from = 0;
        for (int d = 0; d < rank_; ++d) {
            std::size_t const index = i % extents_[d];
            i /= extents_[d];
            to += index * to_[d];
            from += index * from_[d];
        }
    }
    /// The largest power of two up to 16 that divides the length of a run and all strides.
    [[nodiscard]] std::size_t alignment() const {
        std::size_t divisor = std::gcd(std::size_t{16}, bytes_);
        for (int d = 0; d < rank_; ++d) divisor = std::gcd(std::gcd(divisor, to_[d]), from_[d]);
        return divisor;
    }

  private:
    static constexpr int max_rank_ = 8;

    std::size_t bytes_, count_ = 1;
    int rank_ = 0;
    std::size_t extents_[max_rank_], to_[max_rank_], from_[max_rank_];
};

/// The copy y = x of two Views of the same extents.
template <class Y, class X>
Runs runs_between(Y const& y, X const& x) {
    constexpr std::size_t bytes = sizeof(typename Y::value_type);
    static_assert(bytes == sizeof(typename X::value_type) && Y::rank() == X::rank());
    Runs runs(bytes);
    for (std::size_t d = Y::rank(); d-- > 0;)
        runs.add(y.extent(d), static_cast<std::size_t>(y.stride(d)) * bytes,
                 static_cast<std::size_t>(x.stride(d)) * bytes);
    return runs;
}

namespace detail {

template <class Exec>
using Range = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;

/// On a host: long runs in pieces, so that all threads have work.
template <class Exec>
void copy_runs_on_host(char const* label, Exec const& exec, Runs const& runs, std::byte* to, std::byte const* from) {
    std::size_t const piece = std::min<std::size_t>(runs.bytes(), 1 << 16);
    std::size_t const pieces = (runs.bytes() + piece - 1) / piece;
    Kokkos::parallel_for(
        label, Range<Exec>(exec, 0, static_cast<std::int64_t>(runs.count() * pieces)), KOKKOS_LAMBDA(std::int64_t i) {
            auto const index = static_cast<std::size_t>(i);
            std::size_t const begin = index % pieces * piece;
            std::size_t const rest = runs.bytes() - begin;
            std::size_t to_run, from_run;
            runs.find(index / pieces, to_run, from_run);
            std::memcpy(to + to_run + begin, from + from_run + begin, rest < piece ? rest : piece);
        });
}

/// On a device: neighbouring threads copy neighbouring words.
template <class Word, class Exec>
void copy_runs_by_words(char const* label, Exec const& exec, Runs const& runs, std::byte* to, std::byte const* from) {
    std::size_t const words = runs.bytes() / sizeof(Word);
    Kokkos::parallel_for(
        label, Range<Exec>(exec, 0, static_cast<std::int64_t>(runs.count() * words)), KOKKOS_LAMBDA(std::int64_t i) {
            auto const index = static_cast<std::size_t>(i);
            std::size_t const offset = index % words * sizeof(Word);
            std::size_t to_run, from_run;
            runs.find(index / words, to_run, from_run);
            *reinterpret_cast<Word*>(to + to_run + offset) = *reinterpret_cast<Word const*>(from + from_run + offset);
        });
}

struct alignas(16) SixteenBytes {
    std::uint64_t halves[2];
};

} // namespace detail

/// Copies the runs, in order with the work of `exec`. Source and target do not overlap. A dry run records a pass
/// `name`.
template <class Exec>
void copy(char const* name, Exec const& exec, Runs const& runs, void* to, void const* from) {
    std::size_t const bytes = runs.count() * runs.bytes();
    if (detail::dry(name, 2 * bytes) || bytes == 0) return;
    auto* const target = static_cast<std::byte*>(to);
    auto const* const source = static_cast<std::byte const*>(from);
    if constexpr (runs_on_host<Exec>) {
        detail::copy_runs_on_host(name, exec, runs, target, source);
    } else {
        auto const addresses = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
        switch (std::gcd(runs.alignment(), std::size_t{addresses})) {
        case 16:
            return detail::copy_runs_by_words<detail::SixteenBytes>(name, exec, runs, target, source);
        case 8:
            return detail::copy_runs_by_words<std::uint64_t>(name, exec, runs, target, source);
        case 4:
            return detail::copy_runs_by_words<std::uint32_t>(name, exec, runs, target, source);
        case 2:
            return detail::copy_runs_by_words<std::uint16_t>(name, exec, runs, target, source);
        default:
            return detail::copy_runs_by_words<std::byte>(name, exec, runs, target, source);
        }
    }
}

} // namespace pentad::memory

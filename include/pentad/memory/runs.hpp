// The shape of a copy between arrays of different strides.
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <numeric>

namespace pentad::memory {

/// The shape of a strided copy: runs of contiguous bytes, the distances between which differ in source and target.
class Runs {
  public:
    /// @param bytes of an element
    explicit Runs(std::size_t bytes) : bytes_(bytes) {}
    static constexpr int most_dimensions = 8;

    /// Adds a dimension outside of those that are there; strides in bytes. Dimensions that are contiguous in both
    /// become one. At most `most_dimensions` that are not.
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
    /// Dimensions of runs, from the innermost outwards: how many, their extents, and their strides in bytes.
    [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(rank_); }
    [[nodiscard]] std::size_t extent(std::size_t d) const { return extents_[d]; }
    [[nodiscard]] std::size_t to_stride(std::size_t d) const { return to_[d]; }
    [[nodiscard]] std::size_t from_stride(std::size_t d) const { return from_[d]; }
    /// The largest power of two up to 16 that divides the length of a run and all strides.
    [[nodiscard]] std::size_t alignment() const {
        std::size_t divisor = std::gcd(std::size_t{16}, bytes_);
        for (int d = 0; d < rank_; ++d) divisor = std::gcd(std::gcd(divisor, to_[d]), from_[d]);
        return divisor;
    }

  private:
    std::size_t bytes_, count_ = 1;
    int rank_ = 0;
    std::size_t extents_[most_dimensions], to_[most_dimensions], from_[most_dimensions];
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

} // namespace pentad::memory

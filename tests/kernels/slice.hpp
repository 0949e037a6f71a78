// What tests of kernels on heads share: a tensor [batch, seq, heads, head_dim] within a wider one.
#pragma once

#include "arrays.hpp"

#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace arrays {

/// A tensor [batch, seq, heads, head_dim] that is a slice of a wider one, of which the rest is NaN.
template <class T>
class Slice {
  public:
    Slice(i64 batch, i64 seq, i64 heads, i64 head_dim, int seed, double spread = 1.0)
        : buffer_("slice", batch, seq, heads + 3, head_dim), host_(Kokkos::create_mirror_view(buffer_)), heads_(heads) {
        unsigned state = 99991u * static_cast<unsigned>(seed) + 17u;
        for (i64 b = 0; b < batch; ++b)
            for (i64 s = 0; s < seq; ++s)
                for (i64 h = 0; h < heads + 3; ++h)
                    for (i64 d = 0; d < head_dim; ++d) {
                        state = state * 1664525u + 1013904223u;
                        float const value = static_cast<float>(spread * ((state >> 8) / 8388608.0 - 1.0));
                        bool const inside = h >= 2 && h < heads + 2;
                        host_(b, s, h, d) = inside ? T(value) : T(std::numeric_limits<float>::quiet_NaN());
                    }
        Kokkos::deep_copy(buffer_, host_);
    }
    auto view() const {
        return Kokkos::subview(buffer_, Kokkos::ALL, Kokkos::ALL, std::pair<i64, i64>(2, 2 + heads_), Kokkos::ALL);
    }
    auto keys(i64 begin, i64 end) const {
        return Kokkos::subview(buffer_, Kokkos::ALL, std::pair<i64, i64>(begin, end),
                               std::pair<i64, i64>(2, 2 + heads_), Kokkos::ALL);
    }
    void fill(double value) {
        Kokkos::deep_copy(view(), T(static_cast<float>(value)));
        fetch();
    }
    void fetch() { Kokkos::deep_copy(host_, buffer_); }
    void set(i64 b, i64 s, i64 h, i64 d, double value) {
        host_(b, s, h + 2, d) = T(value);
        Kokkos::deep_copy(buffer_, host_);
    }
    double operator()(i64 b, i64 s, i64 h, i64 d) const { return static_cast<double>(host_(b, s, h + 2, d)); }
    i64 extent(int d) const { return d == 2 ? heads_ : static_cast<i64>(host_.extent(d)); }
    bool rest_untouched() const {
        for (i64 b = 0; b < extent(0); ++b)
            for (i64 s = 0; s < extent(1); ++s)
                for (i64 h : {i64(0), i64(1), heads_ + 2})
                    for (i64 d = 0; d < extent(3); ++d)
                        if (!std::isnan(static_cast<float>(host_(b, s, h, d)))) return false;
        return true;
    }

  private:
    Kokkos::View<T****, Kokkos::LayoutRight, Exec> buffer_;
    typename Kokkos::View<T****, Kokkos::LayoutRight, Exec>::host_mirror_type host_;
    i64 heads_;
};

/// The largest difference; NaN is infinitely far.
template <class T>
double distance(Slice<T> const& actual, std::vector<double> const& expected) {
    double worst = 0;
    std::size_t at = 0;
    for (i64 b = 0; b < actual.extent(0); ++b)
        for (i64 s = 0; s < actual.extent(1); ++s)
            for (i64 h = 0; h < actual.extent(2); ++h)
                for (i64 d = 0; d < actual.extent(3); ++d) {
                    double const error = std::abs(actual(b, s, h, d) - expected[at++]);
                    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
                }
    return worst;
}

} // namespace arrays

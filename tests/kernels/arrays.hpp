// Arrays for kernel tests: data drawn on the host and rounded to the element type, a device view of it, and the same
// numbers as f64 for the reference. Matrices may be columns of a wider buffer whose other columns are NaN.
#pragma once

#include <pentad/layout/element.hpp>
#include <pentad/memory/view.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace arrays {

using namespace pentad;
using Exec = Kokkos::DefaultExecutionSpace;

/// Relative to the largest number of the reference. bf16 has 8 bits; what is stored in it is rounded once.
template <class T>
constexpr double tolerance = std::is_same_v<T, f64>   ? 1e-13
                             : std::is_same_v<T, f32> ? 3e-6
                                                      : 6e-3;

/// Uniform in [-1, 1), the same on every machine.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
    double operator()() { return static_cast<double>(next() >> 11) * 0x1p-52 - 1; }
    int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }

  private:
    std::uint64_t next() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_ * 0x2545f4914f6cdd1du;
    }
    std::uint64_t state_;
};

template <class T>
double as_double(T value) {
    return static_cast<double>(static_cast<accumulator_t<T>>(value));
}
template <class T>
T from_double(double value) {
    return T(static_cast<accumulator_t<T>>(value));
}

template <class T>
class Matrix {
  public:
    /// `gap` more columns lie between the rows.
    Matrix(int rows, int columns, int gap = 0) : columns_(columns), buffer_("matrix", rows, columns + gap) {
        auto const host = Kokkos::create_mirror_view(buffer_);
        for (int r = 0; r < rows; ++r)
            for (int c = 0; c < columns + gap; ++c) host(r, c) = c < columns ? T(0) : outside();
        Kokkos::deep_copy(buffer_, host);
    }
    static Matrix random(int rows, int columns, int seed, int gap = 0, double size = 1) {
        Matrix result(rows, columns, gap);
        Random draw(static_cast<std::uint64_t>(seed));
        std::vector<double> values(static_cast<std::size_t>(rows) * columns);
        for (auto& value : values) value = size * draw();
        result.set(values);
        return result;
    }

    auto view() const { return Kokkos::subview(buffer_, Kokkos::ALL, Kokkos::pair<int, int>(0, columns_)); }
    /// The elements one after the other; without a gap.
    auto flat() const { return View<T, 1, Exec>(buffer_.data(), buffer_.size()); }
    int rows() const { return static_cast<int>(buffer_.extent(0)); }
    int columns() const { return columns_; }
    void set(std::vector<double> const& values) const {
        auto const host = Kokkos::create_mirror_view(buffer_);
        Kokkos::deep_copy(host, buffer_);
        for (int r = 0; r < rows(); ++r)
            for (int c = 0; c < columns_; ++c)
                host(r, c) = from_double<T>(values[static_cast<std::size_t>(r) * columns_ + c]);
        Kokkos::deep_copy(buffer_, host);
    }
    /// The numbers, row after row.
    std::vector<double> get() const {
        auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), buffer_);
        std::vector<double> values;
        for (int r = 0; r < rows(); ++r)
            for (int c = 0; c < columns_; ++c) values.push_back(as_double(host(r, c)));
        return values;
    }
    bool gap_untouched() const {
        auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), buffer_);
        for (int r = 0; r < rows(); ++r)
            for (int c = columns_; c < static_cast<int>(host.extent(1)); ++c) {
                double const value = as_double(host(r, c));
                if (!std::isnan(value) && value != as_double(outside())) return false;
            }
        return true;
    }

  private:
    static T outside() {
        if constexpr (std::is_integral_v<T>)
            return T(-77);
        else
            return T(std::numeric_limits<float>::quiet_NaN());
    }
    int columns_;
    Kokkos::View<T**, Kokkos::LayoutRight, Exec> buffer_;
};

template <class T>
class Vector {
  public:
    explicit Vector(int n) : buffer_("vector", n) {}
    explicit Vector(std::vector<double> const& values) : Vector(static_cast<int>(values.size())) { set(values); }
    static Vector random(int n, int seed, double size = 1) {
        Random draw(static_cast<std::uint64_t>(seed));
        std::vector<double> values(static_cast<std::size_t>(n));
        for (auto& value : values) value = size * draw();
        return Vector(values);
    }
    auto view() const { return buffer_; }
    void set(std::vector<double> const& values) const {
        auto const host = Kokkos::create_mirror_view(buffer_);
        for (std::size_t i = 0; i < values.size(); ++i) host(i) = from_double<T>(values[i]);
        Kokkos::deep_copy(buffer_, host);
    }
    std::vector<double> get() const {
        auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), buffer_);
        std::vector<double> values;
        for (std::size_t i = 0; i < host.extent(0); ++i) values.push_back(as_double(host(i)));
        return values;
    }

  private:
    Kokkos::View<T*, Kokkos::LayoutRight, Exec> buffer_;
};

/// max |actual - expected| / max |expected|; infinite where one of them is NaN or their lengths differ. `floor` bounds
/// the denominator from below: give it where the reference may be zero.
inline double difference(std::vector<double> const& actual, std::vector<double> const& expected, double floor = 0) {
    if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
    double largest = 0, size = floor;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        double const distance = actual[i] == expected[i] ? 0 : std::abs(actual[i] - expected[i]); // inf is near inf
        if (std::isnan(distance)) return std::numeric_limits<double>::infinity();
        largest = std::max(largest, distance);
        if (std::isfinite(expected[i])) size = std::max(size, std::abs(expected[i]));
    }
    return largest == 0 ? 0 : largest / size;
}

/// The derivative of the sum of weights * f(x) with respect to each x, by central differences of fourth order in f64.
template <class F>
std::vector<double> finite_differences(std::vector<double> x, std::vector<double> const& weights, F const& f) {
    double const h = 2e-4;
    std::vector<double> gradient(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        double const centre = x[i];
        auto const value = [&](double shift) {
            x[i] = centre + shift;
            std::vector<double> const y = f(x);
            double sum = 0;
            for (std::size_t j = 0; j < y.size(); ++j) sum += weights[j] * y[j];
            return sum;
        };
        gradient[i] = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h);
        x[i] = centre;
    }
    return gradient;
}

} // namespace arrays

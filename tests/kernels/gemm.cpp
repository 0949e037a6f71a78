#include <pentad/kernels/gemm.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace pentad;
using kernels::Transpose;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;

/// A matrix inside a larger buffer, so that its rows may be further apart than they are long. What lies between the
/// rows is NaN: a kernel that reads it shows, and one that writes it is caught by `padding_untouched`.
template <class T>
class Matrix {
  public:
    Matrix(i64 rows, i64 columns, i64 padding, int seed)
        : buffer_("matrix", rows, columns + padding), columns_(columns) {
        host_ = Kokkos::create_mirror_view(buffer_);
        unsigned state = 12345u + 977u * static_cast<unsigned>(seed);
        for (i64 i = 0; i < rows; ++i)
            for (i64 j = 0; j < columns + padding; ++j) {
                state = state * 1664525u + 1013904223u;
                float const value = static_cast<float>(static_cast<int>(state >> 24) - 128) / 64.0f; // exact in bf16
                host_(i, j) = j < columns ? T(value) : T(std::numeric_limits<float>::quiet_NaN());
            }
        Kokkos::deep_copy(buffer_, host_);
    }
    auto view() const { return Kokkos::subview(buffer_, Kokkos::ALL, std::pair<i64, i64>(0, columns_)); }
    void fill(T value) {
        for (i64 i = 0; i < rows(); ++i)
            for (i64 j = 0; j < columns_; ++j) host_(i, j) = value;
        Kokkos::deep_copy(buffer_, host_);
    }
    void fetch() { Kokkos::deep_copy(host_, buffer_); }
    double operator()(i64 i, i64 j) const { return static_cast<double>(host_(i, j)); }
    i64 rows() const { return static_cast<i64>(host_.extent(0)); }
    i64 columns() const { return columns_; }
    bool padding_untouched() const {
        for (i64 i = 0; i < rows(); ++i)
            for (i64 j = columns_; j < static_cast<i64>(host_.extent(1)); ++j)
                if (!std::isnan(static_cast<float>(host_(i, j)))) return false;
        return true;
    }

  private:
    Kokkos::View<T**, Kokkos::LayoutRight, Exec> buffer_;
    typename Kokkos::View<T**, Kokkos::LayoutRight, Exec>::host_mirror_type host_;
    i64 columns_;
};

template <class T>
constexpr double tolerance = std::is_same_v<T, f64>   ? 1e-13
                             : std::is_same_v<T, f32> ? 1e-5
                                                      : 8e-3;

/// The triple loop, over rows [begin, end) of the inner dimension.
template <class In>
double entry(Matrix<In> const& a, bool ta, Matrix<In> const& b, bool tb, i64 i, i64 j, i64 begin, i64 end) {
    double sum = 0;
    for (i64 d = begin; d < end; ++d) sum += (ta ? a(d, i) : a(i, d)) * (tb ? b(j, d) : b(d, j));
    return sum;
}

template <class In, class Out>
void check_product(i64 m, i64 n, i64 k, bool ta, bool tb, double alpha, double beta, i64 padding) {
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    CAPTURE(ta);
    CAPTURE(tb);
    CAPTURE(alpha);
    CAPTURE(beta);
    CAPTURE(padding);
    Matrix<In> const a(ta ? k : m, ta ? m : k, padding, 1), b(tb ? n : k, tb ? k : n, 2 * padding, 2);
    Matrix<Out> c(m, n, padding, 3);
    if (beta == 0) c.fill(Out(std::numeric_limits<float>::quiet_NaN())); // must not be read
    Matrix<Out> const before = [&] {
        Matrix<Out> copy(m, n, padding, 3);
        return copy;
    }();
    auto const flops = observe::counters().gemm_flops;
    kernels::gemm(Exec(), ta ? Transpose::yes : Transpose::no, tb ? Transpose::yes : Transpose::no, alpha, a.view(),
                  b.view(), beta, c.view());
    Exec().fence();
    c.fetch();
    CHECK(observe::counters().gemm_flops - flops == (alpha == 0 ? 0.0 : 2.0 * m * n * k));
    double worst = 0;
    for (i64 i = 0; i < m; ++i)
        for (i64 j = 0; j < n; ++j) {
            double const expected =
                (alpha == 0 ? 0 : alpha * entry(a, ta, b, tb, i, j, 0, k)) + (beta == 0 ? 0 : beta * before(i, j));
            double const error = std::abs(c(i, j) - expected);
            worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
        }
    CHECK(worst <= tolerance<Out> * (4.0 * std::sqrt(static_cast<double>(k)) + 4.0));
    CHECK(c.padding_untouched());
}

template <class In, class Out>
void check_products() {
    for (bool ta : {false, true})
        for (bool tb : {false, true}) {
            check_product<In, Out>(17, 33, 65, ta, tb, 1.0, 0.0, 0);
            check_product<In, Out>(17, 33, 65, ta, tb, 0.5, 2.0, 3);
            check_product<In, Out>(64, 96, 128, ta, tb, 1.0, 1.0, 16);
            check_product<In, Out>(130, 70, 300, ta, tb, -1.0, 0.0, 5);
            check_product<In, Out>(1, 1, 1, ta, tb, 1.0, 0.0, 1);
            check_product<In, Out>(1, 40, 7, ta, tb, 1.0, 1.0, 0);
            check_product<In, Out>(40, 1, 7, ta, tb, 1.0, 1.0, 2);
            for (i64 const m : {1, 2, 3, 7, 16}) check_product<In, Out>(m, 45, 131, ta, tb, 0.5, 2.0, 3);
            check_product<In, Out>(0, 8, 8, ta, tb, 1.0, 0.0, 0);
            check_product<In, Out>(8, 0, 8, ta, tb, 1.0, 0.0, 0);
            check_product<In, Out>(8, 9, 0, ta, tb, 1.0, 0.0, 4);
            check_product<In, Out>(8, 9, 0, ta, tb, 1.0, 0.5, 4);
            check_product<In, Out>(8, 9, 10, ta, tb, 0.0, 0.5, 4);
        }
}

template <class Call>
std::string message_of(Call call) {
    try {
        call();
    } catch (std::invalid_argument const& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("gemm equals the triple loop in f64") { check_products<f64, f64>(); }
TEST_CASE("gemm equals the triple loop in f32") { check_products<f32, f32>(); }
TEST_CASE("gemm equals the triple loop in bf16") { check_products<bf16, bf16>(); }
TEST_CASE("gemm of bf16 accumulates weight gradients in f32") { check_products<bf16, f32>(); }

TEST_CASE_TEMPLATE("on a host, what a row gives does not depend on the few rows beside it", T, f64, f32) {
    if constexpr (kernels::runs_on_host<Exec>) {
        Matrix<T> const a(16, 77, 3, 1), b(29, 77, 0, 2);
        auto const product = [&](i64 first, i64 count) {
            Matrix<T> c(count, 29, 0, 3);
            kernels::gemm(Exec(), Transpose::no, Transpose::yes, 1.0,
                          Kokkos::subview(a.view(), std::pair(first, first + count), Kokkos::ALL), b.view(), 0.0,
                          c.view());
            Exec().fence();
            c.fetch();
            return c;
        };
        auto const all = product(0, 16);
        int differ = 0;
        for (i64 count = 1; count <= 16; ++count)
            for (i64 first = 0; first + count <= 16; first += count) {
                auto const some = product(first, count);
                for (i64 i = 0; i < count; ++i)
                    for (i64 j = 0; j < 29; ++j) differ += some(i, j) != all(first + i, j) ? 1 : 0;
            }
        CHECK(differ == 0);
    }
}

TEST_CASE("gemm of bf16 into f32 does not round the result to bf16") {
    // 256 + 1 needs nine bits of mantissa: bf16 has eight.
    Matrix<bf16> a(1, 2, 0, 1), b(2, 1, 0, 1);
    a.fill(bf16(1.0f));
    auto const host = Kokkos::create_mirror_view(b.view());
    Kokkos::View<bf16**, Kokkos::LayoutRight, Exec> column("column", 2, 1);
    auto const column_host = Kokkos::create_mirror_view(column);
    column_host(0, 0) = bf16(256.0f);
    column_host(1, 0) = bf16(1.0f);
    Kokkos::deep_copy(column, column_host);
    Matrix<f32> c(1, 1, 0, 1);
    kernels::gemm(Exec(), Transpose::no, Transpose::no, 1.0, a.view(), column, 0.0, c.view());
    Exec().fence();
    c.fetch();
    CHECK(c(0, 0) == 257.0);
}

TEST_CASE("gemm names the shapes that do not fit") {
    Matrix<f32> const a(4, 3, 0, 1), b(2, 5, 0, 1), c(4, 5, 0, 1);
    auto const text = message_of(
        [&] { kernels::gemm(Exec(), Transpose::no, Transpose::no, 1.0, a.view(), b.view(), 0.0, c.view()); });
    CHECK(text.find("C[4, 5] = A[4, 3] B[2, 5]") != std::string::npos);
}

TEST_CASE("gemm refuses rows whose elements are not adjacent") {
    Kokkos::View<f32**, Kokkos::LayoutLeft, Exec> const a("a", 4, 4);
    Matrix<f32> const b(4, 4, 0, 1), c(4, 4, 0, 1);
    auto const text =
        message_of([&] { kernels::gemm(Exec(), Transpose::no, Transpose::no, 1.0, a, b.view(), 0.0, c.view()); });
    CHECK(text.find("must be adjacent") != std::string::npos);
}

namespace {

template <class T, class Gradient>
void check_grouped() {
    i64 const groups = 4, k = 24, n = 40;
    std::vector<i64> const offsets{0, 7, 7, 30, 33}; // the second group has no rows
    i64 const rows = offsets.back();
    Matrix<T> const x(rows, k, 3, 1), dy(rows, n, 0, 2), weights(groups * k, n, 0, 3), weights_t(groups * n, k, 0, 4);
    auto const cube = [&](auto const& matrix, i64 r, i64 c) {
        return Kokkos::View<T***, Kokkos::LayoutRight, Exec>(matrix.view().data(), groups, r, c);
    };
    Matrix<T> y(rows, n, 1, 5), y_t(rows, n, 1, 5);
    Matrix<T> const y_before(rows, n, 1, 5);
    kernels::grouped_gemm(Exec(), Transpose::no, 1.0, x.view(), cube(weights, k, n), offsets, 2.0, y.view());
    kernels::grouped_gemm(Exec(), Transpose::yes, 1.0, x.view(), cube(weights_t, n, k), offsets, 0.0, y_t.view());

    Matrix<Gradient> dw(groups * k, n, 0, 6);
    Matrix<Gradient> const dw_before(groups * k, n, 0, 6);
    kernels::grouped_gemm_weight(Exec(), 1.0, x.view(), dy.view(), offsets, 0.5,
                                 Kokkos::View<Gradient***, Kokkos::LayoutRight, Exec>(dw.view().data(), groups, k, n));
    Exec().fence();
    y.fetch();
    y_t.fetch();
    dw.fetch();

    double worst = 0, worst_t = 0, worst_dw = 0;
    for (i64 g = 0; g < groups; ++g) {
        for (i64 row = offsets[g]; row < offsets[g + 1]; ++row)
            for (i64 j = 0; j < n; ++j) {
                double sum = 0, sum_t = 0;
                for (i64 d = 0; d < k; ++d) {
                    sum += x(row, d) * weights(g * k + d, j);
                    sum_t += x(row, d) * weights_t(g * n + j, d);
                }
                worst = std::max(worst, std::abs(y(row, j) - (sum + 2.0 * y_before(row, j))));
                worst_t = std::max(worst_t, std::abs(y_t(row, j) - sum_t));
            }
        for (i64 i = 0; i < k; ++i)
            for (i64 j = 0; j < n; ++j)
                worst_dw = std::max(
                    worst_dw, std::abs(dw(g * k + i, j) - (entry(x, true, dy, false, i, j, offsets[g], offsets[g + 1]) +
                                                           0.5 * dw_before(g * k + i, j))));
    }
    CHECK(worst <= 24 * tolerance<T>);
    CHECK(worst_t <= 24 * tolerance<T>);
    CHECK(worst_dw <= 24 * tolerance<Gradient>);
}

} // namespace

TEST_CASE("grouped products treat each expert's rows with its own weights, also when it has none") {
    check_grouped<f64, f64>();
    check_grouped<f32, f32>();
    check_grouped<bf16, bf16>();
    check_grouped<bf16, f32>();
}

TEST_CASE("grouped products refuse offsets that do not cover the rows") {
    Matrix<f32> const x(6, 4, 0, 1), y(6, 3, 0, 1);
    Kokkos::View<f32***, Kokkos::LayoutRight, Exec> const weights("weights", 2, 4, 3);
    std::vector<i64> const short_offsets{0, 3, 5}, falling{0, 7, 6}, few{0, 6};
    for (auto const& offsets : {short_offsets, falling, few})
        CHECK(message_of([&] {
                  kernels::grouped_gemm(Exec(), Transpose::no, 1.0, x.view(), weights, offsets, 0.0, y.view());
              }).find("2 groups over 6 rows need 3 offsets") != std::string::npos);
}

TEST_CASE("the measured speed is that of a matrix product and is not counted as work") {
    auto const counted = observe::counters().gemm_flops;
    Kokkos::Timer timer;
    int ready = 0;
    CHECK(kernels::measure_gemm_speed<f32>(Exec(), [&] { ++ready; }) > 1e8);
    CHECK(ready == 1);
    CHECK(timer.seconds() < 5.0);
    CHECK(observe::counters().gemm_flops == counted);
}

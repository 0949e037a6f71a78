#include <pentad/kernels/norm.hpp>

#include "arrays.hpp"

#include <vector>

using namespace arrays;

namespace {

constexpr double epsilon = 1e-5;

std::vector<double> reference(std::vector<double> const& x, std::vector<double> const& weight, int hidden) {
    std::vector<double> y(x.size());
    for (std::size_t row = 0; row < x.size(); row += hidden) {
        double squares = 0;
        for (int i = 0; i < hidden; ++i) squares += x[row + i] * x[row + i];
        for (int i = 0; i < hidden; ++i) y[row + i] = weight[i] * x[row + i] / std::sqrt(squares / hidden + epsilon);
    }
    return y;
}

template <class T>
struct Case {
    using A = accumulator_t<T>;
    int rows, hidden;
    Matrix<T> x, dy, y, dx;
    Vector<T> weight;
    Vector<A> rstd, dweight;
    Case(int rows_, int hidden_)
        : rows(rows_), hidden(hidden_), x(Matrix<T>::random(rows, hidden, 1, 3)),
          dy(Matrix<T>::random(rows, hidden, 2)), y(rows, hidden), dx(rows, hidden, 5),
          weight(Vector<T>::random(hidden, 3)), rstd(rows), dweight(hidden) {
        kernels::rms_norm_forward<T>(Exec(), x.view(), weight.view(), A(epsilon), y.view(), rstd.view());
    }
};

} // namespace

TEST_CASE_TEMPLATE("rms_norm is x over its root mean square, times the weight", T, f64, f32, bf16) {
    for (int const hidden : {1, 7, 65, 256, 1000})
        for (int const rows : {0, 1, 7, 65}) {
            Case<T> const c(rows, hidden);
            CHECK(difference(c.y.get(), reference(c.x.get(), c.weight.get(), hidden)) <= tolerance<T>);
        }
}

TEST_CASE("rms_norm's gradients agree with finite differences in f64") {
    for (int const hidden : {1, 7, 65}) {
        Case<f64> const c(5, hidden);
        kernels::rms_norm_backward_data<f64>(Exec(), c.dy.view(), c.x.view(), c.weight.view(), c.rstd.view(),
                                             c.dx.view(), false);
        auto const weight = c.weight.get(), x = c.x.get(), dy = c.dy.get();
        auto const by_x = finite_differences(x, dy, [&](auto const& v) { return reference(v, weight, hidden); });
        CHECK(difference(c.dx.get(), by_x) <= 1e-9);
        CHECK(c.dx.gap_untouched());

        c.dweight.set(std::vector<double>(hidden, 2.0)); // the gradient is added
        kernels::rms_norm_backward_weight<f64>(Exec(), c.dy.view(), c.x.view(), c.rstd.view(), c.dweight.view());
        auto by_weight = finite_differences(weight, dy, [&](auto const& v) { return reference(x, v, hidden); });
        for (auto& slope : by_weight) slope += 2.0;
        CHECK(difference(c.dweight.get(), by_weight) <= 1e-9);
    }
}

TEST_CASE_TEMPLATE("rms_norm's gradients in lower precision follow those in f64", T, f32, bf16) {
    for (int const hidden : {65, 512})
        for (int const rows : {1, 200}) {
            Case<T> const c(rows, hidden);
            Case<f64> const exact(rows, hidden);
            exact.x.set(c.x.get());
            exact.dy.set(c.dy.get());
            exact.weight.set(c.weight.get());
            kernels::rms_norm_forward<f64>(Exec(), exact.x.view(), exact.weight.view(), epsilon, exact.y.view(),
                                           exact.rstd.view());
            kernels::rms_norm_backward_data<T>(Exec(), c.dy.view(), c.x.view(), c.weight.view(), c.rstd.view(),
                                               c.dx.view(), false);
            kernels::rms_norm_backward_data<f64>(Exec(), exact.dy.view(), exact.x.view(), exact.weight.view(),
                                                 exact.rstd.view(), exact.dx.view(), false);
            CHECK(difference(c.dx.get(), exact.dx.get()) <= tolerance<T>);
            kernels::rms_norm_backward_weight<T>(Exec(), c.dy.view(), c.x.view(), c.rstd.view(), c.dweight.view());
            kernels::rms_norm_backward_weight<f64>(Exec(), exact.dy.view(), exact.x.view(), exact.rstd.view(),
                                                   exact.dweight.view());
            CHECK(difference(c.dweight.get(), exact.dweight.get()) <= tolerance<f32>);
        }
}

TEST_CASE_TEMPLATE("rms_norm's weight gradient is the sum over all rows", T, f64, f32, bf16) {
    for (int const rows : {0, 1, 64, 65, 333})
        for (int const hidden : {7, 1100}) {
            Case<T> const c(rows, hidden);
            kernels::rms_norm_backward_weight<T>(Exec(), c.dy.view(), c.x.view(), c.rstd.view(), c.dweight.view());
            auto const x = c.x.get(), dy = c.dy.get(), rstd = c.rstd.get();
            std::vector<double> expected(hidden);
            for (std::size_t i = 0; i < x.size(); ++i) expected[i % hidden] += dy[i] * x[i] * rstd[i / hidden];
            CHECK(difference(c.dweight.get(), expected) <= tolerance<accumulator_t<T>>);
        }
}

TEST_CASE_TEMPLATE("rms_norm's data gradient is added where that is asked", T, f64, f32) {
    Case<T> const c(7, 65);
    kernels::rms_norm_backward_data<T>(Exec(), c.dy.view(), c.x.view(), c.weight.view(), c.rstd.view(), c.dx.view(),
                                       false);
    auto expected = c.dx.get();
    auto const before = Matrix<T>::random(7, 65, 9).get();
    c.dx.set(before);
    kernels::rms_norm_backward_data<T>(Exec(), c.dy.view(), c.x.view(), c.weight.view(), c.rstd.view(), c.dx.view(),
                                       true);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    CHECK(difference(c.dx.get(), expected) <= tolerance<T>);
}

TEST_CASE("rms_norm of a row of zeros is zeros, and its gradient finite") {
    Case<f32> const c(3, 7);
    c.x.set(std::vector<double>(21, 0.0));
    kernels::rms_norm_forward<f32>(Exec(), c.x.view(), c.weight.view(), 1e-5f, c.y.view(), c.rstd.view());
    CHECK(c.y.get() == std::vector<double>(21, 0.0));
    kernels::rms_norm_backward_data<f32>(Exec(), c.dy.view(), c.x.view(), c.weight.view(), c.rstd.view(), c.dx.view(),
                                         false);
    for (double const value : c.dx.get()) CHECK(std::isfinite(value));
}

TEST_CASE_TEMPLATE("rms_norm of a row whose squares overflow is NaN, not zero", T, f32, bf16) {
    Case<T> c(1, 8);
    c.x.set(std::vector<double>(8, 1e30));
    kernels::rms_norm_forward<T>(Exec(), c.x.view(), c.weight.view(), T(epsilon), c.y.view(), c.rstd.view());
    for (double const value : c.y.get()) CHECK(std::isnan(value));
}

TEST_CASE("a weight that does not fit is refused with the numbers") {
    Case<f32> const c(3, 7);
    Vector<f32> const wrong(6);
    CHECK_THROWS_WITH_AS(
        kernels::rms_norm_forward<f32>(Exec(), c.x.view(), wrong.view(), 1e-5f, c.y.view(), c.rstd.view()),
        "rms_norm_forward: weight has extent 6, it must be 7 (hidden of x)", std::invalid_argument);
    Matrix<f32> const narrow(3, 6);
    CHECK_THROWS_WITH_AS(
        kernels::rms_norm_forward<f32>(Exec(), c.x.view(), c.weight.view(), 1e-5f, narrow.view(), c.rstd.view()),
        "rms_norm_forward: y is [3, 6], it must be as x, which is [3, 7]", std::invalid_argument);
}

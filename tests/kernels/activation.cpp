#include <pentad/kernels/activation.hpp>

#include "arrays.hpp"

#include <vector>

using namespace arrays;

namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu(double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }

std::vector<double> swiglu(std::vector<double> const& gate, std::vector<double> const& up) {
    std::vector<double> y(gate.size());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = silu(gate[i]) * up[i];
    return y;
}
std::vector<double> each(std::vector<double> x, double (*f)(double)) {
    for (auto& value : x) value = f(value);
    return x;
}

} // namespace

TEST_CASE_TEMPLATE("swiglu is silu(gate) times up", T, f64, f32, bf16) {
    for (int const ffn : {1, 7, 65, 1408}) {
        auto const gate = Matrix<T>::random(7, ffn, 1, 3, 6), up = Matrix<T>::random(7, ffn, 2, 1);
        Matrix<T> const y(7, ffn, 2);
        kernels::swiglu_forward<T>(Exec(), gate.view(), up.view(), y.view());
        CHECK(difference(y.get(), swiglu(gate.get(), up.get())) <= tolerance<T>);
        CHECK(y.gap_untouched());
    }
}

TEST_CASE_TEMPLATE("swiglu's gradients agree with finite differences", T, f64, f32, bf16) {
    for (int const ffn : {1, 7, 65}) {
        auto const gate = Matrix<T>::random(3, ffn, 1, 3, 6), up = Matrix<T>::random(3, ffn, 2),
                   dy = Matrix<T>::random(3, ffn, 3);
        Matrix<T> const dgate(3, ffn), dup(3, ffn);
        kernels::swiglu_backward<T>(Exec(), dy.view(), gate.view(), up.view(), dgate.view(), dup.view());
        auto const g = gate.get(), u = up.get(), d = dy.get();
        double const limit = std::is_same_v<T, f64> ? 1e-10 : tolerance<T>;
        CHECK(difference(dgate.get(), finite_differences(g, d, [&](auto const& v) { return swiglu(v, u); })) <= limit);
        CHECK(difference(dup.get(), finite_differences(u, d, [&](auto const& v) { return swiglu(g, v); })) <= limit);
    }
}

TEST_CASE_TEMPLATE("swiglu takes columns of a wider matrix, and its gradient may overwrite them", T, f64, f32) {
    int const ffn = 33;
    auto const both = Matrix<T>::random(5, 2 * ffn, 4), dy = Matrix<T>::random(5, ffn, 5);
    auto const halves = both.get();
    std::vector<double> gate, up;
    for (std::size_t i = 0; i < halves.size(); ++i) (i % (2 * ffn) < ffn ? gate : up).push_back(halves[i]);
    Matrix<T> const y(5, ffn);
    auto const left = kernels::columns(both.view(), 0, ffn), right = kernels::columns(both.view(), ffn, 2 * ffn);
    kernels::swiglu_forward<T>(Exec(), left, right, y.view());
    CHECK(difference(y.get(), swiglu(gate, up)) <= tolerance<T>);

    Matrix<T> const g(5, ffn), u(5, ffn);
    g.set(gate);
    u.set(up);
    kernels::swiglu_backward<T>(Exec(), dy.view(), g.view(), u.view(), g.view(), u.view());
    kernels::swiglu_backward<T>(Exec(), dy.view(), left, right, left, right);
    auto const result = both.get();
    std::vector<double> dgate, dup;
    for (std::size_t i = 0; i < result.size(); ++i) (i % (2 * ffn) < ffn ? dgate : dup).push_back(result[i]);
    CHECK(dgate == g.get());
    CHECK(dup == u.get());
}

TEST_CASE_TEMPLATE("gelu and its gradient are the exact form's", T, f64, f32, bf16) {
    for (int const ffn : {1, 7, 65}) {
        auto const x = Matrix<T>::random(3, ffn, 6, 1, 5), dy = Matrix<T>::random(3, ffn, 7);
        Matrix<T> const y(3, ffn), dx(3, ffn);
        kernels::gelu_forward<T>(Exec(), x.view(), y.view());
        CHECK(difference(y.get(), each(x.get(), gelu)) <= tolerance<T>);
        kernels::gelu_backward<T>(Exec(), dy.view(), x.view(), dx.view());
        auto const slope = finite_differences(x.get(), dy.get(), [](auto const& v) { return each(v, gelu); });
        CHECK(difference(dx.get(), slope) <= (std::is_same_v<T, f64> ? 1e-10 : tolerance<T>));
    }
}

TEST_CASE("large gates saturate without NaN") {
    Matrix<f32> const gate(1, 4), up(1, 4), dy(1, 4), y(1, 4), dgate(1, 4), dup(1, 4);
    gate.set({-1e4, 1e4, -200, 200});
    up.set({1, 1, 1, 1});
    dy.set({1, 1, 1, 1});
    kernels::swiglu_forward<f32>(Exec(), gate.view(), up.view(), y.view());
    CHECK(y.get() == std::vector<double>{0, 1e4, 0, 200});
    kernels::swiglu_backward<f32>(Exec(), dy.view(), gate.view(), up.view(), dgate.view(), dup.view());
    CHECK(dgate.get() == std::vector<double>{0, 1, 0, 1});
    CHECK(dup.get() == std::vector<double>{0, 1e4, 0, 200});
}

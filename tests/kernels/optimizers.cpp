#include <pentad/kernels/lion.hpp>
#include <pentad/kernels/muon.hpp>
#include <pentad/kernels/sgd.hpp>
#include <pentad/model/optimizer.hpp>

#include "arrays.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

using namespace arrays;

namespace {

std::vector<double> rounded(std::vector<double> values, auto element) {
    for (auto& value : values) value = as_double(from_double<decltype(element)>(value));
    return values;
}
template <class A>
constexpr double limit = std::is_same_v<A, f64> ? 1e-14 : 1e-6;

/// A matrix of f64, row after row.
struct Dense {
    std::size_t rows, columns;
    std::vector<double> values;

    double& operator()(std::size_t r, std::size_t c) { return values[r * columns + c]; }
    double operator()(std::size_t r, std::size_t c) const { return values[r * columns + c]; }
};
Dense product(Dense const& a, Dense const& b) {
    Dense c{a.rows, b.columns, std::vector<double>(a.rows * b.columns)};
    for (std::size_t i = 0; i < a.rows; ++i)
        for (std::size_t k = 0; k < a.columns; ++k)
            for (std::size_t j = 0; j < b.columns; ++j) c(i, j) += a(i, k) * b(k, j);
    return c;
}
Dense transposed(Dense const& a) {
    Dense t{a.columns, a.rows, std::vector<double>(a.values.size())};
    for (std::size_t i = 0; i < a.rows; ++i)
        for (std::size_t j = 0; j < a.columns; ++j) t(j, i) = a(i, j);
    return t;
}
/// torch.optim.Muon's iteration, which transposes tall matrices.
Dense orthogonalised(Dense x, int iterations, double epsilon) {
    bool const is_tall = x.rows > x.columns;
    if (is_tall) x = transposed(x);
    double squares = 0;
    for (double const value : x.values) squares += value * value;
    for (double& value : x.values) value /= std::max(std::sqrt(squares), epsilon);
    for (int i = 0; i < iterations; ++i) {
        auto const gram = product(x, transposed(x));
        auto update = product(gram, gram);
        for (std::size_t k = 0; k < update.values.size(); ++k)
            update.values[k] = 2.0315 * update.values[k] - 4.7750 * gram.values[k];
        auto next = product(update, x);
        for (std::size_t k = 0; k < next.values.size(); ++k) next.values[k] += 3.4445 * x.values[k];
        x = next;
    }
    return is_tall ? transposed(x) : x;
}

} // namespace

TEST_CASE_TEMPLATE("sgd follows PyTorch's formula over several steps", T, f64, f32, bf16) {
    using A = accumulator_t<T>;
    for (double const momentum : {0.0, 0.9})
        for (bool const nesterov : {false, true})
            for (double const decay : {0.0, 0.1}) {
                if (momentum == 0 && nesterov) continue;
                for (int const n : {0, 1, 65, 9000}) {
                    auto const master = Vector<A>::random(n, 1);
                    Vector<T> const used(n);
                    Vector<A> const average(momentum == 0 ? 0 : n);
                    auto weights = master.get();
                    std::vector<double> buffer;
                    for (int t = 1; t <= 4; ++t) {
                        auto const gradients = Vector<A>::random(n, 10 + t, 3);
                        kernels::sgd<T>(Exec(), used.view(), master.view(), gradients.view(), average.view(),
                                        {.learning_rate = 0.05,
                                         .momentum = momentum,
                                         .nesterov = nesterov,
                                         .weight_decay = decay,
                                         .gradient_scale = 0.25});
                        auto step = gradients.get();
                        for (std::size_t i = 0; i < step.size(); ++i) step[i] = 0.25 * step[i] + decay * weights[i];
                        if (momentum != 0) {
                            if (t == 1) buffer = step; // PyTorch begins with the gradient
                            for (std::size_t i = 0; i < step.size(); ++i) {
                                if (t > 1) buffer[i] = momentum * buffer[i] + step[i];
                                step[i] = nesterov ? step[i] + momentum * buffer[i] : buffer[i];
                            }
                        }
                        for (std::size_t i = 0; i < step.size(); ++i) weights[i] -= 0.05 * step[i];
                    }
                    CHECK(difference(master.get(), weights) <= limit<A>);
                    if (momentum != 0) CHECK(difference(average.get(), buffer) <= limit<A>);
                    CHECK(used.get() == rounded(master.get(), T()));
                }
            }
}

TEST_CASE_TEMPLATE("lion follows the paper's algorithm over several steps", T, f64, f32, bf16) {
    using A = accumulator_t<T>;
    for (int const n : {0, 1, 65, 9000}) {
        auto const master = Vector<A>::random(n, 1);
        Vector<T> const used(n);
        Vector<A> const average(n);
        auto weights = master.get(), momentum = average.get();
        for (int t = 1; t <= 4; ++t) {
            auto const gradients = Vector<A>::random(n, 10 + t, 3);
            kernels::lion<T>(
                Exec(), used.view(), master.view(), gradients.view(), average.view(),
                {.learning_rate = 0.05, .beta1 = 0.9, .beta2 = 0.98, .weight_decay = 0.2, .gradient_scale = 0.25});
            auto const g = gradients.get();
            for (std::size_t i = 0; i < g.size(); ++i) {
                double const c = 0.9 * momentum[i] + (1 - 0.9) * 0.25 * g[i];
                weights[i] -= 0.05 * ((c > 0 ? 1 : c < 0 ? -1 : 0) + 0.2 * weights[i]);
                momentum[i] = 0.98 * momentum[i] + (1 - 0.98) * 0.25 * g[i];
            }
        }
        CHECK(difference(master.get(), weights) <= limit<A>);
        CHECK(difference(average.get(), momentum) <= limit<A>);
        CHECK(used.get() == rounded(master.get(), T()));
    }
}

TEST_CASE("lion leaves a weight without gradient and momentum where it is, but for decay") {
    auto const weights = Vector<f64>::random(7, 1);
    Vector<f64> const zeros(7), average(7);
    auto expected = weights.get();
    for (auto& value : expected) value *= 1 - 1e-4 * 0.5;
    kernels::lion<f64>(Exec(), weights.view(), weights.view(), zeros.view(), average.view(), {.weight_decay = 0.5});
    CHECK(difference(weights.get(), expected) <= 1e-15);
}

TEST_CASE_TEMPLATE("muon's momentum and step follow PyTorch's formula", T, f64, f32, bf16) {
    using A = accumulator_t<T>;
    for (bool const nesterov : {false, true})
        for (int const n : {0, 1, 65, 9000}) {
            auto const master = Vector<A>::random(n, 1);
            Vector<T> const used(n);
            Vector<A> const average(n);
            auto weights = master.get(), momentum = average.get();
            for (int t = 1; t <= 3; ++t) {
                auto const gradients = Vector<A>::random(n, 10 + t, 3);
                auto g = gradients.get();
                kernels::muon_momentum<A>(Exec(), gradients.view(), average.view(), 0.95, nesterov, 0.25);
                for (std::size_t i = 0; i < g.size(); ++i) {
                    g[i] *= 0.25;
                    momentum[i] = 0.95 * momentum[i] + (1 - 0.95) * g[i];
                    g[i] = nesterov ? (1 - 0.95) * g[i] + 0.95 * momentum[i] : momentum[i];
                }
                CHECK(difference(gradients.get(), g) <= limit<A>);
                kernels::muon_step<T>(Exec(), used.view(), master.view(), gradients.view(), 0.05, 0.1);
                for (std::size_t i = 0; i < g.size(); ++i) weights[i] = weights[i] * (1 - 0.05 * 0.1) - 0.05 * g[i];
            }
            CHECK(difference(average.get(), momentum) <= limit<A>);
            CHECK(difference(master.get(), weights) <= limit<A>);
            CHECK(used.get() == rounded(master.get(), T()));
        }
}

TEST_CASE_TEMPLATE("Newton-Schulz iterations are PyTorch's, of wide, tall and square matrices", A, f64, f32) {
    for (auto const& [rows, columns] :
         std::vector<std::pair<int, int>>{{1, 1}, {1, 9}, {9, 1}, {12, 12}, {7, 30}, {30, 7}})
        for (int const iterations : {1, 2, 5}) {
            auto const x = Matrix<A>::random(rows, columns, rows + columns);
            auto const size = [](int n) { return static_cast<std::size_t>(n); };
            auto expected = orthogonalised({size(rows), size(columns), x.get()}, iterations, 1e-7).values;
            for (double& value : expected) value *= 1.5;
            Vector<A> const workspace(static_cast<int>(kernels::newton_schulz_workspace(size(rows), size(columns))));
            Kokkos::View<f64, Exec> const squares("squares");
            kernels::newton_schulz<A>(Exec(), x.view(), workspace.view(), squares, iterations, 1e-7, 1.5);
            CHECK(difference(x.get(), expected) <= (std::is_same_v<A, f64> ? 1e-12 : 1e-4));
        }
}

TEST_CASE("five Newton-Schulz iterations bring singular values near 1, and leave zeros zeros") {
    auto const x = Matrix<f64>::random(8, 40, 3);
    Vector<f64> const workspace(8 * 40 + 2 * 64);
    Kokkos::View<f64, Exec> const squares("squares");
    kernels::newton_schulz<f64>(Exec(), x.view(), workspace.view(), squares, 5, 1e-7, 1);
    Dense const y{8, 40, x.get()};
    auto const gram = product(y, transposed(y)); // its eigenvalues are the squares of y's singular values
    double trace = 0;
    for (std::size_t i = 0; i < 8; ++i) trace += gram(i, i) / 8;
    CHECK(trace > 0.6);
    CHECK(trace < 1.3);
    Matrix<f64> const zeros(8, 40);
    kernels::newton_schulz<f64>(Exec(), zeros.view(), workspace.view(), squares, 5, 1e-7, 1);
    CHECK(zeros.get() == std::vector<double>(320));
}

TEST_CASE("extents that do not fit are refused") {
    Vector<f32> const x(4), y(3);
    CHECK_THROWS_WITH_AS(kernels::sgd<f32>(Exec(), x.view(), x.view(), x.view(), y.view(), {}),
                         "sgd: momentum has extent 3, it must be 4 (as parameters)", std::invalid_argument);
    CHECK_THROWS_WITH_AS(kernels::lion<f32>(Exec(), x.view(), x.view(), y.view(), x.view(), {}),
                         "lion: gradients has extent 3, it must be 4 (as parameters)", std::invalid_argument);
}

TEST_CASE("work is dealt out to who has least") {
    std::vector<double> const work{1, 5, 3, 3, 2};
    CHECK(model::deal(work, 2) == std::vector<std::size_t>{1, 0, 1, 1, 0});
    CHECK(model::deal(work, 1) == std::vector<std::size_t>(5, 0));
}

#include <pentad/kernels/causal_convolution.hpp>
#include <pentad/kernels/gated_norm.hpp>
#include <pentad/kernels/state_space.hpp>

#include "arrays.hpp"

#include <cstddef>
#include <vector>

using namespace arrays;

namespace {

using Numbers = std::vector<double>;
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
std::size_t size(int n) { return static_cast<std::size_t>(n); }

/// Two sequences of a convolution, with what is in front of them, and documents that begin at the tokens of position 0.
struct Convolved {
    int seq = 7, channels = 5, taps = 4;
    Numbers before; ///< empty: nothing
    Numbers positions;

    [[nodiscard]] Numbers forward(Numbers const& x, Numbers const& w, Numbers const& b, Numbers const& front) const {
        Numbers y(x.size());
        for (int row = 0; row < 2 * seq; ++row)
            for (int c = 0; c < channels; ++c) {
                double sum = b[size(c)];
                for (int lag = 0; lag < taps; ++lag) {
                    int const token = row % seq - lag;
                    if (lag > positions[size(row)]) continue;
                    double const value = token >= 0 ? x[size((row - lag) * channels + c)]
                                         : front.empty()
                                             ? 0
                                             : front[size((row / seq * (taps - 1) + taps - 1 + token) * channels + c)];
                    sum += w[size(c * taps + taps - 1 - lag)] * value;
                }
                y[size(row * channels + c)] = silu(sum);
            }
        return y;
    }
};

template <class T>
View<T, 2, Exec> whole(Matrix<T> const& matrix) {
    return View<T, 2, Exec>(matrix.view().data(), matrix.rows(), matrix.columns());
}

} // namespace

TEST_CASE_TEMPLATE("a causal convolution sees a few tokens of its own document", T, f64, f32, bf16) {
    for (int const taps : {1, 2, 4})
        for (bool const has_front : {false, true})
            for (bool const is_packed : {false, true}) {
                Convolved of;
                of.taps = taps;
                for (int row = 0; row < 14; ++row)
                    of.positions.push_back(is_packed ? (row % 7 >= 5 ? row % 7 - 5 : row % 7 + 1) : 100);
                auto const x = Matrix<T>::random(14, 5, 1, 3);
                auto const front = Matrix<T>::random(2 * (taps - 1), 5, 2);
                auto const w = Matrix<T>::random(5, taps, 3);
                auto const b = Vector<T>::random(5, 4);
                Vector<i32> const positions(of.positions);
                Matrix<T> const y(14, 5, 2);
                bool const has_any = has_front && taps > 1;
                kernels::causal_convolution_forward<T>(
                    Exec(), x.view(), has_any ? front.view() : decltype(front.view())(), whole(w), b.view(),
                    is_packed ? positions.view() : decltype(positions.view())(), 7, y.view());
                auto const expected = of.forward(x.get(), w.get(), b.get(), has_any ? front.get() : Numbers());
                CHECK(difference(y.get(), expected) <= tolerance<T>);
                CHECK(y.gap_untouched());
            }
}

TEST_CASE("a causal convolution's gradients agree with finite differences") {
    for (int const seq : {2, 7}) {
        Convolved of;
        of.seq = seq;
        for (int row = 0; row < 2 * seq; ++row) of.positions.push_back(row % seq >= 5 ? row % seq - 5 : row % seq + 2);
        auto const x = Matrix<f64>::random(2 * seq, 5, 1), front = Matrix<f64>::random(6, 5, 2),
                   w = Matrix<f64>::random(5, 4, 3), dy = Matrix<f64>::random(2 * seq, 5, 5);
        auto const b = Vector<f64>::random(5, 4);
        Vector<i32> const positions(of.positions);
        auto const given = dy.get(), xs = x.get(), fs = front.get(), ws = w.get(), bs = b.get();
        std::size_t const length = size(seq), kept = std::min<std::size_t>(3, length);
        auto const after = Matrix<f64>::random(static_cast<int>(2 * kept), 5, 6);
        Matrix<f64> const dx(2 * seq, 5), d_front(6, 5), dw(5, 4);
        Vector<f64> const db(5);
        Exec const exec;
        kernels::causal_convolution_backward<f64>(exec, x.view(), front.view(), whole(w), b.view(), positions.view(),
                                                  length, dy.view(), dy.view());
        kernels::causal_convolution_backward_data<f64>(exec, dy.view(), whole(w), positions.view(), length,
                                                       after.view(), dx.view());
        kernels::causal_convolution_backward_before<f64>(exec, dy.view(), whole(w), positions.view(), length,
                                                         d_front.view());
        kernels::causal_convolution_backward_weight<f64>(exec, x.view(), front.view(), positions.view(), length,
                                                         dy.view(), whole(dw), db.view());
        auto by_x = finite_differences(xs, given, [&](auto const& v) { return of.forward(v, ws, bs, fs); });
        for (std::size_t s = 0; s < 2; ++s) // the gradients of the tokens behind are added to those of the last ones
            for (std::size_t i = 0; i < kept * 5; ++i)
                by_x[(s * length + length - kept) * 5 + i] += after.get()[s * kept * 5 + i];
        CHECK(difference(dx.get(), by_x) <= 1e-8);
        auto const by_front = finite_differences(fs, given, [&](auto const& v) { return of.forward(xs, ws, bs, v); });
        CHECK(difference(d_front.get(), by_front) <= 1e-8);
        auto const by_w = finite_differences(ws, given, [&](auto const& v) { return of.forward(xs, v, bs, fs); });
        CHECK(difference(dw.get(), by_w) <= 1e-8);
        auto const by_b = finite_differences(bs, given, [&](auto const& v) { return of.forward(xs, ws, v, fs); });
        CHECK(difference(db.get(), by_b) <= 1e-8);
    }
}

TEST_CASE_TEMPLATE("steps of time are clamped softplus, and decays and values are made with them", T, f64, f32, bf16) {
    using A = accumulator_t<T>;
    auto const raw = Matrix<T>::random(9, 3, 1, 2, 4), x = Matrix<T>::random(9, 12, 2);
    auto const bias = Vector<T>::random(3, 3), log_rate = Vector<T>::random(3, 4);
    Matrix<A> const step(9, 3), decay(9, 3);
    Matrix<T> const scaled(9, 12);
    kernels::state_space_steps<T>(Exec(), raw.view(), bias.view(), log_rate.view(), {0.2, 1.5}, x.view(), step.view(),
                                  decay.view(), scaled.view());
    Numbers steps, decays, values;
    for (std::size_t row = 0; row < 9; ++row)
        for (std::size_t h = 0; h < 3; ++h) {
            double const before = raw.get()[row * 3 + h] + bias.get()[h];
            steps.push_back(std::clamp(std::log1p(std::exp(before)), 0.2, 1.5));
            decays.push_back(-std::exp(log_rate.get()[h]) * steps.back());
            for (std::size_t i = 0; i < 4; ++i) values.push_back(steps.back() * x.get()[row * 12 + h * 4 + i]);
        }
    double const exact = std::is_same_v<A, f64> ? 1e-13 : 3e-6; // they are accumulators
    CHECK(difference(step.get(), steps) <= exact);
    CHECK(difference(decay.get(), decays) <= exact);
    CHECK(difference(scaled.get(), values) <= tolerance<T>);
}

TEST_CASE_TEMPLATE("a gated norm is over each group of columns, with its gate in front of it or behind", T, f64, f32,
                   bf16) {
    using A = accumulator_t<T>;
    auto const y = Matrix<T>::random(6, 24, 1, 3), gate = Matrix<T>::random(6, 24, 2, 1, 3);
    auto const weight = Vector<T>::random(24, 3);
    auto const check = [&]<class Gate>(Gate, auto const& u, auto const& v) {
        for (int const groups : {1, 3}) {
            Matrix<A> const squares(6, groups);
            Matrix<T> const n(6, 24, 2);
            kernels::gated_norm_squares<Gate, T>(Exec(), y.view(), gate.view(), squares.view());
            kernels::gated_norm_forward<Gate, T>(Exec(), y.view(), gate.view(), squares.view(), weight.view(), A(1e-5),
                                                 24 / size(groups), n.view());
            Numbers expected;
            auto const ys = y.get(), gs = gate.get(), ws = weight.get();
            for (std::size_t row = 0; row < 6; ++row)
                for (std::size_t c = 0; c < 24; ++c) {
                    std::size_t const width = 24 / size(groups), first = c / width * width;
                    double sum = 0;
                    for (std::size_t i = first; i < first + width; ++i)
                        sum += std::pow(u(ys[row * 24 + i], gs[row * 24 + i]), 2);
                    double const scale = 1 / std::sqrt(sum / static_cast<double>(width) + 1e-5);
                    std::size_t const at = row * 24 + c;
                    expected.push_back(u(ys[at], gs[at]) * scale * ws[c] * v(gs[at]));
                }
            CHECK(difference(n.get(), expected) <= tolerance<T>);
            CHECK(n.gap_untouched());
        }
    };
    check(kernels::GateBeforeNorm(), [](double a, double g) { return a * silu(g); }, [](double) { return 1.0; });
    check(kernels::GateAfterNorm(), [](double a, double) { return a; }, [](double g) { return sigmoid(g); });
}

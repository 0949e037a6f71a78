#include <pentad/kernels/rope.hpp>
#include <pentad/model/rotary.hpp>

#include "arrays.hpp"

#include <vector>

using namespace arrays;

namespace {

double angle(double position, int i, int head_dim) { return position * std::pow(1e4, -2.0 * i / head_dim); }

/// Written as the convention states it: x * cos + rotate_half(x) * sin, rotate_half(x) = (-second half, first half).
std::vector<double> reference(std::vector<double> const& x, std::vector<double> const& positions, int heads,
                              int head_dim, double direction = 1) {
    std::vector<double> y(x.size());
    std::size_t const width = static_cast<std::size_t>(heads) * head_dim;
    for (std::size_t at = 0; at < x.size(); ++at) {
        std::size_t const row = at / width;
        int const i = static_cast<int>(at % head_dim), half = head_dim / 2;
        double const turn = direction * angle(positions[row % positions.size()], i % half, head_dim);
        double const rotated = i < half ? -x[at + half] : x[at - half];
        y[at] = x[at] * std::cos(turn) + rotated * std::sin(turn);
    }
    return y;
}

/// Positions, and tables for those up to the product of two numbers of rows.
template <class T>
struct Turned {
    using A = accumulator_t<T>;
    Vector<i32> positions;
    Matrix<A> fine_cosine, fine_sine, coarse_cosine, coarse_sine;
    Turned(std::vector<double> const& at, int head_dim, int fine, int coarse)
        : positions(at), fine_cosine(fine, head_dim / 2), fine_sine(fine, head_dim / 2),
          coarse_cosine(coarse, head_dim / 2), coarse_sine(coarse, head_dim / 2) {
        Vector<f64> const frequencies(model::Rotary{}.frequencies(static_cast<std::size_t>(head_dim)));
        kernels::rope_tables<A>(Exec(), 1, frequencies.view(), fine_cosine.view(), fine_sine.view());
        kernels::rope_tables<A>(Exec(), fine, frequencies.view(), coarse_cosine.view(), coarse_sine.view());
    }
    [[nodiscard]] kernels::RotaryTables<A, Exec> tables() const {
        return {fine_cosine.view(), fine_sine.view(), coarse_cosine.view(), coarse_sine.view()};
    }
};

} // namespace

TEST_CASE_TEMPLATE("rope turns pairs (i, i + head_dim / 2) by the global position", T, f64, f32, bf16) {
    std::vector<double> const zigzag{0, 1, 2, 13, 14, 15, 100000};
    for (int const head_dim : {2, 6, 64})
        for (int const heads : {1, 3}) {
            Turned<T> const turned(zigzag, head_dim, 512, 200);
            auto const qkv = Matrix<T>::random(14, heads * head_dim, 1, 2 * head_dim); // two sequences of seven
            auto const before = qkv.get();
            kernels::rope_forward<T>(Exec(), qkv.view(), turned.positions.view(), turned.tables());
            // An angle of 10^5 has an error of 10^-11.
            CHECK(difference(qkv.get(), reference(before, zigzag, heads, head_dim)) <= tolerance<T> + 2e-11);
            CHECK(qkv.gap_untouched());
        }
}

TEST_CASE("rope of a share of a head leaves the rest as it is") {
    std::vector<double> const positions{5, 6, 7};
    Turned<f64> const turned(positions, 4, 4, 3);
    auto const x = Matrix<f64>::random(3, 12, 2); // two heads of six, of which four are turned
    auto const before = x.get();
    kernels::rope_forward<f64>(Exec(), x.view(), turned.positions.view(), turned.tables(), {.width = 6});
    auto const after = x.get();
    for (std::size_t row = 0; row < 3; ++row)
        for (std::size_t head = 0; head < 2; ++head) {
            auto const first = before.begin() + static_cast<std::ptrdiff_t>(row * 12 + head * 6);
            auto const expected = reference({first, first + 4}, {positions[row]}, 1, 4);
            for (std::size_t i = 0; i < 6; ++i)
                CHECK(after[row * 12 + head * 6 + i] ==
                      doctest::Approx(i < 4 ? expected[i] : *(first + static_cast<std::ptrdiff_t>(i))));
        }
}

TEST_CASE_TEMPLATE("interleaved pairs (2 i, 2 i + 1), behind elements without a position", T, f64, f32, bf16) {
    // As the half that comes first and the half that comes second, dealt alternately.
    constexpr int turned_width = 6, before = 5, heads = 3, width = before + turned_width;
    std::vector<double> const positions{0, 1, 13, 100};
    Turned<T> const turned(positions, turned_width, 16, 8);
    auto const x = Matrix<T>::random(8, heads * width, 4, 2);
    auto const given = x.get();
    kernels::RotaryHeads const where{.width = width, .first = before, .is_interleaved = true};
    kernels::rope_forward<T>(Exec(), x.view(), turned.positions.view(), turned.tables(), where);
    auto expected = given;
    for (std::size_t row = 0; row < 8; ++row)
        for (std::size_t head = 0; head < heads; ++head) {
            std::size_t const first = (row * heads + head) * width + before;
            std::vector<double> halves(turned_width);
            for (std::size_t i = 0; i < turned_width; ++i)
                halves[i % 2 * (turned_width / 2) + i / 2] = given[first + i];
            auto const y = reference(halves, {positions[row % positions.size()]}, 1, turned_width);
            for (std::size_t i = 0; i < turned_width; ++i) expected[first + i] = y[i % 2 * (turned_width / 2) + i / 2];
        }
    CHECK(difference(x.get(), expected) <= tolerance<T>);
    CHECK(x.gap_untouched());
    kernels::rope_backward<T>(Exec(), x.view(), turned.positions.view(), turned.tables(), where);
    CHECK(difference(x.get(), given) <= 2 * tolerance<T>);
}

TEST_CASE_TEMPLATE("rope's backward pass is its adjoint and its inverse", T, f64, f32) {
    std::vector<double> const positions{5, 6, 7};
    Turned<T> const turned(positions, 8, 3, 3); // 6 = 2 * 3: the coarse tables alone
    auto const dy = Matrix<T>::random(6, 16, 2);
    auto const given = dy.get();
    kernels::rope_backward<T>(Exec(), dy.view(), turned.positions.view(), turned.tables());
    auto const expected = finite_differences(Matrix<f64>::random(6, 16, 3).get(), given,
                                             [&](auto const& x) { return reference(x, positions, 2, 8); });
    CHECK(difference(dy.get(), expected) <= (std::is_same_v<T, f64> ? 1e-10 : tolerance<T>));
    kernels::rope_forward<T>(Exec(), dy.view(), turned.positions.view(), turned.tables());
    CHECK(difference(dy.get(), given) <= tolerance<T>);
}

TEST_CASE("rope of a width that is no whole number of heads is refused") {
    Turned<f32> const turned({0, 1}, 8, 2, 1);
    Matrix<f32> const x(4, 12);
    CHECK_THROWS_WITH_AS(kernels::rope_forward<f32>(Exec(), x.view(), turned.positions.view(), turned.tables()),
                         "pentad::rope_forward: x is [4, 12], it must be [n * 2, heads * 8] for 2 positions and tables "
                         "of 4 columns",
                         std::invalid_argument);
}

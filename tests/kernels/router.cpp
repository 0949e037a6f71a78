#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/router.hpp>

#include "arrays.hpp"

#include <numeric>
#include <vector>

using namespace arrays;

namespace {

struct Routed {
    std::vector<double> probabilities, lse, weight;
    std::vector<double> index;
};

/// By a stable sort: descending probability, the lower index first among equals.
Routed reference(std::vector<double> const& logits, int experts, int top_k, bool renormalised) {
    Routed result;
    for (std::size_t begin = 0; begin < logits.size(); begin += experts) {
        double total = 0;
        double const largest = *std::max_element(logits.begin() + begin, logits.begin() + begin + experts);
        for (int e = 0; e < experts; ++e) total += std::exp(logits[begin + e] - largest);
        result.lse.push_back(largest + std::log(total));
        std::vector<double> p(experts);
        for (int e = 0; e < experts; ++e) p[e] = std::exp(logits[begin + e] - largest) / total;
        std::vector<int> order(experts);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int a, int b) { return logits[begin + a] > logits[begin + b]; });
        double sum = 0;
        for (int k = 0; k < top_k; ++k) sum += p[order[k]];
        for (int k = 0; k < top_k; ++k) {
            result.index.push_back(order[k]);
            result.weight.push_back(p[order[k]] / (renormalised ? sum : 1));
        }
        result.probabilities.insert(result.probabilities.end(), p.begin(), p.end());
    }
    return result;
}

template <class A>
struct Case {
    int rows, experts, top_k;
    Matrix<A> logits, probabilities, weight, dlogits;
    Matrix<i32> index;
    Vector<A> lse;
    Case(Matrix<A> const& given, int top_k_, bool renormalised = true)
        : rows(given.rows()), experts(given.columns()), top_k(top_k_), logits(given), probabilities(rows, experts, 1),
          weight(rows, top_k), dlogits(rows, experts, 2), index(rows, top_k), lse(rows) {
        kernels::router_forward<A>(Exec(), logits.view(), probabilities.view(), lse.view(), index.view(), weight.view(),
                                   renormalised);
    }
};

} // namespace

TEST_CASE_TEMPLATE("the router takes the most probable experts and renormalises their weights, or not", A, f64, f32) {
    for (int const experts : {1, 2, 7, 8, 65})
        for (int const top_k : {1, 2, 7})
            for (int const rows : {0, 1, 33}) {
                if (top_k > experts) continue;
                bool const renormalised = rows != 1;
                Case<A> const c(Matrix<A>::random(rows, experts, experts, 3, 4), top_k, renormalised);
                auto const expected = reference(c.logits.get(), experts, top_k, renormalised);
                CHECK(c.index.get() == expected.index);
                CHECK(difference(c.probabilities.get(), expected.probabilities) <= tolerance<A>);
                CHECK(difference(c.weight.get(), expected.weight) <= tolerance<A>);
                CHECK(difference(c.lse.get(), expected.lse, 1.0) <= tolerance<A>);
            }
}

TEST_CASE_TEMPLATE("ties go to the lowest expert index", A, f64, f32) {
    Matrix<A> const logits(4, 5);
    logits.set({0, 0, 0, 0, 0, /**/ 1, 3, 2, 3, 3, /**/ -1e4, 5, -1e4, -1e4, -1e4, /**/ 9, 8, 8, 9, 7});
    Case<A> const c(logits, 3);
    CHECK(c.index.get() == std::vector<double>{0, 1, 2, /**/ 1, 3, 4, /**/ 1, 0, 2, /**/ 0, 3, 1});
}

TEST_CASE("a row of NaN still gives experts that exist") {
    Matrix<f32> const logits(1, 5);
    logits.set(std::vector<double>(5, std::numeric_limits<double>::quiet_NaN()));
    for (double const expert : Case<f32>(logits, 3).index.get()) CHECK((expert >= 0 && expert < 5));
}

TEST_CASE_TEMPLATE("the router's gradient has the parts of its weights, of the balance loss and of the z loss", A, f64,
                   f32) {
    double const z_scale = 0.3;
    for (int const experts : {1, 2, 7, 65})
        for (int const top_k : {1, 2})
            for (int const variant : {0, 1, 2, 3}) {
                if (top_k > experts) continue;
                bool const balanced = variant % 2 == 1, renormalised = variant < 2;
                Case<A> const c(Matrix<A>::random(5, experts, 3, 1, 2), top_k, renormalised);
                auto const dweight = Matrix<A>::random(5, top_k, 4);
                auto const dprobability = Vector<A>::random(balanced ? experts : 0, 5);
                kernels::router_backward<A>(Exec(), c.probabilities.view(), c.lse.view(), c.index.view(),
                                            c.weight.view(), dweight.view(), dprobability.view(), A(z_scale),
                                            c.dlogits.view(), renormalised);
                auto const dw = dweight.get(), dp = dprobability.get();
                auto const expected = finite_differences(c.logits.get(), {1.0}, [&](auto const& logits) {
                    Routed const routed = reference(logits, experts, top_k, renormalised);
                    double loss = 0;
                    for (std::size_t i = 0; i < dw.size(); ++i) loss += dw[i] * routed.weight[i];
                    for (std::size_t i = 0; balanced && i < routed.probabilities.size(); ++i)
                        loss += dp[i % experts] * routed.probabilities[i];
                    for (double const value : routed.lse) loss += z_scale * value * value;
                    return std::vector<double>{loss};
                });
                CHECK(difference(c.dlogits.get(), expected) <= (std::is_same_v<A, f64> ? 1e-9 : tolerance<A>));
                CHECK(c.dlogits.gap_untouched());
            }
}

TEST_CASE_TEMPLATE("the sums over tokens: choices, probabilities, squares of log-sum-exp", A, f64, f32) {
    for (int const rows : {0, 1, 333})
        for (int const experts : {3, 8, 65}) {
            Case<A> const c(Matrix<A>::random(rows, experts, 6), 2);
            Vector<i64> const counts(std::vector<double>(static_cast<std::size_t>(experts), 5.0)); // overwritten
            Vector<A> const sums(experts);
            kernels::router_counts(Exec(), c.index.view(), counts.view());
            kernels::router_probability_sums<A>(Exec(), c.probabilities.view(), sums.view());
            std::vector<double> expected_counts(experts), expected_sums(experts);
            for (double const expert : c.index.get()) ++expected_counts[static_cast<std::size_t>(expert)];
            auto const p = c.probabilities.get();
            for (std::size_t i = 0; i < p.size(); ++i) expected_sums[i % experts] += p[i];
            CHECK(counts.get() == expected_counts);
            CHECK(difference(sums.get(), expected_sums, 1.0) <= 1e-6);
            double squares = 0;
            for (double const value : c.lse.get()) squares += value * value;
            CHECK(kernels::sum_of_squares<A>(Exec(), c.lse.view()) == doctest::Approx(squares).epsilon(1e-12));
        }
}

TEST_CASE_TEMPLATE("padding chooses no expert, adds to no sum and has no gradient; the tokens are as without it", A,
                   f64, f32) {
    constexpr int experts = 7, top_k = 2, length = 5, tokens = 3, rows = 3 * length;
    kernels::TokenRows const real{.length = length, .tokens = tokens};
    auto const logits = Matrix<A>::random(rows, experts, 8, 1, 2);
    for (bool const renormalised : {true, false}) {
        Case<A> const whole(logits, top_k, renormalised);
        Matrix<A> const p(rows, experts), weight(rows, top_k), dlogits(rows, experts), expected(rows, experts);
        Matrix<i32> const index(rows, top_k);
        Vector<A> const lse(rows);
        kernels::router_forward<A>(Exec(), logits.view(), p.view(), lse.view(), index.view(), weight.view(),
                                   renormalised, real);
        auto const dweight = Matrix<A>::random(rows, top_k, 9);
        auto const dprobability = Vector<A>::random(experts, 10);
        auto const backward = [&](auto const& from, auto const& z, auto const& chosen, auto const& w, auto const& d) {
            kernels::router_backward<A>(Exec(), from.view(), z.view(), chosen.view(), w.view(), dweight.view(),
                                        dprobability.view(), A(0.3), d.view(), renormalised);
        };
        backward(p, lse, index, weight, dlogits);
        backward(whole.probabilities, whole.lse, whole.index, whole.weight, expected);
        auto const same = [&](auto const& found, std::vector<double> of_tokens, double of_padding) {
            std::size_t const width = of_tokens.size() / rows;
            for (std::size_t i = 0; i < of_tokens.size(); ++i)
                if (i / width % length >= tokens) of_tokens[i] = of_padding;
            CHECK(found.get() == of_tokens);
        };
        same(p, whole.probabilities.get(), 0);
        same(lse, whole.lse.get(), 0);
        same(weight, whole.weight.get(), 0);
        same(index, whole.index.get(), -1);
        same(dlogits, expected.get(), 0);
        Vector<i64> const counts(experts);
        kernels::router_counts(Exec(), index.view(), counts.view());
        auto const found = counts.get();
        CHECK(std::accumulate(found.begin(), found.end(), 0.0) == rows / length * tokens * top_k);
    }
}

TEST_CASE("more choices than experts are refused") {
    CHECK_THROWS_WITH_AS(Case<f32>(Matrix<f32>(1, 2), 3),
                         "router_forward: top_k is 3, it must be at most 2, the number of experts",
                         std::invalid_argument);
}

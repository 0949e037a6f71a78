#include <pentad/kernels/choose_experts.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/load_balance.hpp>
#include <pentad/kernels/router.hpp>
#include <pentad/kernels/sinkhorn.hpp>

#include "arrays.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

using namespace arrays;

namespace {

struct Routed {
    std::vector<double> scores, lse, weight, share;
    std::vector<double> index;
};

/// By a stable sort: descending score, the lower index first among equals.
Routed reference(std::vector<double> const& logits, int experts, int top_k, kernels::RouterForm const& form) {
    Routed result;
    for (std::size_t begin = 0; begin < logits.size(); begin += experts) {
        double total = 0;
        double const largest = *std::max_element(logits.begin() + begin, logits.begin() + begin + experts);
        for (int e = 0; e < experts; ++e) total += std::exp(logits[begin + e] - largest);
        result.lse.push_back(largest + std::log(total));
        std::vector<double> p(experts);
        for (int e = 0; e < experts; ++e)
            p[e] = form.is_sigmoid ? 1 / (1 + std::exp(-logits[begin + e]))
                                   : std::exp(logits[begin + e] - largest) / total;
        double const all = std::accumulate(p.begin(), p.end(), 0.0);
        std::vector<int> order(experts);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int a, int b) { return logits[begin + a] > logits[begin + b]; });
        double sum = 0;
        for (int k = 0; k < top_k; ++k) sum += p[order[k]];
        for (int k = 0; k < top_k; ++k) {
            result.index.push_back(order[k]);
            result.weight.push_back(form.scale * p[order[k]] / (form.renormalises ? sum : 1));
        }
        for (double const score : p) {
            result.scores.push_back(score);
            result.share.push_back(score / all);
        }
    }
    return result;
}

template <class A>
struct Case {
    int rows, experts, top_k;
    kernels::RouterForm form;
    Matrix<A> logits, scores, weight, dlogits;
    Matrix<i32> index;
    Vector<A> lse, total;
    Case(Matrix<A> const& given, int top_k_, kernels::RouterForm const& form_ = {}, kernels::TokenRows const& real = {})
        : rows(given.rows()), experts(given.columns()), top_k(top_k_), form(form_), logits(given),
          scores(rows, experts, 1), weight(rows, top_k), dlogits(rows, experts, 2), index(rows, top_k), lse(rows),
          total(rows) {
        kernels::router_scores<A>(Exec(), logits.view(), scores.view(), lse.view(), total.view(), form, real);
        kernels::choose_experts<A>(Exec(), scores.view(), {}, index.view(), {}, real);
        kernels::router_weights<A>(Exec(), scores.view(), index.view(), weight.view(), form);
    }
    void backward(Matrix<A> const& dweight, Matrix<A> const& dshare, i64 rows_of_share, A z_scale,
                  kernels::TokenRows const& real = {}) const {
        kernels::router_backward<A>(Exec(), logits.view(), scores.view(), lse.view(), total.view(), index.view(),
                                    weight.view(), dweight.view(), dshare.view(), rows_of_share, z_scale,
                                    dlogits.view(), form, real);
    }
};

std::vector<kernels::RouterForm> const forms{{},
                                             {.renormalises = false},
                                             {.scale = 2.5},
                                             {.renormalises = false, .scale = 0.5},
                                             {.is_sigmoid = true},
                                             {.is_sigmoid = true, .renormalises = false},
                                             {.is_sigmoid = true, .scale = 2.5}};

} // namespace

TEST_CASE_TEMPLATE("the router takes the experts with the best scores and weighs them, renormalised or not", A, f64,
                   f32) {
    for (int const experts : {1, 2, 7, 8, 65})
        for (int const top_k : {1, 2, 7})
            for (int const rows : {0, 1, 33})
                for (auto const& form : forms) {
                    if (top_k > experts) continue;
                    Case<A> const c(Matrix<A>::random(rows, experts, experts, 3, 4), top_k, form);
                    auto const expected = reference(c.logits.get(), experts, top_k, form);
                    CHECK(c.index.get() == expected.index);
                    CHECK(difference(c.scores.get(), expected.scores) <= tolerance<A>);
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

TEST_CASE_TEMPLATE("a bias counts in the choice and in nothing else", A, f64, f32) {
    Matrix<A> const logits(2, 4);
    logits.set({2, 1, 0, -1, /**/ 0, 0, 0, 0});
    Case<A> const c(logits, 2, {.is_sigmoid = true});
    Vector<A> const bias(std::vector<double>{-0.5, 0, 0.3, 0});
    kernels::choose_experts<A>(Exec(), c.scores.view(), bias.view(), c.index.view());
    kernels::router_weights<A>(Exec(), c.scores.view(), c.index.view(), c.weight.view(), c.form);
    CHECK(c.index.get() == std::vector<double>{2, 1, /**/ 2, 1}); // 0.88 - 0.5, 0.73, 0.5 + 0.3, 0.27
    double const first = 0.5, second = 1 / (1 + std::exp(-1.0));
    CHECK(difference(c.weight.get(), {first / (first + second), second / (first + second), 0.5, 0.5}) <= tolerance<A>);
}

TEST_CASE_TEMPLATE("tokens choose within their best groups of experts", A, f64, f32) {
    for (int const counted : {1, 2})
        for (int const chosen : {1, 2, 3, 4})
            for (int const top_k : {1, 3}) {
                constexpr int experts = 12, groups = 4, size = experts / groups, rows = 40;
                auto const values = Matrix<A>::random(rows, experts, 11);
                auto const bias = Vector<A>::random(experts, 12);
                Matrix<i32> const index(rows, top_k);
                kernels::choose_experts<A>(Exec(), values.view(), bias.view(), index.view(),
                                           {.count = groups, .chosen = chosen, .counted = counted});
                auto const v = values.get(), b = bias.get();
                std::vector<double> expected;
                for (int r = 0; r < rows; ++r) {
                    auto const value = [&](int e) { return static_cast<double>(A(v[r * experts + e]) + A(b[e])); };
                    std::vector<double> good(groups);
                    for (int g = 0; g < groups; ++g) {
                        std::vector<double> of_group;
                        for (int i = 0; i < size; ++i) of_group.push_back(value(g * size + i));
                        std::sort(of_group.rbegin(), of_group.rend());
                        good[g] = of_group[0] + (counted == 2 ? of_group[1] : 0);
                    }
                    std::vector<int> order(groups), candidates;
                    std::iota(order.begin(), order.end(), 0);
                    std::stable_sort(order.begin(), order.end(), [&](int a, int c) { return good[a] > good[c]; });
                    for (int n = 0; n < chosen; ++n)
                        for (int i = 0; i < size; ++i) candidates.push_back(order[n] * size + i);
                    std::sort(candidates.begin(), candidates.end());
                    std::stable_sort(candidates.begin(), candidates.end(),
                                     [&](int a, int c) { return value(a) > value(c); });
                    for (int k = 0; k < top_k; ++k) expected.push_back(candidates[k]);
                }
                CHECK(index.get() == expected);
            }
}

TEST_CASE_TEMPLATE("the router's gradient has the parts of its weights, of the balance losses and of the z loss", A,
                   f64, f32) {
    for (int const experts : {1, 2, 7, 65})
        for (int const top_k : {1, 2})
            for (auto const& form : forms)
                for (int const groups : {0, 1, 3}) { // of rows, each with a loss of its own
                    if (top_k > experts) continue;
                    int const rows = experts > 7 ? 3 : 6;
                    double const z_scale = groups == 1 ? 0 : 0.3;
                    i64 const rows_of_share = rows / std::max(groups, 1);
                    Case<A> const c(Matrix<A>::random(rows, experts, 3, 1, 2), top_k, form);
                    auto const dweight = Matrix<A>::random(rows, top_k, 4);
                    auto const dshare = Matrix<A>::random(groups, experts, 5);
                    c.backward(dweight, dshare, rows_of_share, A(z_scale));
                    auto const dw = dweight.get(), dp = dshare.get();
                    auto const expected = finite_differences(c.logits.get(), {1.0}, [&](auto const& logits) {
                        Routed const routed = reference(logits, experts, top_k, form);
                        double loss = 0;
                        for (std::size_t i = 0; i < dw.size(); ++i) loss += dw[i] * routed.weight[i];
                        for (std::size_t i = 0; groups > 0 && i < routed.share.size(); ++i)
                            loss += dp[i / experts / rows_of_share * experts + i % experts] * routed.share[i];
                        for (double const value : routed.lse) loss += z_scale * value * value;
                        return std::vector<double>{loss};
                    });
                    CHECK(difference(c.dlogits.get(), expected, 1e-3) <= (std::is_same_v<A, f64> ? 2e-8 : 1e-4));
                    CHECK(c.dlogits.gap_untouched());
                }
}

TEST_CASE_TEMPLATE("an expert without room has no weight in the sum but counts in its denominator, and has a gradient",
                   A, f64, f32) {
    Matrix<A> const logits(1, 3);
    logits.set({1, 0, -1});
    Case<A> const c(logits, 2), whole(logits, 2);
    c.index.set({0, -2 - 1});
    kernels::router_weights<A>(Exec(), c.scores.view(), c.index.view(), c.weight.view());
    CHECK(c.weight.get() == whole.weight.get());
    Matrix<A> const dweight(1, 2), none(0, 3);
    dweight.set({0.7, 0});
    c.backward(dweight, none, 1, 0);
    whole.backward(dweight, none, 1, 0);
    CHECK(c.dlogits.get() == whole.dlogits.get());
}

TEST_CASE_TEMPLATE("the sums over tokens: choices, shares, squares of log-sum-exp", A, f64, f32) {
    for (int const rows : {0, 1, 333})
        for (int const experts : {3, 8, 65}) {
            Case<A> const c(Matrix<A>::random(rows, experts, 6), 2);
            Vector<i64> const counts(std::vector<double>(static_cast<std::size_t>(experts), 5.0)); // overwritten
            Vector<A> const sums(experts);
            kernels::router_counts(Exec(), c.index.view(), counts.view());
            kernels::router_share_sums<A>(Exec(), c.scores.view(), c.total.view(), sums.view());
            std::vector<double> expected_counts(experts), expected_sums(experts);
            for (double const expert : c.index.get()) ++expected_counts[static_cast<std::size_t>(expert)];
            auto const p = c.scores.get();
            for (std::size_t i = 0; i < p.size(); ++i) expected_sums[i % experts] += p[i];
            CHECK(counts.get() == expected_counts);
            CHECK(difference(sums.get(), expected_sums, 1.0) <= 1e-6);
            double squares = 0;
            for (double const value : c.lse.get()) squares += value * value;
            CHECK(kernels::host_sum_of_squares<A>(Exec(), c.lse.view()) == doctest::Approx(squares).epsilon(1e-12));
        }
}

TEST_CASE_TEMPLATE("padding chooses no expert, adds to no sum and has no gradient; the tokens are as without it", A,
                   f64, f32) {
    constexpr int experts = 7, top_k = 2, length = 5, tokens = 3, rows = 3 * length;
    kernels::TokenRows const real{.length = length, .tokens = tokens};
    auto const logits = Matrix<A>::random(rows, experts, 8, 1, 2);
    for (auto const& form : forms) {
        Case<A> const whole(logits, top_k, form), c(logits, top_k, form, real);
        auto const dweight = Matrix<A>::random(rows, top_k, 9);
        auto const dshare = Matrix<A>::random(1, experts, 10);
        c.backward(dweight, dshare, rows, A(0.3), real);
        whole.backward(dweight, dshare, rows, A(0.3));
        auto const same = [&](auto const& found, std::vector<double> of_tokens, double of_padding) {
            std::size_t const width = of_tokens.size() / rows;
            for (std::size_t i = 0; i < of_tokens.size(); ++i)
                if (i / width % length >= tokens) of_tokens[i] = of_padding;
            CHECK(found.get() == of_tokens);
        };
        same(c.scores, whole.scores.get(), 0);
        same(c.lse, whole.lse.get(), 0);
        same(c.total, whole.total.get(), 0);
        same(c.weight, whole.weight.get(), 0);
        same(c.index, whole.index.get(), -1);
        same(c.dlogits, whole.dlogits.get(), 0);
        Vector<i64> const counts(experts);
        kernels::router_counts(Exec(), c.index.view(), counts.view());
        auto const found = counts.get();
        CHECK(std::accumulate(found.begin(), found.end(), 0.0) == rows / length * tokens * top_k);
        Vector<A> const sums(experts);
        kernels::router_share_sums<A>(Exec(), c.scores.view(), c.total.view(), sums.view());
        auto const shares = sums.get();
        CHECK(std::accumulate(shares.begin(), shares.end(), 0.0) ==
              doctest::Approx(rows / length * tokens).epsilon(1e-5));
    }
}

TEST_CASE("more choices than experts are refused") {
    CHECK_THROWS_WITH_AS(
        Case<f32>(Matrix<f32>(1, 2), 3),
        "choose_experts: top_k is 3, it must be at most 2, the number of experts that a token chooses from",
        std::invalid_argument);
}

TEST_CASE_TEMPLATE("Sinkhorn's factors make the scores of all experts sum to the same", A, f64, f32) {
    constexpr int rows = 60, experts = 6;
    Case<A> const c(Matrix<A>::random(rows, experts, 21, 0, 2), 1);
    Vector<A> const factor(std::vector<double>(experts, 1.0)), scratch(rows);
    Vector<f64> const sums(experts);
    for (int i = 0; i < 40; ++i) {
        kernels::sinkhorn_sums<A>(Exec(), c.scores.view(), factor.view(), scratch.view(), sums.view());
        kernels::sinkhorn_factors<A>(Exec(), sums.view(), double(rows) / experts, factor.view());
    }
    Matrix<A> const balanced(rows, experts);
    kernels::balanced_scores<A>(Exec(), c.scores.view(), factor.view(), balanced.view());
    auto const b = balanced.get();
    std::vector<double> of_expert(experts);
    for (int r = 0; r < rows; ++r) {
        double const sum = std::accumulate(b.begin() + r * experts, b.begin() + (r + 1) * experts, 0.0);
        for (int e = 0; e < experts; ++e) of_expert[e] += b[r * experts + e] / sum;
    }
    for (double const sum : of_expert) CHECK(sum == doctest::Approx(double(rows) / experts).epsilon(1e-4));
}

TEST_CASE_TEMPLATE("biases move by their rate, against the excess of load, and not for a load that is the mean", A, f64,
                   f32) {
    Vector<i64> const counts(std::vector<double>{5, 1, 3, 3});
    Vector<A> const excess(std::vector<double>{0, 0, 0, 0}), bias(std::vector<double>{0.1, 0.2, 0.3, -0.1});
    kernels::add_excess_load<A>(Exec(), counts.view(), excess.view());
    CHECK(excess.get() == std::vector<double>{2, -2, 0, 0});
    kernels::load_balance<A>(Exec(), bias.view(), bias.view(), excess.view(), 0.01, 0.125);
    CHECK(difference(bias.get(), {0.09, 0.21, 0.3, -0.1}) <= tolerance<A>);
    // In proportion to an excess below the mean load; above it, by the rate.
    kernels::load_balance<A>(Exec(), bias.view(), bias.view(), excess.view(), 0.01, 0.125, 4.0);
    CHECK(difference(bias.get(), {0.085, 0.215, 0.3, -0.1}) <= tolerance<A>);
    kernels::load_balance<A>(Exec(), bias.view(), bias.view(), excess.view(), 0.01, 0.125, 1.0);
    CHECK(difference(bias.get(), {0.075, 0.225, 0.3, -0.1}) <= tolerance<A>);
}

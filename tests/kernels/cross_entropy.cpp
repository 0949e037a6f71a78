#include <pentad/kernels/cross_entropy.hpp>

#include "arrays.hpp"

#include <vector>

using namespace arrays;

namespace {

double const infinity = std::numeric_limits<double>::infinity();

double log_sum_exp(std::vector<double> const& values) {
    double largest = -infinity, total = 0;
    for (double const value : values) largest = std::max(largest, value);
    if (largest == -infinity) return largest;
    for (double const value : values) total += std::exp(value - largest);
    return largest + std::log(total);
}

/// Token losses of logits [rows, vocab] for the given targets, negative ones ignored.
std::vector<double> reference(std::vector<double> const& logits, std::vector<double> const& targets) {
    std::size_t const vocab = logits.size() / targets.size();
    std::vector<double> loss;
    for (std::size_t r = 0; r < targets.size(); ++r) {
        std::vector<double> const row(logits.begin() + r * vocab, logits.begin() + (r + 1) * vocab);
        loss.push_back(targets[r] < 0 ? 0.0 : log_sum_exp(row) - row[static_cast<std::size_t>(targets[r])]);
    }
    return loss;
}

std::vector<double> some_targets(int rows, int vocab) {
    Random draw(8);
    std::vector<double> targets;
    for (int r = 0; r < rows; ++r) targets.push_back(r % 5 == 3 ? -100 : draw.below(vocab));
    return targets;
}

/// The vocabulary over `ranks` shards of equal width, the last columns of the last ones being padding.
template <class T>
struct Sharded {
    using A = accumulator_t<T>;
    int rows, vocab, width;
    std::vector<double> targets;
    std::vector<Matrix<T>> shards;
    std::vector<double> whole; // [rows, vocab]
    Vector<A> lse, target_logit, loss;

    Sharded(int rows_, int vocab_, int ranks, double size)
        : rows(rows_), vocab(vocab_), width((vocab + ranks - 1) / ranks), targets(some_targets(rows, vocab)),
          whole(static_cast<std::size_t>(rows) * vocab), lse(rows), target_logit(rows), loss(rows) {
        std::vector<std::vector<double>> parts(rows);
        std::vector<double> targets_here(rows);
        for (int rank = 0; rank < ranks; ++rank) {
            shards.push_back(Matrix<T>::random(rows, width, 10 + rank, 3, size));
            auto const values = shards.back().get();
            Vector<A> const part(rows), logit(rows);
            kernels::cross_entropy_partial<T>(Exec(), shards.back().view(), Vector<i32>(targets).view(), rank * width,
                                              valid(rank), part.view(), logit.view());
            auto const lse_here = part.get(), logit_here = logit.get();
            for (int r = 0; r < rows; ++r) {
                parts[r].push_back(lse_here[r]);
                targets_here[r] += logit_here[r];
                for (int c = 0; c < valid(rank); ++c)
                    whole[static_cast<std::size_t>(r) * vocab + rank * width + c] =
                        values[static_cast<std::size_t>(r) * width + c];
            }
        }
        std::vector<double> reduced;
        for (auto const& row : parts) reduced.push_back(log_sum_exp(row));
        lse.set(reduced);
        target_logit.set(targets_here);
        kernels::cross_entropy_token_loss<A>(Exec(), lse.view(), target_logit.view(), Vector<i32>(targets).view(),
                                             loss.view());
    }
    int valid(int rank) const { return std::clamp(vocab - rank * width, 0, width); }
};

} // namespace

TEST_CASE_TEMPLATE("cross-entropy over shards is that over the whole vocabulary", T, f64, f32, bf16) {
    for (int const ranks : {1, 2, 3, 4})
        for (int const vocab : {1, 7, 65, 257})
            for (double const size : {1.0, 200.0}) { // the latter overflows without the shift by the maximum
                Sharded<T> const c(12, vocab, ranks, size);
                CHECK(difference(c.loss.get(), reference(c.whole, c.targets), 1.0) <=
                      (std::is_same_v<T, f64> ? 1e-13 : 1e-6));
            }
}

TEST_CASE_TEMPLATE("cross-entropy's gradient agrees with finite differences; ignored rows and padding get zero", T, f64,
                   f32, bf16) {
    for (int const ranks : {1, 3})
        for (int const vocab : {1, 7, 65}) {
            Sharded<T> const c(7, vocab, ranks, 2.0);
            double const scale = 0.5;
            auto const expected = finite_differences(c.whole, std::vector<double>(7, scale),
                                                     [&](auto const& logits) { return reference(logits, c.targets); });
            for (int rank = 0; rank < ranks; ++rank) {
                auto const& shard = c.shards[static_cast<std::size_t>(rank)];
                kernels::cross_entropy_backward<T>(Exec(), shard.view(), c.lse.view(), Vector<i32>(c.targets).view(),
                                                   rank * c.width, c.valid(rank), accumulator_t<T>(scale));
                std::vector<double> here;
                for (int r = 0; r < c.rows; ++r)
                    for (int i = 0; i < c.width; ++i)
                        here.push_back(i < c.valid(rank) ? expected[r * vocab + rank * c.width + i] : 0.0);
                auto const actual = shard.get();
                CHECK(difference(actual, here, 0.01) <= (std::is_same_v<T, f64> ? 1e-9 : tolerance<T>));
                for (std::size_t i = 0; i < actual.size(); ++i)
                    if (c.targets[i / c.width] < 0 || static_cast<int>(i % c.width) >= c.valid(rank))
                        CHECK(actual[i] == 0.0);
                CHECK(shard.gap_untouched());
            }
        }
}

TEST_CASE_TEMPLATE("a shard that is all padding has log-sum-exp -inf, and a row of -inf logits too", T, f64, f32,
                   bf16) {
    using A = accumulator_t<T>;
    auto const logits = Matrix<T>::random(2, 7, 1);
    Vector<A> const lse(2), target_logit = Vector<A>::random(2, 3);
    Vector<i32> const targets({3, -1});
    kernels::cross_entropy_partial<T>(Exec(), logits.view(), targets.view(), 0, 0, lse.view(), target_logit.view());
    CHECK(lse.get() == std::vector<double>{-infinity, -infinity});
    CHECK(target_logit.get() == std::vector<double>{0.0, 0.0});
    logits.set(std::vector<double>(14, -infinity));
    kernels::cross_entropy_partial<T>(Exec(), logits.view(), targets.view(), 0, 7, lse.view(), target_logit.view());
    CHECK(lse.get() == std::vector<double>{-infinity, -infinity});
    kernels::cross_entropy_backward<T>(Exec(), logits.view(), lse.view(), targets.view(), 0, 7, A(1));
    CHECK(logits.get() == std::vector<double>(14, 0.0));
}

TEST_CASE("some -inf logits carry no probability") {
    Matrix<f32> const logits(1, 4);
    logits.set({-infinity, 1.0, 1.0, -infinity});
    Vector<f32> const lse(1), target_logit(1);
    Vector<i32> const targets(std::vector<double>{2.0});
    kernels::cross_entropy_partial<f32>(Exec(), logits.view(), targets.view(), 0, 4, lse.view(), target_logit.view());
    CHECK(lse.get()[0] == doctest::Approx(1 + std::log(2.0)));
    kernels::cross_entropy_backward<f32>(Exec(), logits.view(), lse.view(), targets.view(), 0, 4, 1.0f);
    CHECK(difference(logits.get(), {0.0, 0.5, -0.5, 0.0}) < 1e-6);
}

TEST_CASE("a target outside this shard leaves its row without a target here") {
    auto const logits = Matrix<f64>::random(1, 3, 1);
    Vector<f64> const lse(1), target_logit(1);
    for (double const target : {2.0, 6.0}) { // the shard holds 3, 4 and 5
        kernels::cross_entropy_partial<f64>(Exec(), logits.view(), Vector<i32>(std::vector<double>{target}).view(), 3,
                                            3, lse.view(), target_logit.view());
        CHECK(target_logit.get()[0] == 0.0);
    }
}

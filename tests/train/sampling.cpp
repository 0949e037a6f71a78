// ranks: 1
//
// The choice of the next token, from logits in any number of shards, beside one written apart from it.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/train/sampling.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

using namespace pentad;
using train::ChosenToken;
using train::Sampling;

namespace {

std::vector<double> random_logits(std::mt19937& random, std::size_t count) {
    std::normal_distribution<double> normal(0, 3);
    std::vector<double> logits(count);
    for (auto& logit : logits) logit = std::round(normal(random) * 8) / 8; // some are equal
    return logits;
}

/// What shards of the logits choose together, and how many times more candidates were needed.
ChosenToken by_shards(Sampling const& how, std::vector<std::int32_t> const& tokens, std::vector<double> const& logits,
                      std::size_t shards, std::size_t candidates, int* rounds = nullptr) {
    for (;; candidates *= 4) {
        if (rounds != nullptr) ++*rounds;
        train::detail::ShardedChoice const choice(shards, candidates, how.log_probabilities);
        std::vector<double> numbers(choice.numbers(), -std::numeric_limits<double>::infinity());
        std::size_t const length = (logits.size() + shards - 1) / shards;
        for (std::size_t shard = 0; shard < shards; ++shard) {
            std::size_t const first = std::min(shard * length, logits.size()),
                              last = std::min(first + length, logits.size());
            std::vector<double> const own(logits.begin() + static_cast<std::ptrdiff_t>(first),
                                          logits.begin() + static_cast<std::ptrdiff_t>(last));
            choice.write(train::TokenRequest{how, tokens}, shard, first, own, numbers);
        }
        if (auto chosen = choice.chosen(how, numbers)) return *chosen;
        REQUIRE(candidates < 4 * logits.size());
    }
}

/// The tokens that are left, by the definitions.
std::vector<std::size_t> left(Sampling const& how, std::vector<std::int32_t> const& tokens, std::vector<double> logits,
                              std::vector<double>& scores) {
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (std::count(tokens.begin(), tokens.end(), static_cast<std::int32_t>(i)) > 0)
            logits[i] = logits[i] > 0 ? logits[i] / how.repetition_penalty : logits[i] * how.repetition_penalty;
    for (auto& logit : logits) logit /= how.temperature;
    scores = logits;
    std::vector<std::size_t> order(how.first_tokens == 0 ? logits.size() : std::min(how.first_tokens, logits.size()));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
    if (how.top_k > 0) order.resize(std::min(order.size(), how.top_k));
    double sum = 0, before = 0;
    for (auto const i : order) sum += std::exp(logits[i] - logits[order[0]]);
    if (how.top_p < 1) {
        std::size_t count = 0;
        while (count < order.size() && (count == 0 || before < how.top_p * sum))
            before += std::exp(logits[order[count++]] - logits[order[0]]);
        order.resize(count);
    }
    std::erase_if(order, [&](auto i) { return std::exp(logits[i] - logits[order[0]]) < how.min_p; });
    return order;
}

} // namespace

TEST_CASE("shards choose what the definitions say, and as many shards as there are choose alike") {
    std::mt19937 random(3);
    auto const one_of = [&](auto const& all) { return all[random() % all.size()]; };
    int more = 0;
    for (int trial = 0; trial < 400; ++trial) {
        auto const logits = random_logits(random, 1 + random() % 300);
        std::vector<std::int32_t> tokens(random() % 20);
        for (auto& token : tokens) token = static_cast<std::int32_t>(random() % logits.size());
        Sampling const how{.repetition_penalty = one_of(std::array{1.0, 1.0, 1.3, 0.7}),
                           .temperature = one_of(std::array{1.0, 0.5, 2.0, 10.0}),
                           .top_k = one_of(std::array<std::size_t, 4>{0, 1, 5, 400}),
                           .top_p = one_of(std::array{1.0, 0.9, 0.3, 0.999}),
                           .min_p = one_of(std::array{0.0, 0.0, 0.1}),
                           .first_tokens = one_of(std::array<std::size_t, 3>{0, 0, 7}),
                           .seed = random(),
                           .log_probabilities = random() % 4};
        REQUIRE(how.refusal().empty());
        std::vector<double> scores;
        auto const allowed = left(how, tokens, logits, scores);
        double best = -std::numeric_limits<double>::infinity();
        std::size_t expected = 0;
        for (auto const i : allowed) {
            auto const index = std::uint64_t{tokens.size()} << 32 | i;
            double const u = random::uniform(how.seed, random::stream("sample"), index);
            double const draw = scores[i] - std::log(-std::log(u + 1e-300));
            if (draw > best || (draw == best && i < expected)) best = draw, expected = i;
        }
        double sum = 0;
        for (double const logit : logits) sum += std::exp(logit);
        auto order = std::vector<std::size_t>(logits.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
        for (std::size_t const shards : {1, 2, 3, 8}) {
            int rounds = 0;
            auto const chosen = by_shards(how, tokens, logits, shards, 4, &rounds);
            more += rounds > 1 ? 1 : 0;
            CHECK(chosen.chosen.token == static_cast<std::int32_t>(expected));
            CHECK(chosen.chosen.log_probability == doctest::Approx(logits[expected] - std::log(sum)).epsilon(1e-12));
            REQUIRE(chosen.likely.size() == std::min(how.log_probabilities, logits.size()));
            for (std::size_t i = 0; i < chosen.likely.size(); ++i) {
                CHECK(chosen.likely[i].token == static_cast<std::int32_t>(order[i]));
                CHECK(chosen.likely[i].log_probability ==
                      doctest::Approx(logits[order[i]] - std::log(sum)).epsilon(1e-12));
            }
        }
    }
    CHECK(more > 20); // some needed more candidates than they began with
}

TEST_CASE("temperature 0 takes the largest logit, of equal ones that of the first token") {
    CHECK(by_shards({.temperature = 0}, {}, {1, 5, 3, 5}, 2, 1).chosen.token == 1);
    CHECK(by_shards({.temperature = 0, .top_k = 1, .top_p = 0.1}, {}, {7, 5, 3, 7}, 4, 1).chosen.token == 0);
    CHECK(by_shards({.repetition_penalty = 2, .temperature = 0}, {1, 1}, {4, 5, 3, -1}, 2, 1).chosen.token == 0);
}

TEST_CASE("tokens are drawn as often as their probabilities say") {
    std::vector<double> const logits{0, 1, 2, -1};
    std::array<double, 4> counts{};
    constexpr int draws = 20000;
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < draws; ++i, tokens.push_back(0))
        ++counts[static_cast<std::size_t>(by_shards({.seed = 5}, tokens, logits, 2, 1).chosen.token)];
    double sum = 0, chi_squared = 0;
    for (double const logit : logits) sum += std::exp(logit);
    for (std::size_t i = 0; i < 4; ++i) {
        double const expected = draws * std::exp(logits[i]) / sum;
        chi_squared += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    CHECK(chi_squared < 16.3); // of 3 degrees of freedom: 1 in 1,000
}

TEST_CASE("what is out of range is refused by name") {
    CHECK(Sampling{.repetition_penalty = 0}.refusal().starts_with("repetition_penalty = 0"));
    CHECK(Sampling{.temperature = -1}.refusal().starts_with("temperature = -1"));
    CHECK(Sampling{.temperature = std::nan("")}.refusal().starts_with("temperature = "));
    CHECK(Sampling{.top_p = 0}.refusal().starts_with("top_p = 0"));
    CHECK(Sampling{.min_p = 2}.refusal().starts_with("min_p = 2"));
}

// Which token follows: chosen from logits whose vocabulary ranks share, the same on every rank and on every mesh.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/random/philox.hpp>
#include <pentad/train/detail/totals.hpp>
#include <pentad/train/generator.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

/// How the next token is chosen. Each limit is applied to what the one before leaves, in the order of the members, as
/// transformers' generate() does.
struct Sampling {
    /// Logits of tokens that are in the sequence are divided by it where they are positive, and multiplied where they
    /// are negative (Keskar et al. 2019, "CTRL", section 4.1). 1: they stay.
    double repetition_penalty = 1;
    double temperature = 1; ///< logits are divided by it; 0: the token with the largest logit
    std::size_t top_k = 0;  ///< the largest so many; 0: all (Fan et al. 2018)
    double top_p = 1;       ///< the largest whose probabilities add up to this (Holtzman et al. 2020, section 3.1)
    double min_p = 0;       ///< those at least this part of the largest probability (Nguyen et al. 2024)
    std::size_t first_tokens = 0;      ///< of the first so many tokens of the vocabulary alone; 0: of all
    std::uint64_t seed = 1;            ///< a draw is a function of it, of the position in the sequence and of the token
    std::size_t log_probabilities = 0; ///< of the most probable tokens: how many are told

    friend bool operator==(Sampling const&, Sampling const&) = default;
    /// What is wrong with it; empty: nothing.
    [[nodiscard]] std::string refusal() const {
        auto const number = [](double value) { return std::to_string(value); };
        if (!(repetition_penalty > 0)) return "repetition_penalty = " + number(repetition_penalty) + ": it is above 0";
        if (!(temperature >= 0)) return "temperature = " + number(temperature) + ": it is at least 0";
        if (!(top_p > 0 && top_p <= 1)) return "top_p = " + number(top_p) + ": it is above 0 and at most 1";
        if (!(min_p >= 0 && min_p <= 1)) return "min_p = " + number(min_p) + ": it is at least 0 and at most 1";
        return "";
    }
};

/// A sequence of a generator's last pass, and how the token that follows it is chosen.
struct TokenRequest {
    Sampling how{};
    std::span<std::int32_t const> tokens{}; ///< of the sequence so far: its length is the position of the next one
};

/// A token, and the logarithm of its probability under the model, without any of Sampling's changes.
struct LikelyToken {
    std::int32_t token = 0;
    double log_probability = 0;
};
/// What was chosen, and the most probable tokens, the first the most.
struct ChosenToken {
    LikelyToken chosen{};
    std::vector<LikelyToken> likely{};
};

namespace detail {

/// A token of which a rank has the logit.
struct Candidate {
    double score = -std::numeric_limits<double>::infinity(); ///< the logit with the penalty, over the temperature
    double draw = 0;  ///< score with noise: the largest is chosen (Gumbel-max, Maddison et al. 2014)
    double logit = 0; ///< as the model says
    double token = std::numeric_limits<double>::infinity();
};
/// The larger number, of equal ones that of the smaller token.
struct Better {
    using Number = double Candidate::*; // named: nvcc would pass a declaration with parentheses on to g++, which warns
    Number number;
    bool operator()(Candidate const& a, Candidate const& b) const {
        return a.*number != b.*number ? a.*number > b.*number : a.token < b.token;
    }
};

/// What the shards of the vocabulary say of a sequence, as numbers that a reduction puts side by side: each writes its
/// own part, and the others have -infinity there.
class ShardedChoice {
  public:
    /// @param candidates of a shard @param likely tokens of a shard whose probabilities are told
    ShardedChoice(std::size_t shards, std::size_t candidates, std::size_t likely)
        : shards_(shards), candidates_(candidates), likely_(likely) {}
    [[nodiscard]] std::size_t numbers() const { return shards_ * of_shard(); }

    /// @param first the token of the first logit
    template <class T>
    void write(TokenRequest const& request, std::size_t shard, std::size_t first, std::vector<T> const& logits,
               std::span<double> into) const;
    /// What is chosen from what all shards have written; nothing where that takes more candidates.
    [[nodiscard]] std::optional<ChosenToken> chosen(Sampling const& how, std::span<double const> from) const;

  private:
    static constexpr std::size_t totals = 4, fields = 4; ///< of a shard, and of a candidate
    [[nodiscard]] std::size_t of_shard() const { return totals + (1 + candidates_ + likely_) * fields; }
    /// How many of these, the best of all in order, are allowed; nothing where more might be.
    /// @param sum of the exponentials of all scores over that of the largest
    static std::optional<std::size_t> allowed(Sampling const& how, std::span<Candidate const> best, bool has_all,
                                              double sum);

    std::size_t shards_, candidates_, likely_;
};

template <class T>
void ShardedChoice::write(TokenRequest const& request, std::size_t shard, std::size_t first,
                          std::vector<T> const& logits, std::span<double> into) const {
    auto const& how = request.how;
    bool const has_penalty = how.repetition_penalty != 1;
    std::unordered_set<std::int32_t> seen;
    if (has_penalty) seen.insert(request.tokens.begin(), request.tokens.end());
    double const scale = how.temperature > 0 ? 1 / how.temperature : 1;
    std::vector<Candidate> all(logits.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        auto const token = static_cast<std::int32_t>(first + i);
        double const logit = static_cast<double>(logits[i]);
        bool const is_penalised = has_penalty && seen.contains(token);
        double const score = !is_penalised ? logit
                             : logit > 0   ? logit / how.repetition_penalty
                                           : logit * how.repetition_penalty;
        all[i] = {score * scale, score * scale, logit, static_cast<double>(token)};
        if (how.temperature == 0) continue;
        auto const index = std::uint64_t{request.tokens.size()} << 32 | static_cast<std::uint32_t>(token);
        all[i].draw -= std::log(-std::log(random::uniform(how.seed, random::stream("sample"), index) + 1e-300));
    }
    std::size_t const end = how.first_tokens == 0 ? logits.size() : std::max(first, how.first_tokens) - first;
    std::span<Candidate> const eligible(all.data(), std::min(end, all.size()));
    auto put = [at = into.begin() + static_cast<std::ptrdiff_t>(shard * of_shard())](auto... numbers) mutable {
        ((*at++ = numbers), ...);
    };
    auto const put_total = [&](std::span<Candidate const> of, Better::Number number) {
        double largest = Candidate().score, sum = 0;
        for (auto const& candidate : of) largest = std::max(largest, candidate.*number);
        for (auto const& candidate : of) sum += std::exp(candidate.*number - largest);
        put(largest, sum);
    };
    auto const put_best = [&](std::span<Candidate> of, Better::Number number, std::size_t count) {
        std::size_t const here = std::min(count, of.size());
        std::partial_sort(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(here), of.end(), Better{number});
        for (std::size_t i = 0; i < count; ++i) {
            auto const candidate = i < here ? of[i] : Candidate();
            put(candidate.score, candidate.draw, candidate.logit, candidate.token);
        }
    };
    put_total(eligible, &Candidate::score);
    put_total(all, &Candidate::logit);
    put_best(eligible, &Candidate::draw, 1);
    put_best(eligible, &Candidate::score, candidates_);
    put_best(all, &Candidate::logit, likely_);
}

inline std::optional<std::size_t> ShardedChoice::allowed(Sampling const& how, std::span<Candidate const> best,
                                                         bool has_all, double sum) {
    std::size_t count = best.size();
    bool is_known = has_all; // that no token behind these is allowed
    if (how.top_k > 0 && how.top_k <= count) {
        count = how.top_k;
        is_known = true;
        sum = 0;
        for (auto const& candidate : best.first(count)) sum += std::exp(candidate.score - best[0].score);
    } else if (how.top_k > 0 && !has_all) {
        return {};
    }
    double before = 0;
    for (std::size_t i = 0; i < count; before += std::exp(best[i++].score - best[0].score))
        if (i > 0 &&
            ((how.top_p < 1 && before >= how.top_p * sum) || best[i].score < best[0].score + std::log(how.min_p)))
            return i;
    return is_known ? std::optional(count) : std::nullopt;
}

inline std::optional<ChosenToken> ShardedChoice::chosen(Sampling const& how, std::span<double const> from) const {
    std::vector<Candidate> draws, best, likely;
    double largest = Candidate().score, sum = 0, largest_logit = largest, sum_of_logits = 0;
    auto const add = [](double& most, double& total, double other, double others) {
        if (others == 0) return;
        double const larger = std::max(most, other);
        total = total * std::exp(most - larger) + others * std::exp(other - larger);
        most = larger;
    };
    Candidate horizon; // behind it there may be candidates that a shard has not told
    bool has_all = true;
    for (std::size_t shard = 0; shard < shards_; ++shard) {
        auto at = from.subspan(shard * of_shard(), of_shard());
        add(largest, sum, at[0], at[1]);
        add(largest_logit, sum_of_logits, at[2], at[3]);
        at = at.subspan(totals);
        auto const take = [&](std::vector<Candidate>& into, std::size_t count) {
            for (; count > 0; --count, at = at.subspan(fields))
                if (std::isfinite(at[3])) into.push_back({at[0], at[1], at[2], at[3]});
        };
        take(draws, 1);
        std::size_t const before = best.size();
        take(best, candidates_);
        if (candidates_ > 0 && best.size() - before == candidates_) {
            if (has_all || Better{&Candidate::score}(best.back(), horizon)) horizon = best.back();
            has_all = false;
        }
        take(likely, likely_);
    }
    Candidate winner = *std::min_element(draws.begin(), draws.end(), Better{&Candidate::draw});
    if (how.temperature > 0 && (how.top_k > 0 || how.top_p < 1 || how.min_p > 0)) {
        std::sort(best.begin(), best.end(), Better{&Candidate::score});
        auto const is_known = [&](Candidate const& of) { return has_all || !Better{&Candidate::score}(horizon, of); };
        auto const known = std::partition_point(best.begin(), best.end(), is_known) - best.begin();
        auto const count = allowed(how, std::span(best).first(static_cast<std::size_t>(known)), has_all, sum);
        if (!count) return {};
        winner = *std::min_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(*count),
                                   Better{&Candidate::draw});
    }
    double const total = largest_logit + std::log(sum_of_logits);
    auto const told = [&](Candidate const& of) {
        return LikelyToken{static_cast<std::int32_t>(of.token), of.logit - total};
    };
    std::sort(likely.begin(), likely.end(), Better{&Candidate::logit});
    likely.resize(std::min(likely.size(), how.log_probabilities));
    ChosenToken chosen{told(winner), {}};
    std::transform(likely.begin(), likely.end(), std::back_inserter(chosen.likely), told);
    return chosen;
}

} // namespace detail

/// The tokens that follow the first sequences of a generator's last pass, one for each request. Collective over all
/// ranks, which get the same. @throws std::invalid_argument where a request is refused
template <class T, class Exec>
std::vector<ChosenToken> chosen_tokens(Generator<T, Exec> const& generator, std::span<TokenRequest const> requests) {
    std::size_t candidates = 0, likely = 0;
    for (auto const& [how, tokens] : requests) {
        if (auto const why = how.refusal(); !why.empty()) throw std::invalid_argument(why);
        likely = std::max(likely, how.log_probabilities);
        if (how.temperature > 0 && (how.top_k > 0 || how.top_p < 1 || how.min_p > 0))
            candidates = std::max<std::size_t>({candidates, how.top_k + 1, 32});
    }
    std::vector<std::optional<ChosenToken>> chosen(requests.size());
    while (true) { // again with more candidates where some need them: every rank finds so
        detail::ShardedChoice const choice(generator.vocabulary_shards(), candidates, likely);
        std::vector<double> numbers(requests.size() * choice.numbers(), -std::numeric_limits<double>::infinity());
        auto const of = [&](std::size_t i) {
            return std::span(numbers).subspan(i * choice.numbers(), choice.numbers());
        };
        generator.for_each_own([&](std::size_t i, std::size_t shard, std::size_t first, std::vector<T> const& logits) {
            if (i < requests.size() && !chosen[i]) choice.write(requests[i], shard, first, logits, of(i));
        });
        total_over_mesh(generator.context(), Placement::partial_max, numbers);
        for (std::size_t i = 0; i < requests.size(); ++i)
            if (!chosen[i]) chosen[i] = choice.chosen(requests[i].how, of(i));
        if (std::all_of(chosen.begin(), chosen.end(), [](auto const& one) { return one.has_value(); })) break;
        candidates *= 4;
    }
    std::vector<ChosenToken> tokens;
    for (auto& one : chosen) tokens.push_back(std::move(*one));
    return tokens;
}

} // namespace pentad::train

// Draws text from a model of a trainer or an evaluator: no weight moves. Temperature 1, by the Gumbel-max
// trick: the largest of logit + noise over all of the vocabulary, wherever its parts are.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/random/philox.hpp>
#include <pentad/train/detail/totals.hpp>
#include <pentad/train/generator.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::train {

using namespace ml;

namespace detail {

/// The largest over all ranks of the mesh.
template <class Exec>
double largest(Context<Exec> const& context, double own) {
    total_over_mesh(context, Placement::partial_max, std::span(&own, 1));
    return own;
}

/// A byte drawn from what may follow the first sequence of a generator's last pass. @param number of the draw
template <class T, class Exec>
unsigned char drawn_byte(Context<Exec> const& context, Generator<T, Exec> const& generator, std::uint64_t seed,
                         std::uint64_t number) {
    double best = -std::numeric_limits<double>::infinity();
    double best_byte = -1;
    generator.for_each_own([&](std::size_t, std::size_t first, std::vector<T> const& logits) {
        for (std::size_t i = 0; i < logits.size() && first + i < 256; ++i) {
            double const u = random::uniform(seed, random::stream("sample"), number * 256 + first + i);
            double const score = static_cast<double>(logits[i]) - std::log(-std::log(u + 1e-300));
            if (score > best) {
                best = score;
                best_byte = static_cast<double>(first + i);
            }
        }
    });
    double const winner = largest(context, best);
    return static_cast<unsigned char>(largest(context, best == winner ? best_byte : -1));
}

} // namespace detail

/// `bytes` bytes that follow `prompt`. The same on every rank. Where prompt and bytes are more than a sequence of the
/// model holds, its second half begins another. Collective over all ranks. @param runner a Trainer or an Evaluator
/// @throws std::invalid_argument where the model writes no sequences, or the prompt has a byte that its vocabulary
/// lacks
template <class T, class Exec, template <class, class> class Runner>
std::string sample(Runner<T, Exec>& runner, std::string prompt, std::int64_t bytes, std::uint64_t seed) {
    if (prompt.empty()) prompt = "\n";
    auto const most =
        *std::max_element(prompt.begin(), prompt.end(), [](unsigned char a, unsigned char b) { return a < b; });
    if (std::size_t const token = static_cast<unsigned char>(most); token >= runner.settings().model.vocab)
        throw std::invalid_argument("the prompt has the byte " + std::to_string(token) + ", and the model " +
                                    std::to_string(runner.settings().model.vocab) + " tokens");
    std::size_t const longest = runner.setup().real_length();
    auto generator = runner.generator(1, longest);
    std::vector<std::int32_t> text, next; // tokens of the sequence, and those that the model has not seen
    for (unsigned char const byte : prompt) next.push_back(byte);
    std::string drawn;
    for (std::int64_t number = 0; number < bytes; ++number) {
        if (text.size() + next.size() > longest) { // the sequence is full
            text.insert(text.end(), next.begin(), next.end());
            auto const kept = static_cast<std::ptrdiff_t>(std::max<std::size_t>(longest / 2, 1));
            next.assign(text.end() - kept, text.end());
            text.clear();
            generator.restart(0);
        }
        generator.advance(std::array{NextTokens{0, next}});
        text.insert(text.end(), next.begin(), next.end());
        auto const byte =
            detail::drawn_byte(runner.setup().context, generator, seed, static_cast<std::uint64_t>(number));
        drawn += static_cast<char>(byte);
        next.assign(1, byte);
    }
    return drawn;
}

} // namespace pentad::train

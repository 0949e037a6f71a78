// Draws text from a model of a trainer or an evaluator: no weight moves. Temperature 1, by the Gumbel-max
// trick: the largest of logit + noise over all of the vocabulary, wherever its parts are.
#pragma once

#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/random/philox.hpp>
#include <pentad/tensor/any_tensor.hpp>
#include <pentad/train/detail/totals.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
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

} // namespace detail

/// `bytes` bytes that follow `prompt` (or its last bytes, as many as a sequence has). The same on every rank.
/// Collective over all ranks. @param runner a Trainer or an Evaluator
/// @throws std::invalid_argument where tokens of the model see later ones, or do not say; where the prompt has a byte
/// that its vocabulary lacks
template <class T, class Exec, template <class, class> class Runner>
std::string sample(Runner<T, Exec>& runner, std::string prompt, std::int64_t bytes, std::uint64_t seed) {
    std::string const drawn_from = "a text is drawn from models whose tokens see earlier ones only: ";
    if (auto const refused = model::padding_refusal(runner.settings().model); !refused.empty())
        throw std::invalid_argument(drawn_from + refused);
    if (model::sees_later_tokens(runner.settings().model))
        throw std::invalid_argument(drawn_from + "this one has a part whose tokens see later ones");
    if (prompt.empty()) prompt = "\n";
    auto const most =
        *std::max_element(prompt.begin(), prompt.end(), [](unsigned char a, unsigned char b) { return a < b; });
    if (std::size_t const token = static_cast<unsigned char>(most); token >= runner.settings().model.vocab)
        throw std::invalid_argument("the prompt has the byte " + std::to_string(token) + ", and the model " +
                                    std::to_string(runner.settings().model.vocab) + " tokens");
    auto const& setup = runner.setup();
    auto const& context = setup.context;
    auto const& communicators = context.communicators();
    auto const partition = setup.partition();
    std::size_t const shard = communicators.shard_index(AxisNames(cp::name)), length = partition.local_extent();
    LayoutValue const of_tokens = token_values<i32>(runner.stream());
    std::vector<AnyTensor<i32, Exec>> tokens; // of each slice
    for (std::size_t k = 0; k < setup.slices; ++k)
        tokens.emplace_back(context, of_tokens, std::array{setup.batch, setup.seq});

    std::string const start = prompt;
    for (std::int64_t drawn = 0; drawn < bytes; ++drawn) {
        std::string const window = prompt.substr(prompt.size() - std::min(prompt.size(), setup.real_length()));
        std::vector<Pass<Exec>> passes;
        std::vector<i32> host(tokens[0].size());
        for (std::size_t k = 0; k < setup.slices; ++k) {
            for (std::size_t i = 0; i < host.size(); ++i) {
                std::size_t const position = k * setup.seq + partition.global_index(shard, i % length);
                host[i] = position < window.size() ? static_cast<unsigned char>(window[position]) : 0;
            }
            tokens[k].set(host.data());
            passes.push_back({.context = context, .tokens = tokens[k].rows()});
        }
        auto const all_logits = runner.logits(passes);
        auto const& logits = all_logits[(window.size() - 1) / setup.seq];
        std::size_t const last = (window.size() - 1) % setup.seq;

        // The ranks that hold the last position of the first sequence look at their part of the vocabulary, bytes only.
        double best = -std::numeric_limits<double>::infinity();
        double best_byte = -1;
        auto const shard_of = [&](std::size_t d) {
            return communicators.shard_index(logits.layout().dimensions[d].axes);
        };
        if (!logits.empty() && shard_of(0) == 0 && partition.rank_of(last) == shard) {
            std::size_t const at = partition.local_index(last), columns = logits.local()[2];
            std::size_t const first = columns * shard_of(2);
            std::vector<T> row(columns);
            memory::copy_to_host(context.exec(), row.data(), logits.data() + at * columns, columns * sizeof(T));
            for (std::size_t i = 0; i < columns && first + i < 256; ++i) {
                double const u = random::uniform(seed, random::stream("sample"),
                                                 static_cast<std::uint64_t>(drawn) * 256 + first + i);
                double const score = static_cast<double>(row[i]) - std::log(-std::log(u + 1e-300));
                if (score > best) {
                    best = score;
                    best_byte = static_cast<double>(first + i);
                }
            }
        }
        double const winner = detail::largest(context, best);
        prompt +=
            static_cast<char>(static_cast<unsigned char>(detail::largest(context, best == winner ? best_byte : -1)));
    }
    return prompt.substr(start.size());
}

} // namespace pentad::train

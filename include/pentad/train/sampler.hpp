// Draws text of bytes from a model of a trainer or an evaluator, at temperature 1.
#pragma once

#include <pentad/train/generator.hpp>
#include <pentad/train/sampling.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::train {

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
    Sampling const how{.first_tokens = 256, .seed = seed};
    std::vector<std::int32_t> text, next; // tokens of the sequence, and those that the model has not seen
    for (unsigned char const byte : prompt) next.push_back(byte);
    std::string drawn;
    while (std::ssize(drawn) < bytes) {
        text.insert(text.end(), next.begin(), next.end());
        if (text.size() > longest) { // the sequence is full
            auto const kept = std::max<std::size_t>(longest / 2, 1);
            text.erase(text.begin(), text.end() - static_cast<std::ptrdiff_t>(kept));
            next = text;
            generator.restart(0);
        }
        generator.advance(std::array{NextTokens{0, next}});
        next.assign(1, chosen_tokens<T, Exec>(generator, std::array{TokenRequest{how, text}})[0].chosen.token);
        drawn += static_cast<char>(next[0]);
    }
    return drawn;
}

} // namespace pentad::train

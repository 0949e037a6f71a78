// Stacks of several kinds of mixers: attention, Mamba-2 and linear attention in any order.
#pragma once

#include <pentad/model/model.hpp>
#include <pentad/model/parts.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::model {

enum class Mixer { attention, mamba2, linear_attention };
/// The letters of a pattern of mixers, in the order of Mixer.
inline constexpr std::string_view mixer_letters = "aml";

/// "a,m,m,l" as mixers; none where it is anything else.
inline std::optional<std::vector<Mixer>> mixers_of(std::string_view pattern) {
    std::vector<Mixer> mixers;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        auto const letter = mixer_letters.find(pattern[i]);
        bool const is_turn = i % 2 == 0; // of a letter: commas are between them
        if (is_turn != (letter != mixer_letters.npos) || (!is_turn && pattern[i] != ',')) return std::nullopt;
        if (is_turn) mixers.push_back(static_cast<Mixer>(letter));
    }
    return pattern.size() % 2 == 1 ? std::optional(mixers) : std::nullopt;
}

/// The model with other mixers in place of the attention of some blocks: the pattern, again and again. The slopes of
/// linear attention flatten towards the last block, as in MiniMax-01 (arXiv 2501.08313, section 2.2).
inline Model with_mixers(Model model, std::vector<Mixer> const& pattern, Mamba2 const& mamba,
                         LinearAttention const& linear) {
    for (std::size_t i = 0; i < model.blocks.size() && !pattern.empty(); ++i) {
        auto& branch = model.blocks[i].branches.at(0);
        auto const mixer = pattern[i % pattern.size()];
        if (mixer == Mixer::mamba2) branch = {mamba, "mamba", branch.norm};
        if (mixer == Mixer::linear_attention) {
            auto own = linear;
            double const last = static_cast<double>(model.blocks.size()) - 1 + 1e-5;
            own.scale *= 1 - static_cast<double>(i) / last + 1e-5;
            branch = {own, "linear_attn", branch.norm};
        }
    }
    return model;
}

} // namespace pentad::model

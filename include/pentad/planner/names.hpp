// Presets by name.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad::planner::detail {

/// Whether two names have the same letters and digits: llama-2-7b, LLaMA-2-7B and llama2_7b are one.
[[nodiscard]] inline bool is_same_name(std::string_view a, std::string_view b) {
    auto const letters = [](std::string_view name) {
        std::string text;
        for (char const letter : name) {
            if (letter >= 'A' && letter <= 'Z') text += static_cast<char>(letter - 'A' + 'a');
            if ((letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9')) text += letter;
        }
        return text;
    };
    return letters(a) == letters(b);
}

/// The preset of that name, or none.
template <class Presets>
[[nodiscard]] auto const* preset_named(Presets const& presets, std::string_view name) {
    for (auto const& preset : presets)
        if (is_same_name(preset.name, name)) return &preset;
    return static_cast<typename Presets::value_type const*>(nullptr);
}
/// The preset of a name. @throws std::invalid_argument, which lists them, where there is none
template <class Presets>
[[nodiscard]] auto const& find_preset(Presets const& presets, std::string_view name, std::string const& kind) {
    if (auto const* found = preset_named(presets, name)) return *found;
    std::string known;
    for (auto const& preset : presets) known += (known.empty() ? "" : ", ") + preset.name;
    throw std::invalid_argument("there is no " + kind + " '" + std::string(name) + "': choose one of " + known);
}

} // namespace pentad::planner::detail

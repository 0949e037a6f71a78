// The flags of train_lm and pentad_plan for the fields of a Strategy and the sizes of a model, and refusals in their
// words.
#pragma once

#include <pentad/report/strategy_flags.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace pentad::report {

/// A field that refusals name, and the flag that sets it.
struct FieldFlag {
    std::string_view field, flag;
    bool is_switch = false; ///< the flag takes no value
};
namespace detail {
/// Sizes of a model, and what a flag says with others.
inline constexpr std::array more_field_flags{
    FieldFlag{"layers", "--layers"},
    FieldFlag{"hidden", "--hidden"},
    FieldFlag{"heads", "--heads"},
    FieldFlag{"kv_heads", "--kv-heads"},
    FieldFlag{"ffn", "--ffn"},
    FieldFlag{"expert_count", "--experts"},
    FieldFlag{"expert_ffn", "--expert-ffn"},
    FieldFlag{"shared_experts", "--shared-experts"},
    FieldFlag{"groups", "--groups"},
    FieldFlag{"norm_groups", "--groups"},
    FieldFlag{"state", "--state"},
    FieldFlag{"dp", "--mesh"},
    FieldFlag{"pp", "--mesh"},
    FieldFlag{"ep", "--mesh"},
    FieldFlag{"cp", "--mesh"},
    FieldFlag{"tp", "--mesh"},
    FieldFlag{"experts", "--expert-mesh"},
    FieldFlag{"batch", "--batch"},
    FieldFlag{"pairs", "--pair"},
    FieldFlag{"stage_layers", "--stages"},
    FieldFlag{"blocks", "--blocks"},
    FieldFlag{"block.context", "--cp"},
    FieldFlag{"block.inner_cp", "--cp-inner"},
    FieldFlag{"clip", "--clip"},
};
} // namespace detail
inline constexpr auto field_flags = [] {
    std::array<FieldFlag, detail::more_field_flags.size() + strategy_flags.size()> all{};
    auto next = std::copy(detail::more_field_flags.begin(), detail::more_field_flags.end(), all.begin());
    for (auto const& flag : strategy_flags) *next++ = {flag.field, flag.flag, flag.shown.empty()};
    return all;
}();

/// "sharding.stage" is "--zero"; empty where no flag sets the field.
constexpr std::string_view flag_of(std::string_view field) {
    for (auto const& known : field_flags)
        if (known.field == field) return known.flag;
    return {};
}

/// The sentence of a Refusal in the words of flags: "heads = 6 ..." becomes "--heads 6 ...". Axes of the mesh stay
/// ("tp = 4"). @param has_flag whether the program has a flag of this name
template <class HasFlag>
std::string in_flags(std::string_view why, HasFlag&& has_flag) {
    std::string text;
    for (std::size_t at = 0; at < why.size();) {
        bool const is_factor = at >= 3 && why.substr(at - 3, 3) == " x "; // "pp x chunks = 2 x 2 = 4"
        bool const is_word = at == 0 || (why[at - 1] == ' ' && !is_factor) || why[at - 1] == '(';
        auto const rest = why.substr(at);
        auto const* const known = std::find_if(field_flags.begin(), field_flags.end(), [&](FieldFlag const& candidate) {
            return is_word && candidate.flag != "--mesh" && rest.starts_with(candidate.field) &&
                   rest.substr(candidate.field.size()).starts_with(" = ") && has_flag(candidate.flag);
        });
        if (known == field_flags.end()) {
            text += why[at++];
            continue;
        }
        text += std::string(known->flag) + " ";
        at += known->field.size() + 3;
        if (known->is_switch && why.substr(at).starts_with("on ")) at += 3;
    }
    return text;
}

} // namespace pentad::report

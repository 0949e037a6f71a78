// The flag --blocks: the blocks of a model that lie on their ranks in another way than the rest of it.
#pragma once

#include <pentad/mesh/number.hpp>
#include <pentad/report/strategy_flags.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace pentad::report {

/// The help of its value, in both programs.
inline constexpr std::string_view blocks_help =
    "blocks that lie on their ranks in another way than the rest: \"0-3,7:sequence-parallel=on/5:row-parts=2\", with "
    "the flags sequence-parallel, attention-output and row-parts; or with a mesh of their own, \"2:cp=1,tp=4,"
    "tp-kind=2d\", of which dp is what the ranks of a stage allow";

namespace detail {
inline constexpr std::size_t most_blocks = std::size_t{1} << 16;

/// The flag of a field of a block by its name without dashes; null: there is none.
constexpr StrategyFlag const* block_flag(std::string_view name) {
    for (auto const& flag : strategy_flags)
        if (flag.field.starts_with("block.") && flag.flag.substr(2) == name) return &flag;
    return nullptr;
}
/// f(item) for the items of a list; false where f is false for one, or one is empty.
template <class F>
bool for_each_item(std::string_view list, char separator, F&& f) {
    while (true) {
        auto const end = std::min(list.find(separator), list.size());
        if (end == 0 || !f(list.substr(0, end))) return false;
        if (end == list.size()) return true;
        list.remove_prefix(end + 1);
    }
}
} // namespace detail

/// The blocks that differ from the rest, as --blocks takes them; empty: none does.
inline std::string blocks_text(Strategy const& strategy) {
    std::string text;
    auto const& blocks = strategy.blocks;
    for (std::size_t first = 0, end = 0; first < blocks.size(); first = end) {
        for (end = first + 1; end < blocks.size() && blocks[end] == blocks[first];) ++end;
        if (blocks[first] == strategy.block) continue;
        text += (text.empty() ? "" : "/") + std::to_string(first);
        if (end > first + 1) text += "-" + std::to_string(end - 1);
        Strategy own = strategy;
        own.block = blocks[first];
        char before = ':';
        if (auto const& mesh = blocks[first].mesh)
            text += std::string(1, std::exchange(before, ',')) + "cp=" + std::to_string(mesh->cp) +
                    ",tp=" + std::to_string(mesh->tp);
        for (auto const& flag : strategy_flags) {
            auto const value = flag_value(own, flag);
            if (!flag.field.starts_with("block.") || value == flag_value(strategy, flag)) continue;
            text += std::exchange(before, ',') + std::string(flag.flag.substr(2)) + "=" + value;
        }
    }
    return text;
}

/// The strategy with the blocks of a text that blocks_text() could have written. Blocks that it does not name are as
/// the rest. None where the text is no such list.
inline std::optional<Strategy> with_blocks(Strategy strategy, std::string_view text) {
    auto& blocks = strategy.blocks;
    blocks.clear();
    auto const take_range = [](std::string_view range, auto&& f) {
        auto const dash = std::min(range.find('-'), range.size());
        auto const first = number_in<std::int64_t>(range.substr(0, dash));
        auto const last = dash == range.size() ? first : number_in<std::int64_t>(range.substr(dash + 1));
        if (!first || !last || *first < 0 || *last < *first || *last >= std::int64_t(detail::most_blocks)) return false;
        for (auto i = *first; i <= *last; ++i) f(static_cast<std::size_t>(i));
        return true;
    };
    bool const is_read = detail::for_each_item(text, '/', [&](std::string_view item) {
        auto const colon = item.find(':');
        if (colon == item.npos) return false;
        Strategy own = strategy;
        bool const is_set = detail::for_each_item(item.substr(colon + 1), ',', [&](std::string_view setting) {
            auto const equal = std::min(setting.find('='), setting.size());
            auto const name = setting.substr(0, equal);
            if ((name == "cp" || name == "tp") && equal < setting.size()) {
                auto const extent = number_in<std::int64_t>(setting.substr(equal + 1));
                if (!extent || *extent < 1 || *extent > std::int64_t(detail::most_blocks)) return false;
                if (!own.block.mesh) own.block.mesh.emplace();
                (name == "cp" ? own.block.mesh->cp : own.block.mesh->tp) = *extent;
                return true;
            }
            auto const* const flag = detail::block_flag(name);
            return flag != nullptr && equal < setting.size() && set_flag(own, *flag, setting.substr(equal + 1));
        });
        return is_set && detail::for_each_item(item.substr(0, colon), ',', [&](std::string_view range) {
                   return take_range(range, [&](std::size_t i) {
                       if (i >= blocks.size()) blocks.resize(i + 1, strategy.block);
                       blocks[i] = own.block;
                   });
               });
    });
    if (!is_read) return std::nullopt;
    return strategy;
}

/// The refusal of a text that is no such list.
inline std::string no_list_of_blocks(std::string_view text) {
    return "--blocks " + std::string(text) + " is no list such as \"0-3,7:sequence-parallel=on/5:row-parts=2\"";
}

} // namespace pentad::report

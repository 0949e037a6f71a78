// The flags of train_lm and pentad_plan for the fields of a Strategy, one for each, as one table: the help, what is
// read and what is written as a command line follow it. What a flag says with others (the mesh and the order of its
// axes, stages, pairs, attention over cp, pieces of recomputation, the optimizer, offload) is beside it, in the
// programs.
#pragma once

#include <pentad/mesh/number.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/report/format.hpp>
#include <pentad/strategy/fields.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pentad::report {

/// A flag that sets a field of a Strategy, or of a value in it.
struct StrategyFlag {
    std::string_view flag;  ///< with its dashes
    std::string_view field; ///< "sharding.stage": as refusals and JSON name it
    std::string_view shown; ///< its value in the help; empty: a switch, which turns the field on
    std::string_view help;
    double least = 0, most = 0; ///< of a number
    bool is_planned = true;     ///< whether it changes what is planned
};

inline constexpr double many_of_them = 2147483647;
inline constexpr std::array strategy_flags{
    StrategyFlag{"--seq", "seq", "N", "tokens in a sequence; where the mesh does not divide them, it is padded, unseen",
                 1, 1 << 24},
    StrategyFlag{"--micro-batches", "micro_batches", "N", "micro-batches of a step", 1, 1 << 16},
    StrategyFlag{"--dtype", "element", "f64|f32|bf16", "number format of weights and activations"},
    StrategyFlag{
        "--zero", "sharding.stage", "0|1|2|3",
        "ZeRO, over the ranks that share a parameter: 1 shards the optimizer state, 2 the gradients too, 3 the "
        "parameters too",
        0, 3},
    StrategyFlag{"--zero-ranks", "sharding.ranks", "N",
                 "hybrid sharding: neighbours along dp (and ep) that share one copy; it divides dp x ep; 0: all", 0,
                 1 << 16},
    StrategyFlag{"--zero-keep", "sharding.keeps_parameters", "on|off",
                 "--zero 3: gather parameters once a step and keep them, instead of gathering them for each pass"},
    StrategyFlag{
        "--zero-accumulate", "sharding.accumulates_gradients", "on|off",
        "--zero 2 and 3: accumulate whole gradients and reduce them once a step, instead of after each micro-batch"},
    StrategyFlag{"--gradient-release", "sharding.releases_gradients", "",
                 "update the weights of a block as soon as its gradients are complete, and reuse their memory; needs "
                 "--clip 0"},
    StrategyFlag{"--schedule", "schedule", "NAME", "pipeline schedule: "},
    StrategyFlag{"--chunks", "chunks", "N", "stages on each rank; 0: as few as the schedule is defined for", 0,
                 1 << 10},
    StrategyFlag{
        "--bucket-elements", "bucket_elements", "N",
        "parameters after which a bucket is closed: its gradients are reduced while the backward pass goes on; "
        "with --zero 2, 3 or --gradient-release each block has buckets of its own",
        1, 9e18, false},
    StrategyFlag{"--master-weights", "precision.keeps_masters", "on|off",
                 "bf16: keep f32 weights behind the bf16 ones; off: updates are rounded stochastically to bf16"},
    StrategyFlag{
        "--moment-dtype", "precision.moments", "full|bf16|fp8",
        "number format in which the optimizer keeps its moments, rounded stochastically; full: f32, or f64 of f64"},
    StrategyFlag{"--reduce-dtype", "precision.reduce", "full|bf16|fp8",
                 "number format in which gradients travel; their sums are full. fp8 with error feedback"},
    StrategyFlag{"--row-dtype", "precision.rows", "full|bf16|fp8",
                 "number format in which tokens travel to experts on other ranks, and gradients with them; sums come "
                 "back in bf16 at the least. Results then depend on the mesh"},
    StrategyFlag{"--row-parts", "block.row_parts", "N",
                 "across nodes tokens travel to experts in up to N parts, while experts compute with others; 1: all at "
                 "once",
                 1, 8, false},
    StrategyFlag{"--tp-kind", "block.tensor_kind", "1d|2d|2.5d|3d",
                 "how the ranks of tp share attention and MLPs: by the width of weights; or weights and activations in "
                 "blocks on a grid of rows x columns, depth x rows x rows, or rows x depth x columns"},
    StrategyFlag{"--sequence-parallel", "block.sequence_parallel", "on|off",
                 "shard activations between the tp regions along the sequence"},
    StrategyFlag{"--attention-output", "block.attention_output", "reduce-scatter|all-to-all",
                 "how heads of tp become the residual stream: sums of their products; or heads exchanged for sequence, "
                 "and the whole projection on every rank, which sends less where a rank of tp has more tokens than the "
                 "stream is wide"},
    StrategyFlag{"--recompute-every", "recompute.every", "K",
                 "of --recompute selective and full: of every K-th block alone", 1, 1 << 16},
    StrategyFlag{"--local-steps", "local.steps", "N",
                 "ranks along dp train apart, and average their parameters after every N-th step and the last; 0: they "
                 "do not",
                 0, many_of_them},
    StrategyFlag{"--local-ranks", "local.ranks", "N",
                 "with --local-steps: neighbours along dp that share every step, N and N together", 1, 1 << 20},
    StrategyFlag{"--outer-lr", "local.outer_learning_rate", "X",
                 "with --local-steps: learning rate of averages; 1: the mean (DiLoCo: 0.7)", 1e-6, 1e6},
    StrategyFlag{"--outer-momentum", "local.outer_momentum", "X",
                 "with --local-steps: Nesterov momentum of averages (DiLoCo: 0.9)", 0, 0.999999},
};

/// The help of a flag, with the words that it lists.
inline std::string flag_help(StrategyFlag const& flag) {
    return std::string(flag.help) + (flag.field == "schedule" ? pipeline::generator_names() : "");
}

/// @throws std::logic_error if there is none: a name is misspelt
constexpr StrategyFlag const& strategy_flag(std::string_view flag) {
    for (auto const& known : strategy_flags)
        if (known.flag == flag) return known;
    throw std::logic_error("no flag of a strategy has this name");
}

/// f(member) for the member of `value` that a path names, "sharding.stage". Whether there is one.
template <class T, class F>
    requires HasFields<std::remove_const_t<T>>
bool with_field(T& value, std::string_view path, F const& f) {
    auto const dot = std::min(path.find('.'), path.size());
    bool found = false;
    for_each_field<std::remove_const_t<T>>([&](auto const& field) {
        if (field.name != path.substr(0, dot)) return;
        auto& member = value.*field.member;
        if (dot == path.size()) {
            f(member);
            found = true;
        } else if constexpr (HasFields<std::remove_cvref_t<decltype(member)>>)
            found = with_field(member, path.substr(dot + 1), f);
    });
    return found;
}

/// The words of an enumeration as flags take them.
template <HasWords T>
std::vector<std::string_view> flag_words() {
    std::vector<std::string_view> words;
    for (std::size_t i = 0; i < WordsOf<T>::words.size(); ++i) {
        if constexpr (requires(T value) { name(value); })
            words.emplace_back(name(static_cast<T>(i)));
        else if constexpr (std::same_as<T, Compact>)
            words.emplace_back(compact_names.at(i));
        else
            words.emplace_back(WordsOf<T>::words.at(i));
    }
    return words;
}

/// The value of a flag's field, as the flag takes it: "3", "on", "all-to-all".
inline std::string flag_value(Strategy const& strategy, StrategyFlag const& flag) {
    std::string text;
    with_field(strategy, flag.field, [&]<class T>(T const& member) {
        if constexpr (std::same_as<T, bool>)
            text = member ? "on" : "off";
        else if constexpr (std::integral<T>)
            text = std::to_string(member);
        else if constexpr (std::floating_point<T>)
            text = exact(member);
        else if constexpr (HasWords<T>)
            text = std::string(flag_words<T>().at(static_cast<std::size_t>(member)));
        else if constexpr (std::same_as<T, std::string>)
            text = member;
    });
    return text;
}

/// Gives a flag's field the value that flag_value() has written; false if the text is none.
inline bool set_flag(Strategy& strategy, StrategyFlag const& flag, std::string_view text) {
    bool is_set = false;
    with_field(strategy, flag.field, [&]<class T>(T& member) {
        auto const take = [&](auto const& value) {
            is_set = value.has_value();
            if (is_set) member = static_cast<T>(*value);
        };
        if constexpr (std::same_as<T, bool>) {
            is_set = text == "on" || text == "off";
            if (is_set) member = text == "on";
        } else if constexpr (std::is_arithmetic_v<T>)
            take(number_in<std::conditional_t<std::integral<T>, std::int64_t, double>>(text));
        else if constexpr (HasWords<T>) {
            auto const words = flag_words<T>();
            auto const found = std::find(words.begin(), words.end(), text);
            is_set = found != words.end();
            if (is_set) member = static_cast<T>(found - words.begin());
        } else if constexpr (std::same_as<T, std::string>) {
            member = text;
            is_set = true;
        }
    });
    return is_set;
}

/// " --zero 3 --zero-keep on": the flags of the fields that differ from the usual ones.
template <class IsWanted>
std::string flags_text(Strategy const& strategy, Strategy const& usual, IsWanted const& is_wanted) {
    std::string text;
    for (auto const& flag : strategy_flags) {
        auto const value = flag_value(strategy, flag);
        if (value == flag_value(usual, flag) || !is_wanted(flag)) continue;
        text += " " + std::string(flag.flag) + (flag.shown.empty() ? "" : " " + value);
    }
    return text;
}

} // namespace pentad::report

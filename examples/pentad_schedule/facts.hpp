// What a schedule costs, counted by the validator and the simulator.
#pragma once

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/simulator.hpp>
#include <pentad/pipeline/validator.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace pentad_schedule {

using namespace pentad::pipeline;

struct Facts {
    Simulation times;
    double held = 0;        ///< most micro-batches that a rank holds; one is all that its stages keep of one
    double sends = 0;       ///< most messages that a rank sends for each micro-batch
    int versions = 1;       ///< of the weights, most that a stage needs at once
    std::size_t copies = 1; ///< ranks that have a stage's parameters
};

/// The facts of a schedule that the validator has accepted with this verdict.
inline Facts facts_of(Schedule const& schedule, Verdict const& verdict, Costs const& costs) {
    Facts facts{.times = simulate_proven(schedule, costs)};
    auto const most = [](std::vector<int> const& of_ranks) {
        return *std::max_element(of_ranks.begin(), of_ranks.end());
    };
    facts.held = static_cast<double>(most(verdict.peak_in_flight)) * schedule.ranks() /
                 (static_cast<double>(schedule.stages()) * schedule.slices);
    for (auto const& list : schedule.instructions) {
        auto const sends = std::count_if(list.begin(), list.end(), [](auto const& x) { return is_send(x.operation); });
        facts.sends = std::max(facts.sends, static_cast<double>(sends) / schedule.micro_batches);
    }
    facts.versions = most(verdict.weight_versions);
    facts.copies = schedule.placements.size();
    return facts;
}

/// 1F1B of the same model and micro-batches, where a rank's stages are one; nothing where there is no such thing.
inline std::optional<Simulation> as_1f1b(Schedule const& schedule, Costs const& costs) {
    if (schedule.purpose == Purpose::inference) return std::nullopt;
    Costs fused{.stages = std::vector<StageCost>(static_cast<std::size_t>(schedule.ranks()), {0, 0, 0}),
                .message = costs.message};
    for (int stage = 0; stage < schedule.stages(); ++stage) {
        auto& of_rank = fused.stages[static_cast<std::size_t>(schedule.rank_of(stage, 0))];
        auto const& cost = costs.of(stage);
        of_rank.forward += schedule.slices * (cost.forward + (schedule.recomputes ? cost.forward : 0));
        of_rank.backward = of_rank.backward.value_or(0) + schedule.slices * cost.of(Operation::backward);
    }
    return simulate_proven(order::one_forward_one_backward(schedule.ranks(), schedule.micro_batches), fused);
}

/// "4", "2.5"
inline std::string short_number(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.3g", value);
    return text.data();
}
/// "27.3 %"
inline std::string percent(double part) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.1f %%", 100 * part + 1e-9); // no -0.0
    return text.data();
}
/// "zb-v on 8 ranks of 2 stages, 16 micro-batches"
inline std::string headline(Schedule const& schedule) {
    std::string text = schedule.name + " on " + std::to_string(schedule.ranks()) + " ranks";
    if (schedule.stages() != schedule.ranks()) text += ", " + std::to_string(schedule.stages()) + " stages";
    text += ", " + std::to_string(schedule.micro_batches) + " micro-batches";
    if (schedule.slices > 1) text += " of " + std::to_string(schedule.slices) + " slices";
    if (schedule.updates > 1) text += ", " + std::to_string(schedule.updates) + " updates";
    return text;
}

} // namespace pentad_schedule

// A run as the planner sees it.
#pragma once

#include <pentad/model/presets.hpp>
#include <pentad/pipeline/dealt_layers.hpp>
#include <pentad/pipeline/simulator.hpp>
#include <pentad/planner/account.hpp>
#include <pentad/planner/automatic_recomputation.hpp>
#include <pentad/planner/memory.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/planner/names.hpp>
#include <pentad/planner/pipelines.hpp>
#include <pentad/strategy/strategy.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/dry_parts.hpp>
#include <pentad/train/elements.hpp>
#include <pentad/train/run_settings.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::train {

/// The layers that planned_model() runs dry: decoder_layers().
struct PlannedLayers {
    template <class T, class Exec>
    static LayerRegistry<T, Exec> const& of() {
        static auto const registry = decoder_layers<T, Exec>();
        return registry;
    }
};

/// A model as the planner sees it: its parts are run dry.
/// @tparam Layers has of<T, Exec>(), a LayerRegistry: one with layers of the user's own plans these too, on the streams
/// that it has them for
template <class Layers = PlannedLayers, class Exec = Kokkos::DefaultExecutionSpace>
planner::Model planned_model(model::Model description, std::string name = "the model") {
    std::vector<std::size_t> kinds, first; // of each block; and the first block of each
    for (std::size_t i = 0; i < description.blocks.size(); ++i) {
        auto const alike = std::find_if(first.begin(), first.end(), [&](std::size_t other) {
            return description.blocks[other] == description.blocks[i];
        });
        kinds.push_back(static_cast<std::size_t>(alike - first.begin()));
        if (alike == first.end()) first.push_back(i);
    }
    auto beside_experts = description;
    for (auto* const blocks : {&beside_experts.blocks, &beside_experts.predictors})
        for (auto& block : *blocks)
            std::erase_if(block.branches, [](auto const& branch) { return branch.part.is_on_expert_axes(); });
    auto run = [description, beside_experts = std::move(beside_experts),
                first](planner::PartShape const& shape, planner::PerPart<bool> const& wanted, bool has_matrices) {
        return with_element(shape.element, [&]<class T>(T) {
            auto const& model = shape.leaves_out_experts ? beside_experts : description;
            return dry_parts(model, Layers::template of<T, Exec>(), first, shape, wanted, has_matrices);
        });
    };
    return {std::move(name), std::move(description), std::move(kinds), std::move(run)};
}

/// A published model by name, such as llama-3-8b. @throws std::invalid_argument, which lists them
template <class Exec = Kokkos::DefaultExecutionSpace>
planner::Model planned_preset(std::string_view name) {
    auto const preset = planner::detail::find_preset(model::presets(), name, "model");
    return planned_model<PlannedLayers, Exec>(preset.model, preset.name);
}

namespace detail {
/// Layers of each stage; none: as many for each.
inline std::vector<std::int64_t> layer_counts(planner::Model const& model, pipeline::Schedule const& schedule,
                                              std::vector<std::int64_t> const& layers) {
    if (layers.empty()) return pipeline::dealt_layers(model.layers(), schedule.stages());
    return layers;
}
} // namespace detail

/// The memory of each rank of the pipeline in a step.
/// @param layers of each stage; none: as many for each
inline std::vector<planner::Memory> planned_memory(planner::Model const& model, Strategy const& c,
                                                   pipeline::Schedule const& schedule,
                                                   std::vector<std::int64_t> const& layers) {
    planner::Account const account(model, c, static_cast<int>(schedule.placements.size()), 1,
                                   pipeline::ends_meet(schedule));
    auto const shapes = planner::stage_shapes(model, c, detail::layer_counts(model, schedule, layers));
    pipeline::Costs costs;
    costs.stages.clear();
    for (auto const& shape : shapes) {
        double saved = 0, left = 0;
        account.for_each_kind(shape, [&](planner::MeshPart const& part, double count) {
            saved += count * part.memory.saved;
            left += count * part.memory.left;
        });
        costs.stages.push_back({.activation = static_cast<std::int64_t>(saved),
                                .weight_part = static_cast<std::int64_t>(left),
                                .input = static_cast<std::int64_t>(account.input(shape))});
    }
    auto const simulation = pipeline::simulate_proven(schedule, costs);
    auto const moments = planner::held_moments(schedule);
    std::vector<planner::Memory> memory;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        auto const held = planner::held_buckets(account, schedule, shapes, rank);
        auto& own = memory.emplace_back(planner::parameter_memory(held, c, schedule.weight_versions));
        own.activations = static_cast<double>(simulation.ranks[static_cast<std::size_t>(rank)].peak_memory);
        own.workspace = planner::workspace_of(account, schedule, shapes, rank, moments[static_cast<std::size_t>(rank)],
                                              own.activations, planner::update_workspace(held, c),
                                              planner::updates_between_passes(schedule, c));
        own.activations += planner::activation_window(account, schedule, shapes, rank, c);
    }
    return memory;
}

/// Automatic recomputation as a plan for a run: `recompute` goes into RunSettings.
/// @param hardware what the work takes; hardware.memory_bytes is the limit of each rank's tensors
/// @param layers of each stage; none: as many for each
/// @throws std::invalid_argument where the model cannot be laid out so, or the schedule recomputes everything itself
inline planner::AutomaticRecomputation planned_recomputation(planner::Model const& model,
                                                             planner::Hardware const& hardware, Strategy c,
                                                             pipeline::Schedule const& schedule,
                                                             std::vector<std::int64_t> const& layers) {
    if (schedule.recomputes)
        throw std::invalid_argument("the schedule " + schedule.name + " recomputes by itself: nothing is left to plan");
    c.recompute = {.kind = model::Recomputation::Kind::automatic};
    return planner::automatic_recomputation(
        model, hardware, c, schedule, planner::held_moments(schedule),
        planner::stage_shapes(model, c, detail::layer_counts(model, schedule, layers)), 1);
}

} // namespace pentad::train

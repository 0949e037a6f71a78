// The functions of <pentad/planner/stage_layers.hpp>.
#pragma once

#include <pentad/planner/stage_layers.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/pipeline/dealt_layers.hpp>
#include <pentad/planner/balanced_stages.hpp>
#include <pentad/planner/detail/comparable.hpp>
#include <pentad/planner/nodes.hpp>
#include <pentad/strategy/why_not.hpp>

#include <array>
#include <cstddef>

namespace pentad::planner {

PENTAD_INLINE std::vector<std::int64_t> balanced_layers(Model const& model, Strategy const& c, Account const& account,
                                                        Rates const& rates, std::int64_t stages) {
    detail::StageTimes const times(account, rates);
    AlikeLayers const kinds(model, c);
    auto const layers = static_cast<std::size_t>(model.layers()), count = static_cast<std::size_t>(stages);
    // What a stage takes depends on its ends and on how many layers of each kind it has: each is timed once.
    struct From {
        StageShape shape;
        std::vector<double> costs; ///< with no layer, one layer, ...
    };
    std::array<std::vector<From>, 4> known; // by the ends, and the first layer
    auto const cost = [&](std::size_t stage, std::size_t begin, std::size_t end) {
        bool const is_first = stage == 0, is_last = stage + 1 == count;
        auto& of_ends = known[(is_first ? 1U : 0U) + (is_last ? 2U : 0U)];
        if (of_ends.empty()) of_ends.resize(layers + 1);
        auto& [shape, costs] = of_ends[begin];
        if (costs.empty()) {
            shape = {.of_kind = std::vector<double>(kinds.alike.size()), .is_first = is_first, .is_last = is_last};
            costs.push_back(detail::comparable(times.passes_of(shape).seconds()));
        }
        while (costs.size() <= end - begin) {
            ++shape.of_kind[kinds.of_layer[begin + costs.size() - 1]];
            costs.push_back(detail::comparable(times.passes_of(shape).seconds()));
        }
        return costs[end - begin];
    };
    return balanced_stages(layers, count, cost);
}

PENTAD_INLINE Strategy with_dealt_layers(Model const& model, Strategy c) {
    auto const count = stages(c);
    if (!c.balances_stages && c.stage_layers.empty() && count <= model.layers() && model.layers() % count != 0)
        c.stage_layers = pipeline::dealt_layers(model.layers(), count);
    return c;
}

PENTAD_INLINE Strategy with_stage_layers(Model const& model, Hardware const& hardware, Strategy c,
                                         Pipelines& pipelines) {
    if (!c.balances_stages) return c;
    auto const& schedule = pipelines.schedule(c);
    Account const account(model, c, static_cast<int>(schedule.placements.size()),
                          dispatch_nodes(model, c, hardware.devices_per_node), pipeline::ends_meet(schedule));
    c.stage_layers = balanced_layers(model, c, account, Rates(hardware, c), schedule.stages());
    c.balances_stages = false;
    return c;
}

} // namespace pentad::planner

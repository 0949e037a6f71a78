// Where the stages of a schedule are: on the mesh, and among the layers of the model.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/pipeline/dealt_layers.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/strategy/why_not.hpp>
#include <pentad/train/run_settings.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

/// The coordinate along pp of a rank of the schedule. The two ranks that hold the same stages of a bidirectional
/// schedule, opposite to each other in it, are neighbours: they differ along inner(pp).
inline int pipeline_coordinate(pipeline::Schedule const& schedule, int rank) {
    if (schedule.placements.size() == 1) return rank;
    int const opposite = schedule.ranks() - 1 - rank;
    return rank < opposite ? 2 * rank : 2 * opposite + 1;
}
/// The rank of the schedule at a coordinate along pp.
inline int pipeline_rank(pipeline::Schedule const& schedule, int coordinate) {
    if (schedule.placements.size() == 1) return coordinate;
    return coordinate % 2 == 0 ? coordinate / 2 : schedule.ranks() - 1 - coordinate / 2;
}

/// Where along outer(pp) the first and the last stage are.
inline std::pair<int, int> ends_of(pipeline::Schedule const& schedule) {
    auto const copies = static_cast<int>(schedule.placements.size());
    return {pipeline_coordinate(schedule, schedule.placements[0].front()) / copies,
            pipeline_coordinate(schedule, schedule.placements[0].back()) / copies};
}

/// Why gradients cannot be clipped; nothing where they can, or are not.
inline std::optional<Refusal> clip_refusal(RunSettings const& settings, std::string_view name,
                                           pipeline::ScheduleTraits const& traits) {
    if (settings.clip <= 0) return std::nullopt;
    std::string const norm = "the norm of all gradients, which clip limits, is";
    if (traits.updates > 1)
        return Refusal{"clip", "schedule = " + std::string(name) + " updates each stage on its own, so that " + norm +
                                   " not known"};
    if (!settings.strategy.sharding.releases_gradients) return std::nullopt;
    return Refusal{"clip", "sharding.releases_gradients = on updates weights before " + norm + " known"};
}

/// Why a proven schedule cannot run with these settings on so many ranks of pp; nothing where it can.
inline std::optional<Refusal> schedule_misfit(pipeline::Schedule const& schedule, RunSettings const& settings,
                                              int ranks) {
    auto const number = [](auto n) { return std::to_string(n); };
    auto const refused = [&](std::string_view field, std::string const& why) {
        return Refusal{field, "schedule = " + schedule.name + " " + why};
    };
    if (schedule.purpose != pipeline::Purpose::training)
        return refused("schedule", "has no backward passes: it cannot train");
    if (schedule.ranks() != ranks)
        return refused("schedule",
                       "is for " + number(schedule.ranks()) + " ranks, and the mesh has pp = " + number(ranks));
    if (schedule.micro_batches != settings.strategy.micro_batches)
        return refused("micro_batches", "is for " + number(schedule.micro_batches) +
                                            " micro-batches, and the run has " +
                                            number(settings.strategy.micro_batches));
    auto const copies = schedule.placements.size();
    if (copies > 2) return refused("schedule", "has more than two placements of its stages");
    for (int stage = 0; copies == 2 && stage < schedule.stages(); ++stage) {
        auto const at = static_cast<std::size_t>(stage);
        int const rank = schedule.placements[0][at];
        if (rank + schedule.placements[1][at] + 1 != ranks || 2 * rank + 1 == ranks)
            return refused("schedule",
                           "has stage " + number(stage) + " on two ranks that are not opposite to each other");
    }
    if (auto const [first, last] = ends_of(schedule);
        settings.model.shares_embedding() && first != last &&
        (std::min(first, last) != 0 || std::max(first, last) + 1 != ranks / int(copies)))
        return refused("schedule", "has its first and last stage neither on one rank nor on the first and the last, "
                                   "which an embedding that both use needs");
    auto const traits = pipeline::traits(schedule);
    if (auto why = schedule_refusal(settings.model, settings.strategy, schedule.name, traits)) return why;
    return clip_refusal(settings, schedule.name, traits);
}

/// The mesh on which a schedule runs: `mesh` with what its axis pp must know.
/// @throws std::invalid_argument when the schedule is for another number of ranks
template <MeshOfRanks M>
M for_schedule(M const& mesh, pipeline::Schedule const& schedule) {
    if (mesh.template extent<pp>() != schedule.ranks())
        throw std::invalid_argument("the schedule " + schedule.name + " is for " + std::to_string(schedule.ranks()) +
                                    " ranks, and the mesh has pp = " + std::to_string(mesh.template extent<pp>()));
    auto const split = mesh.template split<pp>(static_cast<int>(schedule.placements.size()));
    return pipeline::ends_meet(schedule) ? split.template joined<pp>() : split;
}

/// What a stage is made of: layers [first, first + count), with the embedding before them or the head behind them.
struct StageLayers {
    int stage = 0;
    std::size_t first = 0, count = 0;
    bool is_first = true, is_last = true;
};

/// As many layers for each stage. @throws std::invalid_argument when they cannot be dealt evenly
inline std::vector<std::int64_t> even_layers(std::size_t layers, int stages) {
    auto const parts = static_cast<std::size_t>(stages);
    if (layers % parts != 0)
        throw std::invalid_argument(std::to_string(layers) + " layers cannot be dealt evenly to " +
                                    std::to_string(stages) + " stages of the pipeline");
    return pipeline::dealt_layers(static_cast<std::int64_t>(layers), stages);
}

/// The stages that a rank of the schedule holds, in the model's order; `layers` has their number for each stage.
/// @throws std::invalid_argument when these are not `all` the layers of the model
inline std::vector<StageLayers> stages_of(pipeline::Schedule const& schedule, int rank,
                                          std::span<std::int64_t const> layers, std::size_t all) {
    if (auto const refused = stages_refusal(layers, schedule.stages(), static_cast<std::int64_t>(all)))
        throw std::invalid_argument(refused->why);
    std::vector<StageLayers> held;
    std::size_t first = 0;
    for (int stage = 0; stage < schedule.stages(); ++stage) {
        auto const count = static_cast<std::size_t>(layers[static_cast<std::size_t>(stage)]);
        if (schedule.has_stage(rank, stage))
            held.push_back({stage, first, count, stage == 0, stage + 1 == schedule.stages()});
        first += count;
    }
    return held;
}

} // namespace pentad::train

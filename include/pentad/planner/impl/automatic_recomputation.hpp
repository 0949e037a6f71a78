// The functions of <pentad/planner/automatic_recomputation.hpp>.
#pragma once

#include <pentad/planner/automatic_recomputation.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/planner/least_recomputation.hpp>
#include <pentad/planner/memory.hpp>
#include <pentad/planner/nodes.hpp>
#include <pentad/planner/stage_times.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace pentad::planner {

/// The difference that decides between choices of equal work: later stages recompute more, since at the end of a step
/// nothing hides the backward passes of the first.
inline constexpr double least_difference = 1e-5;

PENTAD_INLINE std::vector<HeldPart> held_parts(Account const& account, pipeline::Schedule const& schedule,
                                               std::vector<StageShape> const& shapes, int rank) {
    std::vector<HeldPart> parts;
    for (int stage = 0; stage < schedule.stages(); ++stage)
        if (schedule.has_stage(rank, stage))
            account.for_each_part(shapes[static_cast<std::size_t>(stage)], [&](MeshPart const& part) {
                parts.push_back({static_cast<std::size_t>(stage), &part.memory});
            });
    return parts;
}

PENTAD_INLINE double workspace_of(Account const& account, pipeline::Schedule const& schedule,
                                  std::vector<StageShape> const& shapes, int rank,
                                  std::vector<HeldMoment> const& moments, double activations, double updates,
                                  bool updates_between_passes) {
    double const most = most_held(moments, held_parts(account, schedule, shapes, rank), account.stream()) +
                        message_bytes(account, schedule);
    return std::max({0.0, most - activations, updates_between_passes ? updates : updates - activations});
}

PENTAD_INLINE double activation_window(Account const& account, pipeline::Schedule const& schedule,
                                       std::vector<StageShape> const& shapes, int rank, Strategy const& c) {
    if (!c.offload.activations) return 0;
    double most = 0, blocks = 0;
    for (int stage = 0; stage < schedule.stages(); ++stage)
        if (schedule.has_stage(rank, stage))
            account.for_each_kind(shapes[static_cast<std::size_t>(stage)], [&](MeshPart const& part, double count) {
                if (part.memory.saved == part.sums->memory.saved) return; // embedding and head
                most = std::max(most, part.sums->memory.saved);
                blocks += count;
            });
    auto const records = static_cast<std::size_t>(blocks * static_cast<double>(schedule.micro_batches));
    return static_cast<double>(
        model::activation_window(static_cast<std::size_t>(most), records, c.offload.window_bytes));
}

PENTAD_INLINE std::vector<std::vector<Bucket>> held_buckets(Account const& account, pipeline::Schedule const& schedule,
                                                            std::vector<StageShape> const& shapes, int rank) {
    std::vector<std::vector<Bucket>> held;
    for (int stage = 0; stage < schedule.stages(); ++stage)
        if (schedule.has_stage(rank, stage)) held.push_back(account.buckets(shapes[static_cast<std::size_t>(stage)]));
    return held;
}

} // namespace pentad::planner

namespace pentad::planner::detail {

PENTAD_INLINE std::vector<model::BlockRecomputation> choices_of(Account const& account, AlikeLayers::Alike alike) {
    std::vector<model::Piece> useful;
    auto const saved = [&](model::BlockRecomputation const& recompute) {
        alike.recompute = recompute;
        return account.block(alike).sums->memory.saved;
    };
    for (std::size_t i = 0; i < model::piece_names.size(); ++i) {
        auto const piece = static_cast<model::Piece>(i);
        if (saved({.pieces = {piece}}) < saved({})) useful.push_back(piece);
    }
    std::vector<model::BlockRecomputation> choices;
    for (std::size_t bits = 0; bits < std::size_t{1} << useful.size(); ++bits) {
        model::PieceSet pieces;
        for (std::size_t i = 0; i < useful.size(); ++i)
            if ((bits >> i & 1U) != 0) pieces.add(useful[i]);
        // Outputs of norms are the inputs.
        if (pieces.contains(model::Piece::norms) && pieces.contains(model::Piece::inputs)) continue;
        choices.push_back({.pieces = pieces});
    }
    choices.push_back({.whole = true});
    return choices;
}

/// The value in fewer words, where all blocks are alike.
PENTAD_INLINE model::Recomputation simplified(model::Recomputation recompute) {
    auto const& blocks = recompute.blocks;
    bool const are_alike =
        std::all_of(blocks.begin(), blocks.end(), [&](auto const& block) { return block == blocks.front(); });
    return are_alike && !blocks.empty() ? model::each_block(blocks.front()) : recompute;
}

} // namespace pentad::planner::detail

namespace pentad::planner {

PENTAD_INLINE detail::RecomputationProblems
detail::recomputation_problems(Model const& model, Hardware const& hardware, Strategy const& c,
                               pipeline::Schedule const& schedule, std::vector<std::vector<HeldMoment>> const& held,
                               std::vector<StageShape> const& shapes, std::int64_t nodes,
                               std::function<double(PassTimes const&)> const& work) {
    Account const account(model, c, static_cast<int>(schedule.placements.size()), nodes, pipeline::ends_meet(schedule));
    Rates const rates(hardware, c);
    // The parameters of a block that is recomputed are one unit: there is room for that, whatever is chosen.
    auto recomputed = c;
    recomputed.recompute = model::each_block({.whole = true});
    Account const whole_blocks(model, recomputed, static_cast<int>(schedule.placements.size()), nodes,
                               pipeline::ends_meet(schedule));
    std::vector<std::int64_t> counts;
    for (auto const& shape : shapes) counts.push_back(shape.count);
    auto const whole_shapes = stage_shapes(model, recomputed, counts);
    // The options of each kind of block.
    RecomputationProblems result{.kinds = AlikeLayers(model, c)};
    auto const& alike = result.kinds.alike;
    auto const ends = alike.size();
    auto& choices = result.choices;
    choices.resize(alike.size());
    std::vector<std::vector<BlockOption>> options(alike.size());
    auto const find_options = [&](std::size_t kind) {
        if (!options[kind].empty()) return;
        choices[kind] = choices_of(account, alike[kind]);
        for (auto const& choice : choices[kind]) {
            auto like = alike[kind];
            like.recompute = choice;
            auto const part = account.block(like);
            options[kind].push_back({part.memory, work(part_time(part, rates, true))});
        }
        double const least = options[kind].front().work;
        for (auto& option : options[kind]) option.work = std::max(0.0, option.work - least);
    };
    std::map<std::vector<int>, std::vector<int>> ranks_with; // the same stages
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        std::vector<int> stages;
        for (int stage = 0; stage < schedule.stages(); ++stage)
            if (schedule.has_stage(rank, stage)) stages.push_back(stage);
        ranks_with[stages].push_back(rank);
    }
    for (auto const& [stages, ranks] : ranks_with) {
        RecomputationProblem problem;
        auto const parts = held_parts(account, schedule, shapes, ranks.front());
        for (int const rank : ranks) {
            auto const buckets = held_buckets(whole_blocks, schedule, whole_shapes, rank);
            double const room = hardware.memory_bytes - parameter_memory(buckets, c, schedule.weight_versions).total() -
                                message_bytes(account, schedule) -
                                activation_window(account, schedule, shapes, rank, c);
            for (auto moment : held[static_cast<std::size_t>(rank)]) {
                moment.room = room - moment.inputs * account.stream() - bytes_beside(moment, parts, true);
                moment.beside = HeldMoment::none;
                problem.moments.push_back(moment);
                if (!updates_between_passes(schedule, c)) continue;
                auto between = moment.between_passes();
                between.room -= update_workspace(buckets, c);
                problem.moments.push_back(std::move(between));
            }
        }
        auto const fits = [&](HeldMoment const& moment) { return most_held({&moment, 1}, parts, 0) <= moment.room; };
        if (std::all_of(problem.moments.begin(), problem.moments.end(), fits)) continue; // with nothing recomputed
        std::vector<std::int64_t> layers;
        for (int const stage : stages) {
            auto const& shape = shapes[static_cast<std::size_t>(stage)];
            auto const first = problem.options.size(); // of the stage: kinds of blocks, embedding, head
            problem.options.resize(first + ends + 2);
            auto const add = [&](std::size_t kind, std::int64_t layer) {
                problem.parts.push_back({static_cast<std::size_t>(stage), first + kind});
                layers.push_back(layer);
            };
            if (shape.is_first) {
                problem.options[first + ends] = {{account.parts().front().memory, 0}};
                add(ends, -1);
            }
            for (std::int64_t layer = shape.first; layer < shape.first + shape.count; ++layer) {
                auto const kind = result.kinds.of_layer[static_cast<std::size_t>(layer)];
                find_options(kind);
                auto& own = problem.options[first + kind];
                if (own.empty()) {
                    own = options[kind];
                    for (auto& option : own) option.work *= 1 - least_difference * stage / schedule.stages();
                }
                add(kind, layer);
            }
            if (shape.is_last) {
                problem.options[first + ends + 1] = {{account.parts().back().memory, 0}};
                add(ends + 1, -1);
            }
        }
        result.of_ranks.push_back({ranks, std::move(problem), std::move(layers)});
    }
    return result;
}

PENTAD_INLINE AutomaticRecomputation automatic_recomputation(Model const& model, Hardware const& hardware,
                                                             Strategy const& c, pipeline::Schedule const& schedule,
                                                             std::vector<std::vector<HeldMoment>> const& held,
                                                             std::vector<StageShape> const& shapes,
                                                             std::int64_t nodes) {
    auto const open = detail::recomputation_problems(model, hardware, c, schedule, held, shapes, nodes,
                                                     [](detail::PassTimes const& time) { return time.seconds(); });
    AutomaticRecomputation result;
    result.recompute.kind = model::Recomputation::Kind::planned;
    result.recompute.blocks.resize(static_cast<std::size_t>(model.layers()));
    for (auto const& [ranks, problem, layers] : open.of_ranks) {
        auto const chosen = least_recomputation(problem);
        result.is_exact = result.is_exact && chosen.is_exact;
        result.lacking = std::max(result.lacking, chosen.lacking);
        for (std::size_t i = 0; i < layers.size(); ++i) {
            if (layers[i] < 0) continue;
            auto const layer = static_cast<std::size_t>(layers[i]);
            result.recompute.blocks[layer] = open.choices[open.kinds.of_layer[layer]][chosen.options[i]];
        }
    }
    result.recompute = detail::simplified(std::move(result.recompute));
    return result;
}

PENTAD_INLINE AutomaticRecomputation automatic_recomputation(Model const& model, Hardware const& hardware,
                                                             Strategy const& c, Pipelines& pipelines) {
    auto const& schedule = pipelines.schedule(c);
    return automatic_recomputation(model, hardware, c, schedule, pipelines.held(c),
                                   stage_shapes(model, c, schedule.stages()),
                                   dispatch_nodes(model, c, hardware.devices_per_node));
}

PENTAD_INLINE std::vector<double> least_recomputed_seconds(Model const& model, Hardware const& hardware,
                                                           Strategy const& c, Pipelines& pipelines,
                                                           bool exchanges_are_hidden) {
    auto const& schedule = pipelines.schedule(c);
    auto const open = detail::recomputation_problems(
        model, hardware, c, schedule, pipelines.held(c), stage_shapes(model, c, schedule.stages()),
        dispatch_nodes(model, c, hardware.devices_per_node), [exchanges_are_hidden](detail::PassTimes const& time) {
            return time.device() - (exchanges_are_hidden ? time.exchanges() : 0);
        });
    std::vector<double> seconds(static_cast<std::size_t>(schedule.ranks()));
    for (auto const& [ranks, problem, layers] : open.of_ranks) {
        double const work = least_recomputed_work(problem);
        for (int const rank : ranks) seconds[static_cast<std::size_t>(rank)] = work;
    }
    return seconds;
}

} // namespace pentad::planner

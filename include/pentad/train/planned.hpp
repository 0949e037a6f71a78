// A run as the planner sees it.
#pragma once

#include <pentad/pipeline/simulator.hpp>
#include <pentad/planner/account.hpp>
#include <pentad/planner/configuration.hpp>
#include <pentad/planner/memory.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/train/run_settings.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::train {

/// A decoder as the planner describes it.
/// @throws std::invalid_argument where its blocks are not attention and gated MLPs or experts of one size each, with
/// experts in every n-th block
inline planner::Model planned_model(model::Model const& model) {
    auto const number = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    auto const refuse = [](std::string const& why) {
        throw std::invalid_argument("the planner knows no model " + why);
    };
    planner::Model planned{.name = "train_lm",
                           .layers = number(model.blocks.size()),
                           .hidden = number(model.hidden),
                           .vocab = number(model.vocab),
                           .ties_embeddings = model.ties_embeddings};
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
        auto const* attention = model.find<model::Attention>(i);
        auto const* mlp = model.find<model::GatedMlp>(i);
        auto const* experts = model.find<model::Experts>(i);
        if (attention == nullptr || (mlp == nullptr) == (experts == nullptr) || model.blocks[i].branches.size() != 2)
            refuse("whose block " + std::to_string(i) + " is not attention with a gated MLP or experts");
        planned.attention = {.heads = number(attention->heads),
                             .kv_heads = number(attention->kv_heads),
                             .head_dim = number(attention->head_dim)};
        if (experts != nullptr && planned.experts.count == 0)
            planned.experts = {.count = number(experts->count),
                               .top_k = number(experts->top_k),
                               .ffn = number(experts->width),
                               .every = number(i + 1)};
        bool const wants_experts = planned.experts.count > 0 && number(i + 1) % planned.experts.every == 0;
        if (wants_experts != (experts != nullptr)) refuse("with experts in other blocks than every n-th");
        if (mlp != nullptr)
            planned.ffn = number(mlp->width);
        else if (planned.ffn == 0)
            planned.ffn = number(experts->width);
    }
    return planned;
}

/// The extents and their order are the mesh's, the schedule and its chunks the caller's.
inline planner::Configuration planned_configuration(RunSettings const& settings, planner::Configuration mesh) {
    mesh.seq = static_cast<std::int64_t>(settings.seq);
    mesh.global_batch = static_cast<std::int64_t>(settings.batch);
    mesh.micro_batch = static_cast<std::int64_t>(settings.batch / settings.micro_batches) / (mesh.dp * mesh.ep);
    mesh.zero = settings.zero_stage;
    mesh.bucket_elements = static_cast<std::int64_t>(settings.bucket_elements);
    mesh.recompute = settings.recompute ? planner::Recompute::full : planner::Recompute::none;
    mesh.context = settings.context_strategy == ContextStrategy::ring ? planner::ContextStrategy::ring
                                                                      : planner::ContextStrategy::all_gather;
    mesh.zigzag = settings.order == Order::zigzag;
    return mesh;
}

/// The memory of each rank of the pipeline in a step.
/// @param layers of each stage; none: as many for each
inline std::vector<planner::Memory> planned_memory(planner::Model const& model, planner::Configuration const& c,
                                                   pipeline::Schedule const& schedule,
                                                   std::vector<std::size_t> const& layers) {
    planner::Account const account(model, c, static_cast<int>(schedule.placements.size()));
    std::vector<planner::StageShape> shapes;
    std::int64_t first = 0;
    auto const stages = static_cast<std::int64_t>(schedule.stages());
    for (std::int64_t stage = 0; stage < stages; ++stage) {
        auto const count = layers.empty() ? model.layers * (stage + 1) / stages - model.layers * stage / stages
                                          : static_cast<std::int64_t>(layers.at(static_cast<std::size_t>(stage)));
        shapes.push_back(
            {first, count, planner::layers_with_experts(model, first, first + count), stage == 0, stage + 1 == stages});
        first += count;
    }
    pipeline::Costs costs;
    costs.stages.clear();
    auto const input =
        planner::size_of(c.element) * planner::Work(model, c).streamed() * static_cast<double>(model.hidden);
    for (auto const& shape : shapes) {
        double saved = 0, left = 0;
        account.for_each_kind(shape, [&](planner::PartAccount const& part, double count) {
            saved += count * part.saved;
            left += count * part.left;
        });
        costs.stages.push_back({.activation = static_cast<std::int64_t>(saved),
                                .weight_part = static_cast<std::int64_t>(left),
                                .input = static_cast<std::int64_t>(input)});
    }
    auto const simulation = pipeline::simulate_proven(schedule, costs);
    std::vector<planner::Memory> memory;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        planner::Memory& own = memory.emplace_back();
        for (int stage = 0; stage < schedule.stages(); ++stage)
            if (schedule.has_stage(rank, stage))
                for (auto const& bucket : account.buckets(shapes[static_cast<std::size_t>(stage)]))
                    planner::add_bucket(own, bucket, c);
        own.weights *= static_cast<double>(schedule.weight_versions);
        own.activations = static_cast<double>(simulation.ranks[static_cast<std::size_t>(rank)].peak_memory);
        own.workspace = planner::workspace_of(model, c);
    }
    return memory;
}

} // namespace pentad::train

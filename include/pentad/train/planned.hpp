// Room: train. A run as the planner sees it.
#pragma once

#include <pentad/planner/configuration.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/train/run_settings.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace pentad::train {

inline planner::Model planned_model(ModelShape const& shape) {
    auto const number = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    planner::Model model{.name = "train_lm",
                         .layers = number(shape.layers),
                         .hidden = number(shape.hidden),
                         .vocab = number(shape.vocab),
                         .ffn = number(shape.ffn),
                         .attention = {.heads = number(shape.heads),
                                       .kv_heads = number(shape.kv_heads),
                                       .head_dim = number(shape.head_dim())},
                         .ties_embeddings = shape.tie_embeddings};
    if (shape.experts > 0)
        model.experts = {.count = number(shape.experts),
                         .top_k = number(shape.top_k),
                         .ffn = number(shape.ffn),
                         .every = number(shape.moe_every)};
    return model;
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

} // namespace pentad::train

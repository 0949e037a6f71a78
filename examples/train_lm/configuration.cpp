#include "configuration.hpp"

#include <pentad/layout/ml.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/stages.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace train_lm {

Mesh make_mesh(Options const& options, pentad::pipeline::Schedule const& schedule) {
    auto const views = strategy_of(options).views();
    auto const split = pentad::model::split_tensor_axis(views, pentad::ml::tp(), make_model(options),
                                                        options.strategy.block.tensor_kind);
    // Hybrid ZeRO shards over inner(dp), and groups that train apart share every step along it.
    auto const neighbours = options.strategy.local.steps > 0
                                ? options.strategy.local.ranks
                                : std::max<std::int64_t>(1, options.strategy.sharding.ranks);
    return pentad::train::for_schedule(pentad::model::split_data(split, static_cast<int>(neighbours))
                                           .split<pentad::ml::cp>(static_cast<int>(options.context_split().inner)),
                                       schedule);
}

pentad::planner::Request request_of(Options const& options, pentad::planner::Hardware hardware) {
    using pentad::Strategy;
    pentad::planner::Request request{
        .model = pentad::train::planned_model(make_model(options)),
        .hardware = std::move(hardware),
        .given = strategy_of(options), // stages are balanced by planned times here, by measured ones in the run
        .open = pentad::StrategyFields(&Strategy::dp, &Strategy::pp, &Strategy::ep, &Strategy::cp, &Strategy::tp),
        .context = options.context(),
        .wants_front = false};
    auto& given = request.given;
    given.chunks = options.stage_count() / given.pp; // of --chunks 0 as few as there can be
    if (!given.experts) request.open.add(&Strategy::experts);
    if (options.pair == "auto" && !given.offload.activations)
        request.open.add(&Strategy::pairs);
    else
        given.pairs = options.pair == "on";
    return request;
}

} // namespace train_lm

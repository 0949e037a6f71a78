// How many layers each stage of the pipeline has, by what the stages take: the embedding, each kind of block and the
// head with its predictors.
#pragma once

#include <pentad/planner/account.hpp>
#include <pentad/planner/hardware.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/planner/pipelines.hpp>
#include <pentad/planner/stage_times.hpp>
#include <pentad/strategy/strategy.hpp>

#include <cstdint>
#include <vector>

namespace pentad::planner {

/// The layers of each of so many stages with which the slowest stage takes least time for a micro-batch; stages may
/// have none (balanced_stages.hpp). What automatic recomputation adds does not count.
std::vector<std::int64_t> balanced_layers(Model const& model, Strategy const& c, Account const& account,
                                          Rates const& rates, std::int64_t stages);

/// The configuration with the layers of each stage, where it neither gives nor balances them and they cannot be as many
/// for each.
Strategy with_dealt_layers(Model const& model, Strategy c);

/// The configuration with the layers of each stage, where it balances them.
Strategy with_stage_layers(Model const& model, Hardware const& hardware, Strategy c, Pipelines& pipelines);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/stage_layers.hpp>
#endif

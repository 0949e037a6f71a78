// What a run is made of, from checked options; and the run as the planner has it.
#pragma once

#include "options.hpp"

#include <pentad/layout/ml.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/model/optimizer.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/planner/search.hpp>
#include <pentad/strategy/strategy.hpp>
#include <pentad/train/run_settings.hpp>

namespace train_lm {

using Mesh = pentad::model::ModelMesh;

[[nodiscard]] pentad::model::Optimizer make_optimizer(Options const& options);
/// The mesh of the options, as the schedule needs it.
[[nodiscard]] Mesh make_mesh(Options const& options, pentad::pipeline::Schedule const& schedule);
[[nodiscard]] pentad::train::RunSettings make_settings(Options const& options);
[[nodiscard]] pentad::Strategy strategy_of(Options const& options);
/// The planner's request for --mesh auto: all options but the mesh.
[[nodiscard]] pentad::planner::Request request_of(Options const& options, pentad::planner::Hardware hardware);

} // namespace train_lm

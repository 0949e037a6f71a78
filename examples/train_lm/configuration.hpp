// The mesh of a run, from checked options; and the run as the planner has it.
#pragma once

#include "options.hpp"

#include <pentad/layout/ml.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/planner/search.hpp>

namespace train_lm {

using Mesh = pentad::model::ModelMesh;

/// The mesh of the options, as the schedule needs it.
[[nodiscard]] Mesh make_mesh(Options const& options, pentad::pipeline::Schedule const& schedule);
/// The planner's request for --mesh auto: all options but the mesh.
[[nodiscard]] pentad::planner::Request request_of(Options const& options, pentad::planner::Hardware hardware);

} // namespace train_lm

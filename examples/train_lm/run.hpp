// A run of train_lm from checked options: the mesh, the trainer, the log, the summary.
#pragma once

#include "options.hpp"

#include <pentad/layers/model_shape.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/program/ranks.hpp>
#include <pentad/train/run_settings.hpp>

namespace train_lm {

using Mesh = pentad::Mesh<pentad::Axis<pentad::dp>, pentad::Axis<pentad::pp>, pentad::Axis<pentad::ep>,
                          pentad::Axis<pentad::cp>, pentad::Axis<pentad::tp>>;

/// The sizes of the model.
[[nodiscard]] pentad::ModelShape make_shape(Options const& options);
[[nodiscard]] pentad::train::RunSettings make_settings(Options const& options);

/// False when the outside world failed (a full disk): rank 0 has said so, and all ranks end together.
bool run(Options const& options, pentad::program::Ranks& ranks);

} // namespace train_lm

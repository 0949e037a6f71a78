// A run of train_lm from checked options: the mesh, the trainer, the log, the summary.
#pragma once

#include "options.hpp"

#include <pentad/layers/model_shape.hpp>

namespace train_lm {

/// The sizes of the model.
[[nodiscard]] pentad::ModelShape make_shape(Options const& options);

/// False when the outside world failed (a full disk): rank 0 has said so, and all ranks end together.
bool run(Options const& options);

} // namespace train_lm

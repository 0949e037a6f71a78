// A run of train_lm from checked options: the trainer, the log, the summary.
#pragma once

#include "options.hpp"

#include <pentad/program/ranks.hpp>

namespace train_lm {

/// False when the outside world failed (a full disk): rank 0 has said so, and all ranks end together.
bool run(Options const& options, pentad::program::Ranks& ranks);

} // namespace train_lm

// A run as the planner has it.
#pragma once

#include "options.hpp"

#include <pentad/planner/configuration.hpp>

namespace train_lm {

[[nodiscard]] pentad::planner::Configuration configuration_of(Options const& options);

} // namespace train_lm

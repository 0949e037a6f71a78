// The strategy of --cp auto.
#pragma once

#include "options.hpp"

namespace train_lm {

/// The options, where --cp is auto with the strategy whose estimated step is the shortest on the measured machine.
/// Kokkos is initialised. Collective; rank 0 prints the choice, unless the options are quiet.
[[nodiscard]] Options with_planned_context(Options options);

} // namespace train_lm

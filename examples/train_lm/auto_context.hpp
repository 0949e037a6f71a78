// The strategy of --cp auto.
#pragma once

#include "options.hpp"

namespace train_lm {

/// Measures the machine, and plans: the options with the strategy of attention over cp that is expected to be the
/// fastest on their mesh. Kokkos is up. Collective; rank 0 says what it found unless the options are quiet.
[[nodiscard]] Options with_planned_context(Options options);

} // namespace train_lm

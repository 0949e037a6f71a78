// A run of train_lm from checked options: the mesh, the trainer, the log, the summary.
#pragma once

#include "options.hpp"

#include <Kokkos_Core.hpp>

namespace train_lm {

/// One thread a rank where OMP_NUM_THREADS does not say otherwise and ranks are as many as cores: never more threads
/// than cores. Collective.
Kokkos::InitializationSettings kokkos_settings();

/// False when the outside world failed (a full disk): rank 0 has said so, and all ranks end together.
bool run(Options const& options);

} // namespace train_lm

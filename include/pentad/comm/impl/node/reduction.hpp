// Reductions of the usual elements, compiled once in lib/ for the default execution space: programs that link
// pentad::compiled_tensor instantiate them for other elements only.
#pragma once

#include <pentad/comm/node/reduction.hpp>
#include <pentad/layout/element.hpp>

#ifndef PENTAD_EXTERN
#define PENTAD_EXTERN extern
#endif

namespace pentad::comm::node {
PENTAD_EXTERN template Reduction reduction<f64>(Placement);
PENTAD_EXTERN template Reduction reduction<f32>(Placement);
PENTAD_EXTERN template Reduction reduction<bf16>(Placement);
} // namespace pentad::comm::node

#undef PENTAD_EXTERN

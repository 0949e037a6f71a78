// What <pentad/tensor/redistribute.hpp> does with the usual elements, compiled once in lib/ for the default execution
// space: programs that link pentad::compiled_tensor instantiate it for other elements only.
#pragma once

#include <pentad/tensor/redistribute.hpp>

#include <cstddef>
#include <cstdint>

#ifndef PENTAD_EXTERN
#define PENTAD_EXTERN extern
#endif
#define PENTAD_COMPILED_REDISTRIBUTIONS(T)                                                                             \
    PENTAD_EXTERN template class detail::Exchange<T, Kokkos::DefaultExecutionSpace>;                                   \
    PENTAD_EXTERN template class detail::HaloExchange<T, Kokkos::DefaultExecutionSpace>;                               \
    PENTAD_EXTERN template class detail::StartedPlan<T, Kokkos::DefaultExecutionSpace>;                                \
    PENTAD_EXTERN template class detail::StartedPlanInto<T, Kokkos::DefaultExecutionSpace>;                            \
    PENTAD_EXTERN template detail::Shard<T, Kokkos::DefaultExecutionSpace> detail::carry_out(                          \
        Context<Kokkos::DefaultExecutionSpace> const&, PlanValue const&,                                               \
        detail::Shard<T, Kokkos::DefaultExecutionSpace>, std::size_t,                                                  \
        View<T, 1, Kokkos::DefaultExecutionSpace> const&);                                                             \
    PENTAD_EXTERN template void detail::carry_out_into(                                                                \
        Context<Kokkos::DefaultExecutionSpace> const&, PlanValue const&,                                               \
        detail::Shard<T, Kokkos::DefaultExecutionSpace>, View<T, 1, Kokkos::DefaultExecutionSpace> const&);

namespace pentad {
PENTAD_COMPILED_REDISTRIBUTIONS(f64)
PENTAD_COMPILED_REDISTRIBUTIONS(f32)
PENTAD_COMPILED_REDISTRIBUTIONS(bf16)
PENTAD_COMPILED_REDISTRIBUTIONS(std::int32_t)
PENTAD_COMPILED_REDISTRIBUTIONS(std::int64_t)
} // namespace pentad

#undef PENTAD_COMPILED_REDISTRIBUTIONS
#undef PENTAD_EXTERN

// Rings of the usual elements, compiled once in lib/ for the default execution space: programs that link
// pentad::compiled_tensor instantiate them for other elements only.
#pragma once

#include <pentad/comm/ring.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/memory/view.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

#ifndef PENTAD_EXTERN
#define PENTAD_EXTERN extern
#endif
#define PENTAD_COMPILED_RINGS(T)                                                                                       \
    PENTAD_EXTERN template void detail::add(Kokkos::DefaultExecutionSpace const&,                                      \
                                            detail::BoxOf<T, Kokkos::DefaultExecutionSpace> const&,                    \
                                            detail::BoxOf<T, Kokkos::DefaultExecutionSpace> const&);                   \
    PENTAD_EXTERN template void detail::clear(Kokkos::DefaultExecutionSpace const&,                                    \
                                              detail::BoxOf<T, Kokkos::DefaultExecutionSpace> const&);                 \
    PENTAD_EXTERN template void ring_all_gather(Kokkos::DefaultExecutionSpace const&, Communicator const&,             \
                                                View<T, 3, Kokkos::DefaultExecutionSpace> const&,                      \
                                                View<T, 3, Kokkos::DefaultExecutionSpace> const&, std::size_t, OnBox); \
    PENTAD_EXTERN template void ring_reduce_scatter(                                                                   \
        Kokkos::DefaultExecutionSpace const&, Communicator const&, View<T, 3, Kokkos::DefaultExecutionSpace> const&,   \
        View<T, 3, Kokkos::DefaultExecutionSpace> const&, std::size_t, OnBox);

namespace pentad::comm {
PENTAD_COMPILED_RINGS(f64)
PENTAD_COMPILED_RINGS(f32)
PENTAD_COMPILED_RINGS(bf16)
} // namespace pentad::comm

#undef PENTAD_COMPILED_RINGS
#undef PENTAD_EXTERN

// Copies in the memory of the default execution space, compiled once in lib/: programs that link
// pentad::compiled_tensor instantiate them for other execution spaces only.
#pragma once

#include <pentad/memory/strided_copy.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

#ifndef PENTAD_EXTERN
#define PENTAD_EXTERN extern
#endif

namespace pentad::memory {
PENTAD_EXTERN template void copy(Kokkos::DefaultExecutionSpace const&, void*, void const*, std::size_t);
PENTAD_EXTERN template void clear(Kokkos::DefaultExecutionSpace const&, void*, std::size_t);
PENTAD_EXTERN template void copy_to_host(Kokkos::DefaultExecutionSpace const&, void*, void const*, std::size_t);
PENTAD_EXTERN template void copy_from_host(Kokkos::DefaultExecutionSpace const&, void*, void const*, std::size_t);
PENTAD_EXTERN template void copy(char const*, Kokkos::DefaultExecutionSpace const&, Runs const&, void*, void const*);
} // namespace pentad::memory

#undef PENTAD_EXTERN

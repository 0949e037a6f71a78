// Compiled to a CUDA object by ./dev test: every header, and the device code of what is instantiated here.
#include <pentad/pentad.hpp>

#include <type_traits>

static_assert(std::is_same_v<Kokkos::DefaultExecutionSpace, Kokkos::Cuda>);

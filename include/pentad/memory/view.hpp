// The one way local data is named: an unmanaged, row-major Kokkos View.
// Kernels take these; a Tensor (tensor.hpp) hands them out and owns what they point at.
#pragma once

#include <pentad/memory/complex.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <type_traits>

namespace pentad {

namespace detail {
template <class T, int Rank>
struct PointerChain {
    using type = typename PointerChain<T, Rank - 1>::type*;
};
template <class T>
struct PointerChain<T, 0> {
    using type = T;
};
} // namespace detail

/// Local data of a tensor: rank `Rank`, row-major, not owning. `Space` is an execution space (Kokkos::OpenMP, ...).
template <class T, int Rank, class Space = Kokkos::DefaultExecutionSpace>
using View = Kokkos::View<typename detail::PointerChain<T, Rank>::type, Kokkos::LayoutRight,
                          Kokkos::Device<Space, typename Space::memory_space>, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

namespace memory {
/// True where kernels of this execution space run on the host's cores.
template <class Exec>
inline constexpr bool runs_on_host = std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>;

} // namespace memory

} // namespace pentad

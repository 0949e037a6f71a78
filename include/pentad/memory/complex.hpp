// Complex numbers, those of the standard library and of Kokkos, as elements of tensors.
#pragma once

#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <complex>
#include <string_view>
#include <type_traits>

namespace pentad {

template <class T>
    requires std::is_same_v<T, f32> || std::is_same_v<T, f64>
struct Element<std::complex<T>> {
    static constexpr std::string_view name = sizeof(T) == 4 ? "c64" : "c128";
    using accumulator = std::complex<T>;
    static constexpr bool is_complex = true;
};
template <class T>
    requires std::is_same_v<T, f32> || std::is_same_v<T, f64>
struct Element<Kokkos::complex<T>> {
    static constexpr std::string_view name = sizeof(T) == 4 ? "c64" : "c128";
    using accumulator = Kokkos::complex<T>;
    static constexpr bool is_complex = true;
};

namespace memory::detail {
template <class T>
struct KernelElement {
    using type = T;
};
template <class T>
struct KernelElement<std::complex<T>> {
    using type = Kokkos::complex<T>; // whose operators run on devices
};
} // namespace memory::detail

/// What kernels compute with in place of T: of the same size and layout.
template <class T>
using kernel_element_t = typename memory::detail::KernelElement<T>::type;

} // namespace pentad

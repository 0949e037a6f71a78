// Complex numbers, those of the standard library and of Kokkos, as elements of tensors.
#pragma once

#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <complex>
#include <string_view>
#include <type_traits>

namespace pentad {

namespace memory::detail {
template <class Complex, class Part>
struct ComplexElement {
    static_assert(std::is_same_v<Part, f32> || std::is_same_v<Part, f64>, "pentad: complex numbers are of f32 or f64");
    static constexpr std::string_view name = sizeof(Part) == 4 ? "c64" : "c128";
    using accumulator = Complex;
    static constexpr bool is_commutative = true;
    static constexpr bool is_complex = true;
};

template <class T>
struct KernelElement {
    using type = T;
};
template <class T>
struct KernelElement<std::complex<T>> {
    using type = Kokkos::complex<T>; // whose operators run on devices
};
} // namespace memory::detail

template <class T>
struct Element<std::complex<T>> : memory::detail::ComplexElement<std::complex<T>, T> {};
template <class T>
struct Element<Kokkos::complex<T>> : memory::detail::ComplexElement<Kokkos::complex<T>, T> {};

/// What kernels compute with in place of T: of the same size and layout.
template <class T>
using kernel_element_t = typename memory::detail::KernelElement<T>::type;

} // namespace pentad

// What is done to flat ranges: add, scale, fill, convert, and the sum of squares that norms are made of.
// All at the speed of memory, none of them fences but where it says so.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/memory/copy.hpp>

namespace pentad::kernels {

/// y += x, added in the accumulator type.
template <class T, class Exec>
void add(Exec const& exec, In<T, 1, Exec> x, Out<T, 1, Exec> y) {
    using A = accumulator_t<T>;
    detail::require_extent("add", "x", x.extent(0), y.extent(0), "as y");
    T const* const in = x.data();
    T* const out = y.data();
    if (dry("add", x, y, y)) return;
    for_each_element("pentad::add", exec, y.extent(0), KOKKOS_LAMBDA(i64 i) { out[i] = T(A(out[i]) + A(in[i])); });
}
PENTAD_KERNEL(add)

/// y *= factor.
template <class T, class Exec>
void scale(Exec const& exec, Out<T, 1, Exec> y, accumulator_t<T> factor) {
    using A = accumulator_t<T>;
    T* const out = y.data();
    if (dry("scale", y, y)) return;
    for_each_element("pentad::scale", exec, y.extent(0), KOKKOS_LAMBDA(i64 i) { out[i] = T(A(out[i]) * factor); });
}
PENTAD_KERNEL(scale)

/// y = value everywhere; any element, integers too.
template <class T, class Exec>
void fill(Exec const& exec, Out<T, 1, Exec> y, T value) {
    T* const out = y.data();
    auto const number = static_cast<accumulator_t<T>>(value); // GCC does not vectorise copies of a struct such as bf16
    if (dry("fill", y)) return;
    for_each_element("pentad::fill", exec, y.extent(0), KOKKOS_LAMBDA(i64 i) { out[i] = static_cast<T>(number); });
}
PENTAD_KERNEL(fill)

/// y = x, converted where the elements differ (f64 to bf16 by way of f32, each to nearest even).
template <class From, class To, class Exec>
void convert(Exec const& exec, In<From, 1, Exec> x, Out<To, 1, Exec> y) {
    detail::require_extent("convert", "x", x.extent(0), y.extent(0), "as y");
    if (dry("convert", x, y)) return;
    if constexpr (std::is_same_v<From, To>) return memory::copy(exec, y.data(), x.data(), y.size() * sizeof(To));
    From const* const in = x.data();
    To* const out = y.data();
    for_each_element(
        "pentad::convert", exec, y.extent(0), KOKKOS_LAMBDA(i64 i) {
            out[i] = static_cast<To>(static_cast<accumulator_t<To>>(static_cast<accumulator_t<From>>(in[i])));
        });
}
PENTAD_KERNEL(convert, f64)
PENTAD_KERNEL(convert, f32)
PENTAD_KERNEL(convert, bf16)

namespace detail {

template <class T>
struct SquaresOfChunk {
    T const* x;
    i64 n, chunk;
    KOKKOS_FUNCTION void operator()(i64 index, f64& total) const {
        constexpr int lanes = 32;
        i64 const begin = index * chunk;
        i64 const end = begin + chunk < n ? begin + chunk : n;
        f64 part[lanes] = {};
        i64 i = begin;
        for (; i + lanes <= end; i += lanes)
            for (int l = 0; l < lanes; ++l) {
                f64 const value = static_cast<accumulator_t<T>>(x[i + l]);
                part[l] += value * value;
            }
        for (int l = 0; l < end - i; ++l) {
            f64 const value = static_cast<accumulator_t<T>>(x[i + l]);
            part[l] += value * value;
        }
        for (int half = lanes / 2; half > 0; half /= 2)
            for (int l = 0; l < half; ++l) part[l] += part[l + half];
        total += part[0];
    }
};

template <class T, class Exec, class Result>
void sum_of_squares_into(Exec const& exec, In<T, 1, Exec> x, Result& result) {
    if (dry("sum_of_squares", x)) return;
    i64 const n = static_cast<i64>(x.extent(0));
    i64 const chunk = runs_on_host<Exec> ? host_chunk : 32; // on a device, a chunk a thread
    Kokkos::parallel_reduce("pentad::sum_of_squares",
                            Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, (n + chunk - 1) / chunk),
                            SquaresOfChunk<T>{x.data(), n, chunk}, result);
}

} // namespace detail

/// result = sum of x^2, accumulated in f64 in an order that depends on the length and the number of threads alone.
template <class T, class Exec>
void sum_of_squares(Exec const& exec, In<T, 1, Exec> x, Out<f64, 0, Exec> result) {
    detail::sum_of_squares_into<T>(exec, x, result);
}
PENTAD_KERNEL(sum_of_squares)

/// The sum of x^2 on the host, in the order of sum_of_squares: waits for `exec`.
template <class T, class Exec>
f64 host_sum_of_squares(Exec const& exec, In<T, 1, Exec> x) {
    f64 result = 0;
    detail::sum_of_squares_into<T>(exec, x, result);
    return result;
}
PENTAD_KERNEL(host_sum_of_squares)

/// The sum of x in f64 on the host: waits for `exec`.
template <class A, class Exec>
f64 host_sum(Exec const& exec, In<A, 1, Exec> x) {
    f64 result = 0;
    if (dry("sum", x)) return result;
    Kokkos::parallel_reduce(
        "pentad::sum", Kokkos::RangePolicy<Exec>(exec, 0, x.size()),
        KOKKOS_LAMBDA(std::size_t i, f64& partial) { partial += static_cast<f64>(x(i)); }, result);
    return result;
}
PENTAD_KERNEL_OF_ACCUMULATORS(host_sum)

} // namespace pentad::kernels

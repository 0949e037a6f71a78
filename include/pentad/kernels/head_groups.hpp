// Rows that are repeated for the members of a group, and the adjoint: the sum over each group.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/memory/strided_copy.hpp>

#include <cstddef>

namespace pentad::kernels {

/// y[i copies + j, :] = x[i, :] for j < copies; x is [rows, columns].
template <class T, class Exec>
void repeat_rows(Exec const& exec, In<T, 2, Exec> x, Out<T, 2, Exec> y) {
    std::size_t const rows = x.extent(0), row = x.extent(1) * sizeof(T), copies = rows == 0 ? 0 : y.extent(0) / rows;
    detail::require_extent("repeat_rows", "y", y.extent(0), copies * rows, "a multiple of the rows of x");
    detail::require_extent("repeat_rows", "y", y.extent(1), x.extent(1), "as x");
    if (dry("repeat_rows", x, y)) return;
    memory::copy("pentad::repeat_rows", exec, memory::Runs(row).add(copies, row, 0).add(rows, copies * row, row),
                 y.data(), x.data());
}
PENTAD_KERNEL(repeat_rows)

/// y[i, :] = the sum of x[i copies + j, :] over j < copies, in this order; y is [rows, columns].
template <class T, class Exec>
void sum_rows(Exec const& exec, In<T, 2, Exec> x, Out<T, 2, Exec> y) {
    using A = accumulator_t<T>;
    i64 const rows = static_cast<i64>(y.extent(0)), columns = static_cast<i64>(y.extent(1));
    i64 const copies = rows == 0 ? 0 : static_cast<i64>(x.extent(0)) / rows;
    detail::require_extent("sum_rows", "x", x.extent(0), static_cast<std::size_t>(copies * rows),
                           "a multiple of the rows of y");
    detail::require_extent("sum_rows", "x", x.extent(1), y.extent(1), "as y");
    T const* const in = x.data();
    T* const out = y.data();
    if (dry("sum_rows", x, y)) return;
    for_each_element(
        "pentad::sum_rows", exec, y.size(), KOKKOS_LAMBDA(i64 i) {
            T const* const first = in + i / columns * copies * columns + i % columns;
            A sum = 0;
            for (i64 j = 0; j < copies; ++j) sum += A(first[j * columns]);
            out[i] = T(sum);
        });
}
PENTAD_KERNEL(sum_rows)

} // namespace pentad::kernels

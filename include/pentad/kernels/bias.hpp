// A bias: a row that is added to every row, and its gradient.
#pragma once

#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// y[r, :] += bias, added in the accumulator type.
template <class T, class Exec>
void add_bias(Exec const& exec, In<T, 1, Exec> bias, Out<T, 2, Exec> y) {
    using A = accumulator_t<T>;
    detail::require_extent("add_bias", "bias", bias.extent(0), y.extent(1), "columns of y");
    int const columns = static_cast<int>(y.extent(1));
    if (dry("add_bias", bias, y, y)) return;
    for_each_row(
        "pentad::add_bias", exec, y.extent(0), y.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const b = bias.data();
            T* const out = row.of(y);
            row.each(columns, [&](int i) { out[i] = T(A(out[i]) + A(b[i])); });
        });
}
PENTAD_KERNEL(add_bias)

/// dbias += the sum of the rows of dy.
template <class T, class Exec>
void add_bias_gradient(Exec const& exec, In<T, 2, Exec> dy, Out<accumulator_t<T>, 1, Exec> dbias) {
    using A = accumulator_t<T>;
    detail::require_extent("add_bias_gradient", "dbias", dbias.extent(0), dy.extent(1), "columns of dy");
    if (dry("add_bias_gradient", dy, dbias, dbias)) return;
    sum_over_rows<A>(
        "pentad::add_bias_gradient", exec, dy.extent(0), dy.extent(1),
        KOKKOS_LAMBDA(i64 r, int j) { return A(dy(r, j)); }, KOKKOS_LAMBDA(int j, A total) { dbias(j) += total; });
}
PENTAD_KERNEL(add_bias_gradient)

} // namespace pentad::kernels

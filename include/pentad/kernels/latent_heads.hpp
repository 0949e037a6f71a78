// What lies between the products of latent attention and attention itself: the projection down is cut into the latent
// vector and the rotary key, and the projection up, with the rotary key behind it, into the keys and values of heads.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

#include <cstddef>

namespace pentad::kernels {

/// left [rows, l] and right [rows, r] = the columns of x [rows, l + r].
template <class T, class Exec>
void split_columns(Exec const& exec, In<T, 2, Exec> x, Out<T, 2, Exec> left, Out<T, 2, Exec> right) {
    detail::require_extent("split_columns", "left", left.extent(0), x.extent(0), "rows of x");
    detail::require_extent("split_columns", "right", right.extent(0), x.extent(0), "rows of x");
    detail::require_extent("split_columns", "x, dimension 1,", x.extent(1), left.extent(1) + right.extent(1),
                           "columns of both parts");
    if (dry("split_columns", x, left, right)) return;
    int const l = static_cast<int>(left.extent(1)), r = static_cast<int>(right.extent(1));
    for_each_row(
        "pentad::split_columns", exec, x.extent(0), x.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const from = row.of(x);
            row.copy(l, from, row.of(left));
            row.copy(r, from + l, row.of(right));
        });
}
PENTAD_KERNEL(split_columns)
/// The adjoint, and the inverse: y [rows, l + r] = left [rows, l] and right [rows, r], side by side.
template <class T, class Exec>
void join_columns(Exec const& exec, In<T, 2, Exec> left, In<T, 2, Exec> right, Out<T, 2, Exec> y) {
    detail::require_extent("join_columns", "left", left.extent(0), y.extent(0), "rows of y");
    detail::require_extent("join_columns", "right", right.extent(0), y.extent(0), "rows of y");
    detail::require_extent("join_columns", "y, dimension 1,", y.extent(1), left.extent(1) + right.extent(1),
                           "columns of both parts");
    if (dry("join_columns", left, right, y)) return;
    int const l = static_cast<int>(left.extent(1)), r = static_cast<int>(right.extent(1));
    for_each_row(
        "pentad::join_columns", exec, y.extent(0), y.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T* const to = row.of(y);
            row.copy(l, row.of(left), to);
            row.copy(r, row.of(right), to + l);
        });
}
PENTAD_KERNEL(join_columns)

namespace detail {

/// Widths of the heads of latent attention: elements of a key without a position, of one with a position, of a value.
struct LatentWidths {
    int plain, rotary, value;

    /// @param of_products columns of what the projection up gives @param of_keys of the keys of all heads
    LatentWidths(char const* kernel, std::size_t heads, std::size_t of_products, std::size_t of_rotary,
                 std::size_t of_keys, std::size_t of_values) {
        std::size_t const n = heads > 0 ? heads : 1;
        rotary = static_cast<int>(of_rotary);
        value = static_cast<int>(of_values / n);
        plain = static_cast<int>(of_keys / n) - rotary;
        detail::require_extent(kernel, "values, dimension 1,", of_values, n * static_cast<std::size_t>(value),
                               "the same for each head");
        detail::require_extent(kernel, "keys, dimension 1,", of_keys, n * static_cast<std::size_t>(plain + rotary),
                               "the same for each head");
        detail::require_extent(kernel, "products, dimension 1,", of_products,
                               n * static_cast<std::size_t>(plain + value),
                               "heads times what keys and values have together, without the rotary key");
    }
};

} // namespace detail

/// The key of each head, [its own part | the rotary key, which all heads share], and its value.
/// @param products [rows, heads (p + v)], of each head p elements of its key and then its value @param rotary [rows, r]
/// @param keys [rows, heads (p + r)] @param values [rows, heads v]
template <class T, class Exec>
void latent_heads(Exec const& exec, std::size_t heads, In<T, 2, Exec> products, In<T, 2, Exec> rotary,
                  Out<T, 2, Exec> keys, Out<T, 2, Exec> values) {
    detail::LatentWidths const w("latent_heads", heads, products.extent(1), rotary.extent(1), keys.extent(1),
                                 values.extent(1));
    for (auto const extent : {rotary.extent(0), keys.extent(0), values.extent(0)})
        detail::require_extent("latent_heads", "an operand", extent, products.extent(0), "rows of products");
    if (dry("latent_heads", products, rotary, keys, values)) return;
    int const n = static_cast<int>(heads), p = w.plain, r = w.rotary, v = w.value;
    for_each_row(
        "pentad::latent_heads", exec, products.extent(0), products.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const from = row.of(products);
            T const* const turned = row.of(rotary);
            T* const key = row.of(keys);
            T* const value = row.of(values);
            row.each(n, p, [&](int h, int i) { key[h * (p + r) + i] = from[h * (p + v) + i]; });
            row.each(n, r, [&](int h, int i) { key[h * (p + r) + p + i] = turned[i]; });
            row.each(n, v, [&](int h, int i) { value[h * v + i] = from[h * (p + v) + p + i]; });
        });
}
PENTAD_KERNEL(latent_heads)
/// The adjoint, of gradients in accumulators: that of the rotary key is the sum over the heads.
template <class T, class Exec>
void latent_heads_backward(Exec const& exec, std::size_t heads, In<accumulator_t<T>, 2, Exec> d_keys,
                           In<accumulator_t<T>, 2, Exec> d_values, Out<T, 2, Exec> d_products,
                           Out<T, 2, Exec> d_rotary) {
    using A = accumulator_t<T>;
    detail::LatentWidths const w("latent_heads_backward", heads, d_products.extent(1), d_rotary.extent(1),
                                 d_keys.extent(1), d_values.extent(1));
    for (auto const extent : {d_rotary.extent(0), d_keys.extent(0), d_values.extent(0)})
        detail::require_extent("latent_heads_backward", "an operand", extent, d_products.extent(0),
                               "rows of d_products");
    if (dry("latent_heads_backward", d_keys, d_values, d_products, d_rotary)) return;
    int const n = static_cast<int>(heads), p = w.plain, r = w.rotary, v = w.value;
    for_each_row(
        "pentad::latent_heads_backward", exec, d_products.extent(0), d_products.extent(1),
        KOKKOS_LAMBDA(Row<Exec> const& row) {
            A const* const d_key = row.of(d_keys);
            A const* const d_value = row.of(d_values);
            T* const to = row.of(d_products);
            T* const d_turned = row.of(d_rotary);
            row.each(n, p, [&](int h, int i) { to[h * (p + v) + i] = T(d_key[h * (p + r) + i]); });
            row.each(n, v, [&](int h, int i) { to[h * (p + v) + p + i] = T(d_value[h * v + i]); });
            row.template accumulate<A>(
                r, n, [&](int h, int i) { return d_key[h * (p + r) + p + i]; },
                [&](int i, A sum) { d_turned[i] = T(sum); });
        });
}
PENTAD_KERNEL(latent_heads_backward)

} // namespace pentad::kernels

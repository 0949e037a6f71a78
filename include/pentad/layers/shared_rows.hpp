// Sums over the rows of activations whose last dimension is sharded, as norms need them on a grid.
#pragma once

#include <pentad/layers/layer.hpp>
#include <pentad/layout/algebra.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <cstddef>
#include <utility>

namespace pentad {

namespace detail {
template <class X, class Axes>
struct RowSums;
template <class X, class... Axes>
struct RowSums<X, AxisSet<Axes...>> {
    template <class... States>
    struct With;
    template <class T, class D, class... States>
    struct With<Layout<T, D>, States...> {
        using type = Layout<accumulator_t<T>, D, States...>;
    };
    using rows = invariant_t<with_last_dim_t<X, Dim<ml::group>>>;
    using whole = typename With<rows>::type;
    using partial = typename With<rows, Partial<Axes...>>::type;
};
} // namespace detail

/// Whether ranks share the rows of X: its last dimension is sharded.
template <class X>
inline constexpr bool shares_rows = X::value.dimensions[X::rank - 1].axes.size() > 0;

/// `count` sums for each row of x over all its columns. @param write fills in this rank's [rows, count]
template <class X, class Exec, class Write>
auto sums_of_rows(Context<Exec> const& context, Tensor<X, Exec> const& x, std::size_t count, Write&& write) {
    using Sums = detail::RowSums<X, sharded_axes_t<last_dimension_t<X>>>;
    auto extents = x.extents();
    extents.back() = count;
    Tensor<typename Sums::partial, Exec> own(context, extents);
    write(own.array_rows());
    return redistribute<typename Sums::whole>(std::move(own));
}

} // namespace pentad

// The ZeRO stages as layouts of a bucket of flat elements (Rajbhandari et al. 2020, section 5): what is
// synchronised, and over which axes the optimizer state is sharded, follows from the layout of the gradients.
#pragma once

#include <pentad/layout/algebra.hpp>

namespace pentad::zero {

namespace detail {
template <class T, class Set>
struct FlatShard;
template <class T, class... Axes>
struct FlatShard<T, AxisSet<Axes...>> {
    using type = Layout<T, Dims<Dim<flat, dynamic, Axes...>>>;
};
template <class T, class Set>
struct FlatPartial;
template <class T, class... Axes>
struct FlatPartial<T, AxisSet<Axes...>> {
    using type = Layout<T, Dims<Dim<flat>>, Partial<Axes...>>;
};
} // namespace detail

/// The gradient of a bucket whose parameters are used as replicated over the axes `Sync`.
template <class T, class Sync>
using gradient_t = typename detail::FlatPartial<T, Sync>::type;
/// A bucket that every rank holds whole.
template <class T>
using Whole = Layout<T, Dims<Dim<flat>>>;

/// Stage 0: optimizer state and reduced gradient on every rank. Stage 1: optimizer state (and the gradient it sees)
/// sharded over the axes over which the gradient was partial; the holders of a tied embedding each keep theirs.
template <int Number>
struct Stage {
    static_assert(Number == 0 || Number == 1, "pentad: ZeRO stages 0 and 1 exist");
    template <class T, class Sync>
    using state =
        typename detail::FlatShard<T,
                                   std::conditional_t<Number == 0, AxisSet<>, minus_t<Sync, AxisSet<ends<pp>>>>>::type;
};

} // namespace pentad::zero

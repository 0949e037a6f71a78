// Keys and values, which travel together, and their gradients.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layout/algebra.hpp>
#include <pentad/tensor/tensor.hpp>

namespace pentad::context::detail {

/// Two tensors of keys and values, or of their gradients.
template <class L, class Exec>
struct Pair {
    using layout = L;
    Tensor<L, Exec> key, value;

    /// Zeros of the same shape.
    template <class To>
    [[nodiscard]] Pair<To, Exec> zeros() const {
        Pair<To, Exec> const pair{{key.context(), key.extents()}, {value.context(), value.extents()}};
        pair.key.clear();
        pair.value.clear();
        return pair;
    }
    void add_to(Pair const& other) const {
        using A = typename L::element;
        kernels::add<A>(key.context().exec(), key.array_flat(), other.key.array_flat());
        kernels::add<A>(key.context().exec(), value.array_flat(), other.value.array_flat());
    }
    /// An uninitialised pair of the same shape.
    [[nodiscard]] Pair like() const { return {{key.context(), key.extents()}, {value.context(), value.extents()}}; }
};

/// The gradients of keys and values of layout Key, in accumulators.
template <class Key, class Exec>
using PairGradient = Pair<with_element_t<dual_t<Key>, accumulator_t<typename Key::element>>, Exec>;

} // namespace pentad::context::detail

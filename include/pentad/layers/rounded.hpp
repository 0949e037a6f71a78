// Gradients that kernels give in accumulators, in the elements of the layer.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/tensor/tensor.hpp>

#include <type_traits>
#include <utility>

namespace pentad {

/// Under layout L, which differs from the gradient's in the element alone; itself where that is the same.
template <class L, class G, class Exec>
Tensor<L, Exec> rounded(Tensor<G, Exec> gradient) {
    using From = typename G::element;
    using To = typename L::element;
    if constexpr (std::is_same_v<From, To>) {
        return std::move(gradient).template reinterpret_as<L>();
    } else {
        Tensor<L, Exec> result(gradient.context(), gradient.extents());
        kernels::convert<From, To>(gradient.context().exec(), gradient.array_flat(), result.array_flat());
        return result;
    }
}

} // namespace pentad

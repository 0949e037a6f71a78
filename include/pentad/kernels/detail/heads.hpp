// Tensors [batch, seq, heads, head_dim] as kernels know them, pointers and strides, and the checks of the Views that
// they are made of.
#pragma once

#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace pentad::kernels::detail {

/// A tensor [batch, seq, heads, head_dim] whose head_dim is contiguous.
template <class T>
struct Heads {
    T* data;
    i64 batch_stride, seq_stride, head_stride;

    KOKKOS_FUNCTION T* row(i64 batch, i64 seq, i64 head) const {
        return data + batch * batch_stride + seq * seq_stride + head * head_stride;
    }
};

template <class T, class Acc>
Heads<T const> constant(Heads<Acc> const& heads) {
    return {heads.data, heads.batch_stride, heads.seq_stride, heads.head_stride};
}

template <class View>
std::string extents_text(View const& view) {
    std::string text = "[";
    for (std::size_t d = 0; d < View::rank(); ++d) text += (d ? ", " : "") + std::to_string(view.extent(d));
    return text + "]";
}

/// Refuses a view `name` of other extents.
template <class View>
void check_extents(char const* kernel, char const* name, View const& view,
                   std::array<i64, View::rank()> const& expected) {
    bool fits = true;
    for (std::size_t d = 0; d < View::rank(); ++d) fits = fits && static_cast<i64>(view.extent(d)) == expected[d];
    if (fits) return;
    std::string text;
    for (i64 extent : expected) text += (text.empty() ? "" : ", ") + std::to_string(extent);
    throw std::invalid_argument(std::string(kernel) + ": " + name + extents_text(view) + " must be [" + text +
                                "] to go with the other operands");
}

template <class View>
auto heads_of(char const* kernel, char const* name, View const& view) {
    static_assert(View::rank() == 4, "tensors of heads, and their gradients, are Views of rank 4");
    if (view.extent(3) > 1 && view.stride(3) != 1)
        throw std::invalid_argument(std::string(kernel) + ": the last dimension of " + name + extents_text(view) +
                                    " has stride " + std::to_string(view.stride(3)) + "; it must be contiguous");
    return Heads<typename View::value_type>{view.data(), static_cast<i64>(view.stride(0)),
                                            static_cast<i64>(view.stride(1)), static_cast<i64>(view.stride(2))};
}

} // namespace pentad::kernels::detail

// expect: pentad: elements of a tensor are of a type that is declared one: write a pentad::Element<T> for it
// expect: pentad: summands of ranks are added in no certain order
// expect: pentad: a dimension is an empty type with a name
// expect: pentad: an axis is an empty type with a name
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/tensor.hpp>

#include <string_view>

using namespace pentad;
using namespace pentad::ml;

/// Maps x to scale x + shift: a + b is b after a, which is not a after b.
struct Affine {
    double scale, shift;
    KOKKOS_FUNCTION friend Affine operator+(Affine a, Affine b) {
        return {a.scale * b.scale, b.scale * a.shift + b.shift};
    }
};
struct Pair {
    double first, second;
};
struct nameless {};
template <>
struct pentad::Element<Affine> {
    static constexpr std::string_view name = "map";
    using accumulator = Affine;
    static constexpr bool is_commutative = false;
};

template <class T, class Dimension, class... States>
inline std::size_t size(Context<Kokkos::DefaultHostExecutionSpace> const& context) {
    return make_tensor<Layout<T, Dims<Dimension>, States...>>(context, {8}).size();
}
inline auto sizes(Context<Kokkos::DefaultHostExecutionSpace> const& context) {
#ifdef PENTAD_WRONG
    return size<Pair, Dim<batch>>(context) + size<Affine, Dim<batch>, Partial<tp>>(context) +
           size<f64, Dim<nameless>>(context) + size<f64, Dim<batch, dynamic, nameless>>(context);
#else
    return size<Affine, Dim<batch, dynamic, dp>>(context) + size<f64, Dim<batch>, Partial<tp>>(context);
#endif
}

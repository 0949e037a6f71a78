// Products of matrices on a device, of every element.
#include <pentad/layout/ml.hpp>
#include <pentad/product.hpp>

template <class T>
void products() {
    using namespace pentad;
    using namespace pentad::ml;
    using A = Layout<T, Dims<Dim<batch, dynamic, dp>, Dim<hidden, dynamic, tp>>>;
    using B = Layout<T, Dims<Dim<ffn, dynamic, tp>, Dim<hidden, dynamic, dp>>, Partial<cp>>;
    using C = Layout<T, Dims<Dim<batch, dynamic, dp>, Dim<ffn, dynamic, tp>>>;
    Tensor<A, Kokkos::Cuda> const a;
    Tensor<B, Kokkos::Cuda> const b;
    auto const c = multiply<C>(a, b);
    multiply_into(c, a, b);
    (void)multiply_backward_a<A>(c.template reinterpret_as<dual_t<C>>(), b);
    GridContext<Kokkos::Cuda> const grid(MPI_COMM_WORLD, {});
    (void)multiply(grid, a, b);
}

template void products<pentad::f64>();
template void products<pentad::f32>();
template void products<pentad::bf16>();

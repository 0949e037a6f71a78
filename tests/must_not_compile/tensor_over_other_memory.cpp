// expect: pentad: memory of a tensor is row-major: a view with Kokkos::LayoutRight
// expect: pentad: memory of a tensor has the elements of its layout, and is not constant
// expect: pentad: memory of a tensor is a view with the dimensions of its layout, or a list of its elements
// expect: pentad: memory of a tensor is given as a view, which says how it is laid out and how much there is
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/tensor.hpp>

using namespace pentad;
using namespace pentad::ml;

using Exec = Kokkos::DefaultHostExecutionSpace;
using Matrix = Tensor<Layout<f64, Dims<Dim<batch>, Dim<hidden>>>, Exec>;
template <class T, class Order = Kokkos::LayoutRight>
using Memory = Kokkos::View<T, Order, Kokkos::HostSpace>;
inline void wrap(Context<Exec> const& context, double* address) {
#ifdef PENTAD_WRONG
    (void)Matrix(context, {8, 8}, Memory<double**, Kokkos::LayoutLeft>("left", 8, 8));
    (void)Matrix(context, {8, 8}, Memory<float**>("short", 8, 8));
    (void)Matrix(context, {8, 8}, Memory<double***>("three dimensions", 2, 4, 8));
    (void)Matrix(context, {8, 8}, {}, address);
#else
    (void)Matrix(context, {8, 8}, Memory<double**>("right", 8, 8));
    (void)Matrix(context, {8, 8}, Memory<double*>("list", 64));
    using Given =
        Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    (void)Matrix(context, {8, 8}, Given(address, 8, 8));
#endif
}

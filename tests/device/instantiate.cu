// Compiled to a CUDA object by ./dev test: every header, and the device code of what is instantiated here.
#include <pentad/pentad.hpp>

#include <type_traits>

static_assert(std::is_same_v<Kokkos::DefaultExecutionSpace, Kokkos::Cuda>);

// What training does not use: the plain MLP, and views that lie otherwise than they travel.
template class pentad::PlainMlp<>::on<pentad::SequenceStream<pentad::f32>, Kokkos::Cuda>;
template void pentad::comm::all_reduce(Kokkos::Cuda const&, pentad::comm::Communicator const&,
                                       Kokkos::View<float**, Kokkos::LayoutStride, Kokkos::Cuda> const&,
                                       pentad::Placement);
template class pentad::context::Carry<pentad::context::HeadStates<pentad::f32>, Kokkos::Cuda>;

// Tensor parallelism on a grid: its maps, and norms of rows that ranks share.
template class pentad::GatedMlp<>::on<pentad::GridStream<pentad::f32>, Kokkos::Cuda>;
template class pentad::RmsNorm::on<pentad::CubeStream<pentad::bf16>, Kokkos::Cuda>;
template class pentad::LayerNorm::on<pentad::GridStream<pentad::f32>, Kokkos::Cuda>;

// The scan with every element; layers are compiled with f32 alone.
template <class T>
void scan() {
    using namespace pentad;
    using A = accumulator_t<T>;
    Kokkos::Cuda const exec;
    View<T, 4, Kokkos::Cuda> const of_groups, of_heads;
    View<A, 4, Kokkos::Cuda> const states, d_groups, d_heads;
    View<A, 3, Kokkos::Cuda> const decays;
    View<A, 2, Kokkos::Cuda> const total;
    View<A, 1, Kokkos::Cuda> const memory;
    kernels::chunk_scan_state(exec, of_groups, of_heads, decays, 64, states, total, memory);
    kernels::chunk_scan_forward(exec, of_groups, of_groups, of_heads, decays, states, 64, of_heads, states, memory);
    kernels::chunk_scan_initial_gradient(exec, of_groups, decays, of_heads, 64, states, memory);
    kernels::chunk_scan_backward(exec, of_groups, of_groups, of_heads, decays, states, of_heads, states, 64, d_groups,
                                 d_groups, d_heads, decays, states, memory);
    (void)kernels::chunk_scan_backward_workspace<T>(exec, {});
}
template void scan<pentad::f64>();
template void scan<pentad::f32>();
template void scan<pentad::bf16>();

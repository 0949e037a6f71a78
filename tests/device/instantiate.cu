// Compiled to a CUDA object by ./dev test: every header, and the device code of what is instantiated here.
#include <pentad/pentad.hpp>

#include <type_traits>

static_assert(std::is_same_v<Kokkos::DefaultExecutionSpace, Kokkos::Cuda>);

// What training does not use: the plain MLP, and views that lie otherwise than they travel.
template class pentad::PlainMlp<>::on<pentad::SequenceStream<pentad::f32>, Kokkos::Cuda>;
template void pentad::comm::all_reduce(Kokkos::Cuda const&, pentad::comm::Communicator const&,
                                       Kokkos::View<float**, Kokkos::LayoutStride, Kokkos::Cuda> const&,
                                       pentad::Placement);

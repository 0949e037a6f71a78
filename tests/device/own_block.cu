// The example's mixer, whose kernels are the program's own.
#include "../../examples/own_block/convolution.hpp"

template class GatedConvolution::on<pentad::SequenceStream<pentad::f32>, Kokkos::Cuda>;

#include <pentad/train/decoder_layers.hpp>

template pentad::LayerRegistry<pentad::SequenceStream<pentad::f32>, Kokkos::DefaultExecutionSpace> pentad::train::decoder_layers();

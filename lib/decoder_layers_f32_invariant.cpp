#include <pentad/train/decoder_layers.hpp>

template pentad::LayerRegistry<pentad::InvariantStream<pentad::f32>, Kokkos::DefaultExecutionSpace> pentad::train::decoder_layers();

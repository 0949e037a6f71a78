#include <pentad/train/decoder_layers.hpp>

template pentad::LayerRegistry<pentad::InvariantStream<pentad::bf16>, Kokkos::DefaultExecutionSpace> pentad::train::decoder_layers();

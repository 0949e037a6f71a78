#include <pentad/train/decoder_layers.hpp>

template pentad::LayerRegistry<pentad::SequenceStream<pentad::bf16>, Kokkos::DefaultExecutionSpace> pentad::train::decoder_layers();

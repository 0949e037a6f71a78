// All device code that training in f32 uses.
#include "../../examples/train_lm/instantiate.hpp"
#include "../../lib/compile.hpp"

template class train_lm::TrainingOf<pentad::InvariantStream<pentad::f32>>;
PENTAD_COMPILE_DECODER_LAYERS(InvariantStream<f32>)

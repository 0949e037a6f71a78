#include "compile.hpp"

PENTAD_COMPILE_DECODER_LAYERS(InvariantStream<f32>)
PENTAD_COMPILE_DECODER_LAYERS(SequenceStream<f32>)

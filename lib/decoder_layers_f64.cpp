#include "compile.hpp"

PENTAD_COMPILE_DECODER_LAYERS(InvariantStream<f64>)
PENTAD_COMPILE_DECODER_LAYERS(SequenceStream<f64>)

#include "compile.hpp"

PENTAD_COMPILE_DECODER_LAYERS(InvariantStream<bf16>)
PENTAD_COMPILE_DECODER_LAYERS(SequenceStream<bf16>)

#include "compile.hpp"

PENTAD_COMPILE_DECODER_LAYERS(GridStream<bf16>)
PENTAD_COMPILE_DECODER_LAYERS(CubeStream<bf16>)

// All device code that training in bf16 with sequence parallelism uses.
#include "../../examples/train_lm/instantiate.hpp"
#include "../../lib/compile.hpp"

template class train_lm::TrainingOf<pentad::SequenceStream<pentad::bf16>>;
PENTAD_COMPILE_DECODER_LAYERS(SequenceStream<bf16>)

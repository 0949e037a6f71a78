// All device code that training in bf16 with sequence parallelism uses.
#include "../../examples/train_lm/make_bf16_sequence_parallel.cpp"

#include "../../lib/decoder_layers_bf16_sequence.cpp"

// All device code that training in f32 uses.
#include "../../examples/train_lm/make_f32.cpp"

#include "../../lib/decoder_layers_f32_invariant.cpp"

// All device code that training in f32 uses.
#include "../../examples/train_lm/make_f32.cpp"

#include "../../examples/train_lm/layers_f32.cpp"

#include <pentad/train/language_model.hpp>

template class pentad::train::LanguageModel<pentad::SequenceStream<pentad::bf16>, Kokkos::DefaultExecutionSpace>;

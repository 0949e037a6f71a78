#include <pentad/train/language_model.hpp>

template class pentad::train::LanguageModel<pentad::InvariantStream<pentad::bf16>, Kokkos::DefaultExecutionSpace>;

#include <pentad/train/language_model.hpp>

template class pentad::train::LanguageModel<pentad::InvariantStream<pentad::f64>, Kokkos::DefaultExecutionSpace>;

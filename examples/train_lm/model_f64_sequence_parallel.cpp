#include <pentad/train/language_model.hpp>

template class pentad::train::LanguageModel<pentad::SequenceStream<pentad::f64>, Kokkos::DefaultExecutionSpace>;

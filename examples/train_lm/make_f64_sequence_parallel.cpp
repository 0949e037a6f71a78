#include "instantiate.hpp"

std::unique_ptr<train_lm::Training> train_lm::make_f64_sequence_parallel(TrainingSetup const& setup) {
    return std::make_unique<TrainingOf<pentad::SequenceStream<pentad::f64>>>(setup);
}

#include "instantiate.hpp"

std::unique_ptr<train_lm::Training> train_lm::make_bf16_sequence_parallel(TrainingSetup const& setup) {
    return std::make_unique<TrainingOf<pentad::SequenceStream<pentad::bf16>>>(setup);
}

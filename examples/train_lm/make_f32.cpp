#include "instantiate.hpp"

std::unique_ptr<train_lm::Training> train_lm::make_f32(TrainingSetup const& setup) {
    return std::make_unique<TrainingOf<pentad::InvariantStream<pentad::f32>>>(setup);
}

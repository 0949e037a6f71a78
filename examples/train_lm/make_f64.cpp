#include "instantiate.hpp"

std::unique_ptr<train_lm::Training> train_lm::make_f64(TrainingSetup const& setup) {
    return make<pentad::f64, pentad::InvariantStream<pentad::f64>>(setup);
}

#include "instantiate.hpp"

template std::unique_ptr<train_lm::Training> train_lm::make<pentad::bf16>(TrainingSetup const&);

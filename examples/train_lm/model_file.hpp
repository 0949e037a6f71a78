// The model that a config.json describes, as options.
#pragma once

#include "options.hpp"

#include <string>

namespace train_lm {

/// Reads options.model, and sets the sizes that follow from it. Why it cannot be used, or nothing.
std::string read_model(Options& options);

/// The config.json of --model, which may name its folder.
std::string config_of(std::string const& model);

} // namespace train_lm

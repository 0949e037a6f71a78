// The model that a config.json describes, as options.
#pragma once

#include "options.hpp"

#include <pentad/io/checkpoint.hpp>

#include <string>
#include <vector>

namespace train_lm {

/// Reads options.model, and sets the sizes that follow from it, and the weights of the losses of routers. Why it cannot
/// be used, or nothing.
std::string read_model(Options& options);

/// What the names of tensors of --weights begin with that are modules of multi-token prediction, as the file says,
/// beyond those of --mtp.
std::vector<std::string> passed_over(Options const& options);
/// The lines about the model at the start of a run. @param weights the checkpoint of --weights, or null
std::vector<std::string> lines_of_model(Options const& options, pentad::io::Checkpoint const* weights);

/// The config.json of --model, which may name its folder.
std::string config_of(std::string const& model);

} // namespace train_lm

// Reads requests, writes the texts, and answers.
#pragma once

#include "options.hpp"

#include <pentad/program/ranks.hpp>

namespace pentad_generate {

/// Collective. @throws program::Ending
void run(Options const& options, pentad::program::Ranks& ranks);

} // namespace pentad_generate

// How many parameters a model has, by formula: for limits on sizes, before there are layers. The layers' own
// parameters, which plans count, are the same (tests/train/plan_parameters.cpp).
#pragma once

#include <pentad/model/model.hpp>

#include <cstddef>

namespace pentad::model {

/// Elements of the parameters of a part in a stream of a width, without the norm before it; 0 of a part that is not of
/// parts.hpp. Exact up to 2^53.
[[nodiscard]] double parameter_count(Part const& part, std::size_t hidden);
/// Elements of all parameters of a model, tied ones once.
[[nodiscard]] double parameter_count(Model const& model);

} // namespace pentad::model

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/model/impl/parameter_count.hpp>
#endif

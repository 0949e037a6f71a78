// A config.json: what is read has sizes that the planner can count with.
#include "input.hpp"

#include <pentad/io/model_config.hpp>
#include <pentad/planner/parameters.hpp>

#include <stdexcept>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace pentad;
    try {
        auto const model = io::model_from_config(fuzz::text(data, size));
        double const parameters = planner::parameters(model);
        fuzz::check(parameters > 0 && parameters <= 1e15, "a model has parameters");
        fuzz::check(!model.name.empty(), "a model has a name");
    } catch (std::invalid_argument const&) {
    }
    return 0;
}

// A config.json: what is read has sizes with which nothing overflows.
#include "input.hpp"

#include <pentad/io/model_config.hpp>
#include <pentad/model/parameter_count.hpp>

#include <stdexcept>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace pentad;
    try {
        auto const model = io::model_from_config(fuzz::text(data, size));
        double const parameters = model::parameter_count(model.model);
        fuzz::check(parameters > 0 && parameters <= 1e15, "a model has parameters");
        fuzz::check(!model.name.empty(), "a model has a name");
    } catch (std::invalid_argument const&) {
    }
    return 0;
}

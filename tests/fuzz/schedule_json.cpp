// A schedule as JSON.
#include "schedules.hpp"

#include <stdexcept>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    pentad::pipeline::Schedule schedule;
    try {
        schedule = pentad::io::schedule_from_json(fuzz::text(data, size));
    } catch (std::invalid_argument const&) {
        return 0;
    }
    fuzz::check(schedule);
    return 0;
}

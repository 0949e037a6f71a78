// A schedule as text.
#include "schedules.hpp"

#include <stdexcept>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    pentad::pipeline::Schedule schedule;
    try {
        schedule = pentad::pipeline::parse_schedule(fuzz::text(data, size));
    } catch (std::invalid_argument const&) {
        return 0;
    }
    fuzz::check(schedule);
    return 0;
}

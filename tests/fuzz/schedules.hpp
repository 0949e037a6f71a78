// What holds for every schedule that is read, from text or JSON.
#pragma once

#include "input.hpp"

#include <pentad/io/schedule_file.hpp>
#include <pentad/pipeline/text.hpp>
#include <pentad/pipeline/validator.hpp>

namespace fuzz {

inline void check(pentad::pipeline::Schedule const& schedule) {
    using namespace pentad;
    check(io::schedule_from_json(io::to_json(schedule)) == schedule, "a schedule is read back from its JSON");
    check(pipeline::parse_schedule(to_string(schedule)) == schedule, "a schedule is read back from its text");
    (void)pipeline::validate(schedule);
}

} // namespace fuzz

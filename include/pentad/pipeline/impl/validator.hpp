// The functions of <pentad/pipeline/validator.hpp>.
#pragma once

#include <pentad/pipeline/validator.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/pipeline/validator/order.hpp>
#include <pentad/pipeline/validator/progress.hpp>

#include <stdexcept>
#include <string>
#include <utility>

namespace pentad::pipeline {

PENTAD_INLINE Verdict validate(Schedule const& schedule, Machine machine) {
    if (std::string wrong = detail::malformed(schedule); !wrong.empty())
        return {Refusal{Fault::malformed, 0, {Operation::forward, 0, 0}, std::move(wrong)}, {}, {}, {}};
    Verdict verdict;
    detail::OrderCheck order(schedule);
    verdict.refusal = order.run(verdict);
    if (!verdict.refusal) verdict.refusal = detail::check_matching(schedule, order);
    if (!verdict.refusal) verdict.refusal = detail::Progress(schedule, order, machine).run();
    return verdict;
}

PENTAD_INLINE Schedule proven(Schedule schedule) {
    if (auto const verdict = validate(schedule); verdict.refusal)
        throw std::invalid_argument("the schedule " + schedule.name + ": " + verdict.refusal->message());
    return schedule;
}

} // namespace pentad::pipeline

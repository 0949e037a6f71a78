// Proves a schedule before it runs: everything done exactly once and in order, with the
// weights that it should see, each receive met by its send, no deadlock; and says what it needs at its peak.
#pragma once

#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/validator/order.hpp>
#include <pentad/pipeline/validator/progress.hpp>
#include <pentad/pipeline/validator/verdict.hpp>

#include <stdexcept>
#include <string>
#include <utility>

namespace pentad::pipeline {

/// Proves a schedule for a machine, or says what is wrong with it. Time and memory are linear in its length.
inline Verdict validate(Schedule const& schedule, Machine machine = {}) {
    if (std::string wrong = detail::malformed(schedule); !wrong.empty())
        return {Refusal{Fault::malformed, 0, {Operation::forward, 0, 0}, std::move(wrong)}, {}, {}, {}};
    Verdict verdict;
    detail::OrderCheck order(schedule);
    verdict.refusal = order.run(verdict);
    if (!verdict.refusal) verdict.refusal = detail::check_matching(schedule, order);
    if (!verdict.refusal) verdict.refusal = detail::Progress(schedule, order, machine).run();
    return verdict;
}

/// The schedule, where validate() accepts it. @throws std::invalid_argument with its message
inline Schedule proven(Schedule schedule) {
    if (auto const verdict = validate(schedule); verdict.refusal)
        throw std::invalid_argument("the schedule " + schedule.name + ": " + verdict.refusal->message());
    return schedule;
}

} // namespace pentad::pipeline

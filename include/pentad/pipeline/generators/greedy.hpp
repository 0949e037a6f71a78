// Schedules that are made by letting ranks choose in unit times, as the order of each
// rank's computes: Chimera and Hanayo.
#pragma once

#include <pentad/pipeline/generators/one_stage.hpp>
#include <pentad/pipeline/generators/two_ended.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace pentad::pipeline::order {

namespace detail {

/// A rank that is free does a backward if one is ready, else the forward with the smallest key, unless that is on one
/// of the first `limited` stages and the rank holds `limit` already. Forward and backward take a unit of time each.
template <class Key>
Schedule backwards_first(Schedule schedule, int limited, int limit, Key key) {
    struct Ready {
        std::tuple<int, int, int> key;
        Instruction instruction;
        bool operator<(Ready const& other) const { return other.key < key; } // the smallest on top
    };
    struct Rank {
        std::priority_queue<Ready> forwards, backwards;
        int held = 0;
    };
    std::vector<Rank> ranks(schedule.instructions.size());
    auto const ready = [&](Operation operation, int stage, int i) {
        Instruction const instruction{operation, stage, i};
        Rank& rank = ranks[static_cast<std::size_t>(schedule.rank_of(stage, i))];
        (operation == Operation::forward ? rank.forwards : rank.backwards).push({key(instruction), instruction});
    };
    int const last = schedule.stages() - 1;
    for (int i = 0; i < schedule.micro_batches; ++i) ready(Operation::forward, 0, i);
    std::vector<Instruction> done;
    do {
        done.clear();
        for (std::size_t number = 0; number < ranks.size(); ++number) {
            Rank& rank = ranks[number];
            bool const backward = !rank.backwards.empty();
            auto& queue = backward ? rank.backwards : rank.forwards;
            if (queue.empty()) continue;
            Instruction const chosen = queue.top().instruction;
            if (!backward && chosen.stage < limited && rank.held >= limit) continue;
            queue.pop();
            rank.held += backward ? -1 : 1;
            schedule.instructions[number].push_back(chosen);
            done.push_back(chosen);
        }
        for (Instruction const& x : done) {
            auto const [operation, stage, i] = std::tuple(x.operation, x.stage, x.micro_batch);
            if (operation == Operation::forward && stage < last) ready(Operation::forward, stage + 1, i);
            if (operation == Operation::forward && stage == last) ready(Operation::backward, stage, i);
            if (operation == Operation::backward && stage > 0) ready(Operation::backward, stage - 1, i);
        }
    } while (!done.empty());
    return schedule;
}

} // namespace detail

/// Li and Hoefler 2021: 1F1B in both directions, each filling the other's bubbles; no rank holds more than p; p even.
/// Micro-batches 0, 2, ... go from rank 0 to p-1, the others back.
inline Schedule chimera(int p, int m) {
    std::vector<int> const there = straight(p);
    return detail::backwards_first(empty("chimera", p, m, {there, {there.rbegin(), there.rend()}}), p, p,
                                   [&](Instruction const& x) { return std::tuple(x.micro_batch, 0, 0); });
}

/// Liu et al. 2023: w waves. The stages go through the ranks and back, w times; where a wave turns, it stays on its
/// rank and needs no message.
inline Schedule hanayo(int p, int m, int waves) {
    Schedule schedule = empty("hanayo", p, m, {back_and_forth(p, 2 * waves)});
    int const groups = std::max(1, m / p);
    return detail::backwards_first(std::move(schedule), p, 2 * waves * p, [&](Instruction const& x) {
        return std::tuple(static_cast<int>(static_cast<long>(x.micro_batch) * groups / m), -x.stage, x.micro_batch);
    });
}

} // namespace pentad::pipeline::order

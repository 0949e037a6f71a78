// The shortest time in which any schedule can do its work, by trying everything: for very small pipelines.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace test {

struct Work {
    std::vector<std::vector<int>> placements; ///< the rank of each stage
    std::vector<int> micro_batches;           ///< of each placement
    int forward, backward_data, backward_weight;
    bool split; ///< whether the weight part of a backward may come later
};

/// All states that can be reached after 1, 2, 3, ... units of time, until one is the end. Micro-batches of a placement
/// are alike, so that it is enough to count them: on each stage they may be taken in order.
inline int shortest_time(Work const& work, int ranks) {
    // For each placement and stage: forwards, data and weight parts that have ended. Then for each rank: placement,
    // stage and part under way (0 1 2; 3: both in one), and the units left.
    std::size_t const stages = work.placements[0].size();
    auto const counter = [&](std::size_t placement, std::size_t stage, std::size_t part) {
        return (placement * stages + stage) * 3 + part;
    };
    std::size_t const counters = work.placements.size() * stages * 3;
    auto const busy = [&](int rank) { return counters + 4 * static_cast<std::size_t>(rank); };
    using State = std::string;
    int const times[] = {work.forward, work.backward_data, work.backward_weight,
                         work.backward_data + work.backward_weight};

    std::set<State> now{State(busy(ranks), '\0')};
    for (int time = 0;; ++time) {
        std::set<State> next;
        for (State const& state : now) {
            bool ended = true;
            for (std::size_t placement = 0; placement < work.placements.size(); ++placement)
                for (std::size_t stage = 0; stage < stages; ++stage)
                    ended = ended && state[counter(placement, stage, 2)] == work.micro_batches[placement];
            if (ended) return time;
            // Each free rank starts something that is ready, or waits; then a unit passes.
            std::vector<State> choices{state};
            for (int rank = 0; rank < ranks; ++rank) {
                if (state[busy(rank) + 3] > 0) continue;
                std::size_t const before = choices.size();
                for (std::size_t placement = 0; placement < work.placements.size(); ++placement)
                    for (std::size_t stage = 0; stage < stages; ++stage) {
                        if (work.placements[placement][stage] != rank) continue;
                        auto const count = [&](std::size_t of, std::size_t part) {
                            return state[counter(placement, of, part)];
                        };
                        auto const done = [&](std::size_t part) { return count(stage, part); };
                        bool const fed = done(0) < (stage == 0 ? work.micro_batches[placement] : count(stage - 1, 0));
                        bool const back =
                            done(1) < (stage + 1 == stages ? done(0) : count(stage + 1, 1)) && done(1) < done(0);
                        auto const start = [&](char part) {
                            for (std::size_t at = 0; at < before; ++at) {
                                State chosen = choices[at];
                                chosen[busy(rank)] = static_cast<char>(placement);
                                chosen[busy(rank) + 1] = static_cast<char>(stage);
                                chosen[busy(rank) + 2] = part;
                                chosen[busy(rank) + 3] = static_cast<char>(times[static_cast<std::size_t>(part)]);
                                choices.push_back(std::move(chosen));
                            }
                        };
                        if (fed) start(0);
                        if (back) start(work.split ? 1 : 3);
                        if (work.split && done(2) < done(1)) start(2);
                    }
            }
            for (State& chosen : choices) {
                for (int rank = 0; rank < ranks; ++rank) {
                    char& left = chosen[busy(rank) + 3];
                    if (left == 0 || --left > 0) continue;
                    auto const placement = static_cast<std::size_t>(chosen[busy(rank)]);
                    auto const stage = static_cast<std::size_t>(chosen[busy(rank) + 1]);
                    auto const part = static_cast<std::size_t>(chosen[busy(rank) + 2]);
                    if (part < 3) ++chosen[counter(placement, stage, part)];
                    if (part == 3) ++chosen[counter(placement, stage, 1)], ++chosen[counter(placement, stage, 2)];
                    for (std::size_t field = 0; field < 3; ++field) chosen[busy(rank) + field] = 0;
                }
                next.insert(std::move(chosen));
            }
        }
        now = std::move(next);
    }
}

} // namespace test

// The shortest time in which any order of the computes can be done, by trying everything: for very small pipelines.
// Shares no code with the library.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace test {

struct StageWork {
    int forward = 1, backward_data = 1, backward_weight = 1; ///< at least 1 each
    int backward = 2;                                        ///< both parts in one
    int activation = 1, weight_part = 1, input = 0;          ///< memory
};

struct Work {
    std::vector<std::vector<int>> placements; ///< the rank of each stage
    std::vector<int> micro_batches;           ///< of each placement
    std::vector<StageWork> stages;
    bool split = true, joined = true; ///< ways to do a backward
    bool recompute = false;           ///< right before each backward, whose gradient may come later
    int message = 0;                  ///< from rank to rank, at most 8
    int memory = 1 << 20;             ///< of each rank
};

/// The shortest time, or `limit` where nothing takes less.
///
/// Goes through all states that can be reached after 1, 2, 3, ... units of time, until one is the end. Times are whole,
/// so that a schedule in which everything starts as early as the order allows starts it at whole units, and some such
/// schedule is the fastest. At each unit a free rank starts anything whose input is there and for which it has the
/// memory, or waits: every order is tried, with every way to wait. Micro-batches of a placement are alike, so that it
/// is enough to count them: the n-th forward of a stage to start has the n-th input to arrive, or a later one, and
/// taking the n-th instead changes neither times nor memory. States are left out when what is left on one rank, or on
/// the way of one micro-batch, takes too long for the limit: these would not end in time whatever came next.
inline int shortest_time(Work const& work, int ranks, int limit) {
    // For each placement and stage: forwards, data and weight parts that have ended; activations and gradients on their
    // way to the next stage, a bit for each unit until they arrive. Then for each rank: placement, stage and part under
    // way (0 1 2; 3: both in one; 4: recompute, until the backward starts), and the units left.
    using State = std::string;
    std::size_t const stages = work.stages.size();
    auto const place = [&](std::size_t placement, std::size_t stage) { return 5 * (placement * stages + stage); };
    std::size_t const places = place(work.placements.size(), 0);
    auto const busy = [&](int rank) { return places + 4 * static_cast<std::size_t>(rank); };
    auto const time_of = [&](std::size_t stage, int part) {
        StageWork const& x = work.stages[stage];
        return part % 4 == 0 ? x.forward : part == 1 ? x.backward_data : part == 2 ? x.backward_weight : x.backward;
    };
    auto const rank_of = [&](std::size_t placement, std::size_t stage) { return work.placements[placement][stage]; };
    auto const trip = [&](std::size_t placement, std::size_t a, std::size_t b) {
        return rank_of(placement, a) == rank_of(placement, b) ? 0 : work.message;
    };
    auto const made = [&](StageWork const& x) { // the least time until the gradient is there
        return work.split && work.joined ? std::min(x.backward_data, x.backward)
               : work.split              ? x.backward_data
                                         : x.backward;
    };
    auto const whole = [&](StageWork const& x) {
        int const parts = x.backward_data + x.backward_weight;
        return work.split && work.joined ? std::min(parts, x.backward) : work.split ? parts : x.backward;
    };
    auto const again = [&](StageWork const& x) { return work.recompute ? x.forward : 0; };
    auto const kept = [&](StageWork const& x) { return work.recompute ? x.input : x.activation; };
    auto const least = [&](State const& state) {
        int most = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            int left = 0;
            if (int const part = state[busy(rank) + 2]; state[busy(rank) + 3] > 0 || part == 4) {
                // That has not been counted as ended.
                StageWork const& x = work.stages[static_cast<std::size_t>(state[busy(rank) + 1])];
                left = state[busy(rank) + 3] - (part == 0   ? x.forward
                                                : part == 1 ? again(x) + whole(x) - x.backward_weight
                                                : part == 2 ? x.backward_weight
                                                : part == 3 ? again(x) + whole(x)
                                                            : again(x));
            }
            for (std::size_t placement = 0; placement < work.placements.size(); ++placement)
                for (std::size_t stage = 0; stage < stages; ++stage)
                    if (rank_of(placement, stage) == rank) {
                        char const* const at = &state[place(placement, stage)];
                        StageWork const& x = work.stages[stage];
                        left += (work.micro_batches[placement] - at[0]) * x.forward +
                                (work.micro_batches[placement] - at[1]) * (again(x) + whole(x)) +
                                (at[1] - at[2]) * x.backward_weight;
                    }
            most = std::max(most, left);
        }
        for (std::size_t placement = 0; placement < work.placements.size(); ++placement) {
            // Of the last micro-batch: `way` is the time from its backward on a stage on, if that has not ended.
            int way = 0;
            auto const under_way = [&](std::size_t stage, int part) {
                std::size_t const at = busy(rank_of(placement, stage));
                bool const it = state[at + 3] > 0 && state[at] == static_cast<char>(placement) &&
                                state[at + 1] == static_cast<char>(stage) &&
                                (part == 0 ? state[at + 2] == 0 : state[at + 2] % 2 == 1);
                return it;
            };
            for (std::size_t stage = 0; stage < stages; ++stage) {
                char const done = state[place(placement, stage) + 1];
                if (stage > 0) way += trip(placement, stage, stage - 1);
                way += made(work.stages[stage]);
                if (done < work.micro_batches[placement] &&
                    !(done + 1 == work.micro_batches[placement] && under_way(stage, 1)))
                    most = std::max(most, way);
            }
            for (std::size_t stage = stages; stage-- > 0;) {
                char const done = state[place(placement, stage)];
                way += work.stages[stage].forward;
                if (done < work.micro_batches[placement] &&
                    !(done + 1 == work.micro_batches[placement] && under_way(stage, 0)))
                    most = std::max(most, way);
                if (stage > 0) way += trip(placement, stage, stage - 1);
            }
        }
        return most;
    };

    std::unordered_set<State> now{State(busy(ranks), '\0')};
    for (int time = 0; time < limit && !now.empty(); ++time) {
        std::unordered_set<State> next;
        for (State const& state : now) {
            auto const count = [&](std::size_t placement, std::size_t stage, std::size_t part) -> int {
                return state[place(placement, stage) + part];
            };
            auto const on_the_way = [&](std::size_t placement, std::size_t stage, std::size_t direction) {
                return std::popcount(static_cast<unsigned char>(state[place(placement, stage) + 3 + direction]));
            };
            bool ended = true;
            std::vector<int> held(static_cast<std::size_t>(ranks));
            for (std::size_t placement = 0; placement < work.placements.size(); ++placement)
                for (std::size_t stage = 0; stage < stages; ++stage) {
                    ended = ended && count(placement, stage, 2) == work.micro_batches[placement];
                    held[static_cast<std::size_t>(rank_of(placement, stage))] +=
                        kept(work.stages[stage]) * (count(placement, stage, 0) - count(placement, stage, 1)) +
                        work.stages[stage].weight_part * (count(placement, stage, 1) - count(placement, stage, 2));
                }
            if (ended) return time;
            // Each free rank starts something that is ready, or waits; then a unit passes.
            std::vector<State> choices{state};
            for (int rank = 0; rank < ranks; ++rank) {
                if (state[busy(rank) + 3] > 0) continue;
                std::size_t const before = choices.size();
                int const room = work.memory - held[static_cast<std::size_t>(rank)];
                for (std::size_t placement = 0; placement < work.placements.size(); ++placement)
                    for (std::size_t stage = 0; stage < stages; ++stage) {
                        bool const again_done = state[busy(rank) + 2] == 4;
                        bool const of_this = state[busy(rank)] == static_cast<char>(placement) &&
                                             state[busy(rank) + 1] == static_cast<char>(stage);
                        if (rank_of(placement, stage) != rank || (again_done && !of_this)) continue;
                        auto const done = [&](std::size_t part) { return count(placement, stage, part); };
                        int const inputs = stage == 0
                                               ? work.micro_batches[placement]
                                               : count(placement, stage - 1, 0) - on_the_way(placement, stage - 1, 0);
                        int const gradients =
                            stage + 1 == stages ? done(0)
                                                : count(placement, stage + 1, 1) - on_the_way(placement, stage + 1, 1);
                        bool const back = done(1) < gradients && done(1) < done(0) && again_done == work.recompute;
                        StageWork const& x = work.stages[stage];
                        auto const start = [&](int part) {
                            for (std::size_t at = 0; at < before; ++at) {
                                State chosen = choices[at];
                                chosen[busy(rank)] = static_cast<char>(placement);
                                chosen[busy(rank) + 1] = static_cast<char>(stage);
                                chosen[busy(rank) + 2] = static_cast<char>(part);
                                chosen[busy(rank) + 3] = static_cast<char>(time_of(stage, part));
                                choices.push_back(std::move(chosen));
                            }
                        };
                        if (!again_done && done(0) < inputs && kept(x) <= room) start(0);
                        if (back && work.split && x.weight_part - kept(x) <= room) start(1);
                        if (!again_done && done(2) < done(1)) start(2);
                        if (back && work.joined) start(3);
                        if (work.recompute && !again_done && done(1) < done(0) && x.activation - kept(x) <= room)
                            start(4);
                    }
            }
            for (State& chosen : choices) {
                for (std::size_t at = 0; at < places; at += 5)
                    for (std::size_t const direction : {3U, 4U})
                        chosen[at + direction] =
                            static_cast<char>(static_cast<unsigned char>(chosen[at + direction]) >> 1);
                for (int rank = 0; rank < ranks; ++rank) {
                    char& left = chosen[busy(rank) + 3];
                    if (left == 0 || --left > 0) continue;
                    auto const placement = static_cast<std::size_t>(chosen[busy(rank)]);
                    auto const stage = static_cast<std::size_t>(chosen[busy(rank) + 1]);
                    int const part = chosen[busy(rank) + 2];
                    char* const counts = &chosen[place(placement, stage)];
                    auto const send = [&](std::size_t direction, std::size_t to) {
                        if (int const units = trip(placement, stage, to); units > 0)
                            counts[direction] = static_cast<char>(counts[direction] | 1 << (units - 1));
                    };
                    if (part == 0 && stage + 1 < stages) send(3, stage + 1);
                    if (part % 2 == 1 && stage > 0) send(4, stage - 1);
                    if (part < 3) ++counts[part];
                    if (part == 3) ++counts[1], ++counts[2];
                    if (part == 4) continue;
                    for (std::size_t field = 0; field < 3; ++field) chosen[busy(rank) + field] = 0;
                }
                if (time + 1 + least(chosen) < limit) next.insert(std::move(chosen));
            }
        }
        now = std::move(next);
    }
    return limit;
}

} // namespace test

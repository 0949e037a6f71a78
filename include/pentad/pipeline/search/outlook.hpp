// What a search expects of a state: when its next computes can start, and how long the
// rest takes at least.
#pragma once

#include <pentad/pipeline/search/problem.hpp>
#include <pentad/pipeline/timing.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pentad::pipeline::search {

/// What a state promises: the earliest times of what is left, if nothing is in its way but what is known to be.
struct Outlook {
    std::vector<Time> forward, data;   ///< for each stage, when the next can start
    std::vector<Time> turn;            ///< for each rank, when it is free, or may have what it waits for
    std::vector<Time> release;         ///< for each rank, when memory may come back
    std::vector<std::int64_t> room;    ///< for each rank, of its memory
    std::vector<std::size_t> arriving; ///< for each stage, where in the state its activations, then its gradients begin
    Time bound = 0;                    ///< no way to the end is shorter
    Time ranks = 0, stages = 0;        ///< sums of the bounds for each rank and each stage
};

/// When the next input arrives that a stage has not been sent yet.
inline Time next_activation(Problem const& problem, State const& state, Outlook const& look, std::size_t at) {
    if (problem.stages[at].first || problem.left(state, at - 1, forwards) == 0) return never;
    return look.forward[at - 1] + problem.stages[at - 1].forward + problem.stages[at].activation_trip;
}
inline Time next_gradient(Problem const& problem, State const& state, Outlook const& look, std::size_t at) {
    if (problem.stages[at].last || problem.left(state, at + 1, data_parts) == 0) return never;
    return look.data[at + 1] + problem.stages[at + 1].least_data + problem.stages[at].gradient_trip;
}
/// When a rank that waits for such an input may go on.
inline Time next_message(Problem const& problem, State const& state, Outlook const& look, std::size_t rank) {
    Time next = never;
    for (std::size_t const at : problem.of_rank[rank]) {
        Time const gradient = next_gradient(problem, state, look, at);
        next = std::min(next, next_activation(problem, state, look, at));
        // A recomputation may begin before its gradient comes, but never for one that never does: ranks that wait for
        // each other would come earlier and earlier.
        if (gradient < never) next = std::min(next, gradient - problem.stages[at].recompute);
    }
    return std::max(next, problem.free(state, rank));
}
inline bool has_activation(Outlook const& look, std::size_t at) {
    return look.arriving[2 * at] < look.arriving[2 * at + 1];
}
inline bool has_gradient(Outlook const& look, std::size_t at) {
    return look.arriving[2 * at + 1] < look.arriving[2 * at + 2];
}

/// When the next forward and backward of each stage can start, as others' and memory allow; `never` remains where
/// ranks wait for each other.
inline void find_earliest(Problem const& problem, State const& state, Outlook& look) {
    look.forward.assign(problem.stages.size(), never);
    look.data.assign(problem.stages.size(), never);
    look.turn.assign(problem.ranks(), never);
    look.release.assign(problem.ranks(), never);
    look.room = problem.limits;
    look.arriving.assign(1, problem.counts() + problem.ranks());
    for (std::size_t at = 0; at < problem.stages.size(); ++at) {
        Stage const& s = problem.stages[at];
        auto const made = [&](std::size_t neighbour, Part part) {
            return static_cast<std::size_t>(problem.done(state, neighbour, part) - problem.done(state, at, part));
        };
        look.arriving.push_back(look.arriving.back() + (s.first ? 0 : made(at - 1, forwards)));
        look.arriving.push_back(look.arriving.back() + (s.last ? 0 : made(at + 1, data_parts)));
        look.room[s.rank] -= s.kept * (problem.done(state, at, forwards) - problem.done(state, at, data_parts)) +
                             s.owed * problem.owed(state, at);
    }
    for (std::size_t rank = 0; rank < problem.ranks(); ++rank)
        if (problem.waits(state, rank) == 0) look.turn[rank] = problem.free(state, rank);
    for (bool earlier = true; earlier;) {
        earlier = false;
        auto const lower = [&](Time& time, Time to) {
            if (to >= time) return;
            time = to;
            earlier = true;
        };
        auto const wake = [&](std::size_t rank) { // before each of its stages: a sweep goes along a chain of ranks
            if (problem.waits(state, rank) != 0) lower(look.turn[rank], next_message(problem, state, look, rank));
        };
        for (std::size_t at = 0; at < problem.stages.size(); ++at) {
            Stage const& s = problem.stages[at];
            wake(s.rank);
            if (problem.left(state, at, forwards) == 0) continue;
            Time input = 0;
            if (!s.first)
                input =
                    has_activation(look, at) ? state[look.arriving[2 * at]] : next_activation(problem, state, look, at);
            Time start = std::max(look.turn[s.rank], input);
            if (s.kept > look.room[s.rank]) start = std::max(start, look.release[s.rank]);
            lower(look.forward[at], start);
        }
        for (std::size_t at = problem.stages.size(); at-- > 0;) {
            Stage const& s = problem.stages[at];
            wake(s.rank);
            if (problem.owed(state, at) > 0) lower(look.release[s.rank], look.turn[s.rank] + s.weight);
            if (problem.left(state, at, data_parts) == 0) continue;
            Time input = 0;
            if (!s.last)
                input =
                    has_gradient(look, at) ? state[look.arriving[2 * at + 1]] : next_gradient(problem, state, look, at);
            else if (problem.done(state, at, forwards) == problem.done(state, at, data_parts))
                input = look.forward[at] + s.forward;
            lower(look.data[at], std::max(look.turn[s.rank] + s.recompute, input));
            lower(look.release[s.rank], look.data[at] + s.least_data);
        }
    }
}

inline void look_ahead(Problem const& problem, State const& state, Outlook& look) {
    find_earliest(problem, state, look);
    look.bound = look.ranks = look.stages = 0;
    auto const bound = [&](Time& sum, Time time) {
        look.bound = std::max(look.bound, time);
        sum += time;
    };
    for (std::size_t at = 0; at < problem.stages.size(); ++at) {
        Stage const& s = problem.stages[at];
        if (Time const left = problem.left(state, at, forwards); left > 0)
            bound(look.stages, look.forward[at] + left * s.forward + s.after_forward);
        if (Time const left = problem.left(state, at, data_parts); left > 0)
            bound(look.stages, look.data[at] + left * s.least_data + s.after_data);
        if (look.bound >= never) return;
    }
    // A rank has to do all that is left, best what has most to come after it first.
    for (std::size_t rank = 0; rank < problem.ranks(); ++rank) {
        Time now = never;
        for (std::size_t const at : problem.of_rank[rank]) {
            now = std::min({now, look.forward[at], look.data[at] - problem.stages[at].recompute});
            if (problem.owed(state, at) > 0) now = std::min(now, look.turn[rank]);
        }
        if (problem.ended(state, rank)) now = problem.free(state, rank);
        Time last = now;
        for (auto const& [time, at, part] : problem.by_tail[rank]) {
            Stage const& s = problem.stages[at];
            Time const left = problem.left(state, at, part);
            now += left * (part == forwards ? s.forward : s.recompute + s.least_data);
            if (left > 0) last = std::max(last, now + time);
        }
        for (std::size_t const at : problem.of_rank[rank]) {
            Stage const& s = problem.stages[at];
            now += problem.owed(state, at) * s.weight +
                   problem.left(state, at, data_parts) * (s.least_work - s.least_data);
        }
        bound(look.ranks, std::max(last, now));
    }
}

} // namespace pentad::pipeline::search

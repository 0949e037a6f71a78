// The walk of a search: all states that may be good are taken one compute further at a
// time, and where there are too many, the most promising.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/search/moves.hpp>
#include <pentad/pipeline/search/outlook.hpp>
#include <pentad/pipeline/search/problem.hpp>
#include <pentad/pipeline/timing.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pentad::pipeline::search {

/// What promises more among states of the same bound: less waiting of the ranks, and of the chains of computes from
/// each stage to the end of the step or not.
enum class Guide { ranks_and_stages, ranks };

struct Walk {
    std::optional<Schedule> order; ///< the fastest that was found
    Time makespan = never;         ///< its time
    bool complete = false;         ///< nothing was left out that could be faster
};

/// Looks for orders of computes that take less time than `limit`, keeping at most `width` states of each length. Calls
/// progress(part) before each length.
template <class Progress>
Walk walk(Problem const& problem, Guide guide, std::size_t width, Time limit, Progress const& progress) {
    struct Step { ///< and those before it
        std::size_t before;
        std::size_t stage;
        Operation operation;
    };
    struct Candidate {
        Time bound, promise;
        State state;
        Step step;
    };
    std::vector<std::vector<Candidate>> layers(problem.length + 1);
    layers[0].push_back({0, 0, problem.start(), {}});
    std::vector<Step> steps;
    std::optional<std::size_t> last;
    Walk result{.order = std::nullopt, .makespan = limit, .complete = true};
    Outlook here, there;
    for (std::size_t length = 0; length < layers.size(); ++length) {
        progress(static_cast<double>(length) / static_cast<double>(layers.size()));
        auto layer = std::move(layers[length]);
        std::stable_sort(layer.begin(), layer.end(), [](Candidate const& a, Candidate const& b) {
            return std::pair(a.bound, a.promise) < std::pair(b.bound, b.promise);
        });
        std::unordered_multimap<std::size_t, State const*> kept; // by what is done
        for (Candidate const& candidate : layer) {
            if (candidate.bound >= result.makespan) break;
            auto const& [bound, promise, state, step] = candidate;
            auto const middle = static_cast<std::ptrdiff_t>(problem.counts());
            std::size_t hash = 0;
            for (std::size_t at = 0; at < problem.counts(); ++at)
                hash = (hash ^ static_cast<std::size_t>(state[at])) * 0x9e3779b97f4a7c15;
            auto const [first, end] = kept.equal_range(hash);
            if (std::any_of(first, end, [&, &mine = state](auto const& entry) { // none of its times is later
                    State const& other = *entry.second;
                    return std::equal(other.begin(), other.begin() + middle, mine.begin()) &&
                           std::equal(other.begin() + middle, other.end(), mine.begin() + middle, mine.end(),
                                      std::less_equal<>());
                }))
                continue;
            if (kept.size() == width) {
                result.complete = false;
                break;
            }
            kept.emplace(hash, &state);
            steps.push_back(step);
            if (length == problem.length) {
                last = steps.size() - 1;
                result.makespan = bound;
                break;
            }
            look_ahead(problem, state, here);
            expand(problem, state, here, [&](State next, Move const& move) {
                look_ahead(problem, next, there);
                if (there.bound >= result.makespan) return;
                Time const sum = there.ranks + (guide == Guide::ranks ? 0 : there.stages);
                layers[length + (move.operation == Operation::backward ? 2 : 1)].push_back(
                    {there.bound, sum, std::move(next), {steps.size() - 1, move.stage, move.operation}});
            });
        }
    }
    if (last) {
        std::vector<std::pair<std::size_t, Operation>> moves;
        for (std::size_t at = *last; at > 0; at = steps[at].before)
            moves.emplace_back(steps[at].stage, steps[at].operation);
        std::reverse(moves.begin(), moves.end());
        result.order = schedule_of(problem, moves);
    }
    return result;
}

} // namespace pentad::pipeline::search

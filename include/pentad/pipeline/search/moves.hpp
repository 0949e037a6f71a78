// What may come next in a search: the moves of the rank whose turn it is, the states
// that they lead to, and the schedule that they make in the end.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/search/outlook.hpp>
#include <pentad/pipeline/search/problem.hpp>
#include <pentad/pipeline/timing.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace pentad::pipeline::search {

struct Move {
    std::size_t stage;
    Operation operation;
    Time start, end; ///< of the rank
};

/// What a rank can do next with inputs that are there or on the way. Returns when the first of these has ended that
/// only give memory back: a rank that waits until then should have done that.
inline Time find_moves(Problem const& problem, State const& state, Outlook const& look, std::size_t rank,
                       std::vector<Move>& moves) {
    moves.clear();
    Time idle = never;
    Time const now = problem.free(state, rank);
    std::int64_t const room = look.room[rank];
    for (std::size_t const at : problem.of_rank[rank]) {
        Stage const& s = problem.stages[at];
        if (problem.left(state, at, forwards) > 0 && (s.first || has_activation(look, at)) && s.kept <= room) {
            Time const start = s.first ? now : std::max(now, state[look.arriving[2 * at]]);
            moves.push_back({at, Operation::forward, start, start + s.forward});
        }
        if (problem.done(state, at, data_parts) < problem.done(state, at, forwards) &&
            (s.last || has_gradient(look, at)) && s.whole - s.kept <= room) {
            Time const input = s.last ? 0 : state[look.arriving[2 * at + 1]];
            Time const start = std::max(now + s.recompute, input);
            if (s.owed - s.kept <= room)
                moves.push_back({at, Operation::backward_data, start - s.recompute, start + s.data});
            if (s.joins) moves.push_back({at, Operation::backward, start - s.recompute, start + s.both});
            if (s.gives_back) idle = std::min(idle, start + s.data);
        }
        if (problem.owed(state, at) > 0) {
            moves.push_back({at, Operation::backward_weight, now, now + s.weight});
            idle = std::min(idle, now + s.weight);
        }
    }
    return idle;
}

inline State after(Problem const& problem, State const& state, Outlook const& look, Move const& move) {
    State next = state;
    std::size_t const at = move.stage;
    Stage const& s = problem.stages[at];
    next[problem.counts() + s.rank] = move.end;
    auto const take = [&](std::size_t place) { next.erase(next.begin() + static_cast<std::ptrdiff_t>(place)); };
    // To the end of the queue before the one that begins at `end`.
    auto const send = [&](std::size_t end, Time arrives, std::size_t to) {
        next.insert(next.begin() + static_cast<std::ptrdiff_t>(end), arrives);
        next[3 * problem.stages.size() + problem.stages[to].rank] = 0;
    };
    if (move.operation == Operation::backward_weight) {
        ++next[3 * at + weight_parts];
    } else if (move.operation == Operation::forward) {
        ++next[3 * at + forwards];
        if (!s.last) send(look.arriving[2 * at + 3], move.end + problem.stages[at + 1].activation_trip, at + 1);
        if (!s.first) take(look.arriving[2 * at]);
    } else {
        ++next[3 * at + data_parts];
        if (move.operation == Operation::backward) ++next[3 * at + weight_parts];
        if (!s.last) take(look.arriving[2 * at + 1]);
        if (!s.first) send(look.arriving[2 * at], move.end + problem.stages[at - 1].gradient_trip, at - 1);
    }
    return next;
}

/// Whether memory leaves a way to the end: micro-batches one by one, the oldest first. No other way needs less: no
/// stage does a backward before the oldest has done all its forwards. Weight parts that are owed can be paid first.
inline bool can_end(Problem const& problem, State const& state) {
    std::vector<std::int64_t> room = problem.limits;
    for (std::size_t at = 0; at < problem.stages.size(); ++at)
        room[problem.stages[at].rank] -=
            problem.stages[at].kept * (problem.done(state, at, forwards) - problem.done(state, at, data_parts));
    if (std::equal(room.begin(), room.end(), problem.largest.begin(), std::greater_equal<>())) return true;
    auto const length = static_cast<std::size_t>(problem.empty.stages());
    std::vector<Time> ended; // of each placement, as its first stage does the last backward
    for (std::size_t first = 0; first < problem.stages.size(); first += length)
        ended.push_back(problem.done(state, first, data_parts));
    for (bool moved = true; moved;) {
        moved = false;
        bool all = true;
        for (std::size_t placement = 0; placement < ended.size(); ++placement) {
            std::size_t const first = placement * length, end = first + length;
            Time& number = ended[placement];
            while (number < problem.done(state, first, forwards)) {
                auto trial = room;
                bool fits = true;
                for (std::size_t at = first; at < end; ++at) {
                    if (problem.done(state, at, forwards) > number) continue;
                    auto& left = trial[problem.stages[at].rank];
                    left -= problem.stages[at].kept;
                    fits = fits && left >= 0;
                }
                for (std::size_t at = end; at-- > first;) {
                    if (problem.done(state, at, data_parts) > number) continue;
                    auto& left = trial[problem.stages[at].rank];
                    fits = fits && left >= problem.stages[at].whole - problem.stages[at].kept;
                    left += problem.stages[at].kept;
                }
                if (!fits) break;
                room = std::move(trial);
                ++number;
                moved = true;
            }
            all = all && number == problem.done(state, first, forwards);
        }
        if (all) return true;
    }
    return false;
}

/// Calls visit(state, move) for each state that may come next. The rank that is free first makes a move, or waits
/// for what others have not sent yet, and it is another's turn. Every order of the computes can be reached, but for
/// such as are never better than another; states from which the limits leave no way to the end cannot.
template <class Visit>
void expand(Problem const& problem, State state, Outlook const& look, Visit visit) {
    std::vector<Move> moves;
    for (;;) {
        std::size_t rank = problem.ranks();
        for (std::size_t other = 0; other < problem.ranks(); ++other)
            if (problem.waits(state, other) == 0 &&
                (rank == problem.ranks() || problem.free(state, other) < problem.free(state, rank)))
                rank = other;
        if (rank == problem.ranks()) return;

        Time const idle = find_moves(problem, state, look, rank, moves);
        for (Move const& move : moves) {
            if (move.start >= idle) continue;
            State next = after(problem, state, look, move);
            if (move.operation != Operation::forward || can_end(problem, next)) visit(std::move(next), move);
        }
        if (!problem.ended(state, rank) && next_message(problem, state, look, rank) >= idle) return;
        state[3 * problem.stages.size() + rank] = 1;
    }
}

/// The schedule that moves make.
template <class Moves>
Schedule schedule_of(Problem const& problem, Moves const& moves) {
    Schedule schedule = problem.empty;
    struct Count {
        int forwards = 0, backwards = 0;
        std::vector<int> owed;
        std::size_t paid = 0;
    };
    std::vector<Count> counts(problem.stages.size());
    for (auto const& [at, operation] : moves) {
        Count& count = counts[at];
        int const number = operation == Operation::forward           ? count.forwards++
                           : operation == Operation::backward_weight ? count.owed[count.paid++]
                                                                     : count.backwards++;
        if (operation == Operation::backward_data) count.owed.push_back(number);
        auto const placement = at / static_cast<std::size_t>(schedule.stages());
        schedule.instructions[problem.stages[at].rank].push_back(
            {operation, static_cast<int>(at % static_cast<std::size_t>(schedule.stages())),
             static_cast<int>(placement + static_cast<std::size_t>(number) * schedule.placements.size())});
    }
    return schedule;
}

} // namespace pentad::pipeline::search

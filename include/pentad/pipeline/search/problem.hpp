// What a search for a schedule is given, as it needs it, and what it walks through: how
// far every stage has come, and when its rank is free again.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/timing.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace pentad::pipeline::search {

/// Later than everything, and still safe to add to.
inline constexpr Time never = std::numeric_limits<Time>::max() / 4;

/// A stage of a placement. Its micro-batches are alike, so that it takes them in order and counting them is enough:
/// where they overtook each other, exchanging them would make nothing later.
struct Stage {
    std::size_t rank;
    Time micro_batches;
    bool first, last;                            ///< of its placement
    Time forward, recompute, data, weight, both; ///< recompute: right before a backward, input there or not
    Time activation_trip, gradient_trip;         ///< of what it receives
    std::int64_t kept, whole, owed;              ///< memory from forward on, in backward, between its two parts
    bool joins;                                  ///< backward in one can be better than its parts
    bool gives_back;                             ///< its data part next is never worse than waiting as long
    Time least_data, least_work;                 ///< of a backward until its gradient is made, and in all
    Time after_forward = 0, after_data = 0;      ///< the least time from the end of its last one to that of the step
};

/// What is done. For each stage: forwards, data and weight parts of backwards; for each rank: whether it waits for
/// something that has not been sent. Then times: for each rank, when it is free; for each stage, when the activations
/// and then the gradients arrive that are made and not used. States that agree in the first part have the same layout,
/// and one whose times are nowhere later can do all that the other can, as early.
using State = std::vector<Time>;

enum Part : std::size_t { forwards, data_parts, weight_parts };

struct Problem {
    /// Stages of a rank, the forwards and the backwards, and the least time that comes after the last of them.
    struct Tail {
        Time time;
        std::size_t stage;
        Part part;
    };

    /// `beginning` is a schedule in which nobody does anything yet; memory: the limit of each rank.
    Problem(Schedule beginning, Costs const& costs, std::vector<std::int64_t> memory)
        : empty(std::move(beginning)), limits(std::move(memory)), largest(limits.size()), of_rank(limits.size()),
          by_tail(limits.size()) {
        int const placements = static_cast<int>(empty.placements.size());
        for (int placement = 0; placement < placements; ++placement)
            for (int number = 0; number < empty.stages(); ++number) {
                auto const rank_of = [&](int stage) { return empty.rank_of(stage, placement); };
                auto const trip = [&](int from) { return rank_of(from) == rank_of(number) ? 0 : costs.message; };
                StageCost const& cost = costs.of(number);
                Stage s{};
                s.rank = static_cast<std::size_t>(rank_of(number));
                s.micro_batches = (empty.micro_batches - placement + placements - 1) / placements;
                s.first = number == 0;
                s.last = number + 1 == empty.stages();
                s.forward = cost.forward;
                s.recompute = empty.recomputes ? cost.forward : 0;
                s.data = cost.backward_data;
                s.weight = cost.backward_weight;
                s.both = cost.of(Operation::backward);
                if (!s.first) s.activation_trip = trip(number - 1);
                if (!s.last) s.gradient_trip = trip(number + 1);
                s.kept = empty.recomputes ? cost.input : cost.activation;
                s.whole = cost.activation;
                s.owed = cost.weight_part;
                s.joins = s.both < s.data + s.weight || s.owed > s.whole;
                s.gives_back = s.owed <= s.kept && s.weight <= s.both;
                s.least_data = std::min(s.data, s.both);
                s.least_work = std::min(s.both, s.data + s.weight);
                of_rank[s.rank].push_back(stages.size());
                stages.push_back(s);
                length += static_cast<std::size_t>(3 * s.micro_batches);
            }
        for (std::size_t at = 0; at < stages.size(); ++at) {
            Stage& s = stages[at];
            s.after_data = s.least_work - s.least_data;
            if (s.first) continue;
            Stage const& before = stages[at - 1];
            s.after_data = std::max(s.after_data, before.gradient_trip + before.least_data + before.after_data);
        }
        for (std::size_t at = stages.size(); at-- > 0;) {
            Stage& s = stages[at];
            s.after_forward =
                s.last ? s.least_data + s.after_data
                       : stages[at + 1].activation_trip + stages[at + 1].forward + stages[at + 1].after_forward;
            by_tail[s.rank].push_back({s.after_forward, at, forwards});
            by_tail[s.rank].push_back({s.after_data, at, data_parts});
        }
        for (std::size_t rank = 0; rank < ranks(); ++rank)
            for (std::size_t const at : of_rank[rank]) largest[rank] += std::max(stages[at].kept, stages[at].whole);
        for (auto& tails : by_tail)
            std::stable_sort(tails.begin(), tails.end(), [](Tail const& a, Tail const& b) { return a.time > b.time; });
    }

    [[nodiscard]] State start() const { return State(counts() + ranks(), 0); }
    /// The length of the part of a state that says what is done.
    [[nodiscard]] std::size_t counts() const { return 3 * stages.size() + ranks(); }

    [[nodiscard]] std::size_t ranks() const { return limits.size(); }
    [[nodiscard]] static Time done(State const& state, std::size_t stage, Part part) { return state[3 * stage + part]; }
    [[nodiscard]] Time waits(State const& state, std::size_t rank) const { return state[3 * stages.size() + rank]; }
    [[nodiscard]] Time free(State const& state, std::size_t rank) const { return state[counts() + rank]; }

    [[nodiscard]] Time left(State const& state, std::size_t stage, Part part) const {
        return stages[stage].micro_batches - done(state, stage, part);
    }
    /// Weight parts whose data parts are done.
    [[nodiscard]] static Time owed(State const& state, std::size_t stage) {
        return done(state, stage, data_parts) - done(state, stage, weight_parts);
    }
    [[nodiscard]] bool ended(State const& state, std::size_t rank) const {
        return std::all_of(of_rank[rank].begin(), of_rank[rank].end(),
                           [&](std::size_t at) { return left(state, at, weight_parts) == 0; });
    }

    Schedule empty;
    std::vector<std::int64_t> limits;
    std::vector<std::int64_t> largest; ///< for each rank, what one micro-batch needs at most
    std::vector<Stage> stages;         ///< of all placements, one after the other
    std::vector<std::vector<std::size_t>> of_rank;
    std::vector<std::vector<Tail>> by_tail; ///< for each rank, the longest first
    std::size_t length = 0; ///< of the way to the end, in computes; the parts of a backward are one each
};

} // namespace pentad::pipeline::search

// Schedules in which each rank has a stage of the first and one of the second half of
// the way of its micro-batches, as the order of each rank's computes: DualPipe, where micro-batches enter at both ends
// and each stage is on two ranks, and DualPipeV and ZB-V, where one V-shaped pipeline returns to the rank that it left
// from.
#pragma once

#include <pentad/pipeline/generators/one_stage.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <vector>

namespace pentad::pipeline::order {

/// Stages 0 .. p-1 on the ranks in order, p .. 2p-1 in the opposite order, and so on. Twice through is a V.
inline std::vector<int> back_and_forth(int p, int times) {
    std::vector<int> placement = straight(p * times);
    for (int& rank : placement) rank = rank / p % 2 == 0 ? rank % p : p - 1 - rank % p;
    return placement;
}

namespace detail {

/// What a rank does in a schedule of two streams of micro-batches. Micro-batches beyond those that exist are left out,
/// so that a schedule for few micro-batches is one for many without the rest.
class TwoStreams {
  public:
    /// micro-batch i of stream s is first[s] + i * stride of the schedule
    TwoStreams(Schedule& schedule, int rank, std::array<int, 2> stages, std::array<int, 2> first, int stride,
               bool pairs = false)
        : list_(schedule.instructions[static_cast<std::size_t>(rank)]), micro_batches_(schedule.micro_batches),
          stages_(stages), first_(first), stride_(stride), pairs_(pairs) {}

    void forward(int s) { (void)add(Operation::forward, s, forwards_[at(s)]++); }
    void backward(int s) { (void)add(Operation::backward, s, backwards_[at(s)]++); }
    /// A forward of one stream beside a backward of the other.
    void pair(int forwards, int backwards) {
        bool const begins = add(Operation::forward, forwards, forwards_[at(forwards)]++);
        bool const ends = add(Operation::backward, backwards, backwards_[at(backwards)]++);
        if (begins && ends) list_[list_.size() - 2].paired = pairs_;
    }
    /// The weight part is owed, to be paid by weight().
    void backward_data(int s) {
        int const i = backwards_[at(s)]++;
        (void)add(Operation::backward_data, s, i);
        owed_[at(s)].push_back({debts_++, i});
    }
    /// Pays what is owed longest, of both streams or of one.
    void weight() {
        bool const first_is_older =
            owed_[1].empty() || (!owed_[0].empty() && owed_[0].front().since < owed_[1].front().since);
        weight(first_is_older ? 0 : 1);
    }
    void weight(int s) {
        (void)add(Operation::backward_weight, s, owed_[at(s)].front().micro_batch);
        owed_[at(s)].pop_front();
    }
    [[nodiscard]] int forwards(int s) const { return forwards_[at(s)]; }
    [[nodiscard]] std::size_t owed() const { return owed_[0].size() + owed_[1].size(); }

  private:
    struct Owed {
        int since;
        int micro_batch;
    };
    static std::size_t at(int s) { return static_cast<std::size_t>(s); }
    /// Whether there is such a micro-batch.
    bool add(Operation operation, int s, int i) {
        int const micro_batch = first_[at(s)] + i * stride_;
        if (micro_batch >= micro_batches_) return false;
        list_.push_back({operation, stages_[at(s)], micro_batch});
        return true;
    }

    std::vector<Instruction>& list_;
    int micro_batches_;
    std::array<int, 2> stages_, first_;
    int stride_;
    bool pairs_;
    std::array<int, 2> forwards_{}, backwards_{};
    std::array<std::deque<Owed>, 2> owed_;
    int debts_ = 0; ///< made so far
};

/// DeepSeek-AI 2025: what the rank that is `outer` ranks from its end does, `half` being half the way; its streams have
/// n micro-batches each, n >= 2 half. Stream 0 enters at this end.
inline void dual(TwoStreams& rank, int half, int outer, int n) {
    int const inner = half - 1 - outer;
    for (int i = 0; i < 2 * inner; ++i) rank.forward(0);
    for (int i = 0; i <= outer; ++i) {
        rank.forward(0);
        rank.forward(1);
    }
    for (int i = 0; i < inner; ++i) {
        rank.backward_data(1);
        rank.weight();
        rank.forward(1);
    }
    for (int i = 0; i < n - 2 * half + outer + 1; ++i) {
        if (i == 0 && inner == 0) { // the innermost rank's first: the others wait for what each of the two makes
            rank.forward(0);
            rank.backward(1);
        } else {
            rank.pair(0, 1);
        }
        rank.pair(1, 0);
    }
    for (int i = 0; i < inner; ++i) {
        rank.backward(1);
        rank.pair(1, 0);
    }
    for (int i = 0; i < 2 * (outer + 1); ++i) // the later ones leave their weights for the end
        if (i <= outer)
            rank.backward((i + 1) % 2);
        else
            rank.backward_data((i + 1) % 2);
    for (int i = 0; i < inner; ++i) {
        rank.weight();
        rank.backward_data(0);
    }
    while (rank.owed() > 0) rank.weight();
}

} // namespace detail

/// p even. Micro-batches 0, 2, ... go from rank 0 to p-1, the others back.
/// @param pairs whether a forward and the backward of the other stream after it are a pair
inline Schedule dualpipe(int p, int m, bool pairs = false) {
    std::vector<int> const there = straight(p);
    Schedule schedule = empty("dualpipe", p, m, {there, {there.rbegin(), there.rend()}});
    for (int rank = 0; rank < p; ++rank) {
        bool const first_half = rank < p / 2;
        int const outer = first_half ? rank : p - 1 - rank;
        int const own = first_half ? 0 : 1; // the direction that enters at this end
        detail::TwoStreams streams(schedule, rank, {outer, p - 1 - outer}, {own, 1 - own}, 2, pairs);
        detail::dual(streams, p / 2, outer, std::max((m + 1) / 2, p));
    }
    return schedule;
}

/// DualPipe cut in half: both streams are halves of one V.
inline Schedule dualpipe_v(int p, int m, bool pairs = false) {
    Schedule schedule = empty("dualpipe-v", p, m, {back_and_forth(p, 2)});
    for (int rank = 0; rank < p; ++rank) {
        detail::TwoStreams streams(schedule, rank, {rank, 2 * p - 1 - rank}, {0, 0}, 1, pairs);
        detail::dual(streams, p, rank, std::max(m, 2 * p));
    }
    return schedule;
}

/// Qi et al. 2023: no bubble where forward and both parts of backward take the same time, in the memory of 1F1B.
inline Schedule zero_bubble_v(int p, int m) {
    Schedule schedule = empty("zb-v", p, m, {back_and_forth(p, 2)});
    int const n = std::max(m, 2 * p - 1);
    for (int rank = 0; rank < p; ++rank) {
        detail::TwoStreams streams(schedule, rank, {rank, 2 * p - 1 - rank}, {0, 0}, 1);
        auto const backward = [&](int s) {
            streams.backward_data(s);
            streams.weight(s);
        };
        for (int i = 0; i < 2 * (p - rank) - 1; ++i) streams.forward(0);
        for (int i = 0; i < rank; ++i) {
            streams.forward(1);
            streams.forward(0);
        }
        for (int i = 0; i < p - rank; ++i) {
            streams.forward(1);
            backward(1);
        }
        while (streams.forwards(1) < n) {
            if (streams.forwards(0) < n) streams.forward(0);
            backward(0);
            streams.forward(1);
            backward(1);
        }
        for (int i = 0; i < rank; ++i) {
            streams.backward_data(0);
            streams.backward_data(1);
        }
        for (int i = 0; i < p - rank; ++i) {
            streams.backward_data(0);
            streams.weight(0);
        }
        for (int i = 0; i < rank; ++i) streams.weight(1);
        while (streams.owed() > 0) streams.weight();
    }
    return schedule;
}

} // namespace pentad::pipeline::order

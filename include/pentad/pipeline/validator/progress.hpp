// The part of the proof that looks at all ranks together: each receive takes the send
// that is meant for it, and nobody waits for ever.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/validator/order.hpp>
#include <pentad/pipeline/validator/verdict.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pentad::pipeline::detail {

/// MPI keeps the order of a line, so the n-th send and the n-th receive have to be for the same micro-batch and slice.
inline std::optional<Refusal> check_matching(Schedule const& s, OrderCheck const& order) {
    for (int stage = 0; stage < s.stages(); ++stage)
        for (int i = 0; i < s.micro_batches; ++i)
            for (int slice = 0; slice < s.slices; ++slice)
                for (Operation const operation : {Operation::receive_activation, Operation::receive_gradient}) {
                    Instruction const receive{operation, stage, i, slice};
                    if (!order.has(receive, operation)) continue;
                    int const from = peer_stage(receive);
                    Operation const send = operation == Operation::receive_activation ? Operation::send_activation
                                                                                      : Operation::send_gradient;
                    auto const sent = [&](int other, int part) {
                        return order.number(send, s.cell(from, other, part));
                    };
                    auto const place = order.number(operation, s.cell(stage, i, slice));
                    if (sent(i, slice) == place) continue;
                    for (int other = 0; other < s.micro_batches; ++other)
                        for (int part = 0; part < s.slices; ++part)
                            if (s.placement_of(other) == s.placement_of(i) && sent(other, part) == place)
                                return Refusal{Fault::mismatched, s.rank_of(stage, i), receive,
                                               "is met by the " + to_string(Instruction{send, from, other, part}) +
                                                   " of rank " + std::to_string(s.rank_of(from, other))};
                }
    return std::nullopt;
}

/// Runs every rank as far as it comes, again whenever a peer has posted something. What is posted stays posted, so the
/// end does not depend on the order in which the ranks are taken, and what one order proves holds for all.
class Progress {
  public:
    Progress(Schedule const& schedule, OrderCheck const& order, Machine machine)
        : s_(schedule), order_(order), machine_(machine), ranks_(static_cast<Index>(schedule.ranks())),
          lines_(static_cast<Index>(message_lines(schedule))) {}

    std::optional<Refusal> run() {
        for (int rank = s_.ranks() - 1; rank >= 0; --rank) wake(rank);
        while (!work_.empty()) {
            int const rank = work_.back();
            work_.pop_back();
            ranks_[static_cast<Index>(rank)].awake = false;
            advance(rank);
        }
        std::optional<Refusal> refusal;
        int others = 0;
        for (int rank = 0; rank < s_.ranks(); ++rank) {
            Rank const& at = ranks_[static_cast<Index>(rank)];
            if (at.step == machine_.steps) continue;
            Instruction const& x = s_.instructions[static_cast<Index>(rank)][at.next];
            if (!refusal)
                refusal = Refusal{Fault::deadlocked, rank, x,
                                  is_send(x.operation) ? "waits for ever for a send buffer"
                                                       : "waits for ever for what it receives"};
            else if (++others <= 4)
                refusal->reason += "; rank " + std::to_string(rank) + " in " + to_string(x);
        }
        return refusal;
    }

  private:
    struct Line {
        std::int64_t sent = 0, received = 0; ///< posted so far, over all steps
    };
    struct Message {
        Index line;
        std::int64_t number;
    };
    struct Rank {
        Index next = 0;               ///< into its list
        int step = 0;                 ///< steps finished
        std::vector<Message> sending; ///< posted sends that may still be incomplete
        bool awake = false;           ///< on the work list
    };

    void wake(int rank) {
        if (!std::exchange(ranks_[static_cast<Index>(rank)].awake, true)) work_.push_back(rank);
    }
    void advance(int rank) {
        Rank& at = ranks_[static_cast<Index>(rank)];
        auto const& instructions = s_.instructions[static_cast<Index>(rank)];
        for (; at.step < machine_.steps; ++at.step, at.next = 0)
            for (; at.next < instructions.size(); ++at.next)
                if (!execute(at, instructions[at.next]) ||
                    (instructions[at.next].paired && !has_input(at, instructions[at.next + 1])))
                    return;
    }

    /// False when the instruction has to wait.
    bool execute(Rank& at, Instruction const& x) {
        if (is_send(x.operation)) {
            std::erase_if(at.sending, [&](Message const& sent) { return lines_[sent.line].received > sent.number; });
            if (at.sending.size() >= static_cast<Index>(machine_.send_buffers)) return false;
            auto const line = static_cast<Index>(message_line(s_, x));
            at.sending.push_back({line, lines_[line].sent++});
            wake(s_.rank_of(peer_stage(x), x.micro_batch));
            return true;
        }
        if (is_receive(x.operation)) {
            ++lines_[static_cast<Index>(message_line(s_, x))].received;
            wake(s_.rank_of(peer_stage(x), x.micro_batch));
            return true;
        }
        return has_input(at, x);
    }
    /// False when a compute has to wait.
    [[nodiscard]] bool has_input(Rank const& at, Instruction const& x) const {
        bool const forward = x.operation == Operation::forward;
        if (!forward && !makes_gradient(x.operation)) return true;
        Instruction const input{forward ? Operation::receive_activation : Operation::receive_gradient, x.stage,
                                x.micro_batch, x.slice};
        if (!order_.has(input, input.operation)) return true;
        int const line = message_line(s_, input);
        auto const number = order_.number(input.operation, s_.cell(x.stage, x.micro_batch, x.slice));
        return lines_[static_cast<Index>(line)].sent > std::int64_t{at.step} * order_.messages(line) + number;
    }

    Schedule const& s_;
    OrderCheck const& order_;
    Machine machine_;
    std::vector<Rank> ranks_;
    std::vector<Line> lines_;
    std::vector<int> work_;
};

} // namespace pentad::pipeline::detail

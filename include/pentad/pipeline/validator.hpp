// Room: pipeline (pure host C++). Proves a schedule before it runs: everything computed and sent exactly once and in
// order, each receive met by its send, no deadlock, and how many micro-batches each rank holds at its peak.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pentad::pipeline {

enum class Fault {
    misplaced,  ///< an instruction that cannot be on this rank: no such stage, micro-batch or peer
    repeated,   ///< done twice
    missing,    ///< never done
    disordered, ///< before something on the same rank that it needs
    mismatched, ///< the n-th receive is not for what the n-th send sends
    deadlocked, ///< waits for ever
};

struct Refusal {
    Fault fault;
    int rank;
    Instruction instruction;
    std::string reason;

    /// "rank 1: backward of micro-batch 0 on stage 1: comes before the forward"
    [[nodiscard]] std::string message() const {
        return "rank " + std::to_string(rank) + ": " + to_string(instruction) + ": " + reason;
    }
};

struct Verdict {
    std::optional<Refusal> refusal; ///< empty: the schedule is right
    /// For each rank, the most micro-batches (of all its stages) held at once, from the first receive or forward of one
    /// to its backward (inference: to its last instruction).
    std::vector<int> peak_in_flight;
};

/// What the executor is promised to have. Sends and receives post and return; a send occupies one of its rank's buffers
/// until its receive is posted; a rank that finds all of them occupied waits; a compute waits for what it receives.
struct Machine {
    int send_buffers = 1;
    int steps = 2; ///< run one after the other without a barrier, so that a step may meet the tail of the one before
};

namespace detail {

class Validator {
  public:
    Validator(Schedule const& schedule, Machine machine) : schedule_(schedule), machine_(machine) {}

    Verdict run() {
        bool const proven = check_ranks() && check_matching() && check_progress();
        if (!proven) return {std::move(refusal_), {}};
        return {std::nullopt, std::move(peaks_)};
    }

  private:
    using Index = std::size_t;

    bool refuse(Fault fault, int rank, Instruction const& instruction, std::string reason) {
        refusal_ = Refusal{fault, rank, instruction, std::move(reason)};
        return false;
    }

    [[nodiscard]] int rank_of(int stage) const { return schedule_.rank_of[static_cast<Index>(stage)]; }
    [[nodiscard]] bool training() const { return schedule_.purpose == Purpose::training; }
    [[nodiscard]] std::vector<Instruction> const& list(int rank) const {
        return schedule_.instructions[static_cast<Index>(rank)];
    }
    [[nodiscard]] Index cell(int stage, int micro_batch) const {
        return static_cast<Index>(stage) * static_cast<Index>(schedule_.micro_batches) +
               static_cast<Index>(micro_batch);
    }

    // --- one rank at a time
    // -------------------------------------------------------------------------------------------

    static constexpr unsigned bit(Operation operation) { return 1u << static_cast<unsigned>(operation); }

    /// The operations that a stage has for each of its micro-batches.
    [[nodiscard]] unsigned expected(int stage) const {
        bool const remote_before = stage > 0 && rank_of(stage - 1) != rank_of(stage);
        bool const remote_after = stage + 1 < schedule_.stages() && rank_of(stage + 1) != rank_of(stage);
        unsigned set = bit(Operation::forward);
        if (remote_before) set |= bit(Operation::receive_activation);
        if (remote_after) set |= bit(Operation::send_activation);
        if (!training()) return set;
        set |= bit(Operation::backward);
        if (remote_before) set |= bit(Operation::send_gradient);
        if (remote_after) set |= bit(Operation::receive_gradient);
        return set;
    }

    /// What has to come before an operation of the same stage and micro-batch, among those that the stage has.
    static constexpr unsigned needs(Operation operation) {
        switch (operation) {
        case Operation::forward:
            return bit(Operation::receive_activation);
        case Operation::send_activation:
            return bit(Operation::forward);
        case Operation::backward:
            return bit(Operation::forward) | bit(Operation::receive_gradient);
        case Operation::send_gradient:
            return bit(Operation::backward);
        default:
            return 0;
        }
    }

    bool check_ranks() {
        for (int stage = 0; stage < schedule_.stages(); ++stage)
            if (rank_of(stage) < 0 || rank_of(stage) >= schedule_.ranks())
                return refuse(Fault::misplaced, rank_of(stage), {Operation::forward, stage, 0},
                              "the schedule has no such rank");
        done_.assign(cell(schedule_.stages(), 0), 0);
        for (int rank = 0; rank < schedule_.ranks(); ++rank)
            if (!check_rank(rank)) return false;
        for (int stage = 0; stage < schedule_.stages(); ++stage)
            for (int i = 0; i < schedule_.micro_batches; ++i)
                if (unsigned const left = expected(stage) & ~unsigned{done_[cell(stage, i)]}; left != 0)
                    return refuse(Fault::missing, rank_of(stage), {first(left), stage, i}, "is never done");
        return true;
    }

    static Operation first(unsigned set) {
        unsigned operation = 0;
        while ((set >> operation & 1u) == 0) ++operation;
        return static_cast<Operation>(operation);
    }

    bool check_rank(int rank) {
        int held = 0;
        int peak = 0;
        for (Instruction const& instruction : list(rank)) {
            auto const [operation, stage, micro_batch] = instruction;
            auto const refused = [&](Fault fault, std::string reason) {
                return refuse(fault, rank, instruction, std::move(reason));
            };
            if (stage < 0 || stage >= schedule_.stages()) return refused(Fault::misplaced, "there is no such stage");
            if (rank_of(stage) != rank)
                return refused(Fault::misplaced, "that stage is on rank " + std::to_string(rank_of(stage)));
            if (micro_batch < 0 || micro_batch >= schedule_.micro_batches)
                return refused(Fault::misplaced, "there is no such micro-batch");
            if ((expected(stage) & bit(operation)) == 0)
                return refused(Fault::misplaced, is_compute(operation)
                                                     ? "inference has no backward"
                                                     : "that stage has no other rank to do this with");

            auto& done = done_[cell(stage, micro_batch)];
            if ((done & bit(operation)) != 0) return refused(Fault::repeated, "is done twice");
            if (unsigned const left = needs(operation) & expected(stage) & ~unsigned{done}; left != 0)
                return refused(Fault::disordered, "comes before the " + std::string(name(first(left))));
            if (auto const before = local_need(instruction);
                before && (done_[cell(before->stage, micro_batch)] & bit(operation)) == 0)
                return refused(Fault::disordered, "comes before the " + to_string(*before));

            if (done == 0) peak = std::max(peak, ++held);
            done = static_cast<std::uint8_t>(done | bit(operation));
            if (training() ? operation == Operation::backward : done == expected(stage)) --held;
        }
        peaks_.push_back(peak);
        return true;
    }

    /// Stages next to each other on one rank hand over in memory: the same compute of the neighbour comes first.
    [[nodiscard]] std::optional<Instruction> local_need(Instruction const& instruction) const {
        if (!is_compute(instruction.operation)) return std::nullopt;
        int const before = instruction.operation == Operation::forward ? instruction.stage - 1 : instruction.stage + 1;
        if (before < 0 || before >= schedule_.stages() || rank_of(before) != rank_of(instruction.stage))
            return std::nullopt;
        return Instruction{instruction.operation, before, instruction.micro_batch};
    }

    // --- pairs of ranks
    // -----------------------------------------------------------------------------------------------

    /// One line of messages: from a rank to a rank, activations or gradients; MPI keeps the order in it.
    struct Channel {
        int sender;
        int receiver;
        std::vector<Instruction const*> sends;    ///< in the order of the sender
        std::vector<Instruction const*> receives; ///< in the order of the receiver
        std::int64_t sent = 0;                    ///< posted so far, over all steps
        std::int64_t received = 0;
    };

    /// The channel of a send or receive.
    [[nodiscard]] Index channel_of(Instruction const& instruction) {
        auto& known = channel_of_stage_[static_cast<Index>(instruction.stage) * operation_names.size() +
                                        static_cast<Index>(instruction.operation)];
        if (!known) known = make_channel(instruction);
        return *known;
    }
    Index make_channel(Instruction const& instruction) {
        int const here = rank_of(instruction.stage);
        int const there = rank_of(peer_stage(instruction));
        int const sender = is_send(instruction.operation) ? here : there;
        int const receiver = is_send(instruction.operation) ? there : here;
        auto const [found, added] =
            channel_index_.try_emplace({sender, receiver, moves_activation(instruction.operation)}, channels_.size());
        if (added) channels_.push_back({sender, receiver, {}, {}});
        return found->second;
    }

    bool check_matching() {
        channel_of_stage_.resize(static_cast<Index>(schedule_.stages()) * operation_names.size());
        for (int rank = 0; rank < schedule_.ranks(); ++rank)
            for (Instruction const& instruction : list(rank)) {
                if (is_compute(instruction.operation)) continue;
                Channel& channel = channels_[channel_of(instruction)];
                (is_send(instruction.operation) ? channel.sends : channel.receives).push_back(&instruction);
            }
        for (Channel const& channel : channels_) // as many sends as receives: each was found exactly once
            for (Index n = 0; n < channel.sends.size(); ++n) {
                Instruction const& send = *channel.sends[n];
                Instruction const& receive = *channel.receives[n];
                if (send.micro_batch != receive.micro_batch || peer_stage(send) != receive.stage)
                    return refuse(Fault::mismatched, channel.receiver, receive,
                                  "is met by the " + to_string(send) + " of rank " + std::to_string(channel.sender));
            }
        return true;
    }

    // --- all ranks together
    // -------------------------------------------------------------------------------------------

    struct Message {
        Index channel;
        std::int64_t number;
    };
    struct Progress {
        Index next = 0;               ///< into the list of the rank
        int step = 0;                 ///< steps finished
        std::vector<Message> sending; ///< posted sends that may still be incomplete
        bool waiting = false;         ///< on the work list
    };

    /// Runs every rank as far as it comes, again whenever a peer has posted something. What is posted stays posted, so
    /// the end does not depend on the order in which the ranks are taken.
    bool check_progress() {
        progress_.resize(static_cast<Index>(schedule_.ranks()));
        for (auto& arrived : arriving_) arrived.resize(done_.size());
        for (int rank = schedule_.ranks() - 1; rank >= 0; --rank) wake(rank);
        while (!work_.empty()) {
            int const rank = work_.back();
            work_.pop_back();
            progress_[static_cast<Index>(rank)].waiting = false;
            advance(rank);
        }
        std::string stuck;
        int count = 0;
        int first_stuck = -1;
        for (int rank = 0; rank < schedule_.ranks(); ++rank) {
            auto const& at = progress_[static_cast<Index>(rank)];
            if (at.step == machine_.steps) continue;
            if (first_stuck < 0)
                first_stuck = rank;
            else if (++count <= 4)
                stuck += "; rank " + std::to_string(rank) + " in " + to_string(list(rank)[at.next]);
        }
        if (first_stuck < 0) return true;
        Instruction const& instruction = list(first_stuck)[progress_[static_cast<Index>(first_stuck)].next];
        return refuse(Fault::deadlocked, first_stuck, instruction,
                      (is_send(instruction.operation) ? "waits for ever for a send buffer"
                                                      : "waits for ever for what it receives") +
                          stuck);
    }

    void wake(int rank) {
        auto& at = progress_[static_cast<Index>(rank)];
        if (!std::exchange(at.waiting, true)) work_.push_back(rank);
    }

    void advance(int rank) {
        auto& at = progress_[static_cast<Index>(rank)];
        auto const& instructions = list(rank);
        for (; at.step < machine_.steps; ++at.step, at.next = 0)
            for (; at.next < instructions.size(); ++at.next)
                if (!execute(at, instructions[at.next])) return;
    }

    /// False when the instruction has to wait.
    bool execute(Progress& at, Instruction const& instruction) {
        if (is_send(instruction.operation)) {
            std::erase_if(at.sending,
                          [&](Message const& sent) { return channels_[sent.channel].received > sent.number; });
            if (at.sending.size() >= static_cast<Index>(machine_.send_buffers)) return false;
            Index const channel = channel_of(instruction);
            at.sending.push_back({channel, channels_[channel].sent++});
            wake(channels_[channel].receiver);
            return true;
        }
        if (is_receive(instruction.operation)) {
            Index const channel = channel_of(instruction);
            arriving(instruction) = {channel, channels_[channel].received++};
            wake(channels_[channel].sender);
            return true;
        }
        Operation const input =
            instruction.operation == Operation::forward ? Operation::receive_activation : Operation::receive_gradient;
        if ((expected(instruction.stage) & bit(input)) == 0) return true;
        Message const message = arriving({input, instruction.stage, instruction.micro_batch});
        return channels_[message.channel].sent > message.number;
    }

    /// The message that a receive of this step has posted for.
    Message& arriving(Instruction const& receive) {
        return arriving_[moves_activation(receive.operation) ? 0 : 1][cell(receive.stage, receive.micro_batch)];
    }

    Schedule const& schedule_;
    Machine machine_;
    std::optional<Refusal> refusal_;
    std::vector<int> peaks_;
    std::vector<std::uint8_t> done_; ///< for each stage and micro-batch, the set of operations done
    std::map<std::tuple<int, int, bool>, Index> channel_index_;
    std::vector<std::optional<Index>> channel_of_stage_; ///< for each stage and operation, once known
    std::vector<Channel> channels_;
    std::vector<Progress> progress_;
    std::vector<Message> arriving_[2];
    std::vector<int> work_;
};

} // namespace detail

/// Proves a schedule for a machine, or says what is wrong with it. Time and memory are linear in its length.
inline Verdict validate(Schedule const& schedule, Machine machine = {}) {
    return detail::Validator(schedule, machine).run();
}

} // namespace pentad::pipeline

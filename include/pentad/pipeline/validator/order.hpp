// The part of the proof that looks at one rank at a time: everything is done exactly
// once, where it belongs, after what it needs, and with the right weights.
#pragma once

#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/validator/verdict.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pentad::pipeline::detail {

using Index = std::size_t;

constexpr unsigned bit(Operation operation) { return 1u << static_cast<unsigned>(operation); }
inline constexpr unsigned any_backward = bit(Operation::backward) | bit(Operation::backward_data);

inline Operation first_of(unsigned set) {
    unsigned operation = 0;
    while ((set >> operation & 1u) == 0) ++operation;
    return static_cast<Operation>(operation);
}

/// What the numbers of a schedule contradict, or nothing.
inline std::string malformed(Schedule const& s) {
    if (s.micro_batches < 1 || s.slices < 1) return "a schedule has at least one micro-batch of one slice";
    if (s.stages() < 1) return "a schedule has at least one stage";
    Index instructions = 0;
    for (auto const& list : s.instructions) instructions += list.size();
    if (static_cast<double>(s.stages()) * s.micro_batches * s.slices > static_cast<double>(instructions))
        return std::to_string(instructions) + " instructions are not a forward for each of " +
               std::to_string(s.stages()) + " stages, " + std::to_string(s.micro_batches) + " micro-batches and " +
               std::to_string(s.slices) + " slices";
    for (auto const& placement : s.placements) {
        if (placement.size() != s.placements[0].size()) return "each placement has a rank for each stage";
        for (int const rank : placement)
            if (rank < 0 || rank >= s.ranks())
                return "a stage is on rank " + std::to_string(rank) + ", but there are " + std::to_string(s.ranks());
    }
    if (s.updates < 0 || s.micro_batches % s.rounds() != 0)
        return std::to_string(s.micro_batches) + " micro-batches cannot be shared out equally to " +
               std::to_string(s.updates) + " updates";
    // The proof takes memory for each update of each copy, and each is one instruction or more.
    if (static_cast<double>(s.placements.size()) * s.stages() * s.rounds() > 4.0 * static_cast<double>(instructions))
        return std::to_string(instructions) + " instructions are too few for " + std::to_string(s.placements.size()) +
               " placements of " + std::to_string(s.stages()) + " stages and " + std::to_string(s.rounds()) +
               " updates";
    if (s.weight_versions < 1) return "a stage keeps at least one version of its weights";
    if (!s.delay.empty() && s.delay.size() != s.placements[0].size()) return "each stage has a delay, or none";
    if (std::any_of(s.delay.begin(), s.delay.end(), [](int delay) { return delay < 0; }))
        return "a delay is a number of updates, not negative";
    if (s.gathers && s.updates > 1) return "parameters of which versions are kept are not gathered";
    if (s.purpose == Purpose::inference && (s.updates != 0 || s.recomputes || s.reduces))
        return "inference has no updates, no gradients to reduce and nothing to recompute";
    return {};
}

/// Checks the lists one after the other; what it learns is there for the parts of the proof that follow.
class OrderCheck {
  public:
    explicit OrderCheck(Schedule const& schedule) : s_(schedule) {
        Index const cells = s_.cells();
        done_.resize(cells);
        for (auto& number : numbers_) number.resize(cells);
        counts_.resize(2 * static_cast<Index>(message_lines(s_)));
        for (Index placement = 0; placement < s_.placements.size(); ++placement)
            for (int stage = 0; stage < s_.stages(); ++stage) expected_.push_back(expectation(placement, stage));
        steps_.resize(expected_.size());
        rounds_.resize(expected_.size() * static_cast<Index>(s_.rounds()));
        std::vector<int> summands(s_.placements.size() * static_cast<Index>(s_.rounds()));
        for (int i = 0; i < s_.micro_batches; ++i)
            summands[s_.placement_of(i) * static_cast<Index>(s_.rounds()) + static_cast<Index>(s_.update_of(i))] +=
                s_.slices;
        for (Index placement = 0; placement < s_.placements.size(); ++placement)
            for (int stage = 0; stage < s_.stages(); ++stage)
                for (Index u = 0; u < static_cast<Index>(s_.rounds()); ++u)
                    round(copy_of(s_.placements[placement][static_cast<Index>(stage)], stage), u).awaited +=
                        summands[placement * static_cast<Index>(s_.rounds()) + u];
    }

    std::optional<Refusal> run(Verdict& verdict) {
        for (rank_ = 0; rank_ < s_.ranks(); ++rank_) {
            held_ = peak_held_ = arriving_ = peak_arriving_ = 0;
            versions_ = 1;
            auto const& list = s_.instructions[static_cast<Index>(rank_)];
            for (Index at = 0; at < list.size(); ++at) {
                Instruction const& x = list[at];
                auto wrong = is_of_update(x.operation) ? stage_operation(x) : micro_batch_operation(x);
                if (!wrong && x.paired) wrong = pair(x, at + 1 < list.size() ? &list[at + 1] : nullptr);
                if (wrong) return Refusal{wrong->fault, rank_, x, std::move(wrong->reason)};
            }
            verdict.peak_in_flight.push_back(peak_held_);
            verdict.peak_arriving.push_back(peak_arriving_);
            verdict.weight_versions.push_back(versions_);
        }
        return missing();
    }

    /// Messages of a step on a line.
    [[nodiscard]] std::int32_t messages(int line) const { return counts_[2 * static_cast<Index>(line)]; }
    /// The place of a send or receive among those of its line.
    [[nodiscard]] std::int32_t number(Operation operation, Index cell) const { return numbers_[slot(operation)][cell]; }
    [[nodiscard]] bool has(Instruction const& x, Operation operation) const {
        return (expected(x.stage, x.micro_batch) & bit(operation)) != 0;
    }

  private:
    struct Objection {
        Fault fault;
        std::string reason;
    };
    using Judgement = std::optional<Objection>; ///< nothing: the instruction is right

    struct Round {       // of a copy of a stage's parameters
        int awaited = 0; ///< backwards that count for it
        int ended = 0;
        unsigned done = 0;
    };

    /// The operations of a stage for each micro-batch of a placement; `backward` stands for it in one or in two parts.
    [[nodiscard]] unsigned expectation(Index placement, int stage) const {
        auto const rank = [&](int of) { return s_.placements[placement][static_cast<Index>(of)]; };
        bool const remote_before = stage > 0 && rank(stage - 1) != rank(stage);
        bool const remote_after = stage + 1 < s_.stages() && rank(stage + 1) != rank(stage);
        unsigned set = bit(Operation::forward);
        if (remote_before) set |= bit(Operation::receive_activation);
        if (remote_after) set |= bit(Operation::send_activation);
        if (s_.purpose == Purpose::inference) return set;
        set |= bit(Operation::backward);
        if (s_.recomputes) set |= bit(Operation::recompute);
        if (remote_before) set |= bit(Operation::send_gradient);
        if (remote_after) set |= bit(Operation::receive_gradient);
        return set;
    }
    [[nodiscard]] unsigned expected(int stage, int micro_batch) const {
        return expected_[s_.placement_of(micro_batch) * static_cast<Index>(s_.stages()) + static_cast<Index>(stage)];
    }

    /// What has to come before an operation of the same cell, among those that it has.
    [[nodiscard]] static constexpr unsigned needs(Operation operation) {
        switch (operation) {
        case Operation::forward:
            return bit(Operation::receive_activation);
        case Operation::send_activation:
        case Operation::recompute:
            return bit(Operation::forward);
        case Operation::backward:
        case Operation::backward_data:
            return bit(Operation::forward) | bit(Operation::receive_gradient) | bit(Operation::recompute);
        default:
            return 0;
        }
    }

    [[nodiscard]] Judgement pair(Instruction const& x, Instruction const* next) const {
        if (x.operation != Operation::forward || next == nullptr || !makes_gradient(next->operation) ||
            next->micro_batch == x.micro_batch)
            return Objection{Fault::misplaced, "is paired, but not a forward before a backward of another micro-batch"};
        if (s_.weight_versions > 1 || s_.updates > 1)
            return Objection{Fault::misplaced, "is paired, but the schedule is not synchronous"};
        return std::nullopt;
    }
    Judgement micro_batch_operation(Instruction const& x) {
        auto const operation = x.operation;
        int const stage = x.stage, i = x.micro_batch, slice = x.slice;
        if (stage < 0 || stage >= s_.stages()) return Objection{Fault::misplaced, "there is no such stage"};
        if (i < 0 || i >= s_.micro_batches) return Objection{Fault::misplaced, "there is no such micro-batch"};
        if (slice < 0 || slice >= s_.slices) return Objection{Fault::misplaced, "there is no such slice"};
        if (int const rank = s_.rank_of(stage, i); rank != rank_)
            return Objection{Fault::misplaced, "that stage is on rank " + std::to_string(rank)};
        unsigned const expects = expected(stage, i);
        bool const part = operation == Operation::backward_data || operation == Operation::backward_weight;
        if ((expects & bit(part ? Operation::backward : operation)) == 0)
            return Objection{Fault::misplaced, !is_compute(operation) ? "that stage has no other rank to do this with"
                                               : operation == Operation::recompute ? "the schedule does not recompute"
                                                                                   : "inference has no backward"};

        auto& done = done_[s_.cell(stage, i, slice)];
        // Backward in one excludes its parts.
        unsigned const same = operation == Operation::backward ? any_backward
                              : part                           ? bit(operation) | bit(Operation::backward)
                                                               : bit(operation);
        if ((done & same) != 0) return Objection{Fault::repeated, "is done twice"};
        if (unsigned const left = needs(operation) & expects & ~unsigned{done}; left != 0)
            return Objection{Fault::disordered, "comes before the " + std::string(name(first_of(left)))};
        if (operation == Operation::send_gradient && (done & any_backward) == 0)
            return Objection{Fault::disordered, "comes before the backward"};
        if (operation == Operation::backward_weight && (done & bit(Operation::backward_data)) == 0)
            return Objection{Fault::disordered, "comes before the backward-data"};
        if (auto wrong = neighbours(x)) return wrong;
        if (auto wrong = weights(x)) return wrong;

        done = static_cast<std::uint16_t>(done | bit(operation));
        count(x, done == expects);
        return std::nullopt;
    }

    /// Needs on the same rank beyond the cell: stages next to each other hand over in memory, and the slices of a
    /// sequence come in order, backward the other way round, when all forwards are done.
    [[nodiscard]] Judgement neighbours(Instruction const& x) const {
        bool const forward = x.operation == Operation::forward;
        if (!forward && !makes_gradient(x.operation)) return std::nullopt;
        unsigned const wanted = forward ? bit(Operation::forward) : any_backward;
        auto const before = [&](Instruction const& other, unsigned set) -> Judgement {
            if ((done_[s_.cell(other.stage, other.micro_batch, other.slice)] & set) != 0) return std::nullopt;
            return Objection{Fault::disordered, "comes before the " + to_string(other)};
        };
        int const stage = forward ? x.stage - 1 : x.stage + 1;
        if (stage >= 0 && stage < s_.stages() && s_.rank_of(stage, x.micro_batch) == rank_)
            if (auto wrong = before({x.operation, stage, x.micro_batch, x.slice}, wanted)) return wrong;
        if (!forward)
            if (auto wrong =
                    before({Operation::forward, x.stage, x.micro_batch, s_.slices - 1}, bit(Operation::forward)))
                return wrong;
        int const slice = forward ? x.slice - 1 : x.slice + 1;
        if (slice < 0 || slice >= s_.slices) return std::nullopt;
        return before({x.operation, x.stage, x.micro_batch, slice}, wanted);
    }

    /// That forward and backward see the same weights, and that gradients of two updates do not mix.
    [[nodiscard]] Judgement weights(Instruction const& x) {
        Index const copy = copy_of(rank_, x.stage);
        int const steps = steps_[copy];
        int const update = s_.update_of(x.micro_batch);
        if (x.operation == Operation::forward || makes_gradient(x.operation)) {
            int const version = s_.version_of(x.stage, x.micro_batch);
            int const oldest = std::max(0, steps - s_.weight_versions + 1);
            if (version < oldest || version > steps)
                return Objection{Fault::stale, "needs version " + std::to_string(version) +
                                                   " of the weights; there are " + std::to_string(oldest) + " to " +
                                                   std::to_string(steps)};
            versions_ = std::max(versions_, steps - version + 1);
            if (x.operation == Operation::forward && s_.gathers &&
                (round(copy, static_cast<Index>(update)).done & bit(Operation::gather_parameters)) == 0)
                return Objection{Fault::disordered, "comes before the gather-parameters"};
        }
        if (ends_micro_batch(x.operation) && steps < update)
            return Objection{Fault::disordered, "comes before optimizer-step " + std::to_string(update - 1) +
                                                    ", whose gradients it would join"};
        return std::nullopt;
    }

    void count(Instruction const& x, bool complete) {
        if (x.operation == Operation::forward) peak_held_ = std::max(peak_held_, ++held_);
        if (s_.purpose == Purpose::inference ? complete : ends_micro_batch(x.operation)) --held_;
        if (ends_micro_batch(x.operation))
            ++round(copy_of(rank_, x.stage), static_cast<Index>(s_.update_of(x.micro_batch))).ended;
        if (x.operation == Operation::forward && has(x, Operation::receive_activation)) --arriving_;
        if (makes_gradient(x.operation) && has(x, Operation::receive_gradient)) --arriving_;
        if (!is_send(x.operation) && !is_receive(x.operation)) return;
        if (is_receive(x.operation)) peak_arriving_ = std::max(peak_arriving_, ++arriving_);
        auto const line = static_cast<Index>(message_line(s_, x));
        numbers_[slot(x.operation)][s_.cell(x.stage, x.micro_batch, x.slice)] =
            counts_[2 * line + (is_receive(x.operation) ? 1 : 0)]++;
    }

    Judgement stage_operation(Instruction const& x) {
        auto const operation = x.operation;
        int const stage = x.stage, update = x.micro_batch, slice = x.slice;
        if (stage < 0 || stage >= s_.stages()) return Objection{Fault::misplaced, "there is no such stage"};
        if (slice != 0) return Objection{Fault::misplaced, "is for all slices, not for one"};
        if (update < 0 || update >= s_.rounds()) return Objection{Fault::misplaced, "there is no such update"};
        if (!s_.has_stage(rank_, stage)) return Objection{Fault::misplaced, "the rank does not have that stage"};
        if ((expected_of_round() & bit(operation)) == 0)
            return Objection{Fault::misplaced, "the schedule says that it has none"};
        Index const copy = copy_of(rank_, stage);
        Round& of = round(copy, static_cast<Index>(update));
        if ((of.done & bit(operation)) != 0) return Objection{Fault::repeated, "is done twice"};
        if (operation != Operation::gather_parameters && of.ended < of.awaited)
            return Objection{Fault::disordered, "comes before the last backward of the stage"};
        if (operation == Operation::optimizer_step) {
            if (s_.reduces && (of.done & bit(Operation::reduce_gradients)) == 0)
                return Objection{Fault::disordered, "comes before the reduce-gradients"};
            if (update != steps_[copy])
                return Objection{Fault::disordered, "comes before optimizer-step " + std::to_string(steps_[copy])};
            ++steps_[copy];
        }
        of.done |= bit(operation);
        return std::nullopt;
    }
    [[nodiscard]] unsigned expected_of_round() const {
        return (s_.gathers ? bit(Operation::gather_parameters) : 0) |
               (s_.reduces ? bit(Operation::reduce_gradients) : 0) |
               (s_.updates > 0 ? bit(Operation::optimizer_step) : 0);
    }

    [[nodiscard]] std::optional<Refusal> missing() const {
        auto const never = [](int rank, Instruction const& x) {
            return Refusal{Fault::missing, rank, x, "is never done"};
        };
        for (int stage = 0; stage < s_.stages(); ++stage)
            for (int i = 0; i < s_.micro_batches; ++i)
                for (int slice = 0; slice < s_.slices; ++slice) {
                    unsigned done = done_[s_.cell(stage, i, slice)];
                    if ((done & bit(Operation::backward_data)) != 0) { // then both parts
                        if ((done & bit(Operation::backward_weight)) == 0)
                            return never(s_.rank_of(stage, i), {Operation::backward_weight, stage, i, slice});
                        done |= bit(Operation::backward);
                    }
                    if (unsigned const left = expected(stage, i) & ~done; left != 0)
                        return never(s_.rank_of(stage, i), {first_of(left), stage, i, slice});
                }
        for (auto const& placement : s_.placements)
            for (int stage = 0; stage < s_.stages(); ++stage)
                for (int u = 0; u < s_.rounds(); ++u) {
                    int const rank = placement[static_cast<Index>(stage)];
                    Round const& of =
                        rounds_[copy_of(rank, stage) * static_cast<Index>(s_.rounds()) + static_cast<Index>(u)];
                    if (unsigned const left = expected_of_round() & ~of.done; left != 0)
                        return never(rank, {first_of(left), stage, u});
                }
        return std::nullopt;
    }

    /// A rank has one copy of a stage's parameters, whatever the number of placements that put the stage there.
    [[nodiscard]] Index copy_of(int rank, int stage) const {
        Index placement = 0;
        while (s_.placements[placement][static_cast<Index>(stage)] != rank) ++placement;
        return placement * static_cast<Index>(s_.stages()) + static_cast<Index>(stage);
    }
    [[nodiscard]] Round& round(Index copy, Index update) {
        return rounds_[copy * static_cast<Index>(s_.rounds()) + update];
    }
    static Index slot(Operation message) {
        return static_cast<Index>(message) - static_cast<Index>(Operation::send_activation);
    }

    Schedule const& s_;
    std::vector<unsigned> expected_;                   ///< for each placement and stage
    std::vector<std::uint16_t> done_;                  ///< for each cell, the set of its operations done
    std::array<std::vector<std::int32_t>, 4> numbers_; ///< for each kind of message and cell, its place on its line
    std::vector<std::int32_t> counts_;                 ///< for each line, sends and receives
    std::vector<int> steps_;                           ///< for each copy of a stage's parameters, optimizer steps done
    std::vector<Round> rounds_;                        ///< for each copy and update
    int rank_ = 0, held_ = 0, peak_held_ = 0, arriving_ = 0, peak_arriving_ = 0, versions_ = 1;
};

} // namespace pentad::pipeline::detail

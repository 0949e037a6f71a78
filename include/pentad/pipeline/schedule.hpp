// A schedule is data: where the stages of a model are and what each rank does, in
// order. Generators write it, the validator proves it, the simulator times it, the executor (train/) runs it.
#pragma once

#include <pentad/pipeline/instruction.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pentad::pipeline {

/// What a schedule is for. Inference has forwards only; training has a backward for each forward.
enum class Purpose : std::uint8_t { training, inference };

/// A schedule begins and ends with an empty pipeline and may be run again and again.
///
/// A synchronous one is a step: all micro-batches see the same weights. Its optimizer step is part of it (updates == 1)
/// or left to the caller (updates == 0). An asynchronous one is a window of several updates between two points at which
/// the pipeline is empty; each micro-batch counts for the update of its group of micro_batches / updates, and sees
/// weights that are `delay` updates older than those of its turn, the same forward and backward.
///
/// A rank has a stage's parameters once, whatever the number of placements that put the stage there. With two
/// placements (bidirectional schedules) two ranks have copies of each stage, whose gradients are summed before the
/// optimizer steps.
struct Schedule {
    std::string name;
    Purpose purpose = Purpose::training;
    int micro_batches = 0;
    int slices = 1;          ///< of the sequence of each micro-batch; 0 is its beginning
    int updates = 0;         ///< optimizer steps of each stage
    int weight_versions = 1; ///< that a stage keeps, the newest included
    std::vector<int> delay;  ///< for each stage, in updates; empty: none
    bool recomputes = false; ///< a forward keeps its input; recompute makes the rest again
    bool gathers = false;    ///< parameters are gathered for each update
    bool reduces = false;    ///< gradients are reduced for each update, where the schedule says, not by the caller
    /// The rank of each stage. Micro-batch i takes placement i mod their number. Stages that follow each other on one
    /// rank hand over in memory, without sending.
    std::vector<std::vector<int>> placements;
    /// What each rank does, in order.
    std::vector<std::vector<Instruction>> instructions;

    [[nodiscard]] int stages() const { return placements.empty() ? 0 : static_cast<int>(placements[0].size()); }
    [[nodiscard]] int ranks() const { return static_cast<int>(instructions.size()); }
    /// The number of a (stage, micro-batch, slice), and how many there are.
    [[nodiscard]] std::size_t cell(int stage, int micro_batch, int slice) const {
        auto const index = [](int number) { return static_cast<std::size_t>(number); };
        return (index(stage) * index(micro_batches) + index(micro_batch)) * index(slices) + index(slice);
    }
    [[nodiscard]] std::size_t cells() const { return cell(stages(), 0, 0); }
    [[nodiscard]] std::size_t placement_of(int micro_batch) const {
        return static_cast<std::size_t>(micro_batch) % placements.size();
    }
    /// The rank on which a stage computes for a micro-batch.
    [[nodiscard]] int rank_of(int stage, int micro_batch) const {
        return placements[placement_of(micro_batch)][static_cast<std::size_t>(stage)];
    }
    [[nodiscard]] bool has_stage(int rank, int stage) const {
        return std::any_of(placements.begin(), placements.end(),
                           [&](auto const& ranks) { return ranks[static_cast<std::size_t>(stage)] == rank; });
    }
    /// Rounds of gradients: updates, or the one that the caller makes.
    [[nodiscard]] int rounds() const { return std::max(updates, 1); }
    /// The update for which a micro-batch counts.
    [[nodiscard]] int update_of(int micro_batch) const { return micro_batch / (micro_batches / rounds()); }
    /// The version of the weights that a micro-batch sees on a stage: how many updates they have had.
    [[nodiscard]] int version_of(int stage, int micro_batch) const {
        return delay.empty() ? update_of(micro_batch)
                             : std::max(0, update_of(micro_batch) - delay[static_cast<std::size_t>(stage)]);
    }

    friend bool operator==(Schedule const&, Schedule const&) = default;
};

/// The line on which a message travels, which is also its MPI tag: one for the activations and one for the gradients
/// into each stage (of each placement). Two messages of one line go from the same rank to the same rank, so MPI keeps
/// their order: the n-th receive takes the n-th send. Messages of different lines do not wait for each other.
inline int message_line(Schedule const& schedule, Instruction const& message) {
    int const into = is_receive(message.operation) ? message.stage : peer_stage(message);
    int const placement = static_cast<int>(schedule.placement_of(message.micro_batch));
    return 2 * (placement * schedule.stages() + into) + (moves_activation(message.operation) ? 0 : 1);
}
/// All lines are below this.
inline int message_lines(Schedule const& schedule) {
    return 2 * static_cast<int>(schedule.placements.size()) * schedule.stages();
}

/// Whether some forwards and backwards are pairs.
inline bool has_pairs(Schedule const& schedule) {
    return std::any_of(schedule.instructions.begin(), schedule.instructions.end(), [](auto const& list) {
        return std::any_of(list.begin(), list.end(), [](Instruction const& x) { return x.paired; });
    });
}

/// What of a schedule decides what it can run.
struct ScheduleTraits {
    int copies = 1;  ///< placements of its stages
    int updates = 1; ///< of each stage's weights in a run, with its own gradients alone; 1: with all
    int slices = 1;
    bool has_pairs = false, recomputes = false;

    /// Whether gradients that are complete on a rank wait to be reduced.
    [[nodiscard]] bool reduces_later() const { return copies > 1 || updates > 1; }
    friend bool operator==(ScheduleTraits const&, ScheduleTraits const&) = default;
};
inline ScheduleTraits traits(Schedule const& schedule) {
    return {.copies = static_cast<int>(schedule.placements.size()),
            .updates = schedule.rounds(),
            .slices = schedule.slices,
            .has_pairs = has_pairs(schedule),
            .recomputes = schedule.recomputes};
}

/// Whether one rank holds the first and the last stage: of a pipeline that turns back, or goes both ways.
inline bool ends_meet(Schedule const& schedule) {
    return schedule.has_stage(schedule.placements[0].front(), schedule.stages() - 1);
}

} // namespace pentad::pipeline

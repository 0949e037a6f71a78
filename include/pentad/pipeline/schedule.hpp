// Room: pipeline (pure host C++). A schedule is data: what each rank does, in order, for one step. Generators write it,
// the validator proves it, the simulator times it, the executor (train/) runs it.
#pragma once

#include <pentad/pipeline/instruction.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::pipeline {

/// What a step is for. Inference has forwards only; training has a backward for each forward.
enum class Purpose { training, inference };

struct Schedule {
    std::string name;
    Purpose purpose = Purpose::training;
    int micro_batches = 0;
    /// The rank of each stage. Several stages on one rank (chunks) hand over in memory, without sending.
    std::vector<int> rank_of;
    /// What each rank does, in order.
    std::vector<std::vector<Instruction>> instructions;

    [[nodiscard]] int stages() const { return static_cast<int>(rank_of.size()); }
    [[nodiscard]] int ranks() const { return static_cast<int>(instructions.size()); }
};

/// A line for each rank, "rank 1: <a0 F0 >a0 <g0 B0 >g0": F and B compute, < receives, > sends, a is an activation,
/// g a gradient; where a rank has several stages, "F0@3" names the stage.
inline std::string to_string(Schedule const& schedule) {
    static constexpr std::string_view symbols[] = {"F", "B", ">a", "<a", ">g", "<g"}; // in the order of Operation
    bool const chunked = schedule.stages() != schedule.ranks();
    std::string text = schedule.name + ": " + std::to_string(schedule.stages()) + " stages, " +
                       std::to_string(schedule.micro_batches) + " micro-batches\n";
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        text += "rank " + std::to_string(rank) + ":";
        for (Instruction const& instruction : schedule.instructions[static_cast<std::size_t>(rank)]) {
            text += ' ';
            text += symbols[static_cast<std::size_t>(instruction.operation)];
            text += std::to_string(instruction.micro_batch);
            if (chunked) text += "@" + std::to_string(instruction.stage);
        }
        text += '\n';
    }
    return text;
}

} // namespace pentad::pipeline

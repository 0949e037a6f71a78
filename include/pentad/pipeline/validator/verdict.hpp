// What the validator finds: what is wrong with a schedule, or what it needs.
#pragma once

#include <pentad/pipeline/instruction.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pentad::pipeline {

enum class Fault : std::uint8_t {
    malformed,  ///< the numbers of the schedule contradict each other; no instruction is to blame
    misplaced,  ///< an instruction that cannot be on this rank: no such stage, micro-batch, peer
    repeated,   ///< done twice
    missing,    ///< never done
    disordered, ///< before something on the same rank that it needs
    stale,      ///< sees other weights than it should
    mismatched, ///< the n-th receive of a line is not for what the n-th send sends
    deadlocked, ///< waits for ever
};

struct Refusal {
    Fault fault;
    int rank;
    Instruction instruction;
    std::string reason;

    /// "rank 1: backward of micro-batch 0 on stage 1: comes before the forward"
    [[nodiscard]] std::string message() const {
        if (fault == Fault::malformed) return reason;
        return "rank " + std::to_string(rank) + ": " + to_string(instruction) + ": " + reason;
    }
};

struct Verdict {
    std::optional<Refusal> refusal; ///< empty: the schedule is right
    /// For each rank, the most micro-batches (slices of them, where there are slices) that its stages hold at once,
    /// from forward to the end of backward; each stage counts for itself. Inference: to the send.
    std::vector<int> peak_in_flight;
    /// For each rank, the most messages that are received, or waited for, and not yet used.
    std::vector<int> peak_arriving;
    /// For each rank, the most versions of a stage's weights that it needs at once.
    std::vector<int> weight_versions;
};

/// What the executor is promised to have. Sends and receives post and return; a send occupies one of its rank's buffers
/// until its receive is posted; a rank that finds all of them occupied waits; a compute waits for what it receives.
struct Machine {
    int send_buffers = 1;
    int steps = 2; ///< run one after the other without a barrier, so that a step may meet the tail of the one before
};

} // namespace pentad::pipeline

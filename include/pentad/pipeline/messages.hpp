// From the order in which ranks compute to a whole schedule: recomputation, updates,
// and every send and receive where it belongs. Generators, searches and users who bring an order of their own end here.
#pragma once

#include <pentad/pipeline/schedule.hpp>

namespace pentad::pipeline {

/// A schedule of computes alone that forgets its forwards' activations and makes them again right before each backward
/// (which may still wait for its gradient).
Schedule with_recomputation(Schedule order);

/// What a schedule does for whole stages: gathers before their first forward, reduces after their last backward, steps
/// after that, in an asynchronous schedule at once and in a synchronous one at the end.
struct StageOperations {
    bool gather = false;
    bool reduce = false;
    bool step = false;
};

/// A schedule of computes alone with these operations. An asynchronous one (updates > 1) always steps.
Schedule with_stage_operations(Schedule order, StageOperations wanted);

/// Puts the messages between the computes. A send follows its compute. A receive comes before the compute that its rank
/// does, or has just ended, when the message is sent, if each part of a backward takes as long as a forward. In these
/// times no send waits for its receive; so one send buffer is enough, and what does not wait for ever in these times
/// does not in any. Throws std::invalid_argument where ranks wait for ever for what they compute.
Schedule with_messages(Schedule order);

/// The forwards of a schedule alone, of its first micro-batches and of the first slices of their sequences, in the
/// order in which it has them: for evaluation and generation.
Schedule forwards_of(Schedule const& schedule, int micro_batches, int slices);
inline Schedule forwards_of(Schedule const& schedule, int micro_batches) {
    return forwards_of(schedule, micro_batches, schedule.slices);
}

} // namespace pentad::pipeline

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/pipeline/impl/messages.hpp>
#endif

// The smallest thing a schedule says: one rank computes, sends or receives for one
// stage and one micro-batch. Everything else here (schedules, their proof, their timing) is made of these.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace pentad::pipeline {

enum class Operation : std::uint8_t {
    forward,            ///< needs the activation of the stage before
    backward,           ///< of data and weights; needs the forward here and the gradient of the stage after
    backward_data,      ///< the part of it that the stage before waits for
    backward_weight,    ///< the rest, any time later
    recompute,          ///< the forward again, from the input that was kept
    send_activation,    ///< to the stage after
    receive_activation, ///< from the stage before
    send_gradient,      ///< to the stage before
    receive_gradient,   ///< from the stage after
    gather_parameters,  ///< of the stage, from the ranks that share them out (ZeRO)
    reduce_gradients,   ///< of the stage, over the ranks that have summands of them
    optimizer_step,     ///< of the stage
};

inline constexpr std::array<std::string_view, 12> operation_names{
    "forward",          "backward",          "backward-data",      "backward-weight",
    "recompute",        "send-activation",   "receive-activation", "send-gradient",
    "receive-gradient", "gather-parameters", "reduce-gradients",   "optimizer-step"};

constexpr std::string_view name(Operation operation) { return operation_names[static_cast<std::size_t>(operation)]; }

constexpr bool is_compute(Operation operation) { return operation <= Operation::recompute; }
/// Backward as the stage before sees it: what makes its gradient.
constexpr bool makes_gradient(Operation operation) {
    return operation == Operation::backward || operation == Operation::backward_data;
}
/// What ends a micro-batch on a stage: it is not held any longer, and the stage's gradient has its summand.
constexpr bool ends_micro_batch(Operation operation) {
    return operation == Operation::backward || operation == Operation::backward_weight;
}
constexpr bool is_send(Operation operation) {
    return operation == Operation::send_activation || operation == Operation::send_gradient;
}
constexpr bool is_receive(Operation operation) {
    return operation == Operation::receive_activation || operation == Operation::receive_gradient;
}
/// Activations flow to later stages, gradients to earlier ones.
constexpr bool moves_activation(Operation operation) {
    return operation == Operation::send_activation || operation == Operation::receive_activation;
}
/// For a stage as a whole and one of its updates, not for a micro-batch.
constexpr bool is_of_update(Operation operation) { return operation >= Operation::gather_parameters; }

/// `stage` is the stage that computes, or that sends from or receives into its own buffers, in the model's order.
/// Operations of an update have its number in the place of the micro-batch.
struct Instruction {
    Operation operation;
    std::int32_t stage;
    std::int32_t micro_batch;
    std::int32_t slice = 0; ///< of the micro-batch's sequence, where it is cut into slices
    /// A forward and the backward of another micro-batch that follows it are a pair: they take turns, each computing
    /// while the other waits for its exchanges (DeepSeek-AI 2024, section 3.2.1). They begin when both have what they
    /// need, and what they make is sent when both have ended.
    bool paired = false;

    friend constexpr bool operator==(Instruction const&, Instruction const&) = default;
};
static_assert(std::is_trivially_copyable_v<Instruction>);

/// The stage at the other end of a send or receive.
constexpr int peer_stage(Instruction const& instruction) {
    bool const later =
        instruction.operation == Operation::send_activation || instruction.operation == Operation::receive_gradient;
    return later ? instruction.stage + 1 : instruction.stage - 1;
}

/// "backward of micro-batch 3 on stage 1", "forward of slice 2 of micro-batch 3 on stage 1", "optimizer-step 0 of stage
/// 1"
inline std::string to_string(Instruction const& instruction) {
    std::string text(name(instruction.operation));
    if (is_of_update(instruction.operation))
        return text + ' ' + std::to_string(instruction.micro_batch) + " of stage " + std::to_string(instruction.stage);
    text += " of ";
    if (instruction.slice != 0) text += "slice " + std::to_string(instruction.slice) + " of ";
    return text + "micro-batch " + std::to_string(instruction.micro_batch) + " on stage " +
           std::to_string(instruction.stage);
}

} // namespace pentad::pipeline

// Room: pipeline (pure host C++). The smallest thing a schedule says: one rank computes, sends or receives for one
// stage and one micro-batch. Everything else here (schedules, their proof, their timing) is made of these.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pentad::pipeline {

enum class Operation : std::uint8_t {
    forward,            ///< needs the activation of the stage before
    backward,           ///< of data and weights; needs the forward here and the gradient of the stage after
    send_activation,    ///< to the stage after
    receive_activation, ///< from the stage before
    send_gradient,      ///< to the stage before
    receive_gradient,   ///< from the stage after
};

inline constexpr std::array<std::string_view, 6> operation_names{
    "forward", "backward", "send-activation", "receive-activation", "send-gradient", "receive-gradient"};

constexpr std::string_view name(Operation operation) { return operation_names[static_cast<std::size_t>(operation)]; }

constexpr bool is_compute(Operation operation) {
    return operation == Operation::forward || operation == Operation::backward;
}
constexpr bool is_send(Operation operation) {
    return operation == Operation::send_activation || operation == Operation::send_gradient;
}
constexpr bool is_receive(Operation operation) {
    return operation == Operation::receive_activation || operation == Operation::receive_gradient;
}
/// Activations flow to later stages, gradients to earlier ones; the two never wait in one line (an executor tells them
/// apart by the message tag).
constexpr bool moves_activation(Operation operation) {
    return operation == Operation::send_activation || operation == Operation::receive_activation;
}

/// `stage` is the stage that computes, or that sends from or receives into its own buffers.
struct Instruction {
    Operation operation;
    std::int32_t stage;
    std::int32_t micro_batch;

    friend constexpr bool operator==(Instruction const&, Instruction const&) = default;
};

/// The stage at the other end of a send or receive.
constexpr int peer_stage(Instruction const& instruction) {
    bool const later =
        instruction.operation == Operation::send_activation || instruction.operation == Operation::receive_gradient;
    return later ? instruction.stage + 1 : instruction.stage - 1;
}

/// "backward of micro-batch 3 on stage 1"
inline std::string to_string(Instruction const& instruction) {
    return std::string(name(instruction.operation)) + " of micro-batch " + std::to_string(instruction.micro_batch) +
           " on stage " + std::to_string(instruction.stage);
}

} // namespace pentad::pipeline

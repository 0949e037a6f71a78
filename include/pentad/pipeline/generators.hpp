// Room: pipeline (pure host C++). The published schedules, written as data: GPipe, 1F1B, and forwards only for
// evaluation. A new schedule is a new function here; nothing else in the library learns of it.
#pragma once

#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::pipeline {

namespace detail {

/// Writes a schedule of one stage a rank: a compute instruction brings the receive it needs and the send it owes.
class Writer {
  public:
    Writer(std::string_view name, Purpose purpose, int stages, int micro_batches) {
        if (stages < 1 || micro_batches < 1)
            throw std::invalid_argument("a pipeline needs at least one stage and one micro-batch, not " +
                                        std::to_string(stages) + " and " + std::to_string(micro_batches));
        schedule_ = {std::string(name), purpose, micro_batches, std::vector<int>(static_cast<std::size_t>(stages)),
                     std::vector<std::vector<Instruction>>(static_cast<std::size_t>(stages))};
        std::iota(schedule_.rank_of.begin(), schedule_.rank_of.end(), 0);
    }

    void forward(int stage, int micro_batch) {
        if (stage > 0) add(Operation::receive_activation, stage, micro_batch);
        add(Operation::forward, stage, micro_batch);
        if (stage + 1 < schedule_.stages()) add(Operation::send_activation, stage, micro_batch);
    }
    void backward(int stage, int micro_batch) {
        if (stage + 1 < schedule_.stages()) add(Operation::receive_gradient, stage, micro_batch);
        add(Operation::backward, stage, micro_batch);
        if (stage > 0) add(Operation::send_gradient, stage, micro_batch);
    }

    Schedule take() { return std::move(schedule_); }

  private:
    void add(Operation operation, int stage, int micro_batch) {
        schedule_.instructions[static_cast<std::size_t>(stage)].push_back({operation, stage, micro_batch});
    }

    Schedule schedule_;
};

} // namespace detail

/// Huang et al. 2019: all forwards, then all backwards. Holds every micro-batch at once.
inline Schedule gpipe(int stages, int micro_batches) {
    detail::Writer write("gpipe", Purpose::training, stages, micro_batches);
    for (int stage = 0; stage < stages; ++stage) {
        for (int i = 0; i < micro_batches; ++i) write.forward(stage, i);
        for (int i = 0; i < micro_batches; ++i) write.backward(stage, i);
    }
    return write.take();
}

/// Narayanan et al. 2019, with a flush: a stage runs ahead just far enough to keep the later stages busy, then
/// alternates. The bubble is GPipe's; stage s of p holds at most p - s micro-batches.
inline Schedule one_forward_one_backward(int stages, int micro_batches) {
    detail::Writer write("1f1b", Purpose::training, stages, micro_batches);
    for (int stage = 0; stage < stages; ++stage) {
        int const ahead = std::min(micro_batches, stages - 1 - stage);
        for (int i = 0; i < ahead; ++i) write.forward(stage, i);
        for (int i = ahead; i < micro_batches; ++i) {
            write.forward(stage, i);
            write.backward(stage, i - ahead);
        }
        for (int i = micro_batches - ahead; i < micro_batches; ++i) write.backward(stage, i);
    }
    return write.take();
}

/// For evaluation: micro-batches flow through, nothing comes back.
inline Schedule forward_only(int stages, int micro_batches) {
    detail::Writer write("forward-only", Purpose::inference, stages, micro_batches);
    for (int stage = 0; stage < stages; ++stage)
        for (int i = 0; i < micro_batches; ++i) write.forward(stage, i);
    return write.take();
}

} // namespace pentad::pipeline

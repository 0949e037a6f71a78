// Room: train. Runs a pipeline schedule on a stage of a model: what the schedule says, in its order, on the machine
// that the validator proves it for. Sends and receives are posted; a compute waits for what it needs.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/observe/trace.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

/// One stage's part in a schedule. `Model` is a LanguageModel: forward(pass, x, saved), backward(pass, dy, saved).
template <class Model, class Stream, class Exec>
class Executor {
  public:
    /// @param extents the global extents of the activations that pass between stages
    Executor(Context<Exec> const& context, Model& model, typename Tensor<Stream, Exec>::extents_type const& extents)
        : context_(&context), model_(&model), extents_(extents),
          comm_(&context.communicators().along(AxisNames(pp::name))) {}

    /// Runs this rank's instructions; passes[i] belongs to micro-batch i. Blocks until this rank's part is done. What a
    /// micro-batch holds is freed at its backward, and its gradient once the stage before has it.
    void run(pipeline::Schedule const& schedule, std::vector<Pass<Exec>>& passes) {
        slots_.resize(passes.size());
        bool const training = schedule.purpose == pipeline::Purpose::training;
        auto const& instructions = schedule.instructions[static_cast<std::size_t>(comm_->rank())];
        auto const last_backward =
            std::find_if(instructions.rbegin(), instructions.rend(), [](pipeline::Instruction const& instruction) {
                return instruction.operation == pipeline::Operation::backward;
            });
        for (auto const& instruction : instructions) {
            auto const i = static_cast<std::size_t>(instruction.micro_batch);
            auto& slot = slots_[i];
            observe::Scope const scope(pipeline::name(instruction.operation), "pipeline",
                                       {.micro_batch = instruction.micro_batch});
            switch (instruction.operation) {
            case pipeline::Operation::forward:
                finish(slot.activation_arriving);
                slot.activation = model_->forward(passes[i], std::move(slot.activation), slot.saved);
                if (!training) slot.saved = {};
                break;
            case pipeline::Operation::backward:
                finish(slot.gradient_arriving);
                finish(slot.activation_sent);
                slot.activation = {};
                passes[i].completes_gradients = &instruction == &*last_backward;
                slot.gradient = model_->backward(passes[i], std::move(slot.gradient), slot.saved);
                break;
            case pipeline::Operation::send_activation:
                send(slot.activation, slot.activation_sent, 1, 0);
                break;
            case pipeline::Operation::receive_activation:
                receive(slot.activation, slot.activation_arriving, -1, 0);
                break;
            case pipeline::Operation::send_gradient:
                free_sent_gradients();
                send(slot.gradient, slot.gradient_sent, -1, 1);
                break;
            case pipeline::Operation::receive_gradient:
                receive(slot.gradient, slot.gradient_arriving, 1, 1);
                break;
            default:
                throw std::invalid_argument("the executor does not run a " +
                                            std::string(pipeline::name(instruction.operation)) + " (" + schedule.name +
                                            "): take gpipe or 1f1b");
            }
        }
        for (auto& slot : slots_) {
            finish(slot.activation_sent);
            finish(slot.gradient_sent);
            slot.activation = {};
            slot.gradient = {};
        }
    }

  private:
    using Activation = Tensor<Stream, Exec>;
    using Gradient = Tensor<dual_t<Stream>, Exec>;
    using Transfer = comm::Request<comm::detail::Staged<View<typename Stream::element, 1, Exec>>>;

    struct Slot {
        typename Model::Saved saved;
        Activation activation;
        Gradient gradient;
        std::optional<Transfer> activation_arriving, activation_sent, gradient_arriving, gradient_sent;
    };

    static void finish(std::optional<Transfer>& transfer) {
        if (transfer) transfer->wait();
        transfer.reset();
    }
    void free_sent_gradients() {
        for (auto& slot : slots_)
            if (slot.gradient_sent && slot.gradient_sent->test()) {
                slot.gradient_sent.reset();
                slot.gradient = {};
            }
    }

    template <class X>
    void send(X const& x, std::optional<Transfer>& sent, int stages_further, int tag) {
        sent.emplace(comm::start_send(context_->exec(), *comm_, x.flat(), comm_->rank() + stages_further, tag));
    }
    template <class X>
    void receive(X& x, std::optional<Transfer>& arriving, int stages_further, int tag) {
        x = X(*context_, extents_);
        arriving.emplace(comm::start_receive(context_->exec(), *comm_, x.flat(), comm_->rank() + stages_further, tag));
    }

    Context<Exec> const* context_;
    Model* model_;
    typename Activation::extents_type extents_;
    comm::Communicator const* comm_;
    std::vector<Slot> slots_;
};

} // namespace pentad::train

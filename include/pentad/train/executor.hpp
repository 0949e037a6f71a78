// Runs a pipeline schedule on this rank's stages of a model: what the schedule says, in its order, on the
// machine that the validator proves it for. Sends and receives are posted; a compute waits for what it needs.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/comm/turns.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/observe/trace.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/tensor/any_tensor.hpp>
#include <pentad/train/stages.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

/// Whoever holds the parameters of the stages, and does what a schedule says about whole stages.
class StageOwner {
  public:
    virtual ~StageOwner() = default;
    /// What computes on `stage` next sees the weights as they were after `version` updates of this run.
    virtual void use_version(int stage, int version) = 0;
    virtual void gather(int stage) = 0;
    virtual void step(int stage, int update) = 0;
    /// A run is over: what was gathered for it is forgotten.
    virtual void drop_gathered() = 0;
};

/// A rank's part in a schedule. `Model` is a LanguageModel<T, Exec>.
template <class Model, class T, class Exec>
class Executor {
  public:
    using Any = AnyTensor<T, Exec>;

    Executor(Context<Exec> const& context, Model& model)
        : context_(&context), model_(&model), comm_(&context.communicators().along(AxisNames(pp::name))) {}

    /// Runs this rank's instructions; passes[i * slices + k] belongs to slice k of micro-batch i. Blocks until this
    /// rank's part is done. What a micro-batch holds is freed as soon as nothing needs it.
    /// @param owner may be null where the schedule has no operations of whole stages and keeps one version of weights
    void run(pipeline::Schedule const& schedule, std::vector<Pass<Exec>>& passes, StageOwner* owner = nullptr) {
        begin(schedule, passes, owner);
        auto const& list = schedule.instructions[static_cast<std::size_t>(rank_)];
        for (std::size_t at = 0; at < list.size();) {
            std::size_t const count = list[at].paired ? 2 : 1;
            for (std::size_t i = at; i < at + count; ++i) // apart: a span of a compute has no waiting in it
                if (pipeline::is_compute(list[i].operation)) await(list[i]);
            comm::turns().take(count, [&](std::size_t i) { carry_out(list[at + i]); });
            at += count;
        }
        for (auto& sent : sent_) sent.finish();
        if (schedule.purpose == pipeline::Purpose::inference)
            sequences_.clear(); // a backward pass has freed what they keep
    }

    /// Runs a schedule of forwards alone, and returns the logits of the first micro-batch where the last stage is, none
    /// elsewhere.
    Any logits(pipeline::Schedule const& schedule, std::vector<Pass<Exec>>& passes, StageOwner* owner) {
        logits_.emplace();
        run(schedule, passes, owner);
        auto logits = std::move(*logits_);
        logits_.reset();
        return logits;
    }

  private:
    using Operation = pipeline::Operation;
    using Instruction = pipeline::Instruction;
    using Transfer = comm::Request<comm::detail::Staged<View<T, 1, Exec>>>;

    /// What this rank holds of a slice of a micro-batch on a stage.
    struct Slot {
        typename Model::Saved saved;
        Any activation, input; ///< `input` waits for the recomputation
        Any gradient;
        std::optional<Transfer> activation_arriving, gradient_arriving;
    };
    /// A send buffer in use.
    struct Sent {
        Any buffer;
        std::optional<Transfer> transfer;

        void finish() {
            if (transfer) transfer->wait();
            transfer.reset();
            buffer = {};
        }
    };

    void begin(pipeline::Schedule const& schedule, std::vector<Pass<Exec>>& passes, StageOwner* owner) {
        schedule_ = &schedule;
        passes_ = &passes;
        owner_ = owner;
        rank_ = pipeline_rank(schedule, comm_->rank());
        auto const stages = model_->stages().size();
        auto const cells = static_cast<std::size_t>(schedule.micro_batches) * static_cast<std::size_t>(schedule.slices);
        if (slots_.size() < stages * cells) slots_.resize(stages * cells);
        if (schedule.slices > 1) {
            while (sequences_.size() < static_cast<std::size_t>(schedule.micro_batches))
                sequences_.emplace_back(model_->states());
            for (std::size_t i = 0; i < cells; ++i) {
                passes[i].slice = i % static_cast<std::size_t>(schedule.slices);
                passes[i].sequences = &sequences_[i / static_cast<std::size_t>(schedule.slices)];
            }
        }
        left_.assign(stages * static_cast<std::size_t>(schedule.rounds()), 0);
        for (auto const& x : schedule.instructions[static_cast<std::size_t>(rank_)])
            if (pipeline::ends_micro_batch(x.operation)) ++left(x);
    }

    void carry_out(Instruction const& x) {
        bool const whole = pipeline::is_of_update(x.operation);
        observe::Scope const scope(pipeline::name(x.operation), "pipeline",
                                   {.micro_batch = whole ? -1 : x.micro_batch,
                                    .stage = x.stage,
                                    .slice = schedule_->slices > 1 && !whole ? x.slice : -1});
        if (whole)
            run_for_stage(x);
        else
            run_for_micro_batch(x);
    }
    void run_for_stage(Instruction const& x) {
        if (x.operation == Operation::gather_parameters) the_owner().gather(x.stage);
        // A reduction has begun by itself, when the stage's last gradient was complete.
        if (x.operation == Operation::optimizer_step) the_owner().step(x.stage, x.micro_batch);
    }
    void run_for_micro_batch(Instruction const& x) {
        Slot& slot = slot_of(x.stage, x);
        Pass<Exec>& pass = (*passes_)[pass_of(x)];
        if (pipeline::is_compute(x.operation) && schedule_->weight_versions > 1)
            the_owner().use_version(x.stage, schedule_->version_of(x.stage, x.micro_batch));
        switch (x.operation) {
        case Operation::forward:
            forward(x, slot, pass);
            break;
        case Operation::recompute:
            pass.saves = pass.is_replay = true;
            (void)model_->forward(x.stage, pass, std::move(slot.input), slot.saved);
            pass.is_replay = false;
            break;
        case Operation::backward:
            pass.completes_gradients = completes_gradients(x);
            hand_back(x, model_->backward(x.stage, pass, std::move(slot.gradient), slot.saved));
            break;
        case Operation::backward_data:
            hand_back(x, model_->backward_data(x.stage, pass, std::move(slot.gradient), slot.saved));
            break;
        case Operation::backward_weight:
            pass.completes_gradients = completes_gradients(x);
            model_->backward_weight(x.stage, pass, slot.saved);
            break;
        case Operation::send_activation:
            send(x, std::move(slot.activation));
            break;
        case Operation::send_gradient:
            send(x, std::move(slot.gradient));
            break;
        case Operation::receive_activation:
            receive(x, model_->make_input(x.stage, pass), slot.activation, slot.activation_arriving);
            break;
        default: // receive_gradient
            receive(x, model_->make_output_gradient(x.stage), slot.gradient, slot.gradient_arriving);
        }
    }
    void forward(Instruction const& x, Slot& slot, Pass<Exec>& pass) {
        pass.trains = schedule_->purpose == pipeline::Purpose::training;
        pass.saves = pass.trains && !schedule_->recomputes;
        if (logits_ && x.stage + 1 == schedule_->stages()) {
            *logits_ = model_->logits(x.stage, pass, std::move(slot.activation), slot.saved);
        } else {
            if (schedule_->recomputes) slot.input = slot.activation;
            slot.activation = model_->forward(x.stage, pass, std::move(slot.activation), slot.saved);
            if (is_here(x.stage + 1, x)) slot_of(x.stage + 1, x).activation = std::move(slot.activation);
        }
        if (!pass.saves) Model::discard(slot.saved);
    }
    /// The gradient that a stage has made for the one before.
    void hand_back(Instruction const& x, Any gradient) {
        (is_here(x.stage - 1, x) ? slot_of(x.stage - 1, x) : slot_of(x.stage, x)).gradient = std::move(gradient);
    }

    /// Waits for what a compute needs.
    void await(Instruction const& x) {
        Slot& slot = slot_of(x.stage, x);
        auto& arriving = pipeline::makes_gradient(x.operation) ? slot.gradient_arriving : slot.activation_arriving;
        if (arriving) arriving->wait();
        arriving.reset();
    }
    void send(Instruction const& x, Any buffer) {
        Sent& sent = sent_[next_sent_++ % sent_.size()]; // the one in use for the longest time
        sent.finish();
        sent.buffer = std::move(buffer);
        sent.transfer.emplace(comm::start_send(context_->exec(), *comm_, sent.buffer.flat(), coordinate_of_peer(x),
                                               pipeline::message_line(*schedule_, x)));
    }
    void receive(Instruction const& x, Any room, Any& buffer, std::optional<Transfer>& arriving) {
        buffer = std::move(room);
        arriving.emplace(comm::start_receive(context_->exec(), *comm_, buffer.flat(), coordinate_of_peer(x),
                                             pipeline::message_line(*schedule_, x)));
    }
    [[nodiscard]] int coordinate_of_peer(Instruction const& x) const {
        return pipeline_coordinate(*schedule_, schedule_->rank_of(pipeline::peer_stage(x), x.micro_batch));
    }
    [[nodiscard]] bool is_here(int stage, Instruction const& x) const {
        return stage >= 0 && stage < schedule_->stages() && schedule_->rank_of(stage, x.micro_batch) == rank_;
    }

    [[nodiscard]] std::size_t pass_of(Instruction const& x) const {
        return static_cast<std::size_t>(x.micro_batch) * static_cast<std::size_t>(schedule_->slices) +
               static_cast<std::size_t>(x.slice);
    }
    Slot& slot_of(int stage, Instruction const& x) {
        auto const cells =
            static_cast<std::size_t>(schedule_->micro_batches) * static_cast<std::size_t>(schedule_->slices);
        return slots_[model_->index_of(stage) * cells + pass_of(x)];
    }
    /// Backwards that have not ended, of the stage and the update.
    int& left(Instruction const& x) {
        return left_[model_->index_of(x.stage) * static_cast<std::size_t>(schedule_->rounds()) +
                     static_cast<std::size_t>(schedule_->update_of(x.micro_batch))];
    }
    /// Copies of a stage come to its reductions in different orders: these wait for the end of the step.
    bool completes_gradients(Instruction const& x) { return --left(x) == 0 && schedule_->placements.size() == 1; }
    StageOwner& the_owner() {
        if (owner_ == nullptr)
            throw std::invalid_argument("the schedule " + schedule_->name +
                                        " has operations of whole stages, and no StageOwner was given");
        return *owner_;
    }

    Context<Exec> const* context_;
    Model* model_;
    comm::Communicator const* comm_;

    pipeline::Schedule const* schedule_ = nullptr; // of the run that goes on, as the next three
    std::vector<Pass<Exec>>* passes_ = nullptr;
    StageOwner* owner_ = nullptr;
    int rank_ = 0;

    std::vector<Slot> slots_;
    std::vector<Sequences> sequences_; ///< of each micro-batch, where these are cut
    std::vector<int> left_;
    std::array<Sent, 4> sent_; ///< one would do: every schedule is proven for one
    std::size_t next_sent_ = 0;
    std::optional<Any> logits_;
};

} // namespace pentad::train

// A model that computes and does not learn: the engine's passes over weights without gradients and without an
// optimizer.
#pragma once

#include <pentad/train/engine.hpp>
#include <pentad/train/expert_orders.hpp>
#include <pentad/train/generator.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/zero/weights.hpp>

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pentad::train {

/// What it holds are the weights (in ZeRO stage 3 this rank's shards of them), the tokens of a batch and the
/// activations of the passes under way. @tparam T the element of weights and activations: f64, f32 or bf16
template <class T, class Exec>
class Evaluator final : private StageOwner {
  public:
    using Model = LanguageModel<T, Exec>;
    using Registry = LayerRegistry<T, Exec>;
    using Store = zero::Weights<T, Exec>;

    /// Draws the weights, as a Trainer of the same settings does. Collective over all ranks.
    /// @param stream the layout of the residual stream, which outlives the evaluator
    /// @throws std::invalid_argument when settings, schedules and mesh do not fit
    Evaluator(Context<Exec> const& context, LayoutValue const& stream, RunSettings const& settings,
              ProvenSchedules schedules, io::TokenData const& data,
              Registry const& registry = decoder_layers<T, Exec>())
        : data_(&data), engine_(context, stream, settings, std::move(schedules), registry),
          weights_(context, engine_.model(), settings.seed, settings.strategy.sharding,
                   {.copies = AxisNames(inner<pp>::name)}) {}

    /// Without data, for what needs none: sequences to be written, weights to be read and written.
    Evaluator(Context<Exec> const& context, LayoutValue const& stream, RunSettings const& settings,
              ProvenSchedules schedules, Registry const& registry = decoder_layers<T, Exec>())
        : engine_(context, stream, settings, std::move(schedules), registry),
          weights_(context, engine_.model(), settings.seed, settings.strategy.sharding,
                   {.copies = AxisNames(inner<pp>::name)}) {}

    /// The losses on the batch of a step. Collective over all ranks. @throws std::logic_error without data
    StepResult evaluate(std::int64_t number) {
        if (data_ == nullptr) throw std::logic_error("an evaluator without data has no step to evaluate");
        auto const shift = position_.sequences - position_.step * settings().strategy.batch;
        return engine_.run(engine_.schedules().evaluation(), *data_, number, shift, *this);
    }
    /// The mean losses of the first batches of other data. Collective over all ranks.
    /// @throws std::invalid_argument where there is no batch, or tokens that the model lacks
    StepResult validate(io::TokenData const& data, std::int64_t batches) {
        return engine_.validate(data, batches, *this);
    }
    /// Sequences that the model writes with the weights as they are. Collective over all ranks.
    /// @param sequences at most @param length tokens of each at most @param page tokens in a
    /// row that one rank of cp has
    /// @throws std::invalid_argument where the model cannot write sequences, or none of that length
    [[nodiscard]] Generator<T, Exec> generator(std::size_t sequences, std::size_t length, std::size_t page = 16) {
        return {engine_, *this, sequences, length, page};
    }

    [[nodiscard]] Model& model() { return engine_.model(); }
    /// The weights, to be imported, restored or exported (train/import.hpp, checkpoint_restore.hpp, export.hpp).
    [[nodiscard]] Store& store() { return weights_; }
    /// Says where experts are whose weights are about to be read.
    /// @throws std::invalid_argument where the orders are not of this model
    void place_experts(std::vector<BlockOrder> const& moved) {
        with_planned_moves(model(), complete_orders(settings().model, moved), [] {});
    }
    /// Where the run was that the weights are of.
    void set_position(RunPosition const& position) { position_ = position; }
    [[nodiscard]] RunPosition const& position() const { return position_; }
    [[nodiscard]] LayerSetup<Exec> const& setup() const { return engine_.setup(); }
    [[nodiscard]] RunSettings const& settings() const { return engine_.settings(); }
    /// The layout of the residual stream.
    [[nodiscard]] LayoutValue const& stream() const { return engine_.stream(); }

  private:
    void use_version(int, int) override {} // there is one
    void gather(int) override {}           // each unit gathers its own
    void step(int, int) override { throw std::logic_error("an evaluator does not learn"); }
    void drop_gathered() override { weights_.drop_gathered(); }

    io::TokenData const* data_ = nullptr;
    Engine<T, Exec> engine_;
    Store weights_;
    RunPosition position_{};
};

} // namespace pentad::train

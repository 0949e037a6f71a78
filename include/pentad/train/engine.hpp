// The stages of a model on this rank, and the passes through them: what training, evaluation and generation share.
// Whose the weights are is not its matter.
#pragma once

#include <pentad/io/token_data.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/places.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/random/philox.hpp>
#include <pentad/train/balance.hpp>
#include <pentad/train/batch.hpp>
#include <pentad/train/block_meshes.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/detail/compiled_streams.hpp>
#include <pentad/train/detail/totals.hpp>
#include <pentad/train/executor.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/train/run_on_mesh.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/train/schedules.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

/// @tparam T the element of weights and activations: f64, f32 or bf16
template <class T, class Exec>
class Engine {
  public:
    using Model = LanguageModel<T, Exec>;
    using Registry = LayerRegistry<T, Exec>;

    /// Collective over all ranks. The parameters have no memory yet.
    /// @param stream the layout of the residual stream, which outlives the engine
    /// @throws std::invalid_argument when settings, schedules and mesh do not fit
    Engine(Context<Exec> const& context, LayoutValue const& stream, RunSettings const& settings,
           ProvenSchedules schedules, Registry const& registry);
    Engine(Engine const&) = delete;
    Engine& operator=(Engine const&) = delete;
    ~Engine();

    [[nodiscard]] Context<Exec> const& context() const { return *context_; }
    /// The layout of the residual stream.
    [[nodiscard]] LayoutValue const& stream() const { return *stream_; }
    [[nodiscard]] RunSettings const& settings() const { return settings_; }
    [[nodiscard]] ProvenSchedules const& schedules() const { return schedules_; }
    /// The setup of the model's ends.
    [[nodiscard]] LayerSetup<Exec> const& setup() const { return setup_; }
    [[nodiscard]] Model& model() { return model_; }
    [[nodiscard]] Model const& model() const { return model_; }
    /// Groups that train apart: how many.
    [[nodiscard]] double groups() const { return fit_.groups(); }

    /// Runs a schedule on a batch of data. Collective over all ranks.
    /// @param number of the step, from 1 @param shift added to the numbers of the sequences
    /// @param owner of the weights
    /// @param saved where what blocks save is until its backward pass; null: where it is made
    StepResult run(pipeline::Schedule const& schedule, io::TokenData const& data, std::int64_t number,
                   std::int64_t shift, StageOwner& owner, ActivationMemory* saved = nullptr);
    /// The mean losses of the first batches of data, with the weights as they are. Collective over all ranks.
    /// @throws std::invalid_argument where there is no batch, or tokens that the model lacks
    StepResult validate(io::TokenData const& data, std::int64_t batches, StageOwner& owner);
    /// The logits for the tokens of a pass that continues sequences, `[lane, row, vocab]`; where the last stage is,
    /// none elsewhere. Collective over all ranks.
    AnyTensor<T, Exec> logits(Pass<Exec> const& pass, StageOwner& owner);
    /// What the rows of a rank of cp in a pass are a multiple of: ranks of tp may share them.
    [[nodiscard]] std::size_t row_multiple() const {
        auto const& axes = fit_.batch_shape().seq_axes;
        std::int64_t ranks = axes.value();
        for (auto const& [name, extent] : axes.factors())
            if (name == cp::name) ranks /= extent;
        return static_cast<std::size_t>(ranks);
    }
    /// The layout of the logits, `[batch, seq, vocab]`.
    [[nodiscard]] LayoutValue const& logits_layout() const { return *logits_; }
    /// The losses of this rank in the last run, added up: not finite where one of them is not.
    [[nodiscard]] double own_losses() const {
        double sum = 0;
        for (auto const& pass : passes_) sum += pass.loss_sum + pass.predicted_sum + pass.balance_sum + pass.z_sum;
        return sum;
    }

  private:
    static constexpr model::Element element = std::is_same_v<T, bf16>  ? model::Element::bf16
                                              : std::is_same_v<T, f64> ? model::Element::f64
                                                                       : model::Element::f32;

    [[nodiscard]] pipeline::Schedule const& training() const { return schedules_.training(); }
    /// Token losses are summands over the ranks that share out the tokens, and over the stages, of which the last has
    /// them; a stage's auxiliary losses are the same on all its ranks, and summands over the stages.
    [[nodiscard]] AxisNames loss_axes() const;
    [[nodiscard]] RunOnMesh const& fitting() const {
        fit_.require_fit();
        return fit_;
    }
    [[nodiscard]] std::vector<LayerSetup<Exec>> made_block_setups() {
        std::vector<LayerSetup<Exec>> setups;
        for (auto const& block : settings_.strategy.blocks)
            setups.push_back(fit_.layer_setup(meshes_.of(block), block, states_));
        return setups;
    }
    [[nodiscard]] ModelPlaces<Exec> places() const {
        std::vector<PartPlace<Exec>> blocks;
        for (auto const& setup : block_setups_) blocks.push_back({&setup, &model::stream_layout<T>(setup.block)});
        return {{&setup_, stream_}, std::move(blocks)};
    }
    /// Notes the layers of each stage in the settings. Collective over all ranks.
    [[nodiscard]] std::vector<StageLayers> held_stages(Registry const& registry);
    /// The passes of a batch that is loaded.
    void make_passes(pipeline::Schedule const& schedule, std::int64_t number, ActivationMemory* saved);
    /// What they have added up, on all ranks.
    StepResult result();

    Context<Exec> const* context_;
    LayoutValue const *stream_, *logits_; ///< of the residual stream, and of the head's logits
    RunSettings settings_;
    ProvenSchedules schedules_;
    RunOnMesh fit_;
    StateRegistry states_;
    LayerSetup<Exec> setup_; ///< of the model's ends
    BlockMeshes<Exec> meshes_;
    std::vector<LayerSetup<Exec>> block_setups_; ///< of each block, where they differ from that
    Model model_;
    Batch<Exec> batch_;
    Executor<Model, T, Exec> executor_;
    std::vector<Pass<Exec>> passes_;
};

// Outside of the class, so that they are not inline: a unit that sees `extern template` compiles none of them.

template <class T, class Exec>
Engine<T, Exec>::Engine(Context<Exec> const& context, LayoutValue const& stream, RunSettings const& settings,
                        ProvenSchedules schedules, Registry const& registry)
    : context_(&context), stream_(&stream), logits_(&registry.ends(stream).logits()), settings_(settings),
      schedules_(std::move(schedules)), fit_(context.communicators(), stream, element, settings_, training()),
      setup_(fitting().layer_setup(context, settings.strategy.block, states_)),
      meshes_(context, settings.model, settings.strategy.blocks), block_setups_(made_block_setups()),
      model_(places(), settings.model, registry, held_stages(registry), settings.strategy.recompute),
      batch_(setup_, stream, static_cast<std::size_t>(settings.strategy.micro_batches), settings.ignored,
             settings.strategy.local, settings.packing, model::sees_later_tokens(settings.model),
             settings.model.predictors.size()),
      executor_(context, model_) {
    for (auto const& axes : {loss_axes(), axes_of_view(context.communicators().mesh())})
        pentad::detail::prepare(context, detail::total_plan(axes, Placement::partial));
}

template <class T, class Exec>
Engine<T, Exec>::~Engine() = default;

template <class T, class Exec>
AxisNames Engine<T, Exec>::loss_axes() const {
    AxisNames axes;
    for (auto const& axis : context_->communicators().mesh()) {
        if (axis.name == pp::name) axes.push(axis.name);
        for (std::size_t d = 0; d < 2; ++d)
            for (auto const part : logits_->dimensions[d].axes)
                if (whole_axis_name(part) == axis.name) axes.push(part);
    }
    return axes;
}

template <class T, class Exec>
auto Engine<T, Exec>::held_stages(Registry const& registry) -> std::vector<StageLayers> {
    auto& layers = settings_.strategy.stage_layers;
    if (settings_.strategy.balances_stages)
        layers =
            measured_layers(places(), settings_.model, registry, training().stages(), settings_.strategy.recompute);
    else if (layers.empty())
        layers = even_layers(settings_.model.blocks.size(), training().stages());
    return stages_of(training(), pipeline_rank(training(), context_->communicators().coordinate("pp")), layers,
                     settings_.model.blocks.size());
}

template <class T, class Exec>
StepResult Engine<T, Exec>::run(pipeline::Schedule const& schedule, io::TokenData const& data, std::int64_t number,
                                std::int64_t shift, StageOwner& owner, ActivationMemory* saved) {
    batch_.load(data, number, training().rounds(), shift);
    make_passes(schedule, number, saved);
    executor_.run(schedule, passes_, &owner);
    owner.drop_gathered();
    return result();
}

template <class T, class Exec>
StepResult Engine<T, Exec>::validate(io::TokenData const& data, std::int64_t batches, StageOwner& owner) {
    if (batches < 1) throw std::invalid_argument("validation needs a batch, not " + std::to_string(batches));
    if (data.vocabulary() > static_cast<std::int64_t>(settings_.model.vocab))
        throw std::invalid_argument("data of " + std::to_string(data.vocabulary()) + " tokens for a model of " +
                                    std::to_string(settings_.model.vocab));
    StepResult mean;
    for (std::int64_t number = 1; number <= batches; ++number) {
        auto const one = run(schedules_.evaluation(), data, number, 0, owner);
        mean.targets += one.targets;
        if (one.targets > 0) mean.loss += (one.loss - mean.loss) * (one.targets / mean.targets);
        mean.balance_loss += one.balance_loss / static_cast<double>(batches);
        mean.z_loss += one.z_loss / static_cast<double>(batches);
    }
    return mean;
}

template <class T, class Exec>
auto Engine<T, Exec>::logits(Pass<Exec> const& pass, StageOwner& owner) -> AnyTensor<T, Exec> {
    passes_.clear();
    passes_.push_back(pass);
    auto logits = executor_.logits(schedules_.generation(), passes_, &owner);
    owner.drop_gathered();
    return logits;
}

template <class T, class Exec>
void Engine<T, Exec>::make_passes(pipeline::Schedule const& schedule, std::int64_t number, ActivationMemory* saved) {
    auto const& own_valid = batch_.own_valid();
    double const rounds = static_cast<double>(training().rounds());
    auto const micro_batches = static_cast<std::size_t>(settings_.strategy.micro_batches);
    double const count = static_cast<double>(micro_batches);
    double const predictors = static_cast<double>(std::max<std::size_t>(settings_.model.predictors.size(), 1));
    passes_.clear();
    for (std::size_t i = 0; i < micro_batches; ++i)
        for (std::size_t k = 0; k < setup_.slices; ++k) {
            double const targets = own_valid[static_cast<std::size_t>(training().update_of(static_cast<int>(i)))];
            passes_.push_back({.context = *context_,
                               .tokens = batch_.tokens(i, k),
                               .targets = batch_.targets(i, k),
                               .ahead = batch_.ahead(i, k),
                               .predicted_scale = settings_.prediction_coefficient / predictors,
                               .loss_scale = targets > 0 ? 1 / targets : 0,
                               // A router's sums are over the tokens of all groups.
                               .balance_scale = settings_.balance_coefficient * rounds * groups() / count,
                               .z_scale = settings_.z_coefficient * rounds * groups() / count,
                               .draw = random::stream("micro-batch") ^
                                       (settings_.seed + static_cast<std::uint64_t>(number) * micro_batches + i),
                               .map = batch_.map(i, k),
                               .saved = schedule.purpose == pipeline::Purpose::training ? saved : nullptr});
        }
}

template <class T, class Exec>
StepResult Engine<T, Exec>::result() {
    double const predictors = static_cast<double>(std::max<std::size_t>(settings_.model.predictors.size(), 1));
    double const count = static_cast<double>(settings_.strategy.micro_batches);
    std::array<double, 2> losses{}; // of the next tokens, and of those ahead
    double balance = 0, z = 0;
    for (auto const& pass : passes_) {
        losses[0] += pass.loss_sum;
        losses[1] += pass.predicted_sum;
        balance += pass.balance_sum;
        z += pass.z_sum;
    }
    total_over(*context_, loss_axes(), Placement::partial,
               std::span(losses).first(settings_.model.predictors.empty() ? 1 : 2));
    std::array<double, 2> auxiliary{balance, z};
    total_over_mesh(*context_, Placement::partial, std::span(auxiliary));
    auto const& valid = batch_.valid();
    double const all = std::accumulate(valid.begin(), valid.end(), 0.0);
    StepResult result;
    result.targets = all;
    result.loss = all > 0 ? losses[0] / all : 0;
    result.prediction_loss = all > 0 ? losses[1] / all / predictors : 0;
    result.balance_loss = auxiliary[0] / count;
    result.z_loss = auxiliary[1] / count;
    return result;
}

#if PENTAD_COMPILED_DECODER_LAYERS
#define PENTAD_COMPILED(T) extern template class Engine<T, Kokkos::DefaultExecutionSpace>;
PENTAD_FOR_EACH_COMPILED_ELEMENT(PENTAD_COMPILED)
#undef PENTAD_COMPILED
#endif

} // namespace pentad::train

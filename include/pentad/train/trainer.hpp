// Training a language model on a mesh: forward and backward by a pipeline schedule, the gradients reduced
// as their layouts say, clipping, AdamW, evaluation.
#pragma once

#include <pentad/comm/broadcast_text.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/model/batch_shape.hpp>
#include <pentad/train/balance.hpp>
#include <pentad/train/batch.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/detail/totals.hpp>
#include <pentad/train/executor.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/train/schedules.hpp>
#include <pentad/zero/store.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::train {

/// @tparam Stream the layout of the residual stream, e.g. SequenceStream<bf16>
template <class Stream, class Exec>
class Trainer final : private StageOwner {
  public:
    using Model = LanguageModel<Stream, Exec>;
    using Logits = typename Model::Logits;
    using Registry = LayerRegistry<Stream, Exec>;
    using Store = zero::ParameterStore<typename Stream::element, Exec>;

    /// Collective over all ranks.
    /// @param registry the layers of the model's parts
    /// @throws std::invalid_argument when settings, schedules and mesh do not fit
    Trainer(Context<Exec> const& context, RunSettings const& settings, ProvenSchedules schedules,
            io::TokenData const& data, Registry const& registry = decoder_layers<Stream, Exec>())
        : context_(&context), settings_(settings), schedules_(std::move(schedules)), data_(&data),
          setup_{context,
                 settings.model.hidden,
                 settings.model.norm_epsilon,
                 settings.batch / settings.micro_batches,
                 settings.seq / static_cast<std::size_t>(training().slices),
                 settings.order,
                 settings.context_strategy,
                 static_cast<std::size_t>(training().slices),
                 settings.recomputes_activations},
          model_(setup_, settings.model, registry, held_stages(registry), settings.recompute),
          store_(context, model_, settings.seed, settings.sharding, settings.bucket_elements,
                 static_cast<std::size_t>(training().weight_versions), {.copies = AxisNames(inner<pp>::name)}),
          batch_(setup_, settings.micro_batches, settings.ignored),
          executor_(context, model_, {setup_.batch, setup_.seq, setup_.hidden}) {
        pentad::detail::prepare(context, detail::total_plan(loss_axes(), Placement::partial));
    }
    Trainer(Trainer const&) = delete;
    Trainer& operator=(Trainer const&) = delete;

    /// One run of the schedule, counted from 1: one update of the weights, or those of an asynchronous schedule. Where
    /// a loss or the gradient is not finite no weight changes, and the result says what it is. Collective over all
    /// ranks. @throws NotFinite on all ranks after max_bad_steps such steps in a row
    StepResult step(std::int64_t number) {
        number_ = number;
        store_.clear_gradients();
        store_.begin_updates();
        store_.release_for(number, optimizer_settings());
        auto result = run(training(), *data_, number);
        result.learning_rate = train::learning_rate(settings_, number);
        if (is_asynchronous() || settings_.sharding.releases_gradients) {
            store_.finish_updates();
            result.gradient_norm = store_.norm() / std::sqrt(static_cast<double>(training().rounds()));
            if (!is_finite(result)) // the schedule has updated the weights by now
                give_up(result, "and the weights have changed: " +
                                    (is_asynchronous() ? training().name + " updates each stage during the step"
                                                       : "gradients were released during the step"));
            store_.gather();
            return result;
        }
        result.gradient_norm = store_.reduce_gradients();
        if (!is_finite(result)) {
            result.not_finite = not_finite(result);
            store_.skip_update();
            if (++bad_steps_ >= settings_.max_bad_steps)
                give_up(result, "and so were the " + std::to_string(bad_steps_ - 1) + " steps before");
            return result;
        }
        bad_steps_ = 0;
        auto adamw = optimizer_settings();
        if (settings_.clip > 0) adamw.gradient_scale = std::min(1.0, settings_.clip / (result.gradient_norm + 1e-6));
        store_.update(number, adamw);
        if (!training().gathers || has_copies()) store_.gather();
        return result;
    }
    /// The losses on the batch of a step, with the weights as they are. Collective over all ranks.
    StepResult evaluate(std::int64_t number) {
        store_.gather();
        return run(schedules_.evaluation(), *data_, number);
    }
    /// The mean losses of the first batches of other data, such as data held out, with the weights as they are.
    /// Collective over all ranks. @throws std::invalid_argument where there is no batch, or tokens that the model lacks
    StepResult validate(io::TokenData const& data, std::int64_t batches) {
        if (batches < 1) throw std::invalid_argument("validation needs a batch, not " + std::to_string(batches));
        if (data.vocabulary() > static_cast<std::int64_t>(settings_.model.vocab))
            throw std::invalid_argument("data of " + std::to_string(data.vocabulary()) + " tokens for a model of " +
                                        std::to_string(settings_.model.vocab));
        store_.gather();
        StepResult mean;
        double targets = 0;
        for (std::int64_t number = 1; number <= batches; ++number) {
            auto const result = run(schedules_.evaluation(), data, number);
            double const count = std::accumulate(batch_.valid().begin(), batch_.valid().end(), 0.0);
            targets += count;
            if (count > 0) mean.loss += (result.loss - mean.loss) * (count / targets);
            mean.balance_loss += result.balance_loss / static_cast<double>(batches);
            mean.z_loss += result.z_loss / static_cast<double>(batches);
        }
        return mean;
    }
    /// The logits for the tokens of `passes`, one for each slice of a micro-batch; where the last stage is, none
    /// elsewhere. Collective over all ranks.
    std::vector<Logits> logits(std::vector<Pass<Exec>>& passes) {
        store_.gather();
        auto logits = executor_.logits(schedules_.sampling(), passes, this);
        store_.drop_gathered();
        return logits;
    }

    [[nodiscard]] Model& model() { return model_; }
    [[nodiscard]] Store& store() { return store_; }
    [[nodiscard]] LayerSetup<Exec> const& setup() const { return setup_; }
    [[nodiscard]] RunSettings const& settings() const { return settings_; }

  private:
    /// Token losses are summands over the ranks that share out the tokens, and over the stages, of which the last has
    /// them; a stage's auxiliary losses are the same on all its ranks, and summands over the stages.
    [[nodiscard]] AxisNames loss_axes() const {
        AxisNames axes;
        for (auto const& axis : context_->communicators().mesh())
            if (axis.name == pp::name || Batch<Stream, Exec>::Tokens::value.axes().contains(axis.name))
                axes.push(axis.name);
        return axes;
    }

    [[nodiscard]] pipeline::Schedule const& training() const { return schedules_.training(); }
    void check_fit() const {
        auto const& known = context_->communicators();
        model::BatchShape shape{.batch = static_cast<std::int64_t>(settings_.batch),
                                .micro_batches = static_cast<std::int64_t>(settings_.micro_batches),
                                .seq = static_cast<std::int64_t>(settings_.seq),
                                .slices = training().slices,
                                .zigzag = settings_.order == Order::zigzag};
        auto const axes_of = [&](std::size_t dimension) {
            model::NamedProduct axes;
            for (auto const name : Stream::value.dimensions[dimension].axes) axes.times(name, known.extent(name));
            return axes;
        };
        shape.batch_axes = axes_of(0);
        shape.seq_axes = axes_of(1);
        if (auto const refused = shape.refusal()) throw std::invalid_argument(refused->message());
        auto why = misfit(training(), settings_, known.extent("pp"));
        if (why.empty() &&
            (known.extent("inner(pp)") != static_cast<int>(training().placements.size()) ||
             (training().ranks() > 1 && (known.extent("ends(pp)") == 1) != pipeline::ends_meet(training()))))
            why = "wants another mesh: make it with for_schedule(mesh, schedule)";
        if (!why.empty()) throw std::invalid_argument("the schedule " + training().name + " " + why);
        check_sharding();
    }
    void check_sharding() const {
        auto const& sharding = settings_.sharding;
        if (auto const refused = sharding.refusal(); !refused.empty()) throw std::invalid_argument(refused);
        auto const& known = context_->communicators();
        if (sharding.ranks > 0 && known.extent(inner<dp>::name) != sharding.ranks)
            throw std::invalid_argument("ZeRO over " + std::to_string(sharding.ranks) +
                                        " ranks wants another mesh: make it with split<dp>(" +
                                        std::to_string(sharding.ranks) + ")");
        if (!sharding.releases_gradients) return;
        if (settings_.clip > 0)
            throw std::invalid_argument("gradients that are released cannot be clipped: their norm is known too late");
        if (has_copies() || is_asynchronous())
            throw std::invalid_argument("the schedule " + training().name +
                                        " reduces gradients at times of its own: they cannot be released");
    }
    /// Notes the layers of each stage in the settings. Collective over all ranks.
    [[nodiscard]] std::vector<StageLayers> held_stages(Registry const& registry) {
        check_fit();
        auto& layers = settings_.stage_layers;
        if (settings_.balances_stages)
            layers = measured_layers(setup_, settings_.model, registry, training().stages(), settings_.recompute);
        else if (layers.empty())
            layers = even_layers(settings_.model.blocks.size(), training().stages());
        return stages_of(training(), pipeline_rank(training(), context_->communicators().coordinate("pp")), layers,
                         settings_.model.blocks.size());
    }
    [[nodiscard]] bool is_asynchronous() const { return training().updates > 1; }
    /// Copies of a stage come to what they do together in different orders: it waits for the end of the step.
    [[nodiscard]] bool has_copies() const { return training().placements.size() > 1; }
    [[nodiscard]] kernels::AdamWSettings optimizer_settings() const {
        return {.learning_rate = train::learning_rate(settings_, number_),
                .beta1 = settings_.beta1,
                .beta2 = settings_.beta2,
                .epsilon = settings_.epsilon,
                .weight_decay = settings_.weight_decay};
    }

    static bool is_finite(StepResult const& result) {
        return std::isfinite(result.loss + result.balance_loss + result.z_loss) && std::isfinite(result.gradient_norm);
    }
    [[noreturn]] void give_up(StepResult const& result, std::string const& more) {
        throw NotFinite("step " + std::to_string(number_) + ": " +
                        (result.not_finite.empty() ? not_finite(result) : result.not_finite) + " is not finite, " +
                        more);
    }
    /// What is not finite, and where it is seen first. Collective.
    [[nodiscard]] std::string not_finite(StepResult const& result) {
        std::string own;
        double losses = 0;
        for (auto const& pass : passes_) losses += pass.loss_sum + pass.balance_sum + pass.z_sum;
        if (!std::isfinite(losses)) own = "the loss";
        if (std::isfinite(result.loss + result.balance_loss + result.z_loss))
            if (auto const name = store_.not_finite(); !name.empty()) own = "the gradient of " + name;
        // Backward passes carry it to all stages before: of the last stage that has it, the first rank.
        auto const& world = context_->communicators().world();
        double place = -1;
        if (!own.empty()) place = static_cast<double>((model_.stages().back() + 1) * world.size() - 1 - world.rank());
        total_over_mesh(*context_, Placement::partial_max, std::span(&place, 1));
        auto const found = static_cast<int>(place);
        if (found < 0) return "the norm of the gradient"; // finite gradients with a sum of squares that is not
        int const rank = world.size() - 1 - found % world.size();
        for (int const stage : model_.stages())
            own += (stage == model_.stages().front() ? " on rank " + std::to_string(rank) + " (stage " : ", ") +
                   std::to_string(stage);
        own += ")";
        return comm::broadcast_text(world.handle(), std::move(own), rank);
    }

    void use_version(int stage, int version) override { store_.use_version(stage, static_cast<std::size_t>(version)); }
    void gather(int stage) override {
        if (!has_copies()) store_.gather(stage);
    }
    void step(int stage, int update) override {
        // The updates of a synchronous schedule want the norm of all gradients: they come together, at the end.
        if (is_asynchronous())
            store_.update(stage, (number_ - 1) * training().updates + update + 1, optimizer_settings());
    }

    StepResult run(pipeline::Schedule const& schedule, io::TokenData const& data, std::int64_t number) {
        batch_.load(data, number, training().rounds());
        auto const& valid = batch_.valid();
        double const rounds = static_cast<double>(training().rounds());
        double const count = static_cast<double>(settings_.micro_batches);
        passes_.clear();
        for (std::size_t i = 0; i < settings_.micro_batches; ++i)
            for (std::size_t k = 0; k < setup_.slices; ++k) {
                double const targets = valid[static_cast<std::size_t>(training().update_of(static_cast<int>(i)))];
                passes_.push_back({.context = *context_,
                                   .tokens = batch_.tokens(i, k),
                                   .targets = batch_.targets(i, k),
                                   .loss_scale = targets > 0 ? 1 / targets : 0,
                                   .balance_scale = settings_.balance_coefficient * rounds / count,
                                   .z_scale = settings_.z_coefficient * rounds / count});
            }
        executor_.run(schedule, passes_, this);
        store_.drop_gathered();

        double loss = 0, balance = 0, z = 0;
        for (auto const& pass : passes_) {
            loss += pass.loss_sum;
            balance += pass.balance_sum;
            z += pass.z_sum;
        }
        total_over(*context_, loss_axes(), Placement::partial, std::span(&loss, 1));
        std::array<double, 2> auxiliary{balance, z};
        total_over(*context_, AxisNames(pp::name), Placement::partial, std::span(auxiliary));
        double const all = std::accumulate(valid.begin(), valid.end(), 0.0);
        StepResult result;
        result.loss = all > 0 ? loss / all : 0;
        result.balance_loss = auxiliary[0] / count;
        result.z_loss = auxiliary[1] / count;
        return result;
    }

    Context<Exec> const* context_;
    RunSettings settings_;
    ProvenSchedules schedules_;
    io::TokenData const* data_;
    LayerSetup<Exec> setup_;
    Model model_;
    Store store_;
    Batch<Stream, Exec> batch_;
    Executor<Model, Stream, Exec> executor_;
    std::vector<Pass<Exec>> passes_;
    std::int64_t number_ = 0;    ///< of the step
    std::int64_t bad_steps_ = 0; ///< in a row
};

} // namespace pentad::train

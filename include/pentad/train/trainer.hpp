// Room: train. Training a language model on a mesh: forward and backward by a pipeline schedule, the gradients reduced
// as their layouts say, clipping, AdamW, evaluation.
#pragma once

#include <pentad/layers/layer.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/validator.hpp>
#include <pentad/train/balance.hpp>
#include <pentad/train/batch.hpp>
#include <pentad/train/executor.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/zero/store.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
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
    /// The ranks along inner(pp) hold the same stages, for different micro-batches.
    using Store = zero::ParameterStore<typename Stream::element, Exec, AxisSet<inner<pp>>>;

    /// Collective over all ranks. @throws std::invalid_argument when the settings, the schedule and the mesh do not fit
    Trainer(Context<Exec> const& context, RunSettings const& settings, io::TextData const& data)
        : context_(&context), settings_(settings), data_(&data), training_(schedule_of(context, settings)),
          evaluation_(forwards_of(training_, training_.micro_batches)), sampling_(forwards_of(training_, 1)),
          setup_{context,
                 settings.shape,
                 settings.batch / settings.micro_batches,
                 settings.seq / static_cast<std::size_t>(training_.slices),
                 settings.order,
                 settings.context_strategy,
                 static_cast<std::size_t>(training_.slices)},
          model_(setup_, held_stages(), settings.recompute),
          store_(context, model_, settings.seed, settings.zero_stage, settings.bucket_elements,
                 static_cast<std::size_t>(training_.weight_versions)),
          batch_(setup_, settings.micro_batches, settings.ignored),
          executor_(context, model_, {setup_.batch, setup_.seq, settings.shape.hidden}) {
        prepare_redistribution<LossSum, invariant_t<LossSum>>(context);
    }
    Trainer(Trainer const&) = delete;
    Trainer& operator=(Trainer const&) = delete;

    /// One run of the schedule, counted from 1: one update of the weights, or those of an asynchronous schedule.
    /// Collective over all ranks.
    StepResult step(std::int64_t number) {
        number_ = number;
        store_.clear_gradients();
        store_.begin_updates();
        auto result = run(training_, number);
        result.learning_rate = train::learning_rate(settings_, number);
        if (is_asynchronous()) {
            result.gradient_norm = store_.norm() / std::sqrt(static_cast<double>(training_.updates));
            store_.gather();
            return result;
        }
        result.gradient_norm = store_.reduce_gradients();
        auto adamw = optimizer_settings();
        if (settings_.clip > 0) adamw.gradient_scale = std::min(1.0, settings_.clip / (result.gradient_norm + 1e-6));
        store_.update(number, adamw);
        if (!training_.gathers || has_copies()) store_.gather();
        return result;
    }
    /// The losses on the batch of a step, with the weights as they are. Collective over all ranks.
    StepResult evaluate(std::int64_t number) {
        store_.gather();
        return run(evaluation_, number);
    }
    /// The logits for the tokens of `passes`, one for each slice of a micro-batch; where the last stage is, none
    /// elsewhere. Collective over all ranks.
    std::vector<Logits> logits(std::vector<Pass<Exec>>& passes) {
        store_.gather();
        return executor_.logits(sampling_, passes, this);
    }

    [[nodiscard]] Model& model() { return model_; }
    [[nodiscard]] Store& store() { return store_; }
    [[nodiscard]] Setup<Exec> const& setup() const { return setup_; }
    [[nodiscard]] RunSettings const& settings() const { return settings_; }
    [[nodiscard]] pipeline::Schedule const& schedule() const { return training_; }

  private:
    /// Token losses are summands over the ranks that share out the tokens, and over the stages, of which the last has
    /// them; a stage's auxiliary losses are the same on all its ranks, and summands over the stages.
    using LossSum = Layout<f64, Dims<Dim<flat>>, Partial<dp, pp, ep, cp>>;
    using StageSum = Layout<f64, Dims<Dim<flat>>, Partial<pp>>;

    /// The schedule of the settings, proven, and fit for the mesh.
    static pipeline::Schedule schedule_of(Context<Exec> const& context, RunSettings const& settings) {
        int const ranks = context.communicators().extent("pp");
        auto schedule = settings.schedule
                            ? *settings.schedule
                            : pipeline::generate(
                                  "1f1b", {.ranks = ranks, .micro_batches = static_cast<int>(settings.micro_batches)});
        check(schedule);
        auto const refuse = [&](std::string const& why) {
            throw std::invalid_argument("the schedule " + schedule.name + " " + why);
        };
        if (auto const why = misfit(schedule, settings, ranks); !why.empty()) refuse(why);
        if (context.communicators().extent("inner(pp)") != static_cast<int>(schedule.placements.size()) ||
            (ranks > 1 && (context.communicators().extent("ends(pp)") == 1) != ends_meet(schedule)))
            refuse("wants another mesh: make it with for_schedule(mesh, schedule)");
        return schedule;
    }
    static void check(pipeline::Schedule const& schedule) {
        if (auto const verdict = pipeline::validate(schedule); verdict.refusal)
            throw std::invalid_argument("the schedule " + schedule.name + ": " + verdict.refusal->message());
    }
    static pipeline::Schedule forwards_of(pipeline::Schedule const& training, int micro_batches) {
        auto schedule = pipeline::forwards_of(training, micro_batches);
        check(schedule);
        return schedule;
    }
    /// Notes the layers of each stage in the settings. Collective over all ranks.
    [[nodiscard]] std::vector<StageLayers> held_stages() {
        auto& layers = settings_.stage_layers;
        if (settings_.balances_stages)
            layers = measured_layers<Stream, Store>(setup_, training_.stages(), settings_.recompute);
        else if (layers.empty())
            layers = even_layers(settings_.shape.layers, training_.stages());
        return stages_of(training_, pipeline_rank(training_, context_->communicators().coordinate("pp")), layers,
                         settings_.shape.layers);
    }
    [[nodiscard]] bool is_asynchronous() const { return training_.updates > 1; }
    /// Copies of a stage come to what they do together in different orders: it waits for the end of the step.
    [[nodiscard]] bool has_copies() const { return training_.placements.size() > 1; }
    [[nodiscard]] kernels::AdamWSettings optimizer_settings() const {
        return {.learning_rate = train::learning_rate(settings_, number_),
                .beta1 = 0.9,
                .beta2 = 0.95,
                .epsilon = 1e-8,
                .weight_decay = settings_.weight_decay};
    }

    void use_version(int stage, int version) override { store_.use_version(stage, static_cast<std::size_t>(version)); }
    void gather(int stage) override {
        if (!has_copies()) store_.gather(stage);
    }
    /// A bucket has begun when its last gradient was complete.
    void reduce(int) override {}
    void step(int stage, int update) override {
        // The updates of a synchronous schedule want the norm of all gradients: they come together, at the end.
        if (is_asynchronous())
            store_.update(stage, (number_ - 1) * training_.updates + update + 1, optimizer_settings());
    }

    StepResult run(pipeline::Schedule const& schedule, std::int64_t number) {
        batch_.load(*data_, number, training_.rounds());
        auto const& valid = batch_.valid();
        double const rounds = static_cast<double>(training_.rounds());
        double const count = static_cast<double>(settings_.micro_batches);
        passes_.clear();
        for (std::size_t i = 0; i < settings_.micro_batches; ++i)
            for (std::size_t k = 0; k < setup_.slices; ++k) {
                double const targets = valid[static_cast<std::size_t>(training_.update_of(static_cast<int>(i)))];
                passes_.push_back({.context = *context_,
                                   .tokens = batch_.tokens(i, k),
                                   .targets = batch_.targets(i, k),
                                   .loss_scale = targets > 0 ? 1 / targets : 0,
                                   .balance_scale = settings_.balance_coefficient * rounds / count,
                                   .z_scale = settings_.z_coefficient * rounds / count});
            }
        executor_.run(schedule, passes_, this);

        double loss = 0, balance = 0, z = 0;
        for (auto const& pass : passes_) {
            loss += pass.loss_sum;
            balance += pass.balance_sum;
            z += pass.z_sum;
        }
        auto const losses = total<LossSum, 1>({loss});
        auto const auxiliary = total<StageSum, 2>({balance, z});
        double const all = std::accumulate(valid.begin(), valid.end(), 0.0);
        StepResult result;
        result.loss = all > 0 ? losses[0] / all : 0;
        result.balance_loss = auxiliary[0] / count;
        result.z_loss = auxiliary[1] / count;
        return result;
    }
    template <class L, std::size_t N>
    std::array<double, N> total(std::array<double, N> own) const {
        Tensor<L, Exec> sum(*context_, {N});
        sum.set(own.data());
        redistribute<invariant_t<L>>(std::move(sum)).get(own.data());
        return own;
    }

    Context<Exec> const* context_;
    RunSettings settings_;
    io::TextData const* data_;
    pipeline::Schedule training_, evaluation_, sampling_;
    Setup<Exec> setup_;
    Model model_;
    Store store_;
    Batch<Exec> batch_;
    Executor<Model, Stream, Exec> executor_;
    std::vector<Pass<Exec>> passes_;
    std::int64_t number_ = 0; ///< of the step
};

} // namespace pentad::train

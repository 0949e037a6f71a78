// Room: train. Training a language model on a mesh: forward and backward by a pipeline schedule, the gradients reduced
// as their layouts say, clipping, AdamW, evaluation.
#pragma once

#include <pentad/layers/layer.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/validator.hpp>
#include <pentad/train/batch.hpp>
#include <pentad/train/executor.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/zero/store.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace pentad::train {

/// @tparam Stream the layout of the residual stream, e.g. SequenceStream<bf16>
template <class Stream, class Exec>
class Trainer {
  public:
    using Model = LanguageModel<Stream, Exec>;
    using Store = zero::ParameterStore<typename Stream::element, Exec>;

    /// Collective over all ranks.
    Trainer(Context<Exec> const& context, RunSettings const& settings, io::TextData const& data)
        : context_(&context), settings_(settings), data_(&data),
          setup_{context,      settings.shape, settings.batch / settings.micro_batches,
                 settings.seq, settings.order, settings.context_strategy},
          model_(setup_, context.communicators().coordinate("pp"), context.communicators().extent("pp"),
                 settings.recompute),
          store_(context, model_, settings.seed, settings.zero_stage, settings.bucket_elements),
          batch_(setup_, settings.micro_batches, settings.ignored),
          executor_(context, model_, {setup_.batch, setup_.seq, settings.shape.hidden}) {
        int const stages = context.communicators().extent("pp"), count = static_cast<int>(settings.micro_batches);
        auto const generated = [&](std::string_view name) {
            return proven(pipeline::generate(name, {.ranks = stages, .micro_batches = count}));
        };
        training_ = generated(settings.gpipe ? "gpipe" : "1f1b");
        inference_ = generated("forward-only");
        prepare_redistribution<LossSum, invariant_t<LossSum>>(context);
    }
    Trainer(Trainer const&) = delete;
    Trainer& operator=(Trainer const&) = delete;

    /// One step, counted from 1. Collective over all ranks.
    StepResult step(std::int64_t number) {
        store_.clear_gradients();
        auto result = run(training_, number);
        result.gradient_norm = store_.reduce_gradients();
        result.learning_rate = train::learning_rate(settings_, number);
        kernels::AdamWSettings adamw{.learning_rate = result.learning_rate,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .epsilon = 1e-8,
                                     .weight_decay = settings_.weight_decay};
        if (settings_.clip > 0) adamw.gradient_scale = std::min(1.0, settings_.clip / (result.gradient_norm + 1e-6));
        store_.update(number, adamw);
        return result;
    }
    /// The losses on the batch of a step, with the weights as they are. Collective over all ranks.
    StepResult evaluate(std::int64_t number) { return run(inference_, number); }

    [[nodiscard]] Model& model() { return model_; }
    [[nodiscard]] Store& store() { return store_; }
    [[nodiscard]] Setup<Exec> const& setup() const { return setup_; }
    [[nodiscard]] RunSettings const& settings() const { return settings_; }

  private:
    /// Token losses are summands over the ranks that share out the tokens, and over the stages, of which the last has
    /// them; a stage's auxiliary losses are the same on all its ranks, and summands over the stages.
    using LossSum = Layout<f64, Dims<Dim<flat>>, Partial<dp, pp, ep, cp>>;
    using StageSum = Layout<f64, Dims<Dim<flat>>, Partial<pp>>;

    static pipeline::Schedule proven(pipeline::Schedule schedule) {
        if (auto const verdict = pipeline::validate(schedule); verdict.refusal)
            throw std::invalid_argument(schedule.name + ": " + verdict.refusal->message());
        return schedule;
    }
    StepResult run(pipeline::Schedule const& schedule, std::int64_t number) {
        double const valid = batch_.load(*data_, number);
        double const count = static_cast<double>(settings_.micro_batches);
        passes_.clear();
        for (std::size_t i = 0; i < settings_.micro_batches; ++i)
            passes_.push_back({.context = *context_,
                               .tokens = batch_.tokens(i),
                               .targets = batch_.targets(i),
                               .loss_scale = valid > 0 ? 1 / valid : 0,
                               .balance_scale = settings_.balance_coefficient / count,
                               .z_scale = settings_.z_coefficient / count});
        executor_.run(schedule, passes_);

        double loss = 0, balance = 0, z = 0;
        for (auto const& pass : passes_) {
            loss += pass.loss_sum;
            balance += pass.balance_sum;
            z += pass.z_sum;
        }
        auto const losses = total<LossSum, 1>({loss});
        auto const auxiliary = total<StageSum, 2>({balance, z});
        StepResult result;
        result.loss = valid > 0 ? losses[0] / valid : 0;
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
    Setup<Exec> setup_;
    Model model_;
    Store store_;
    Batch<Exec> batch_;
    Executor<Model, Stream, Exec> executor_;
    pipeline::Schedule training_, inference_;
    std::vector<Pass<Exec>> passes_;
};

} // namespace pentad::train

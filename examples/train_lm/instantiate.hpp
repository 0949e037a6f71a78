// The trainer and the evaluator of an element, which the units make_*.cpp instantiate.
#pragma once

#include "training.hpp"

#include <pentad/train/checkpoint_restore.hpp>
#include <pentad/train/evaluator.hpp>
#include <pentad/train/export.hpp>
#include <pentad/train/import.hpp>
#include <pentad/train/sampler.hpp>
#include <pentad/train/trainer.hpp>

#include <stdexcept>

namespace train_lm {

/// A checkpoint with its config.json (weights_file.cpp).
template <class A>
std::unique_ptr<pentad::train::WeightSink<A>> make_sink(std::filesystem::path const& folder, std::string const& config);
extern template std::unique_ptr<pentad::train::WeightSink<double>> make_sink(std::filesystem::path const&,
                                                                             std::string const&);
extern template std::unique_ptr<pentad::train::WeightSink<float>> make_sink(std::filesystem::path const&,
                                                                            std::string const&);

/// The functions that a trainer and an evaluator share.
template <class T, template <class, class> class Runner>
class RunOf : public Training {
  public:
    using Exec = Kokkos::DefaultExecutionSpace;

    explicit RunOf(TrainingSetup const& setup)
        : context_(setup.communicators),
          runner_(context_, pentad::model::stream_layout<T>(setup.settings.strategy.block), setup.settings,
                  setup.schedules, setup.data) {}

    pentad::train::StepResult evaluate(std::int64_t number) override { return runner_.evaluate(number); }
    pentad::train::StepResult validate(pentad::io::TokenData const& data, std::int64_t batches) override {
        return runner_.validate(data, batches);
    }
    void export_weights(std::filesystem::path const& folder, std::string const& config) override {
        auto const sink = make_sink<pentad::accumulator_t<T>>(folder, config);
        pentad::train::export_weights<T>(context_, runner_.model(), runner_.store(), family(), *sink);
    }
    void import_weights(pentad::io::Checkpoint const& checkpoint,
                        std::vector<std::string> const& passed_over) override {
        pentad::train::import_weights<T>(context_, runner_.model(), runner_.store(), family(), checkpoint, passed_over);
    }
    pentad::train::RunPosition position() const override { return runner_.position(); }
    void restore(pentad::checkpoint::Reader const& reader, pentad::train::RunPosition const& position) override {
        pentad::train::restore(runner_, reader, position);
    }
    std::string sample(std::string const& prompt, std::int64_t bytes) override {
        return pentad::train::sample(runner_, prompt, bytes, runner_.settings().seed);
    }
    double gemm_speed() override {
        return pentad::kernels::measure_gemm_speed<T>(context_.exec(), [] { MPI_Barrier(MPI_COMM_WORLD); });
    }

  protected:
    Runner<T, Exec>& runner() { return runner_; }
    Runner<T, Exec> const& runner() const { return runner_; }

  private:
    [[nodiscard]] std::optional<pentad::model::Family> family() const {
        return pentad::model::family_of(runner_.settings().model);
    }

    pentad::Context<Exec> context_;
    Runner<T, Exec> runner_;
};

template <class T>
class TrainingOf final : public RunOf<T, pentad::train::Trainer> {
  public:
    using RunOf<T, pentad::train::Trainer>::RunOf;

    pentad::train::StepResult step(std::int64_t number) override { return this->runner().step(number); }
    std::vector<pentad::train::BlockLoad> take_loads() override { return this->runner().take_loads(); }
    void average() override { this->runner().average(); }
    void for_each_held_piece(std::function<void(pentad::train::HeldPiece const&)> const& f) override {
        pentad::train::for_each_held_piece(this->runner(), true, f);
    }
    void for_each_planned_piece(std::function<void(pentad::train::HeldPiece const&)> const& f) override {
        pentad::train::for_each_planned_piece(this->runner(), f);
    }
    std::optional<pentad::model::OffloadReport> offload_report() const override {
        return this->runner().store().offload_report();
    }
    std::optional<pentad::model::OffloadReport> activation_report() const override {
        return this->runner().activation_report();
    }
};

/// A run without steps, which holds weights and activations alone.
template <class T>
class EvaluationOf final : public RunOf<T, pentad::train::Evaluator> {
  public:
    using RunOf<T, pentad::train::Evaluator>::RunOf;

    pentad::train::StepResult step(std::int64_t) override { throw std::logic_error("an evaluation has no steps"); }
};

template <class T>
std::unique_ptr<Training> make(TrainingSetup const& setup) {
    if (setup.learns) return std::make_unique<TrainingOf<T>>(setup);
    return std::make_unique<EvaluationOf<T>>(setup);
}

} // namespace train_lm

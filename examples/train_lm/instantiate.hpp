// What the units make_*.cpp instantiate: the trainers of an element.
#pragma once

#include "training.hpp"

#include <pentad/train/checkpoint_restore.hpp>
#include <pentad/train/export.hpp>
#include <pentad/train/import.hpp>
#include <pentad/train/sampler.hpp>
#include <pentad/train/trainer.hpp>

namespace train_lm {

/// A checkpoint with its config.json (weights_file.cpp).
template <class A>
std::unique_ptr<pentad::train::WeightSink<A>> make_sink(std::filesystem::path const& folder, std::string const& config);
extern template std::unique_ptr<pentad::train::WeightSink<double>> make_sink(std::filesystem::path const&,
                                                                             std::string const&);
extern template std::unique_ptr<pentad::train::WeightSink<float>> make_sink(std::filesystem::path const&,
                                                                            std::string const&);

template <class T>
class TrainingOf final : public Training {
  public:
    using Exec = Kokkos::DefaultExecutionSpace;

    explicit TrainingOf(TrainingSetup const& setup)
        : context_(setup.communicators),
          trainer_(context_, pentad::model::stream_layout<T>(setup.tensor_kind, setup.sequence_parallel),
                   setup.settings, setup.schedules, setup.data) {}

    pentad::train::StepResult step(std::int64_t number) override { return trainer_.step(number); }
    std::vector<pentad::train::BlockLoad> take_loads() override { return trainer_.take_loads(); }
    void average() override { trainer_.average(); }
    pentad::train::StepResult evaluate(std::int64_t number) override { return trainer_.evaluate(number); }
    pentad::train::StepResult validate(pentad::io::TokenData const& data, std::int64_t batches) override {
        return trainer_.validate(data, batches);
    }
    void export_weights(std::filesystem::path const& folder, std::string const& config) override {
        auto const sink = make_sink<pentad::accumulator_t<T>>(folder, config);
        pentad::train::export_weights<T>(context_, trainer_.model(), trainer_.store(),
                                         pentad::model::family_of(trainer_.settings().model), *sink);
    }
    void import_weights(pentad::io::Checkpoint const& checkpoint,
                        std::vector<std::string> const& passed_over) override {
        pentad::train::import_weights<T>(context_, trainer_.model(), trainer_.store(),
                                         pentad::model::family_of(trainer_.settings().model), checkpoint, passed_over);
    }
    void for_each_held_piece(std::function<void(pentad::train::HeldPiece const&)> const& f) override {
        pentad::train::for_each_held_piece(trainer_, true, f);
    }
    void for_each_planned_piece(std::function<void(pentad::train::HeldPiece const&)> const& f) override {
        pentad::train::for_each_planned_piece(trainer_, f);
    }
    std::optional<pentad::model::OffloadReport> offload_report() const override {
        return trainer_.store().offload_report();
    }
    std::optional<pentad::model::OffloadReport> activation_report() const override {
        return trainer_.activation_report();
    }
    pentad::train::RunPosition position() const override { return trainer_.position(); }
    void restore(pentad::checkpoint::Reader const& reader, pentad::train::RunPosition const& position) override {
        pentad::train::restore(trainer_, reader, position);
    }
    std::string sample(std::string const& prompt, std::int64_t bytes) override {
        return pentad::train::sample(trainer_, prompt, bytes, trainer_.settings().seed);
    }
    double gemm_speed() override {
        return pentad::kernels::measure_gemm_speed<T>(context_.exec(), [] { MPI_Barrier(MPI_COMM_WORLD); });
    }

  private:
    pentad::Context<Exec> context_;
    pentad::train::Trainer<T, Exec> trainer_;
};

template <class T>
std::unique_ptr<Training> make(TrainingSetup const& setup) {
    return std::make_unique<TrainingOf<T>>(setup);
}

} // namespace train_lm

// A training run behind an interface without element types or layouts: each unit of the program instantiates one
// trainer, for an element type and a stream (sequence parallelism or not).
#pragma once

#include <pentad/checkpoint/reader.hpp>
#include <pentad/comm/communicator.hpp>
#include <pentad/io/checkpoint.hpp>
#include <pentad/io/token_data.hpp>
#include <pentad/model/offload.hpp>
#include <pentad/train/block_load.hpp>
#include <pentad/train/checkpoint_state.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/train/schedules.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace train_lm {

class Training {
  public:
    virtual ~Training() = default;
    virtual pentad::train::StepResult step(std::int64_t number) = 0;
    /// What the routers have done since this was called last. Collective.
    virtual std::vector<pentad::train::BlockLoad> take_loads() { return {}; }
    /// Local steps: averages the groups' weights, whether or not it is time.
    virtual void average() {}
    virtual pentad::train::StepResult evaluate(std::int64_t number) = 0;
    virtual pentad::train::StepResult validate(pentad::io::TokenData const& data, std::int64_t batches) = 0;
    /// The weights and the text of their config.json, in place together or not at all. Collective; rank 0 writes.
    virtual void export_weights(std::filesystem::path const& folder, std::string const& config) = 0;
    /// Weights to begin with. Collective; each rank reads its part.
    /// @param passed_over what the names of tensors begin with that the model does not have
    /// @throws std::invalid_argument where the checkpoint does not fit the model
    virtual void import_weights(pentad::io::Checkpoint const& checkpoint,
                                std::vector<std::string> const& passed_over) = 0;
    /// The state of the run that this rank writes to a checkpoint (train/checkpoint_state.hpp), and where the run is.
    virtual void for_each_held_piece(std::function<void(pentad::train::HeldPiece const&)> const&) {}
    /// The pieces that checkpoints will have when updates have made all states, without data.
    virtual void for_each_planned_piece(std::function<void(pentad::train::HeldPiece const&)> const&) {}
    virtual pentad::train::RunPosition position() const = 0;
    /// What offload of optimizer state, and of activations, has done on this rank; none without.
    virtual std::optional<pentad::model::OffloadReport> offload_report() const { return {}; }
    virtual std::optional<pentad::model::OffloadReport> activation_report() const { return {}; }
    /// Goes on from a checkpoint. Collective (train/checkpoint_restore.hpp).
    virtual void restore(pentad::checkpoint::Reader const& reader, pentad::train::RunPosition const& position) = 0;
    /// Text that the model goes on with, the same on every rank.
    virtual std::string sample(std::string const& prompt, std::int64_t bytes) = 0;
    /// Collective: FLOP/s of this rank's GEMM, in the element type of the run, while all ranks measure.
    virtual double gemm_speed() = 0;
};

struct TrainingSetup {
    pentad::comm::Communicators& communicators;
    pentad::io::TokenData const& data;
    pentad::train::RunSettings settings;
    pentad::train::ProvenSchedules schedules;
    bool learns = true; ///< false: it only evaluates, samples and writes weights
};

/// A trainer of the element T: f64, f32 or bf16 (make_*.cpp).
template <class T>
std::unique_ptr<Training> make(TrainingSetup const& setup);

} // namespace train_lm

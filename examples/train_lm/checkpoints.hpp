// The checkpoints of a run: when they are saved, and from which one it goes on.
#pragma once

#include "options.hpp"
#include "training.hpp"

#include <pentad/checkpoint/folder.hpp>
#include <pentad/program/ranks.hpp>
#include <pentad/train/checkpoint_saver.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace train_lm {

class Checkpoints {
  public:
    /// What the ranks sum up after each step.
    using Numbers = std::array<double, 4>;

    /// Where the options have --save: makes the folder, locks it, and takes SIGTERM and SIGUSR1 as wishes to stop.
    /// Collective. @param config the text of the model's config.json
    /// @param on_end is told on rank 0 how a save ended
    /// @throws BadInput where the folder cannot be used, or another run saves to it
    Checkpoints(Options const& options, pentad::program::Ranks const& ranks, std::string const& config,
                std::function<void(pentad::train::SaveResult const&)> on_end);

    /// Whether a run with these options goes on from a checkpoint: the one that --resume names, or with auto one that
    /// is there. Collective.
    static bool will_resume(Options const& options, pentad::program::Ranks const& ranks);
    /// With --save: that checkpoints of this run can be written at all. Collective. @throws BadInput where not
    void require_plan(Training& training);
    /// Goes on from the checkpoint that --resume names. Gives its path; empty: a fresh start. Collective.
    /// @throws BadInput where it does not fit the run, OutsideFailure where none can be read
    std::string resume(Training& training);

    /// This rank's summands for after_step().
    [[nodiscard]] Numbers numbers() const;
    /// Saves where it is time to, with the sums over all ranks. Whether the run is to stop. Collective.
    bool after_step(Training& training, std::int64_t step, std::span<double const> sums);
    /// Waits for the last save. Collective.
    void wait();
    /// wait(). @throws OutsideFailure where it failed
    void finish();
    /// The signal for which the run stops: "SIGTERM".
    [[nodiscard]] std::string const& stopped_by() const { return stopped_by_; }

  private:
    using Clock = std::chrono::steady_clock;

    [[nodiscard]] std::string run_facts(Training const& training) const;
    void restore(Training& training, std::filesystem::path const& path);
    void note_differences(std::string const& facts_of_run, std::string const& facts) const;
    void save(Training& training, std::int64_t step);
    void record(pentad::train::SaveResult const& result);
    void end(pentad::train::SaveResult const& result);

    Options const* options_;
    pentad::program::Ranks const* ranks_;
    std::string config_;
    std::string facts_; ///< what a checkpoint has beside tensors and position; on rank 0
    std::function<void(pentad::train::SaveResult const&)> on_end_;
    SaveInterval interval_;
    std::optional<pentad::checkpoint::FolderLock> lock_; ///< on rank 0
    std::optional<pentad::train::CheckpointSaver> saver_;
    Clock::time_point last_;         ///< when the last save began
    std::int64_t last_step_ = 0;     ///< of which there is a checkpoint, or a save that goes on
    std::int64_t complete_step_ = 0; ///< of which there is a complete one
    std::string stopped_by_;
    std::string failure_;     ///< of the last save; on rank 0
    bool has_failed_ = false; ///< the last save; on all ranks
};

} // namespace train_lm

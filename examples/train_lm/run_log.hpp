// What a run reports: its log, a JSON object a line, the bytes that were sent, and that rank 0 could not write. Private
// to run.cpp.
#pragma once

#include "options.hpp"

#include <pentad/comm/error.hpp>
#include <pentad/io/file.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/strategy/strategy.hpp>
#include <pentad/train/block_load.hpp>
#include <pentad/train/checkpoint_saver.hpp>
#include <pentad/train/run_settings.hpp>

#include <nlohmann/json.hpp>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace train_lm {

/// The axes that ranks send along; the last two are of models with experts.
inline constexpr auto axes = pentad::view_axes;
inline std::size_t axes_shown(bool has_experts) { return has_experts ? axes.size() : axes.size() - 2; }

/// As JSON, which has neither NaN nor infinity.
inline std::string number(double value) {
    if (!std::isfinite(value)) return "null";
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%.17g", value);
    return text.data();
}

/// What rank 0 could not write ends the run on all ranks, together. They hear of it when they sum up the step's
/// traffic; neither that sum nor this is part of the ledger.
class Outcome {
  public:
    explicit Outcome(int rank) : rank_(rank) {}

    /// Rank 0 writes, unless it failed before. Nothing in `write` is collective.
    template <class F>
    void write(F&& write) {
        if (rank_ == 0 && failure_.empty()) write_together(write);
    }
    /// All ranks take part, whatever failed before.
    template <class F>
    void write_together(F&& write) {
        try {
            write();
        } catch (pentad::io::FileError const& error) {
            if (failure_.empty()) failure_ = error.what();
        }
    }
    /// Sums `values` over all ranks; false when a rank failed before. Collective.
    bool exchange(std::span<double> values = {}) {
        std::vector<double> all(values.begin(), values.end());
        all.push_back(failure_.empty() ? 0 : 1);
        pentad::comm::check(
            MPI_Allreduce(MPI_IN_PLACE, all.data(), static_cast<int>(all.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
            "MPI_Allreduce");
        std::copy_n(all.begin(), values.size(), values.begin());
        return all.back() == 0;
    }
    [[nodiscard]] std::string const& failure() const { return failure_; }

  private:
    int rank_;
    std::string failure_;
};

/// Bytes that this rank has sent since the last call, by axis.
class Traffic {
  public:
    std::array<double, axes.size()> since_last() {
        std::array<double, axes.size()> difference{};
        for (std::size_t i = 0; i < axes.size(); ++i) {
            double const now = pentad::observe::ledger().bytes(axes[i]);
            difference[i] = now - last_[i];
            last_[i] = now;
        }
        return difference;
    }

  private:
    std::array<double, axes.size()> last_{};
};

/// A record for each layer with experts: the largest load over the mean, for experts and for the ranks and nodes that
/// hold them; the entropy of the load, 1 where it is even; the part of the choices that were dropped; the least and the
/// largest bias.
inline std::string load_text(std::vector<pentad::train::BlockLoad> const& loads) {
    std::string list;
    for (auto const& load : loads) {
        list += (list.empty() ? "{" : ",{") + ("\"layer\":" + std::to_string(load.block)) +
                ",\"load\":" + number(load.imbalance()) + ",\"rank_load\":" + number(load.imbalance(load.ranks)) +
                ",\"node_load\":" + number(load.imbalance(load.nodes)) + ",\"entropy\":" + number(load.entropy()) +
                ",\"dropped\":" + number(load.dropped_part());
        if (load.has_bias) list += ",\"bias\":[" + number(load.least_bias) + "," + number(load.most_bias) + "]";
        list += "}";
    }
    return ",\"experts\":[" + list + "]";
}
/// The loss; not a number where there was no target.
inline double loss_of(pentad::train::StepResult const& result) {
    return result.targets > 0 ? result.loss : std::numeric_limits<double>::quiet_NaN();
}
inline std::string log_line(std::int64_t step, pentad::train::StepResult const& r,
                            std::vector<pentad::train::BlockLoad> const& loads, std::optional<double> validation_loss,
                            double tokens_per_second, std::array<double, axes.size()> const& bytes,
                            Options const& options) {
    std::string more;
    if (options.mtp > 0) more += ",\"mtp_loss\":" + number(r.targets > 0 ? r.prediction_loss : loss_of(r));
    if (!loads.empty()) more += load_text(loads);
    if (options.rebalance_experts > 0) more += ",\"moved_experts\":" + std::to_string(r.moved_experts);
    if (options.offload != "none") more += ",\"offload_wait_s\":" + number(r.offload_wait);
    if (validation_loss) more += ",\"validation_loss\":" + number(*validation_loss);
    if (!r.not_finite.empty()) more += ",\"not_finite\":" + nlohmann::json(r.not_finite).dump();
    std::string line = "{\"step\":" + std::to_string(step) + ",\"loss\":" + number(loss_of(r)) +
                       ",\"aux_loss\":" + number(r.balance_loss) + ",\"z_loss\":" + number(r.z_loss) +
                       ",\"grad_norm\":" + number(r.gradient_norm) + ",\"lr\":" + number(r.learning_rate) +
                       ",\"tokens_per_s\":" + number(tokens_per_second) + ",\"bytes\":{";
    for (std::size_t i = 0; i < axes_shown(!loads.empty()); ++i)
        line += (i == 0 ? "\"" : ",\"") + std::string(axes[i]) + "\":" + std::to_string(std::llround(bytes[i]));
    return line + "}" + more + "}";
}
/// How a save ended.
inline std::string checkpoint_line(pentad::train::SaveResult const& save) {
    return "{\"event\":\"checkpoint\",\"step\":" + std::to_string(save.step) +
           ",\"saved\":" + (save.is_saved ? "true" : "false") + ",\"seconds\":" + number(save.seconds) +
           ",\"waited\":" + number(save.waited) + "}";
}
/// Whether a line of a log is of a step up to this one: such lines stay where a run goes on after it.
inline bool is_of_step_up_to(std::string_view line, std::int64_t step) {
    constexpr std::string_view start = "{\"step\":";
    std::int64_t number = 0;
    if (!line.starts_with(start))
        return line.starts_with("{\"event\":\"resume\"") || line.starts_with("{\"event\":\"checkpoint\"");
    line.remove_prefix(start.size());
    auto const [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    return error == std::errc() && number <= step;
}

} // namespace train_lm

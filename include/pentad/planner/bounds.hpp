// Room: planner (pure host C++). What a configuration takes at least, in little time: every rank's own work without
// waiting, its weights without padding, and activations as the schedule holds them.
#pragma once

#include <pentad/planner/account.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/planner/pipelines.hpp>
#include <pentad/planner/rates.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

namespace pentad::planner {

/// Bounds of the configurations that share a mesh, a micro-batch, recomputation and sequence parallelism: of those that
/// arrange(), place() and shard() were last called for, in this order.
class Bounds {
  public:
    Bounds(Model const& model, Hardware const& hardware, Configuration const& c)
        : model_(&model), hardware_(&hardware), account_(model, c), workspace_(workspace_of(model, c)) {}

    /// For another schedule.
    void arrange(Configuration const& c, Pipelines& pipelines) {
        auto const& schedule = pipelines.schedule(c);
        auto const& counts = pipelines.in_flight(c);
        shapes_ = stage_shapes(*model_, schedule.stages());
        copies_ = static_cast<double>(schedule.placements.size());
        // Where backward passes are whole, the last one of a rank has to go back through the stages before.
        goes_back_ = true;
        for (auto const& instruction : schedule.instructions.front())
            if (instruction.operation == pipeline::Operation::backward_data) goes_back_ = false;
        ranks_.assign(static_cast<std::size_t>(schedule.ranks()), {});
        for (int rank = 0; rank < schedule.ranks(); ++rank) {
            auto& held = ranks_[static_cast<std::size_t>(rank)];
            double least = -1;
            for (int stage = 0; stage < schedule.stages(); ++stage) {
                if (!schedule.has_stage(rank, stage)) continue;
                held.stages.push_back(static_cast<std::size_t>(stage));
                double saved = 0;
                account_.for_each_kind(shapes_[static_cast<std::size_t>(stage)],
                                       [&](PartAccount const& part, double count) { saved += count * part.saved; });
                least = least < 0 ? saved : std::min(least, saved);
            }
            held.activations = least * static_cast<double>(counts[static_cast<std::size_t>(rank)]);
        }
    }
    /// For another order of the axes; for any of them.
    void place(Configuration const& c) { place(c, Rates(*hardware_, c)); }
    void place_anyhow(Configuration const& c) { place(c, Rates::of_any_order(*hardware_, c)); }
    /// Seconds of a step by any schedule and in any order: the work dealt evenly, and nothing to synchronise.
    [[nodiscard]] double least_seconds(Configuration const& c) const {
        auto const rates = Rates::of_any_order(*hardware_, c);
        detail::StageTimes const times(account_, rates, c);
        StageShape const whole{0, model_->layers, layers_with_experts(*model_, 0, model_->layers), true, true};
        return static_cast<double>(c.micro_batches()) * times.of(whole).seconds() / static_cast<double>(c.pp) *
               (1 - 1e-6);
    }
    /// For another stage of ZeRO.
    void shard(Configuration const& c) {
        auto const parts = account_.parts();
        std::array<Memory, 4> memory{};
        std::array<Synchronisation, 4> sent{};
        auto const mesh = mesh_of(c, *model_, static_cast<int>(copies_));
        for (std::size_t i = 0; i < parts.size(); ++i)
            for (auto const& weight : parts[i]->weights) {
                auto like = weight;
                like.shards = zero_shards(weight.gradient_axes, c, mesh);
                Bucket const bucket{like, weight.elements};
                add_bucket(memory[i], bucket, c);
                add_synchronisation(sent[i], bucket, c, mesh);
            }
        seconds_ = bytes_ = 0;
        for (auto const& rank : ranks_) {
            Memory held{.activations = rank.activations, .workspace = workspace_};
            Synchronisation sum;
            for (auto const stage : rank.stages)
                account_.for_each_kind(shapes_[stage], [&](PartAccount const& part, double count) {
                    auto const i = account_.index_of(part);
                    held.weights += count * memory[i].weights;
                    held.gradients += count * memory[i].gradients;
                    held.optimizer += count * memory[i].optimizer;
                    sum.add(sent[i], count);
                });
            bytes_ = std::max(bytes_, held.total());
            seconds_ =
                std::max(seconds_, run_ + detail::synchronise(sum, c, *rates_) + detail::update(held, *hardware_));
        }
    }

    /// As many neighbours along dp as the nearest links join.
    [[nodiscard]] std::int64_t near_ranks() const { return rates_->near_ranks(dp::name); }

    // A little less, for sums that are rounded in another order.
    [[nodiscard]] double seconds() const { return seconds_ * (1 - 1e-6); }
    /// Without what ZeRO's stages synchronise.
    [[nodiscard]] double unsynchronised() const { return run_ * (1 - 1e-6); }
    [[nodiscard]] double bytes() const { return bytes_ * (1 - 1e-9); }

  private:
    void place(Configuration const& c, Rates const& rates) {
        rates_.emplace(rates);
        detail::StageTimes const times(account_, *rates_, c);
        std::vector<double> seconds, before(1, 0.0); // before[i]: through the stages before i
        for (auto const& shape : shapes_) {
            auto const time = times.of(shape);
            seconds.push_back(time.seconds());
            before.push_back(before.back() + (goes_back_ ? time.seconds() : time.forward.seconds()));
        }
        run_ = 0;
        double all = 0;
        double const m = static_cast<double>(c.micro_batches()) / copies_;
        for (auto const& rank : ranks_) {
            double busy = 0;
            for (auto const stage : rank.stages) busy += seconds[stage];
            all += m * busy;
            run_ = std::max(run_, m * busy + before[rank.stages.front()]);
        }
        run_ -= hardware_->sharing * (run_ - all / static_cast<double>(ranks_.size()));
    }

    struct Rank {
        std::vector<std::size_t> stages;
        double activations = 0;
    };

    Model const* model_;
    Hardware const* hardware_;
    Account account_;
    double workspace_, copies_ = 1, run_ = 0, seconds_ = 0, bytes_ = 0;
    bool goes_back_ = true;
    std::vector<StageShape> shapes_;
    std::vector<Rank> ranks_; ///< of the pipeline
    std::optional<Rates> rates_;
};

} // namespace pentad::planner

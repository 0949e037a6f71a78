// What a configuration takes at least, in little time: every rank's own work without
// waiting, its weights without padding, and activations as the schedule holds them.
#pragma once

#include <pentad/planner/account.hpp>
#include <pentad/planner/detail/rates.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/planner/pipelines.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace pentad::planner {

/// Bounds of the configurations that share a mesh, a micro-batch, recomputation and sequence parallelism: of those that
/// arrange(), place() and shard() were last called for, in this order.
class Bounds {
  public:
    Bounds(Model const& model, Hardware const& hardware, Configuration const& c)
        : model_(&model), hardware_(&hardware) {
        for (auto const nodes : dispatch_nodes_in_any_order(model, c, hardware.devices_per_node))
            accounts_.push_back({nodes, Account(model, c, 1, nodes)});
        for (auto const& part : account().parts()) {
            auto& groups = groups_.emplace_back();
            part.for_each_parameter([&](ParameterAccount const& parameter) {
                for (auto& group : groups)
                    if (group.like->gradient == parameter.gradient && group.like->acquired == parameter.acquired) {
                        group.elements += parameter.elements;
                        return;
                    }
                groups.push_back({.like = &parameter,
                                  .elements = parameter.elements,
                                  .acquired = static_cast<double>(parameter.acquired)});
            });
        }
    }

    /// For another schedule.
    void arrange(Configuration const& c, Pipelines& pipelines) {
        auto const& schedule = pipelines.schedule(c);
        auto const& counts = pipelines.in_flight(c);
        shapes_ = stage_shapes(*model_, schedule.stages());
        copies_ = static_cast<double>(schedule.placements.size());
        // Where backward passes are whole, the last one of a rank has to go back through the stages before.
        goes_back_ = !splits_backward(schedule);
        workspace_ = std::numeric_limits<double>::infinity();
        for (auto const& [nodes, account] : accounts_)
            workspace_ = std::min(workspace_, account.workspace(!goes_back_));
        ranks_.assign(static_cast<std::size_t>(schedule.ranks()), {});
        for (int rank = 0; rank < schedule.ranks(); ++rank) {
            auto& held = ranks_[static_cast<std::size_t>(rank)];
            double least = -1;
            for (int stage = 0; stage < schedule.stages(); ++stage) {
                if (!schedule.has_stage(rank, stage)) continue;
                held.stages.push_back(static_cast<std::size_t>(stage));
                for (auto const& [nodes, account] : accounts_) {
                    double saved = 0;
                    account.for_each_kind(
                        shapes_[static_cast<std::size_t>(stage)],
                        [&](MeshPart const& part, double count) { saved += count * part.sums->saved; });
                    least = least < 0 ? saved : std::min(least, saved);
                }
            }
            held.activations = least * static_cast<double>(counts[static_cast<std::size_t>(rank)]);
        }
    }
    /// For another order of the axes; for any of them.
    void place(Configuration const& c) {
        rates_.emplace(*hardware_, c);
        auto const nodes = dispatch_nodes(*model_, c, hardware_->devices_per_node);
        auto const is_it = [nodes](ByNodes const& account) { return account.nodes == nodes; };
        run_ = run(c, *rates_, std::find_if(accounts_.begin(), accounts_.end(), is_it)->account);
    }
    void place_anyhow(Configuration const& c) {
        run_ = std::numeric_limits<double>::infinity();
        for (auto const& [nodes, account] : accounts_) {
            rates_.emplace(Rates::of_any_order(*hardware_, c, nodes));
            run_ = std::min(run_, run(c, *rates_, account));
        }
    }
    /// Seconds of a step by any schedule and in any order: the work dealt evenly, and nothing to synchronise.
    [[nodiscard]] double least_seconds(Configuration const& c) const {
        auto const whole = stage_shapes(*model_, 1).front();
        double least = std::numeric_limits<double>::infinity();
        for (auto const& [nodes, account] : accounts_) {
            auto const rates = Rates::of_any_order(*hardware_, c, nodes);
            least = std::min(least, detail::StageTimes(account, rates).of(whole).seconds());
        }
        return static_cast<double>(c.micro_batches()) * least / static_cast<double>(c.pp) * (1 - 1e-6);
    }
    /// For another stage of ZeRO.
    void shard(Configuration const& c) {
        auto const& parts = account().parts();
        std::vector<Memory> memory(parts.size());
        std::vector<Synchronisation> sent(parts.size());
        auto const mesh = mesh_of(c, *model_, static_cast<int>(copies_));
        for (std::size_t i = 0; i < parts.size(); ++i)
            for (auto bucket : groups_[i]) {
                bucket.shards = zero_shards(bucket.like->gradient, c, mesh);
                bucket.parts = zero_shards(bucket.like->gradient, c, mesh, true);
                add_bucket(memory[i], bucket, c);
                add_synchronisation(sent[i], bucket, c, mesh, static_cast<double>(c.micro_batches()) / copies_);
            }
        seconds_ = bytes_ = 0;
        for (auto const& rank : ranks_) {
            Memory held{.activations = rank.activations, .workspace = workspace_};
            Synchronisation sum;
            for (auto const stage : rank.stages)
                account().for_each_kind(shapes_[stage], [&](MeshPart const& part, double count) {
                    auto const i = account().index_of(part);
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
    /// Seconds of the micro-batches.
    [[nodiscard]] double run(Configuration const& c, Rates const& rates, Account const& account) const {
        detail::StageTimes const times(account, rates);
        std::vector<double> seconds, before(1, 0.0); // before[i]: through the stages before i
        for (auto const& shape : shapes_) {
            auto const time = times.of(shape);
            seconds.push_back(time.seconds());
            before.push_back(before.back() + (goes_back_ ? time.seconds() : time.forward.seconds()));
        }
        double longest = 0, all = 0;
        double const m = static_cast<double>(c.micro_batches()) / copies_;
        for (auto const& rank : ranks_) {
            double busy = 0;
            for (auto const stage : rank.stages) busy += seconds[stage];
            all += m * busy;
            longest = std::max(longest, m * busy + before[rank.stages.front()]);
        }
        return longest - hardware_->sharing * (longest - all / static_cast<double>(ranks_.size()));
    }

    struct Rank {
        std::vector<std::size_t> stages;
        double activations = 0;
    };
    /// They differ in what dispatch sends and keeps.
    struct ByNodes {
        std::int64_t nodes;
        Account account;
    };
    [[nodiscard]] Account const& account() const { return accounts_.front().account; }

    Model const* model_;
    Hardware const* hardware_;
    std::vector<ByNodes> accounts_; ///< for each number of nodes that dispatch goes to in some order of the axes
    std::vector<std::vector<Bucket>> groups_; ///< of each part the parameters whose gradients are reduced alike
    double workspace_ = 0, copies_ = 1, run_ = 0, seconds_ = 0, bytes_ = 0;
    bool goes_back_ = true;
    std::vector<StageShape> shapes_;
    std::vector<Rank> ranks_; ///< of the pipeline
    std::optional<Rates> rates_;
};

} // namespace pentad::planner

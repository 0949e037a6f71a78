// What a configuration takes at least, in little time: every rank's own work without
// waiting, its weights without padding, and activations as the schedule holds them.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/planner/account.hpp>
#include <pentad/planner/automatic_recomputation.hpp>
#include <pentad/planner/detail/rates.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/planner/pipelines.hpp>
#include <pentad/planner/stage_layers.hpp>
#include <pentad/planner/stage_times.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::planner {

using namespace ml;

/// Bounds of the configurations that share a mesh, a micro-batch, recomputation and sequence parallelism: of those that
/// arrange(), place() and shard() were last called for, in this order.
class Bounds {
  public:
    Bounds(Model const& model, Hardware const& hardware, Strategy const& c)
        : model_(&model), hardware_(&hardware),
          takes_what_is_there_(c.recompute.kind == model::Recomputation::Kind::automatic) {
        for (auto const nodes : dispatch_nodes_in_any_order(model, c, hardware.devices_per_node))
            accounts_.push_back({nodes, Account(model, c, 1, nodes), {}});
        if (takes_what_is_there_) {
            auto whole = c;
            whole.recompute = {.kind = model::Recomputation::Kind::full};
            for (auto& account : accounts_) account.least.emplace(model, whole, 1, account.nodes);
        }
        for (auto const& part : account().parts()) {
            auto& groups = groups_.emplace_back();
            part.for_each_parameter([&](ParameterAccount const& parameter) {
                for (auto& group : groups)
                    if (group.like->gradient == parameter.gradient && group.like->acquired == parameter.acquired &&
                        are_updated_alike(*group.like, parameter, c.optimizer)) {
                        group.elements += parameter.elements;
                        return;
                    }
                groups.push_back({.like = &parameter, .elements = parameter.elements});
            });
        }
    }

    Bounds(Bounds const&) = delete;
    Bounds& operator=(Bounds const&) = delete;

    /// For another schedule.
    void arrange(Strategy const& c, Pipelines& pipelines) {
        auto const& schedule = pipelines.schedule(c);
        auto const& moments = pipelines.held(c);
        shapes_ = stage_shapes(*model_, c, schedule.stages());
        copies_ = static_cast<double>(schedule.placements.size());
        // Where backward passes are whole, the last one of a rank has to go back through the stages before.
        goes_back_ = !splits_backward(schedule);
        has_pairs_ = pipeline::has_pairs(schedule);
        ranks_.assign(static_cast<std::size_t>(schedule.ranks()), {});
        holders_.clear();
        sharded_holders_.clear();
        for (int number = 0; number < schedule.ranks(); ++number) {
            auto const rank = static_cast<std::size_t>(number);
            for (int stage = 0; stage < schedule.stages(); ++stage)
                if (schedule.has_stage(number, stage)) ranks_[rank].push_back(static_cast<std::size_t>(stage));
            Holder holder{std::vector<double>(account().parts().size()), std::numeric_limits<double>::infinity()};
            for (auto const stage : ranks_[rank])
                account().for_each_kind(shapes_[stage], [&](MeshPart const& part, double count) {
                    holder.parts[account().index_of(part)] += count;
                });
            for (auto const& one : accounts_)
                holder.activations = std::min(holder.activations, message_bytes(one.account, schedule) +
                                                                      held(one, ranks_[rank], moments[rank]));
            auto const same = std::find_if(holders_.begin(), holders_.end(),
                                           [&](Holder const& other) { return other.parts == holder.parts; });
            if (same == holders_.end())
                holders_.push_back(std::move(holder));
            else
                same->activations = std::max(same->activations, holder.activations);
        }
    }
    /// The layers of so many stages with which the slowest of them is as fast as can be (balanced_layers()), in the
    /// order of the axes in which stages are fastest.
    [[nodiscard]] std::vector<std::int64_t> const& balanced_layers(Strategy const& c, std::int64_t stages) {
        auto& known = balanced_[stages];
        if (known.empty()) {
            auto const& [nodes, account, keeps_least] = accounts_.front();
            known = planner::balanced_layers(*model_, c, account, Rates::of_any_order(*hardware_, c, nodes), stages);
        }
        return known;
    }
    /// For another order of the axes; for any of them.
    void place(Strategy const& c) {
        auto found =
            std::find_if(placed_.begin(), placed_.end(), [&](Placed const& known) { return known.order == c.order; });
        if (found == placed_.end()) {
            auto const nodes = dispatch_nodes(*model_, c, hardware_->devices_per_node);
            found = placed_.emplace(found, c.order, Rates(*hardware_, c), account_on(nodes));
        }
        here_ = &*found;
        run_ = run(c, found->times);
    }
    void place_anyhow(Strategy const& c) {
        if (anyhow_.empty())
            for (auto const& [nodes, account, keeps_least] : accounts_)
                anyhow_.emplace_back(c.order, Rates::of_any_order(*hardware_, c, nodes), account);
        run_ = std::numeric_limits<double>::infinity();
        for (auto const& placed : anyhow_) run_ = std::min(run_, run(c, placed.times));
        here_ = &anyhow_.back();
    }
    /// For another stage of ZeRO.
    void shard(Strategy const& c) {
        seconds_ = bytes_ = 0;
        for (auto const& [memory, sent] : sharded_holders(c)) {
            bytes_ = std::max(bytes_, memory.total());
            seconds_ = std::max(seconds_,
                                run_ + detail::synchronise(sent, c, here_->rates) + detail::update(memory, *hardware_));
        }
    }

    /// As many neighbours along dp as the nearest links join.
    [[nodiscard]] std::int64_t near_ranks() const { return here_->rates.near_ranks(dp::name); }

    /// Seconds with what automatic recomputation adds at least, where some choice fits: see least_recomputed_seconds().
    [[nodiscard]] double seconds_recomputing(Strategy const& c, Pipelines& pipelines) const {
        auto const added = least_recomputed_seconds(*model_, *hardware_, c, pipelines, has_pairs_);
        if (std::find(added.begin(), added.end(), std::numeric_limits<double>::infinity()) != added.end())
            return seconds();
        return (seconds_ - run_ + run(c, here_->times, added)) * (1 - 1e-6);
    }

    // A little less, for sums that are rounded in another order.
    [[nodiscard]] double seconds() const { return seconds_ * (1 - 1e-6); }
    /// Without what ZeRO's stages synchronise.
    [[nodiscard]] double unsynchronised() const { return run_ * (1 - 1e-6); }
    [[nodiscard]] double bytes() const { return bytes_ * (1 - 1e-9); }
    /// Bytes for the front of memory against time: automatic recomputation fills the memory.
    [[nodiscard]] double weighed_bytes() const {
        return takes_what_is_there_ ? std::max(bytes(), hardware_->memory_bytes) : bytes();
    }

  private:
    /// They differ in what dispatch sends and keeps.
    struct ByNodes {
        std::int64_t nodes;
        Account account;
        std::optional<Account> least; ///< with automatic recomputation: of blocks that keep the least
    };
    /// Rates, and times of the stages, in an order of the axes: the same for all schedules.
    struct Placed {
        Placed(std::array<std::string_view, axis_order.size()> axes, Rates of, Account const& account)
            : order(axes), rates(std::move(of)), times(account, rates) {}
        std::array<std::string_view, axis_order.size()> order;
        Rates rates;
        detail::StageTimes times;
    };
    /// Ranks of the pipeline that have as many of each part.
    struct Holder {
        std::vector<double> parts; ///< as many of each
        double activations;        ///< bytes, with what passes need for a while
    };
    /// What ranks hold and send with a sharding.
    struct Sharded {
        Memory memory;
        Synchronisation sent;
    };
    struct BySharding {
        ZeroSharding sharding;
        double copies; ///< of each stage
        std::vector<Sharded> of;
    };

    /// Bytes of activations of a rank at the least. What automatic recomputation needs for a while is not known.
    [[nodiscard]] double held(ByNodes const& by_nodes, std::vector<std::size_t> const& stages,
                              std::vector<HeldMoment> const& moments) const {
        auto const& [nodes, account, keeps_least] = by_nodes;
        std::vector<PartMemory> least; // of each of the account's parts
        for (std::size_t i = 0; i < account.parts().size(); ++i) {
            auto& memory = least.emplace_back(account.parts()[i].memory);
            if (!keeps_least || i == 0 || i + 1 == account.parts().size()) continue;
            auto const& other = keeps_least->parts()[i].memory;
            memory.saved = memory.forward = memory.backward_data = std::min(memory.saved, other.saved);
            memory.left = memory.backward_weight = std::min(memory.left, other.left);
        }
        std::vector<HeldPart> parts;
        for (auto const stage : stages)
            account.for_each_part(shapes_[stage], [&](MeshPart const& part) {
                parts.push_back({stage, &least[account.index_of(part)]});
            });
        return most_held(moments, parts, account.stream());
    }
    /// What each part holds and sends as the configuration shards. It does not depend on the order of the axes.
    [[nodiscard]] std::vector<Sharded> const& sharded_parts(Strategy const& c) {
        if (auto const* const known = find(sharded_parts_, c.sharding, copies_)) return *known;
        auto& parts = sharded_parts_.emplace_back(BySharding{c.sharding, copies_, {}}).of;
        parts.resize(account().parts().size());
        auto const mesh = mesh_of(c, *model_, static_cast<int>(copies_));
        for (std::size_t i = 0; i < parts.size(); ++i)
            for (auto const& group : groups_[i]) {
                auto bucket = bucket_of(*group.like, c, mesh);
                bucket.elements = group.elements;
                add_bucket(parts[i].memory, bucket, c, 1);
                add_synchronisation(parts[i].sent, bucket, c, mesh, static_cast<double>(c.micro_batches) / copies_);
            }
        return parts;
    }
    /// What sharded_parts() has, of the ranks of each holder.
    [[nodiscard]] std::vector<Sharded> const& sharded_holders(Strategy const& c) {
        if (auto const* const known = find(sharded_holders_, c.sharding, copies_)) return *known;
        auto const& parts = sharded_parts(c);
        auto& result = sharded_holders_.emplace_back(BySharding{c.sharding, copies_, {}}).of;
        for (auto const& holder : holders_) {
            auto& sum = result.emplace_back();
            sum.memory.activations = holder.activations;
            for (std::size_t i = 0; i < parts.size(); ++i) {
                double const count = holder.parts[i];
                if (count == 0) continue;
                sum.memory.weights += count * parts[i].memory.weights;
                sum.memory.gradients += count * parts[i].memory.gradients;
                sum.memory.optimizer += count * parts[i].memory.optimizer;
                sum.memory.offloaded += count * parts[i].memory.offloaded;
                sum.sent.add(parts[i].sent, count);
            }
        }
        return result;
    }
    [[nodiscard]] static std::vector<Sharded> const* find(std::vector<BySharding> const& all, ZeroSharding const& a,
                                                          double copies) {
        auto const is_of = [&](BySharding const& one) {
            auto const& b = one.sharding;
            return a.stage == b.stage && a.ranks == b.ranks && a.keeps_parameters == b.keeps_parameters &&
                   a.accumulates_gradients == b.accumulates_gradients && a.releases_gradients == b.releases_gradients &&
                   copies == one.copies;
        };
        auto const found = std::find_if(all.begin(), all.end(), is_of);
        return found == all.end() ? nullptr : &found->of;
    }
    /// Seconds of the micro-batches.
    /// @param added to what each rank's device computes for one
    [[nodiscard]] double run(Strategy const& c, detail::StageTimes const& times,
                             std::vector<double> const& added = {}) const {
        std::vector<double> seconds, computed, before(1, 0.0); // before[i]: through the stages before i
        for (auto const& shape : shapes_) {
            auto const time = times.passes_of(shape);
            seconds.push_back(has_pairs_ ? time.paired_seconds() : time.seconds());
            computed.push_back(time.device() - (has_pairs_ ? time.exchanges() : 0));
            before.push_back(before.back() + (goes_back_ ? seconds.back() : time.forward.seconds()));
        }
        double longest = 0, all = 0;
        double const m = static_cast<double>(c.micro_batches) / copies_;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            double busy = 0, computing = added.empty() ? 0 : added[rank];
            for (auto const stage : ranks_[rank]) {
                busy += seconds[stage];
                computing += computed[stage];
            }
            if (!added.empty()) busy = std::max(busy, computing);
            all += m * busy;
            longest = std::max(longest, m * busy + before[ranks_[rank].front()]);
        }
        return longest - hardware_->sharing * (longest - all / static_cast<double>(ranks_.size()));
    }

    [[nodiscard]] Account const& account_on(std::int64_t nodes) const {
        auto const is_it = [nodes](ByNodes const& account) { return account.nodes == nodes; };
        return std::find_if(accounts_.begin(), accounts_.end(), is_it)->account;
    }
    [[nodiscard]] Account const& account() const { return accounts_.front().account; }

    Model const* model_;
    Hardware const* hardware_;
    bool takes_what_is_there_;      ///< its recomputation is automatic
    std::vector<ByNodes> accounts_; ///< for each number of nodes that dispatch goes to in some order of the axes
    std::vector<std::vector<Bucket>> groups_; ///< of each part the parameters whose gradients are reduced alike
    double copies_ = 1, run_ = 0, seconds_ = 0, bytes_ = 0;
    bool goes_back_ = true, has_pairs_ = false;
    std::map<std::int64_t, std::vector<std::int64_t>> balanced_; ///< by how many stages
    std::vector<StageShape> shapes_;
    std::vector<std::vector<std::size_t>> ranks_; ///< the stages of each rank of the pipeline
    std::vector<Holder> holders_;
    std::vector<BySharding> sharded_parts_, sharded_holders_; ///< those that were asked for; holders are a schedule's
    std::deque<Placed> placed_, anyhow_; ///< in the orders that were asked for; in any order on each number of nodes
    Placed const* here_ = nullptr;
};

} // namespace pentad::planner

// A run on a mesh: how the mesh and the stream cut its sequences and its parts, and whether it can be.
#pragma once

#include <pentad/comm/axis_communicator.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/model/batch_shape.hpp>
#include <pentad/model/part_ranks.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/precision.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/strategy/why_not.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/train/stages.hpp>
#include <pentad/zero/layouts.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace pentad::train {

using namespace ml;

/// Refers to its arguments, which must outlive it.
class RunOnMesh {
  public:
    /// @param stream the layout of the residual stream @param element of weights and activations
    RunOnMesh(comm::Communicators const& known, LayoutValue const& stream, model::Element element,
              RunSettings const& settings, pipeline::Schedule const& schedule)
        : known_(&known), stream_(&stream), element_(element), settings_(&settings), schedule_(&schedule) {}

    /// The ranks of the mesh and the stream, as parts share themselves out to them.
    [[nodiscard]] model::PartRanks part_ranks() const;
    [[nodiscard]] model::BatchShape batch_shape() const;
    [[nodiscard]] std::size_t padded_seq() const { return static_cast<std::size_t>(batch_shape().padded_seq()); }
    /// The strategy with the extents of the mesh.
    [[nodiscard]] Strategy on_the_mesh() const {
        auto strategy = settings_->strategy;
        strategy.element = element_;
        strategy.dp = known_->extent(dp::name), strategy.ep = 1; // which are one axis for all but experts
        strategy.cp = known_->extent(cp::name), strategy.tp = known_->extent(tp::name);
        auto const on = part_ranks();
        strategy.experts = model::ExpertMesh{static_cast<int>(on.ep), static_cast<int>(on.etp)};
        return strategy;
    }
    /// Groups that train apart: how many.
    [[nodiscard]] double groups() const {
        return settings_->strategy.local.is_on() ? known_->extent(outer<dp>::name) : 1;
    }
    /// The setup of the layers that lie on their ranks so. @param states of what they keep of sequences
    template <class Exec>
    [[nodiscard]] LayerSetup<Exec> layer_setup(Context<Exec> const& context, model::BlockStrategy const& block,
                                               StateRegistry& states) const {
        auto const& s = settings_->strategy;
        auto const slices = static_cast<std::size_t>(schedule_->slices);
        return {.context = context,
                .hidden = settings_->model.hidden,
                .norm_epsilon = settings_->model.norm_epsilon,
                .batch = static_cast<std::size_t>(s.batch / s.micro_batches),
                .seq = padded_seq() / slices,
                .slices = slices,
                .padding = padded_seq() - static_cast<std::size_t>(s.seq),
                .block = block,
                .rows = s.precision.rows,
                .micro_batches =
                    static_cast<double>(s.micro_batches) / static_cast<double>(schedule_->rounds()) / groups(),
                .states = &states};
    }
    /// @throws std::invalid_argument where the settings do not fit the mesh, the stream or the schedule
    void require_fit() const;

  private:
    void require_fit_on_grid() const;

    comm::Communicators const* known_;
    LayoutValue const* stream_;
    model::Element element_;
    RunSettings const* settings_;
    pipeline::Schedule const* schedule_;
};

inline model::PartRanks RunOnMesh::part_ranks() const {
    auto ranks = model::PartRanks::of_tensor(model::TensorKind::one_d, known_->extent(tp::name));
    ranks.cp = known_->extent(cp::name);
    ranks.context = {settings_->strategy.block.context, known_->extent(inner<cp>::name)};
    for (auto const& axis : known_->mesh()) { // a mesh need not have those of experts
        if (axis.name == ep::name) ranks.ep = axis.extent;
        if (axis.name == etp::name) ranks.etp = axis.extent;
    }
    if (!is_on_grid(*stream_)) return ranks;
    model::TensorFactors const grid{known_->extent(TensorGrid::first::name), known_->extent(TensorGrid::second::name),
                                    known_->extent(TensorGrid::columns::name)};
    ranks.tensor_kind = is_cube(*stream_) ? model::TensorKind::three_d
                        : grid.first > 1  ? model::TensorKind::two_and_half_d
                                          : model::TensorKind::two_d;
    ranks.by = model::divisors(ranks.tensor_kind, grid);
    ranks.ranks_of_heads = grid.columns;
    return ranks;
}

inline model::BatchShape RunOnMesh::batch_shape() const {
    auto const& s = settings_->strategy;
    auto const axes_of = [&](std::size_t dimension) {
        model::NamedProduct axes;
        for (auto const name : stream_->dimensions[dimension].axes)
            if (whole_axis_name(name) != tp::name || !is_on_grid(*stream_)) axes.times(name, known_->extent(name));
        return axes;
    };
    auto seq_axes = axes_of(1);
    bool const has_experts = settings_->model.first<model::Experts>() != nullptr;
    bool const deals =
        model::deals_to_tp(s.block.attention_output, has_experts) || (!s.blocks.empty() && s.deals_to_tp(has_experts));
    if (deals && !stream_->dimensions[1].axes.contains(tp::name)) seq_axes.times(tp::name, known_->extent(tp::name));
    return {.batch = s.batch,
            .micro_batches = s.micro_batches,
            .seq = s.seq,
            .slices = schedule_->slices,
            .batch_axes = model::batch_axes(axes_of(0), part_ranks().by),
            .seq_axes = seq_axes,
            .zigzag = s.block.zigzag,
            .head_ranks = head_ranks(s.block.context, known_->extent(outer<cp>::name), known_->extent(inner<cp>::name)),
            .multiple = on_the_mesh().multiple_of_blocks(has_experts)};
}

inline void RunOnMesh::require_fit() const {
    auto const refuse = [](std::string const& why) { throw std::invalid_argument(why); };
    auto const strategy = on_the_mesh();
    if (auto const refused = blocks_refusal(settings_->model, strategy)) refuse(refused->why); // before they are used
    if (auto const refused = batch_shape().refusal()) refuse(refused->message());
    if (auto const refused = schedule_misfit(*schedule_, *settings_, known_->extent("pp"))) refuse(refused->why);
    if (known_->extent("inner(pp)") != static_cast<int>(schedule_->placements.size()) ||
        (schedule_->ranks() > 1 && (known_->extent("ends(pp)") == 1) != pipeline::ends_meet(*schedule_)))
        refuse("schedule = " + schedule_->name + " wants another mesh: make it with for_schedule(mesh, schedule)");
    if (batch_shape().padded_seq() > strategy.seq)
        if (auto const why = model::padding_refusal(settings_->model); !why.empty())
            refuse(stated("seq", strategy.seq) + " is padded on this mesh, and " + why + ": make it " +
                   std::to_string(padded_seq()));
    if (settings_->packing)
        if (auto const why = model::packing_refusal(settings_->model); !why.empty())
            refuse("documents are packed, and " + why + ": train without packing");
    bool const has_meshes = std::any_of(strategy.blocks.begin(), strategy.blocks.end(),
                                        [](auto const& block) { return block.mesh.has_value(); });
    if (has_meshes && settings_->packing)
        refuse("documents are packed, and blocks have meshes of their own: train without one of them");
    if (has_meshes && model::sees_later_tokens(settings_->model) && batch_shape().padded_seq() > strategy.seq)
        refuse(stated("seq", strategy.seq) +
               " is padded for blocks with meshes of their own, and tokens of the model "
               "see later ones: make it " +
               std::to_string(padded_seq()));
    if (is_on_grid(*stream_)) require_fit_on_grid();
    for (auto const& refused : {model::part_refusal(settings_->model, part_ranks()), state_refusal(strategy)})
        if (refused) refuse(refused->why);
    if (strategy.fp8_products)
        refuse("fp8_products = on is planned alone: layers multiply in the element of the trainer");
    if (strategy.recompute.kind == model::Recomputation::Kind::automatic)
        refuse("automatic recomputation needs a memory limit: plan it with train::planned_recomputation()");
    if (strategy.local.is_on() && settings_->model.first<model::Experts>() != nullptr)
        zero::require_whole_copies(*known_); // on all ranks, also those of stages without experts
    if (strategy.local.is_on() && groups() < 2)
        refuse(stated("local.steps", strategy.local.steps) + " with " + stated("local.ranks", strategy.local.ranks) +
               ": there is one group, with none to average with");
    if (strategy.local.is_on() && settings_->rebalance_every > 0)
        refuse("with local steps experts do not move: the state of the groups differs");
}

inline void RunOnMesh::require_fit_on_grid() const {
    auto const refuse = [](std::string const& why) { throw std::invalid_argument(why); };
    auto const& s = settings_->strategy;
    if (auto const refused = model::grid_refusal(settings_->model, part_ranks().tensor_kind, s.block.attention_output))
        refuse(refused->why);
    std::string const grid = "tensor parallelism on a grid ";
    if (settings_->packing) refuse(grid + "does not pack documents: use one dimension");
    if (model::sees_later_tokens(settings_->model) && batch_shape().padded_seq() > s.seq)
        refuse(grid + "pads no sequences whose attention is not causal: give it " + std::to_string(padded_seq()) +
               " tokens, or use one dimension");
}

} // namespace pentad::train

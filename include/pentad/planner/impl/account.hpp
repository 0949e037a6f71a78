// The functions of <pentad/planner/account.hpp>.
#pragma once

#include <pentad/planner/account.hpp>

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/transfer.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/model/block_mesh.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/pipeline/dealt_layers.hpp>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace pentad::planner {

PENTAD_INLINE MeshAxes mesh_of(Strategy const& c, Model const& model, int copies, std::int64_t nodes, bool ends_meet) {
    auto const on = c.expert_mesh();
    auto const heads = model::tensor_split(model.description(), c.block.tensor_kind, static_cast<int>(c.tp));
    auto mesh = c.views()
                    .split<tp>(heads.inner)
                    .split<inner<tp>>(heads.innermost)
                    .split<cp>(static_cast<int>(c.block.inner_cp));
    mesh = mesh.split<pp>(copies).split<ep>(on.ep / static_cast<int>(nodes));
    if (ends_meet) mesh = mesh.joined<pp>();
    int const neighbours = c.local.is_on() ? c.local.ranks : c.sharding.ranks;
    return (neighbours > 0 ? model::split_data(mesh, neighbours) : mesh).axes();
}

PENTAD_INLINE AlikeLayers::AlikeLayers(Model const& model, Strategy const& c) {
    for (std::int64_t layer = 0; layer < model.layers(); ++layer) {
        auto const at = static_cast<std::size_t>(layer);
        Alike const one{model.kind_of(layer), c.recompute.of(at), c.of_block(at), c.before_block(at)};
        auto const found = std::find(alike.begin(), alike.end(), one);
        of_layer.push_back(static_cast<std::size_t>(found - alike.begin()));
        if (found == alike.end()) alike.push_back(one);
    }
}

PENTAD_INLINE std::vector<StageShape> stage_shapes(Model const& model, Strategy const& c,
                                                   std::vector<std::int64_t> const& layers) {
    AlikeLayers const kinds(model, c);
    std::vector<StageShape> shapes;
    std::int64_t first = 0;
    for (std::size_t stage = 0; stage < layers.size(); ++stage) {
        auto& shape = shapes.emplace_back();
        shape = {first, layers[stage], std::vector<double>(kinds.alike.size()), stage == 0, stage + 1 == layers.size()};
        for (std::int64_t i = 0; i < shape.count; ++i)
            ++shape.of_kind[kinds.of_layer[static_cast<std::size_t>(first++)]];
    }
    return shapes;
}

PENTAD_INLINE std::vector<StageShape> stage_shapes(Model const& model, Strategy const& c, std::int64_t stages) {
    if (!c.stage_layers.empty()) return stage_shapes(model, c, c.stage_layers);
    if (stages > model.layers())
        throw std::invalid_argument(std::to_string(stages) + " stages of the pipeline are more than the " +
                                    std::to_string(model.layers()) + " layers");
    return stage_shapes(model, c, pipeline::dealt_layers(model.layers(), stages));
}

PENTAD_INLINE void Synchronisation::add(Synchronisation const& other, double times) {
    reduce.add(other.reduce, times);
    gather.add(other.gather, times);
    near.add(other.near, times);
    neighbours = other.neighbours;
}

PENTAD_INLINE void add_matrix_cost(Cost& gather, Cost& reduce, Bucket const& bucket, Strategy const& c,
                                   std::span<MeshAxisValue const> mesh) {
    if (bucket.matrices.empty()) return;
    double const whole = accumulator_size(c.element) * bucket.elements;
    add_scatter_cost(gather, mesh, bucket.axes.shards, whole);
    add_scatter_cost(reduce, mesh, bucket.axes.shards, whole);
    add_scatter_cost(reduce, mesh, bucket.axes.copied, 2 * whole / bucket.shards);
    for (auto const* const parameter : bucket.matrices) {
        auto const& sent = parameter->matrices.sent;
        for (std::size_t i = 0; i < sent.axes.size(); ++i) gather.add(sent.axes[i], sent.bytes[i]);
    }
}

PENTAD_INLINE void add_synchronisation(Synchronisation& sum, Bucket const& bucket, Strategy const& c,
                                       std::span<MeshAxisValue const> mesh, double passes) {
    double const gradient = compact_size(precision_of(bucket, c).reduce, c.element) * bucket.elements;
    double const parameters = accumulator_size(c.element) * bucket.elements;
    double const values = size_of(c.element) * bucket.elements;
    auto const& axes = bucket.axes;
    Cost reduce, gather;
    if (c.sharding.reduces_each_micro_batch()) {
        add_scatter_cost(reduce, mesh, axes.in_step, passes * gradient);
        add_scatter_cost(reduce, mesh, axes.at_end, gradient / bucket.shards_in_step);
    } else {
        add_scatter_cost(reduce, mesh, axes.shards, gradient);
    }
    add_scatter_cost(reduce, mesh, axes.copied, 2 * gradient / bucket.shards);
    bool const of_experts = axes_of_view(mesh, bucket.like->sharded).contains(edp::name);
    if (c.local.is_on()) // the average of the parameters, as accumulators
        add_scatter_cost(reduce, mesh, c.local.apart(of_experts), 2 * parameters / bucket.shards / c.local.steps);
    if (c.sharding.shards_parameters()) {
        double const times = c.sharding.keeps_parameters ? std::min(1.0, bucket.acquired) : passes * bucket.acquired;
        add_scatter_cost(gather, mesh, axes.in_step, times * values);
        add_scatter_cost(gather, mesh, axes.at_end, values / bucket.shards_in_step);
    } else {
        add_scatter_cost(gather, mesh, axes.shards, values);
    }
    if (has_exact_values(bucket, c)) add_scatter_cost(gather, mesh, axes.shards, parameters);
    add_matrix_cost(gather, reduce, bucket, c, mesh);
    auto const split = [&sum](Cost const& cost, PerAxis& far) {
        for (std::size_t i = 0; i < cost.axes.size(); ++i) {
            bool const is_near = cost.axes[i] == inner<dp>::name || cost.axes[i] == inner<edp>::name;
            (is_near ? sum.near : far)[cost.axes[i]] += cost.bytes[i];
        }
    };
    split(reduce, sum.reduce);
    split(gather, sum.gather);
    for (auto const axis : {inner<dp>::name, inner<edp>::name}) sum.neighbours[axis] = find_axis(mesh, axis).extent;
}

PENTAD_INLINE std::size_t traffic_index(std::string_view axis) {
    for (std::size_t i = 0; i < traffic_parts.size(); ++i)
        if (axis == traffic_parts[i]) return view_axes.size() + i;
    auto const whole = whole_axis_name(axis);
    std::size_t i = 0;
    while (!is_same_axis(view_axes.at(i), whole)) ++i;
    return i;
}

PENTAD_INLINE void add_traffic(MeshPart& part, PassTraffic& traffic, ExchangeSum const& x,
                               std::span<MeshAxisValue const> mesh, std::optional<CountedRows> const& rows) {
    using Kind = ExchangeSum::Kind;
    auto const on = [&](std::string_view axis, double bytes, double rounds) {
        auto& to = traffic[traffic_index(axis)];
        bool const is_collective = x.kind == Kind::collective;
        (is_collective ? to.bytes : to.message_bytes) += bytes;
        (is_collective ? to.rounds : to.messages) += rounds;
        (x.kind == Kind::message ? to.meetings : to.waits) += x.count;
        part.sent[axis] += bytes;
    };
    auto const others = [&](std::string_view axis) { return find_axis(mesh, axis).extent - 1.0; };
    auto const first = (*x.axes)[0];
    if (x.kind == Kind::message) return on(first, x.bytes, x.rounds);
    auto whole = x.bytes;
    if (x.has_rows && rows) {
        auto const leaving = x.row_bytes * (first == etp::name             ? rows->held
                                            : first == rows->between_nodes ? rows->across
                                                                           : rows->inside);
        if (x.axes->size() == 1) return on(first, leaving, x.rounds * others(first));
        double ranks = 1;
        for (auto const axis : *x.axes) ranks *= find_axis(mesh, axis).extent;
        whole = leaving * ranks / (ranks - 1);
    }
    Cost cost;
    add_scatter_cost(cost, mesh, *x.axes, whole);
    for (std::size_t i = 0; i < cost.axes.size(); ++i)
        if (auto const n = others(cost.axes[i]); n > 0) on(cost.axes[i], cost.bytes[i], x.rounds * n);
}

PENTAD_INLINE Account::Account(Model const& model, Strategy const& c, int copies, std::int64_t nodes, bool ends_meet,
                               PartsFrom from)
    : model_(&model), c_(c), nodes_(nodes), from_(from), mesh_(mesh_of(c, model, copies, nodes, ends_meet)),
      own_meshes_(made_own_meshes()), ends_(&model.parts(model.shape(c, nodes), from)), layers_(model, c) {
    parts_.push_back(on_mesh(*ends_->embedding(), nullptr));
    for (auto const& alike : layers_.alike) parts_.push_back(block(alike));
    auto const layers = static_cast<std::size_t>(model.layers());
    auto const laid = [&](model::BlockStrategy const& own, model::BlockStrategy const& before) -> Parts const& {
        return c.blocks.empty() ? *ends_ : model.parts(shape_of(own, before), from);
    };
    parts_.push_back(on_mesh(*laid(c.block, c.before_block(layers)).head(), nullptr));
    add_edge(parts_.back(), c.before_block(layers), c.block);
    for (std::size_t i = 0; i <= layers; ++i) streams_.push_back(laid(c.before_block(i), c.before_block(i)).stream);
    most_stream_ = *std::max_element(streams_.begin(), streams_.end());
    // Tied, the table is there once for each rank that has an end.
    if (model.description().shares_embedding() && (c.pp == 1 || ends_meet))
        parts_.back().shared = ends_->embedding()->parameters->front().name;
}

PENTAD_INLINE std::vector<Bucket> Account::buckets(StageShape const& stage) const {
    Buckets buckets(c_, mesh_);
    for_each_part(stage, [&](MeshPart const& part) {
        buckets.begin_part(part.is_one_unit);
        part.for_each_parameter([&](ParameterAccount const& parameter) { buckets.add(parameter, part.own.get()); });
        if (&part != &parts_.front()) return;
        if (auto const* const table = parts_.back().shared_parameter()) buckets.use_again(*table);
    });
    return buckets.padded();
}

PENTAD_INLINE PerAxis Account::numbers() const {
    PerAxis sent;
    Cost cost;
    auto const all = axes_of_view(mesh_);
    add_scatter_cost(cost, mesh_, c_.local.together(all), 2 * 8);
    if (c_.local.is_on()) { // the norm over the groups, and the targets of each
        add_scatter_cost(cost, mesh_, c_.local.apart(), 2 * 8);
        add_scatter_cost(cost, mesh_, c_.local.together(AxisNames(dp::name, cp::name)), 2 * 8);
    }
    auto of_losses = AxisNames(dp::name, pp::name, cp::name);
    if (c_.block.tensor_kind != model::TensorKind::one_d) // the head's tokens are shared out over these too
        for (auto const axis : {outer<tp>::name, outer<inner<tp>>::name}) of_losses.push(axis);
    add_scatter_cost(cost, mesh_, of_losses, model_->description().predictors.empty() ? 2 * 8 : 2 * 2 * 8);
    add_scatter_cost(cost, mesh_, all, 2 * 2 * 8);
    add_scatter_cost(cost, mesh_, AxisNames(dp::name, cp::name), 2 * 8);
    sent.add(cost);
    return sent;
}

PENTAD_INLINE PartShape Account::shape_of(model::BlockStrategy const& block, model::BlockStrategy const& before) const {
    auto const shape = model_->shape(c_, nodes_);
    auto const& from = model::are_on_one_mesh(block, before) ? before : block;
    if (!block.mesh) return shape.laid(block, from);
    auto own = model_->shape(own_mesh(block)->strategy, nodes_).laid(block, from);
    own.seq = shape.seq; // padded for all blocks
    own.padding = shape.padding;
    own.block.mesh.reset();
    own.before.mesh.reset();
    return own;
}

PENTAD_INLINE std::shared_ptr<OwnMesh const> Account::own_mesh(model::BlockStrategy const& block) const {
    if (!block.mesh) return nullptr;
    for (auto const& known : own_meshes_)
        if (model::are_on_one_mesh(known->strategy_of_blocks, block)) return known;
    throw std::logic_error("a block has a mesh that the account does not know");
}

PENTAD_INLINE std::vector<std::shared_ptr<OwnMesh const>> Account::made_own_meshes() const {
    std::vector<std::shared_ptr<OwnMesh const>> made;
    for (std::size_t i = 0; i < c_.blocks.size(); ++i) {
        auto const& block = c_.blocks[i];
        bool const is_known = std::any_of(made.begin(), made.end(), [&](auto const& known) {
            return model::are_on_one_mesh(known->strategy_of_blocks, block);
        });
        if (!block.mesh || is_known) continue;
        OwnMesh own{c_.as_block(i), block, {}};
        auto const folded = model::mesh_of_block(mesh_, model_->description(), block);
        std::copy(folded.axes().begin(), folded.axes().end(), own.mesh.begin());
        made.push_back(std::make_shared<OwnMesh const>(std::move(own)));
    }
    return made;
}

PENTAD_INLINE void Account::add_edge(MeshPart& part, model::BlockStrategy const& before,
                                     model::BlockStrategy const& block) const {
    if (model::are_on_one_mesh(before, block)) return;
    auto const mesh_of_place = [&](model::BlockStrategy const& place) {
        return place.mesh ? own_mesh(place)->mesh : mesh_;
    };
    auto const source = mesh_of_place(before), target = mesh_of_place(block);
    auto const& from = model::stream_layout<f32>(before);
    auto const& to = model::stream_layout<f32>(block);
    AxisNames const group(dp::name, cp::name, tp::name);
    auto const ranks = members_along(target, group, 0);
    std::vector<int> places(ranks.size());
    std::iota(places.begin(), places.end(), 0);
    MeshPlaces const giving{{source.begin(), source.end()}, places, ranks},
        taking{{target.begin(), target.end()}, places, ranks};
    auto const& model = model_->description();
    std::array const extents{static_cast<std::size_t>(c_.batch / c_.micro_batches),
                             static_cast<std::size_t>(c_.padded_seq(model_->experts() != nullptr)), model.hidden};
    auto const send = [&](PassTraffic& traffic, TransferShape const& shape) {
        Cost cost;
        add_sent_cost(cost, target, group,
                      size_of(c_.element) * static_cast<double>(shape.sent()) / static_cast<double>(ranks.size()));
        for (std::size_t i = 0; i < cost.axes.size(); ++i) {
            if (cost.bytes[i] == 0) continue;
            auto& along = traffic[traffic_index(cost.axes[i])];
            along.message_bytes += cost.bytes[i];
            along.messages += find_axis(target, cost.axes[i]).extent - 1;
            along.meetings += 1;
            part.sent[cost.axes[i]] += cost.bytes[i];
        }
    };
    send(part.traffic[0], TransferShape(from, giving, to, taking, extents, {}));
    send(part.traffic[1], TransferShape(dual(to), taking, dual(from), giving, extents, {}));
}

PENTAD_INLINE MeshPart Account::on_mesh(PartSums const& sums, std::shared_ptr<OwnMesh const> own) const {
    MeshPart part;
    part.sums = &sums;
    part.own = std::move(own);
    auto const& mesh = part.own ? part.own->mesh : mesh_;
    auto const& c = part.own ? part.own->strategy : c_;
    part.memory = sums.memory;
    auto const passes = part.passes();
    std::optional<CountedRows> rows;
    if (auto const& of_token = model_->sent) {
        double const tokens = static_cast<double>(c.micro_batch() * c.seq) / static_cast<double>(c.cp * c.tp);
        // Where each node has one rank of ep, all of it goes across nodes.
        bool const is_apart = find_axis(mesh, inner<ep>::name).extent == 1 && c_.expert_mesh().ep > 1;
        rows = {of_token->across * tokens, of_token->inside * tokens, of_token->held * tokens,
                is_apart ? ep::name : outer<ep>::name};
    }
    for (std::size_t pass = 0; pass < passes.size(); ++pass)
        for (auto const& x : passes[pass]->exchanges) add_traffic(part, part.traffic[pass], x, mesh, rows);
    return part;
}

PENTAD_INLINE MeshPart Account::block(AlikeLayers::Alike const& alike) const {
    auto shape = shape_of(alike.block, alike.before);
    shape.recompute = alike.recompute;
    auto part = on_mesh(*model_->parts(shape, from_).block(alike.kind), own_mesh(alike.block));
    add_edge(part, alike.before, alike.block);
    if (c_.offload.activations) part.memory.saved = 0;
    part.is_one_unit = alike.recompute.whole;
    return part;
}

} // namespace pentad::planner

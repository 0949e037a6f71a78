// The account of a configuration: what each stage of the pipeline holds, computes and
// sends, for a micro-batch and for a step.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/planner/detail/buckets.hpp>
#include <pentad/planner/memory.hpp>
#include <pentad/planner/model.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::planner {

using namespace ml;

/// A number for each axis, as in the order above.
struct PerAxis {
    std::array<double, axis_order.size()> of{};

    double& operator[](std::string_view axis) {
        std::size_t i = 0;
        for (auto const whole = whole_axis_name(axis); !is_same_axis(axis_order.at(i), whole);) ++i;
        return of[i];
    }
    [[nodiscard]] double operator[](std::string_view axis) const { return const_cast<PerAxis&>(*this)[axis]; }
    void add(Cost const& cost, double times = 1) {
        for (std::size_t i = 0; i < cost.axes.size(); ++i) (*this)[cost.axes[i]] += times * cost.bytes[i];
    }
    void add(PerAxis const& other, double times = 1) {
        for (std::size_t i = 0; i < of.size(); ++i) of[i] += times * other.of[i];
    }
    [[nodiscard]] double total() const {
        double sum = 0;
        for (double const x : of) sum += x;
        return sum;
    }
};

/// The mesh as the layouts see it: tp is split where it exceeds the kv heads or is a grid, cp where attention has two
/// levels, pp where stages have copies, ep where dispatch goes by node, dp where ZeRO is hybrid.
inline std::array<MeshAxisValue, 5> mesh_of(Configuration const& c, Model const& model, int copies = 1,
                                            std::int64_t nodes = 1, bool ends_meet = false) {
    std::array<MeshAxisValue, 5> mesh;
    int stride = 1;
    for (std::size_t i = mesh.size(); i-- > 0;) {
        int const extent = static_cast<int>(c.extent(c.order[i]));
        mesh[i] = {.name = c.order[i], .extent = extent, .stride = stride};
        stride *= extent;
        if (c.order[i] == tp::name) {
            auto const split = model::tensor_split(model.description(), c.tensor_kind, extent);
            mesh[i].inner = split.inner;
            mesh[i].innermost = split.innermost;
        }
        if (c.order[i] == cp::name) mesh[i].inner = static_cast<int>(c.inner_cp);
        if (c.order[i] == pp::name) {
            mesh[i].inner = copies;
            mesh[i].is_joined = ends_meet;
        }
        if (c.order[i] == ep::name) mesh[i].inner = static_cast<int>(c.ep / nodes);
        if (c.order[i] == dp::name && c.sharding.ranks > 0) mesh[i].inner = static_cast<int>(c.sharding.ranks);
        if (c.order[i] == dp::name && c.local.is_on()) mesh[i].inner = c.local.ranks;
    }
    return mesh;
}

/// Blocks are alike where they are of one kind and recompute the same. With automatic recomputation: nothing yet.
struct AlikeLayers {
    struct Alike {
        std::size_t kind = 0;
        model::BlockRecomputation recompute{};
    };
    std::vector<Alike> alike;          ///< in the order of the layers that are the first of them
    std::vector<std::size_t> of_layer; ///< its place among them

    explicit AlikeLayers(Model const& model, model::Recomputation const& recompute = {}) {
        for (std::int64_t layer = 0; layer < model.layers(); ++layer) {
            Alike const one{model.kind_of(layer), recompute.of(static_cast<std::size_t>(layer))};
            auto const found = std::find_if(alike.begin(), alike.end(), [&](Alike const& known) {
                return known.kind == one.kind && known.recompute == one.recompute;
            });
            of_layer.push_back(static_cast<std::size_t>(found - alike.begin()));
            if (found == alike.end()) alike.push_back(one);
        }
    }
};

/// What a stage of the pipeline is made of: layers [first, first + count), so many of each that are alike, and the
/// ends.
struct StageShape {
    std::int64_t first = 0, count = 0;
    std::vector<double> of_kind{};
    bool is_first = false, is_last = false;
};

/// The stages with so many layers each.
inline std::vector<StageShape> stage_shapes(Model const& model, std::vector<std::int64_t> const& layers,
                                            model::Recomputation const& recompute = {}) {
    AlikeLayers const kinds(model, recompute);
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
/// Layers of each stage: as many for each where they divide; else the first stages, which have no head, one more.
inline std::vector<StageShape> stage_shapes(Model const& model, std::int64_t stages,
                                            model::Recomputation const& recompute = {}) {
    if (stages > model.layers())
        throw std::invalid_argument(std::to_string(stages) + " stages of the pipeline are more than the " +
                                    std::to_string(model.layers()) + " layers");
    std::vector<std::int64_t> layers;
    for (std::int64_t stage = 0; stage < stages; ++stage)
        layers.push_back(model.layers() / stages + (stage < model.layers() % stages ? 1 : 0));
    return stage_shapes(model, layers, recompute);
}

/// What a rank sends in a step to synchronise gradients and parameters, in bytes: gradients are reduced over the axes
/// over which they are partial, and shards are gathered.
struct Synchronisation {
    PerAxis reduce, gather;
    double near_reduce = 0, near_gather = 0; ///< of hybrid ZeRO or local steps, among the neighbours along dp

    void add(Synchronisation const& other, double times = 1) {
        reduce.add(other.reduce, times);
        gather.add(other.gather, times);
        near_reduce += times * other.near_reduce;
        near_gather += times * other.near_gather;
    }
};

/// Adds what brings the whole matrices of a bucket together, and their updates back (zero/matrices.hpp).
inline void add_matrix_cost(Cost& gather, Cost& reduce, Bucket const& bucket, Configuration const& c,
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

/// Adds what a bucket sends in a step. An all-reduce, of copies of a shard (all of ZeRO-0, hybrid ZeRO, a tied
/// embedding), is a reduce-scatter and the gather back.
/// @param passes of micro-batches through the stage
inline void add_synchronisation(Synchronisation& sum, Bucket const& bucket, Configuration const& c,
                                std::span<MeshAxisValue const> mesh, double passes) {
    double const gradient = compact_size(c.precision.reduce, c.element) * bucket.elements;
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
    if (c.local.is_on()) // the average of the parameters, as accumulators
        add_scatter_cost(reduce, mesh, c.local.apart(), 2 * parameters / bucket.shards / c.local.steps);
    if (c.sharding.shards_parameters()) {
        double const times = c.sharding.keeps_parameters ? std::min(1.0, bucket.acquired) : passes * bucket.acquired;
        add_scatter_cost(gather, mesh, axes.in_step, times * values);
        add_scatter_cost(gather, mesh, axes.at_end, values / bucket.shards_in_step);
    } else {
        add_scatter_cost(gather, mesh, axes.shards, values);
    }
    add_matrix_cost(gather, reduce, bucket, c, mesh);
    auto const split = [](Cost const& cost, PerAxis& far, double& near) {
        for (std::size_t i = 0; i < cost.axes.size(); ++i)
            (cost.axes[i] == inner<dp>::name ? near : far[cost.axes[i]]) += cost.bytes[i];
    };
    split(reduce, sum.reduce, sum.near_reduce);
    split(gather, sum.gather, sum.near_gather);
}

/// What a rank sends along an axis in a pass.
struct Traffic {
    double bytes = 0, rounds = 0;           ///< of collectives
    double message_bytes = 0, messages = 0; ///< from rank to rank
    double waits = 0;                       ///< how often the ranks wait for each other
};
/// The axes that a pass sends along: the five, the parts of ep where dispatch goes by node, those of cp where attention
/// has two levels, and those of tp where it is a grid.
inline constexpr std::array<std::string_view, 7> traffic_parts{
    outer<ep>::name, inner<ep>::name,        outer<cp>::name,       inner<cp>::name,
    outer<tp>::name, outer<inner<tp>>::name, inner<inner<tp>>::name};
inline constexpr std::size_t traffic_axes = axis_order.size() + traffic_parts.size();
inline std::size_t traffic_index(std::string_view axis) {
    for (std::size_t i = 0; i < traffic_parts.size(); ++i)
        if (axis == traffic_parts[i]) return axis_order.size() + i;
    auto const whole = whole_axis_name(axis);
    std::size_t i = 0;
    while (!is_same_axis(axis_order.at(i), whole)) ++i;
    return i;
}
inline std::string_view traffic_axis(std::size_t i) {
    return i < axis_order.size() ? axis_order[i] : traffic_parts[i - axis_order.size()];
}
using PassTraffic = std::array<Traffic, traffic_axes>;

/// A part of the model on a mesh.
struct MeshPart {
    PartSums const* sums = nullptr;
    PartMemory memory{};                ///< `saved` is 0 where activations are offloaded
    std::array<PassTraffic, 3> traffic; ///< forward, backward_data, backward_weight
    PerAxis sent;                       ///< bytes, for a micro-batch
    std::string_view shared{};          ///< a parameter that another part has already

    [[nodiscard]] std::array<PassSums const*, 3> passes() const {
        return {&sums->forward, &sums->backward_data, &sums->backward_weight};
    }
    template <class F>
    void for_each_parameter(F&& f) const {
        for (auto const& parameter : *sums->parameters)
            if (parameter.name != shared) f(parameter);
    }
    /// The parameter that another part has already, if any.
    [[nodiscard]] ParameterAccount const* shared_parameter() const {
        for (auto const& parameter : *sums->parameters)
            if (parameter.name == shared) return &parameter;
        return nullptr;
    }
};

/// Rows that a rank sends to others in one dispatch, as they were counted in a run.
struct CountedRows {
    double across = 0, inside = 0;  ///< of nodes
    std::string_view between_nodes; ///< the axis along which dispatch goes across nodes
};

/// Adds exchanges to what a part sends on a mesh: a dry run has two ranks along dp, and the mesh any number.
/// @param rows none: as the dry run has them
inline void add_traffic(MeshPart& part, PassTraffic& traffic, ExchangeSum const& x, std::span<MeshAxisValue const> mesh,
                        std::optional<CountedRows> const& rows) {
    using Kind = ExchangeSum::Kind;
    auto const on = [&](std::string_view axis, double bytes, double rounds) {
        auto& to = traffic[traffic_index(axis)];
        bool const is_collective = x.kind == Kind::collective;
        (is_collective ? to.bytes : to.message_bytes) += bytes;
        (is_collective ? to.rounds : to.messages) += rounds;
        to.waits += x.count;
        part.sent[axis] += bytes;
    };
    auto const others = [&](std::string_view axis) { return find_axis(mesh, axis).extent - 1.0; };
    auto const first = (*x.axes)[0];
    if (x.kind == Kind::message) return on(first, x.bytes, x.count);
    auto whole = x.bytes;
    if (x.has_rows && rows) {
        auto const leaving = x.row_bytes * (first == rows->between_nodes ? rows->across : rows->inside);
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

/// The parts of a model that its stages are put together from, on a mesh.
class Account {
  public:
    /// @param copies of each stage, as a bidirectional schedule has them
    /// @param nodes to which dispatch takes a token once each: dispatch_nodes()
    /// @param ends_meet where the first and the last stage are on one rank
    Account(Model const& model, Configuration const& c, int copies = 1, std::int64_t nodes = 1, bool ends_meet = false)
        : model_(&model), c_(c), nodes_(nodes), mesh_(mesh_of(c, model, copies, nodes, ends_meet)),
          accounts_(&model.parts(c, nodes)), layers_(model, c.recompute) {
        parts_.push_back(on_mesh(accounts_->embedding));
        for (auto const& [kind, recompute] : layers_.alike) parts_.push_back(block(kind, recompute));
        parts_.push_back(on_mesh(accounts_->head));
        // Tied, the table is there once for each rank that has an end.
        if (model.description().ties_embeddings && (c.pp == 1 || ends_meet))
            parts_.back().shared = accounts_->embedding.parameters->front().name;
    }

    /// Calls f(part, how many of them) for each kind of part of a stage.
    template <class F>
    void for_each_kind(StageShape const& stage, F&& f) const {
        if (stage.is_first) f(parts_.front(), 1.0);
        for (std::size_t kind = 0; kind < stage.of_kind.size(); ++kind)
            if (stage.of_kind[kind] > 0) f(parts_[1 + kind], stage.of_kind[kind]);
        if (stage.is_last) f(parts_.back(), 1.0);
    }
    /// Calls f(part) for each part of a stage, in the order of a forward pass.
    template <class F>
    void for_each_part(StageShape const& stage, F&& f) const {
        if (stage.is_first) f(parts_.front());
        for (std::int64_t layer = stage.first; layer < stage.first + stage.count; ++layer)
            f(parts_[1 + layers_.of_layer[static_cast<std::size_t>(layer)]]);
        if (stage.is_last) f(parts_.back());
    }
    /// The embedding, a block of each kind, the head.
    [[nodiscard]] std::vector<MeshPart> const& parts() const { return parts_; }
    /// A block of some kind of the model's that recomputes this.
    [[nodiscard]] MeshPart block(std::size_t kind, model::BlockRecomputation const& recompute) const {
        auto part = on_mesh(model_->parts(c_, nodes_, recompute).blocks[kind]);
        if (c_.offload.activations) part.memory.saved = 0;
        return part;
    }
    /// The place of a part among them.
    [[nodiscard]] std::size_t index_of(MeshPart const& part) const {
        return static_cast<std::size_t>(&part - parts_.data());
    }
    [[nodiscard]] std::span<MeshAxisValue const> mesh() const { return mesh_; }
    /// Bytes of the residual stream of a micro-batch on a rank.
    [[nodiscard]] double stream() const { return accounts_->stream; }
    /// The parameters of a stage in buckets.
    [[nodiscard]] std::vector<Bucket> buckets(StageShape const& stage) const {
        Buckets buckets(c_, mesh_);
        for_each_part(stage, [&](MeshPart const& part) {
            buckets.begin_part();
            part.for_each_parameter([&](ParameterAccount const& parameter) { buckets.add(parameter); });
            if (&part != &parts_.front()) return;
            if (auto const* const table = parts_.back().shared_parameter()) buckets.use_again(*table);
        });
        return buckets.padded();
    }
    /// Numbers that every step reduces, 8 bytes each: the norm of the gradient, the loss, its auxiliary losses, and how
    /// many targets are valid. Local steps do not change that ranks agree on them.
    [[nodiscard]] PerAxis numbers() const {
        PerAxis sent;
        Cost cost;
        auto const all = AxisNames(dp::name, pp::name, ep::name, cp::name, tp::name);
        add_scatter_cost(cost, mesh_, c_.local.together(all), 2 * 8);
        if (c_.local.is_on()) { // the norm over the groups, and the targets of each
            add_scatter_cost(cost, mesh_, c_.local.apart(), 2 * 8);
            add_scatter_cost(cost, mesh_, c_.local.together(AxisNames(dp::name, ep::name, cp::name)), 2 * 8);
        }
        auto of_losses = AxisNames(dp::name, pp::name, ep::name, cp::name);
        if (c_.tensor_kind != model::TensorKind::one_d) // the head's tokens are shared out over these too
            for (auto const axis : {outer<tp>::name, outer<inner<tp>>::name}) of_losses.push(axis);
        add_scatter_cost(cost, mesh_, of_losses, 2 * 8);
        add_scatter_cost(cost, mesh_, AxisNames(pp::name), 2 * 2 * 8);
        add_scatter_cost(cost, mesh_, AxisNames(dp::name, ep::name, cp::name), 2 * 8);
        sent.add(cost);
        return sent;
    }

  private:
    [[nodiscard]] MeshPart on_mesh(PartSums const& sums) const {
        MeshPart part;
        part.sums = &sums;
        part.memory = sums.memory;
        auto const passes = part.passes();
        std::optional<CountedRows> rows;
        if (auto const& of_token = model_->sent) {
            auto const dealt = c_.expert_sharding == model::ExpertSharding::whole ? c_.cp * c_.tp : c_.cp;
            double const tokens = static_cast<double>(c_.micro_batch * c_.seq) / static_cast<double>(dealt);
            // Where each node has one rank of ep, all of it goes across nodes.
            bool const is_apart = find_axis(mesh_, inner<ep>::name).extent == 1 && c_.ep > 1;
            rows = {of_token->across * tokens, of_token->inside * tokens, is_apart ? ep::name : outer<ep>::name};
        }
        for (std::size_t pass = 0; pass < passes.size(); ++pass)
            for (auto const& x : passes[pass]->exchanges) add_traffic(part, part.traffic[pass], x, mesh_, rows);
        return part;
    }
    Model const* model_;
    Configuration c_;
    std::int64_t nodes_;
    std::array<MeshAxisValue, 5> mesh_;
    Parts const* accounts_;
    AlikeLayers layers_;
    std::vector<MeshPart> parts_;
};

} // namespace pentad::planner

// The account of a configuration: what each stage of the pipeline holds, computes and
// sends, for a micro-batch and for a step.
#pragma once

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

/// The mesh as the layouts see it: tp is split where it exceeds the kv heads, pp where stages have
/// copies, ep where dispatch goes by node, dp where ZeRO is hybrid.
inline std::array<MeshAxisValue, 5> mesh_of(Configuration const& c, Model const& model, int copies = 1,
                                            std::int64_t nodes = 1, bool ends_meet = false) {
    std::array<MeshAxisValue, 5> mesh;
    int stride = 1;
    for (std::size_t i = mesh.size(); i-- > 0;) {
        int const extent = static_cast<int>(c.extent(c.order[i]));
        mesh[i] = {.name = c.order[i], .extent = extent, .stride = stride};
        stride *= extent;
        if (c.order[i] == tp::name) mesh[i].inner = model::key_value_copies(model.description(), extent);
        if (c.order[i] == pp::name) {
            mesh[i].inner = copies;
            mesh[i].is_joined = ends_meet;
        }
        if (c.order[i] == ep::name) mesh[i].inner = static_cast<int>(c.ep / nodes);
        if (c.order[i] == dp::name && c.zero_ranks > 0) mesh[i].inner = static_cast<int>(c.zero_ranks);
    }
    return mesh;
}

/// What a stage of the pipeline is made of: layers [first, first + count), so many of each kind, and the ends.
struct StageShape {
    std::int64_t first = 0, count = 0;
    std::vector<double> of_kind{};
    bool is_first = false, is_last = false;
};

/// The stages with so many layers each.
inline std::vector<StageShape> stage_shapes(Model const& model, std::vector<std::int64_t> const& layers) {
    std::vector<StageShape> shapes;
    std::int64_t first = 0;
    for (std::size_t stage = 0; stage < layers.size(); ++stage) {
        auto& shape = shapes.emplace_back();
        shape = {first, layers[stage], std::vector<double>(model.kinds()), stage == 0, stage + 1 == layers.size()};
        for (std::int64_t i = 0; i < shape.count; ++i) ++shape.of_kind[model.kind_of(first++)];
    }
    return shapes;
}
/// Layers of each stage: as many for each where they divide; else the first stages, which have no head, one more.
inline std::vector<StageShape> stage_shapes(Model const& model, std::int64_t stages) {
    if (stages > model.layers())
        throw std::invalid_argument(std::to_string(stages) + " stages of the pipeline are more than the " +
                                    std::to_string(model.layers()) + " layers");
    std::vector<std::int64_t> layers;
    for (std::int64_t stage = 0; stage < stages; ++stage)
        layers.push_back(model.layers() / stages + (stage < model.layers() % stages ? 1 : 0));
    return stage_shapes(model, layers);
}

/// What the ranks of a step send besides micro-batches: gradients are reduced over the axes over which they are
/// partial, and what is sharded is gathered. Bytes of a rank.
struct Synchronisation {
    PerAxis reduce, gather;
    double near_reduce = 0, near_gather = 0; ///< of hybrid ZeRO, among the neighbours along dp

    void add(Synchronisation const& other, double times = 1) {
        reduce.add(other.reduce, times);
        gather.add(other.gather, times);
        near_reduce += times * other.near_reduce;
        near_gather += times * other.near_gather;
    }
};

/// Adds what a bucket sends in a step. An all-reduce is a reduce-scatter and the gather back, of gradients; copies of a
/// shard (of hybrid ZeRO, and of a tied embedding) are reduced whole, once.
/// @param passes of micro-batches through the stage
inline void add_synchronisation(Synchronisation& sum, Bucket const& bucket, Configuration const& c,
                                std::span<MeshAxisValue const> mesh, double passes) {
    double const gradient = accumulator_size(c.element) * bucket.elements;
    double const values = size_of(c.element) * bucket.elements;
    Cost reduce, gather;
    if (c.zero == 0) {
        add_scatter_cost(reduce, mesh, bucket.like->gradient, 2 * gradient);
    } else {
        // Sharded during the step, at its end alone, and not at all.
        AxisNames in_step, at_end, copied, sharded;
        for (auto const axis : bucket.like->gradient) {
            bool const is_hybrid = axis == dp::name && c.zero_ranks > 0;
            auto const own = is_hybrid ? std::string_view(inner<dp>::name) : axis;
            if (is_hybrid) copied.push(outer<dp>::name);
            if (axis.starts_with("ends")) {
                copied.push(own);
                continue;
            }
            sharded.push(own);
            (whole_axis_name(axis) == pp::name ? at_end : in_step).push(own);
        }
        if (c.reduces_each_micro_batch()) {
            add_scatter_cost(reduce, mesh, in_step, passes * gradient);
            add_scatter_cost(reduce, mesh, at_end, gradient / bucket.parts);
        } else {
            add_scatter_cost(reduce, mesh, sharded, gradient);
        }
        add_scatter_cost(reduce, mesh, copied, 2 * gradient / bucket.shards);
        if (c.zero >= 3) {
            double const times = c.zero_keeps ? std::min(1.0, bucket.acquired) : passes * bucket.acquired;
            add_scatter_cost(gather, mesh, in_step, times * values);
            add_scatter_cost(gather, mesh, at_end, values / bucket.parts);
        } else {
            add_scatter_cost(gather, mesh, sharded, values);
        }
    }
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
/// The axes that a pass sends along: the five, and the parts of ep where dispatch goes by node.
inline constexpr std::size_t traffic_axes = 7;
inline std::size_t traffic_index(std::string_view axis) {
    if (axis == outer<ep>::name) return 5;
    if (axis == inner<ep>::name) return 6;
    auto const whole = whole_axis_name(axis);
    std::size_t i = 0;
    while (!is_same_axis(axis_order.at(i), whole)) ++i;
    return i;
}
inline std::string_view traffic_axis(std::size_t i) {
    return i == 5 ? std::string_view(outer<ep>::name) : i == 6 ? std::string_view(inner<ep>::name) : axis_order[i];
}
using PassTraffic = std::array<Traffic, traffic_axes>;

/// A part of the model on a mesh.
struct MeshPart {
    PartSums const* sums = nullptr;
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

/// Adds exchanges to what a part sends on a mesh: a dry run has two ranks along dp, and the mesh any number.
/// @param rows that go to others in one dispatch where they are counted, across nodes and inside of one
inline void add_traffic(MeshPart& part, PassTraffic& traffic, ExchangeSum const& x, std::span<MeshAxisValue const> mesh,
                        std::optional<SentRowsOfToken> const& rows) {
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
    if (x.has_rows && rows)
        return on(first, x.row_bytes * (first == outer<ep>::name ? rows->across : rows->inside),
                  x.rounds * others(first));
    Cost cost;
    add_scatter_cost(cost, mesh, *x.axes, x.bytes);
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
        : model_(&model), c_(c), mesh_(mesh_of(c, model, copies, nodes, ends_meet)), accounts_(&model.parts(c, nodes)) {
        parts_.push_back(on_mesh(accounts_->embedding));
        for (auto const& block : accounts_->blocks) parts_.push_back(on_mesh(block));
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
    /// The embedding, a block of each kind, the head.
    [[nodiscard]] std::vector<MeshPart> const& parts() const { return parts_; }
    /// The place of a part among them.
    [[nodiscard]] std::size_t index_of(MeshPart const& part) const {
        return static_cast<std::size_t>(&part - parts_.data());
    }
    [[nodiscard]] std::span<MeshAxisValue const> mesh() const { return mesh_; }
    /// Bytes of the residual stream of a micro-batch on a rank.
    [[nodiscard]] double stream() const { return accounts_->stream; }
    /// The most that a pass needs beside what is saved. @param splits whether backward passes are split
    [[nodiscard]] double workspace(bool splits) const {
        double most = 0;
        for (auto const& part : parts_)
            most = std::max(most, splits ? part.sums->workspace_of_split : part.sums->workspace);
        return most;
    }

    /// The parameters of a stage in buckets.
    [[nodiscard]] std::vector<Bucket> buckets(StageShape const& stage) const {
        Buckets buckets(c_);
        auto const add = [&](MeshPart const& part) {
            buckets.begin_part();
            part.for_each_parameter([&](ParameterAccount const& parameter) {
                buckets.add(parameter, zero_shards(parameter.gradient, c_, mesh_),
                            zero_shards(parameter.gradient, c_, mesh_, true));
            });
        };
        if (stage.is_first) {
            add(parts_.front());
            if (auto const* const table = parts_.back().shared_parameter()) buckets.use_again(*table);
        }
        for (std::int64_t i = stage.first; i < stage.first + stage.count; ++i) add(parts_[1 + model_->kind_of(i)]);
        if (stage.is_last) add(parts_.back());
        return buckets.padded(c_.zero);
    }
    /// Numbers that every step reduces, 8 bytes each: the norm of the gradient, the loss, its auxiliary losses, and how
    /// many targets are valid.
    [[nodiscard]] PerAxis numbers() const {
        PerAxis sent;
        Cost cost;
        add_scatter_cost(cost, mesh_, AxisNames(dp::name, pp::name, ep::name, cp::name, tp::name), 2 * 8);
        add_scatter_cost(cost, mesh_, AxisNames(dp::name, pp::name, ep::name, cp::name), 2 * 8);
        add_scatter_cost(cost, mesh_, AxisNames(pp::name), 2 * 2 * 8);
        add_scatter_cost(cost, mesh_, AxisNames(dp::name, ep::name, cp::name), 2 * 8);
        sent.add(cost);
        return sent;
    }

  private:
    [[nodiscard]] MeshPart on_mesh(PartSums const& sums) const {
        MeshPart part;
        part.sums = &sums;
        auto const passes = part.passes();
        auto rows = model_->sent; // of a token
        double const tokens = static_cast<double>(c_.micro_batch * c_.seq) / static_cast<double>(c_.cp);
        // Where each node has one rank of ep there is no way inside of it.
        bool const is_apart = find_axis(mesh_, inner<ep>::name).extent == 1 && c_.ep > 1;
        if (rows) rows = {rows->across * tokens, (is_apart ? rows->across : rows->inside) * tokens};
        for (std::size_t pass = 0; pass < passes.size(); ++pass)
            for (auto const& x : passes[pass]->exchanges) add_traffic(part, part.traffic[pass], x, mesh_, rows);
        return part;
    }
    Model const* model_;
    Configuration c_;
    std::array<MeshAxisValue, 5> mesh_;
    Parts const* accounts_;
    std::vector<MeshPart> parts_;
};

} // namespace pentad::planner

// The account of a configuration: what each stage of the pipeline holds, computes and
// sends, for a micro-batch and for a step.
#pragma once

#include <pentad/planner/buckets.hpp>
#include <pentad/planner/memory.hpp>
#include <pentad/planner/weights.hpp>
#include <pentad/planner/work.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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

/// Of layers [first, last).
inline std::int64_t layers_with_experts(Model const& model, std::int64_t first, std::int64_t last) {
    std::int64_t count = 0;
    for (std::int64_t layer = first; layer < last; ++layer) count += model.has_experts(layer) ? 1 : 0;
    return count;
}

/// What a stage of the pipeline is made of: layers [first, first + count), so many with experts, and the ends.
struct StageShape {
    std::int64_t first = 0, count = 0, expert = 0;
    bool is_first = false, is_last = false;
};

/// Layers of each stage: as many for each where they divide; else the first stages, which have no head, one more.
inline std::vector<StageShape> stage_shapes(Model const& model, std::int64_t stages) {
    if (stages > model.layers)
        throw std::invalid_argument(std::to_string(stages) + " stages of the pipeline are more than the " +
                                    std::to_string(model.layers) + " layers");
    std::vector<StageShape> shapes;
    std::int64_t first = 0;
    for (std::int64_t stage = 0; stage < stages; ++stage) {
        std::int64_t const count = model.layers / stages + (stage < model.layers % stages ? 1 : 0);
        shapes.push_back(
            {first, count, layers_with_experts(model, first, first + count), stage == 0, stage + 1 == stages});
        first += count;
    }
    return shapes;
}

/// A layer of each kind of the model: dense, with experts; -1: there is none.
struct LayerKinds {
    std::int64_t dense = -1, expert = -1;
};
inline LayerKinds layer_kinds(Model const& model) {
    LayerKinds kinds;
    for (std::int64_t layer = model.layers; layer-- > 0;)
        (model.has_experts(layer) ? kinds.expert : kinds.dense) = layer;
    return kinds;
}

/// What the ranks of a step send besides micro-batches: gradients are reduced over the axes over which they are
/// partial, and what is sharded is gathered. Bytes of a rank, once.
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

/// Adds what a bucket sends. An all-reduce is a reduce-scatter and the gather back, of gradients; copies of a shard (of
/// hybrid ZeRO, and of a tied embedding) are reduced whole.
inline void add_synchronisation(Synchronisation& sum, Bucket const& bucket, Configuration const& c,
                                std::span<MeshAxisValue const> mesh) {
    double const gradient = accumulator_size(c.element) * bucket.elements;
    Cost reduce, gather;
    if (c.zero == 0) {
        add_scatter_cost(reduce, mesh, bucket.like.gradient_axes, 2 * gradient);
    } else {
        AxisNames sharded, copied;
        for (auto const axis : bucket.like.gradient_axes) {
            bool const is_hybrid = axis == dp::name && c.zero_ranks > 0;
            if (is_hybrid) copied.push(outer<dp>::name);
            (axis.starts_with("ends") ? copied : sharded).push(is_hybrid ? inner<dp>::name : axis);
        }
        add_scatter_cost(reduce, mesh, sharded, gradient);
        add_scatter_cost(reduce, mesh, copied, 2 * gradient / bucket.like.shards);
        add_scatter_cost(gather, mesh, sharded, size_of(c.element) * bucket.elements);
    }
    auto const split = [](Cost const& cost, PerAxis& far, double& near) {
        for (std::size_t i = 0; i < cost.axes.size(); ++i)
            (cost.axes[i] == inner<dp>::name ? near : far[cost.axes[i]]) += cost.bytes[i];
    };
    split(reduce, sum.reduce, sum.near_reduce);
    split(gather, sum.gather, sum.near_gather);
}

/// A layer of a kind, or an end of the model, as a rank holds, computes and sends it.
struct PartAccount {
    std::vector<Operation> operations;
    std::vector<LocalWeight> weights;
    double saved = 0; ///< bytes, of a micro-batch
    double left = 0;  ///< of them, between the two parts of a split backward pass
    PerAxis sent;     ///< bytes, for a micro-batch
};

/// The parts of a model that its stages are put together from, each accounted for once.
class Account {
  public:
    /// @param copies of each stage, as a bidirectional schedule has them
    /// @param nodes to which dispatch takes a token once each: dispatch_nodes()
    Account(Model const& model, Configuration const& c, int copies = 1, std::int64_t nodes = 1)
        : model_(&model), c_(c), nodes_(nodes), mesh_(mesh_of(c, model, copies)) {
        auto const kinds = layer_kinds(model);
        bool const again = c.recompute == Recompute::full; // layers, not ends
        if (kinds.dense >= 0) dense_ = layer(kinds.dense, again);
        if (kinds.expert >= 0) expert_ = layer(kinds.expert, again);
        embedding_ = part([](Work& w) { w.embedding(); }, [](Weights& w) { w.embedding(); }, 0,
                          left_by_embedding(model, c), false);
        // Tied, the table is there once for each rank that has an end.
        head_ = part([](Work& w) { w.head(); }, [&](Weights& w) { w.head(!model.ties_embeddings || c.pp > 1); },
                     saved_by_head(model, c), left_by_head(model, c), false);
    }

    /// Calls f(part) for each part of a stage, in the model's order.
    template <class F>
    void for_each_part(StageShape const& stage, F&& f) const {
        if (stage.is_first) f(embedding_);
        for (std::int64_t i = stage.first; i < stage.first + stage.count; ++i)
            f(model_->has_experts(i) ? expert_ : dense_);
        if (stage.is_last) f(head_);
    }
    /// Calls f(part, how many of them) for each kind of part of a stage.
    template <class F>
    void for_each_kind(StageShape const& stage, F&& f) const {
        if (stage.is_first) f(embedding_, 1.0);
        if (stage.count > stage.expert) f(dense_, static_cast<double>(stage.count - stage.expert));
        if (stage.expert > 0) f(expert_, static_cast<double>(stage.expert));
        if (stage.is_last) f(head_, 1.0);
    }
    /// The four of them; a model may lack one.
    [[nodiscard]] std::array<PartAccount const*, 4> parts() const { return {&embedding_, &dense_, &expert_, &head_}; }
    /// The place of a part among them.
    [[nodiscard]] std::size_t index_of(PartAccount const& part) const {
        auto const all = parts();
        return static_cast<std::size_t>(std::find(all.begin(), all.end(), &part) - all.begin());
    }
    [[nodiscard]] bool is_layer(PartAccount const& part) const { return &part == &dense_ || &part == &expert_; }
    [[nodiscard]] std::span<MeshAxisValue const> mesh() const { return mesh_; }

    /// The weights of a stage in buckets.
    [[nodiscard]] std::vector<Bucket> buckets(StageShape const& stage) const {
        Buckets buckets(static_cast<double>(c_.bucket_elements));
        for_each_part(stage, [&](PartAccount const& part) {
            for (auto const& weight : part.weights) buckets.add(weight);
        });
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
    [[nodiscard]] PartAccount layer(std::int64_t number, bool again) const {
        return part([&](Work& w) { w.layer(number); }, [&](Weights& w) { w.layer(number); },
                    saved_by_layer(*model_, c_, number), left_by_layer(*model_, c_, number), again);
    }
    template <class ListWork, class ListWeights>
    [[nodiscard]] PartAccount part(ListWork&& list_work, ListWeights&& list_weights, double saved, double left,
                                   bool again) const {
        Work work(*model_, c_, nodes_);
        list_work(work);
        Weights weights(*model_, c_);
        list_weights(weights);
        PartAccount made;
        made.operations = work.operations();
        made.weights = local_weights(weights.list(), c_, mesh_);
        made.saved = saved;
        made.left = left;
        for (auto const& x : made.operations)
            if (x.kind == Kind::communication)
                made.sent[x.axis] += (again && x.direction == Direction::forward ? 2 : 1) * x.bytes;
        return made;
    }

    Model const* model_;
    Configuration c_;
    std::int64_t nodes_;
    std::array<MeshAxisValue, 5> mesh_;
    PartAccount dense_, expert_, embedding_, head_;
};

} // namespace pentad::planner

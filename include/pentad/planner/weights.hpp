// The weights of a model: how each is stored, and over which axes its gradient is
// partial. Both are the layouts that the layers have, and the rule of the algebra that gives their gradients.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/planner/configuration.hpp>
#include <pentad/planner/model.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace pentad::planner {

enum class Part { embedding, attention, mixer, feed_forward, router, experts, shared_experts, norms, head };

/// A weight, or several alike.
struct Weight {
    Part part;
    std::array<std::size_t, 3> extents{}; ///< global; as many as its layout has dimensions
    LayoutValue const* stored = nullptr;
    AxisNames gradient_axes; ///< the gradient is partial over them
    bool decays = true;      ///< norms and biases do not
    std::size_t count = 1;

    [[nodiscard]] std::span<std::size_t const> shape() const { return std::span(extents).first(stored->rank); }
    [[nodiscard]] double elements() const {
        double all = static_cast<double>(count);
        for (auto const n : shape()) all *= static_cast<double>(n);
        return all;
    }
    /// On one rank of the mesh. @throws std::invalid_argument when its dimensions do not divide
    [[nodiscard]] double local_elements(std::span<MeshAxisValue const> mesh) const {
        auto const local = local_extents(*stored, shape(), mesh);
        double all = static_cast<double>(count);
        for (std::size_t d = 0; d < stored->rank; ++d) all *= static_cast<double>(local[d]);
        return all;
    }
};

namespace detail {
template <class Set>
struct FlatGradient;
template <class... Axes>
struct FlatGradient<AxisSet<Axes...>> {
    using type = Layout<f32, Dims<Dim<flat>>, Partial<Axes...>>;
};
/// The axes over which the gradient of a weight is partial, when operations on these activations use it. The ranks
/// along inner(pp) hold the same stages.
template <class Stored, class... Activations>
inline constexpr AxisNames gradient_axes =
    FlatGradient<union_t<replicated_axes_t<used_t<Stored, Activations...>>, AxisSet<inner<pp>>>>::type::value.partial;
} // namespace detail

/// Lists the weights of the parts of a model.
class Weights {
  public:
    Weights(Model const& model, Configuration const& c) : model_(&model), c_(&c) {}

    [[nodiscard]] std::vector<Weight> const& list() const { return list_; }

    void layer(std::int64_t number) {
        if (model_->attention.heads > 0)
            attention();
        else if (model_->mamba.heads > 0)
            mamba();
        bool const has_experts = model_->has_experts(number);
        if (!has_experts && model_->ffn == 0) return;
        norm();
        if (has_experts)
            experts();
        else
            feed_forward(Part::feed_forward, model_->ffn);
    }
    void embedding() {
        vocabulary(Part::embedding, model_->ties_embeddings);
        if (model_->positions > 0) add<Matrix, Gathered>(Part::embedding, {at(model_->positions), at(model_->hidden)});
    }
    void head(bool with_table) {
        norm();
        if (with_table) vocabulary(Part::head, model_->ties_embeddings);
    }

  private:
    using Gathered = GatheredStream<f32>;
    using Vector = Layout<f32, Dims<Dim<hidden>>>;
    using Matrix = Layout<f32, Dims<Dim<expert>, Dim<hidden>>>;
    using Heads = Layout<f32, Dims<Dim<heads, dynamic, tp>, Dim<head_dim>, Dim<hidden>>>;
    using KeyHeads = Layout<f32, Dims<Dim<kv_heads, dynamic, outer<tp>>, Dim<head_dim>, Dim<hidden>>>;
    using Column = Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>>;
    using Table = Layout<f32, Dims<Dim<vocab, dynamic, tp>, Dim<hidden>>>;
    using ExpertColumn = Layout<f32, Dims<Dim<expert, dynamic, ep>, Dim<ffn, dynamic, tp>, Dim<hidden>>>;
    using Rows = Layout<f32, Dims<Dim<expert, dynamic, ep>, Dim<token, dynamic, dp, cp>, Dim<hidden>>, Replicated<tp>>;

    static std::size_t at(std::int64_t n) { return static_cast<std::size_t>(n); }

    template <class Stored, class... Activations>
    void add(Part part, std::array<std::size_t, 3> extents, std::size_t count = 1, bool decays = true) {
        list_.push_back({.part = part,
                         .extents = extents,
                         .stored = &Stored::value,
                         .gradient_axes = detail::gradient_axes<Stored, Activations...>,
                         .decays = decays,
                         .count = count});
    }
    /// What works on the residual stream as it lies.
    template <class Stored>
    void add_on_stream(Part part, std::array<std::size_t, 3> extents, bool decays) {
        if (c_->sequence_parallel)
            add<Stored, SequenceStream<f32>>(part, extents, 1, decays);
        else
            add<Stored, InvariantStream<f32>>(part, extents, 1, decays);
    }
    void norm() {
        for (int i = 0; i < (model_->has_biases ? 2 : 1); ++i)
            add_on_stream<Vector>(Part::norms, {at(model_->hidden)}, false);
    }
    void vocabulary(Part part, bool tied) {
        auto const shards = at(c_->tp), rows = (at(model_->vocab) + shards - 1) / shards * shards;
        if (tied)
            add<Table, Gathered, Layout<f32, Dims<>, Replicated<ends<pp>>>>(part, {rows, at(model_->hidden)});
        else
            add<Table, Gathered>(part, {rows, at(model_->hidden)});
    }
    void bias(Part part, std::int64_t width, bool is_sharded) {
        if (!model_->has_biases) return;
        if (is_sharded)
            add<Layout<f32, Dims<Dim<ffn, dynamic, tp>>>, Gathered>(part, {at(width)}, 1, false);
        else
            add_on_stream<Vector>(part, {at(width)}, false);
    }
    void attention() {
        auto const& a = model_->attention;
        norm();
        auto const heads = at(a.heads), keys = at(a.key_width()), values = at(a.value_width()), h = at(model_->hidden);
        if (a.is_latent()) {
            auto const query = at(a.query_rank), latent = at(a.kv_rank), rope = at(a.rope_dim);
            if (query > 0) {
                add<Matrix, Gathered>(Part::attention, {query, h});
                add<Matrix, Gathered>(Part::norms, {1, query}, 1, false);
            }
            add<Heads, Gathered>(Part::attention, {heads, keys, query > 0 ? query : h});
            add<Matrix, Gathered>(Part::attention, {latent + rope, h});
            add<Matrix, Gathered>(Part::norms, {1, latent}, 1, false);
            add<Heads, Gathered>(Part::attention, {heads, at(a.head_dim) + values, latent});
        } else {
            add<Heads, Gathered>(Part::attention, {heads, keys, h});
            add<KeyHeads, Gathered>(Part::attention, {at(a.kv_heads), keys, h});
            add<KeyHeads, Gathered>(Part::attention, {at(a.kv_heads), values, h});
            bias(Part::attention, a.heads * a.key_width() + a.kv_heads * (a.key_width() + a.value_width()), true);
        }
        add<Heads, Gathered>(Part::attention, {heads, values, h});
        bias(Part::attention, model_->hidden, false);
    }
    void feed_forward(Part part, std::int64_t width) {
        bool const gated = model_->feed_forward == FeedForward::swiglu;
        add<Column, Gathered>(part, {at(width), at(model_->hidden)}, gated ? 3 : 2);
        bias(part, width, true);
        bias(part, model_->hidden, false);
    }
    void experts() {
        auto const& e = model_->experts;
        add_on_stream<Matrix>(Part::router, {at(e.count), at(model_->hidden)}, true);
        if (e.has_bias) add_on_stream<Matrix>(Part::router, {1, at(e.count)}, false);
        add<ExpertColumn, Rows>(Part::experts, {at(e.count), at(e.ffn), at(model_->hidden)}, 3);
        if (e.shared > 0) feed_forward(Part::shared_experts, e.shared * e.ffn);
    }
    void mamba() {
        auto const& m = model_->mamba;
        auto const h = at(model_->hidden), inner = at(m.inner()), mixed = inner + 2 * at(m.groups * m.state);
        norm();
        // Heads are shared out over tp; what belongs to groups is held by every rank where tp exceeds them.
        add<Column, Gathered>(Part::mixer, {2 * inner + at(m.heads), h});
        add<Matrix, Gathered>(Part::mixer, {2 * at(m.groups * m.state), h});
        add<Matrix, Gathered>(Part::mixer, {mixed, at(m.convolution) + 1}, 1, true);
        add<Layout<f32, Dims<Dim<ffn, dynamic, tp>>>, Gathered>(Part::mixer, {at(m.heads)}, 3, false);
        add<Layout<f32, Dims<Dim<ffn, dynamic, tp>>>, Gathered>(Part::mixer, {inner}, 1, false);
        add<Column, Gathered>(Part::mixer, {inner, h});
    }

    Model const* model_;
    Configuration const* c_;
    std::vector<Weight> list_;
};

/// The weights of the whole model.
inline std::vector<Weight> all_weights(Model const& model, Configuration const& c = {}) {
    Weights weights(model, c);
    weights.embedding();
    for (std::int64_t layer = 0; layer < model.layers; ++layer) weights.layer(layer);
    weights.head(!model.ties_embeddings);
    return weights.list();
}

} // namespace pentad::planner

// What a rank does for a micro-batch: products, attention, passes over memory, and what
// it sends, operation by operation. What is sent is what the plans of the redistributions say; no volume is written
// here a second time.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/planner/configuration.hpp>
#include <pentad/planner/formulas/experts.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/planner/nodes.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace pentad::planner {

enum class Kind { product, attention, vector, communication };

enum class Direction { forward, backward_data, backward_weight };

/// Something that a device does, or sends.
struct Operation {
    std::string_view name;
    Kind kind = Kind::vector;
    Direction direction = Direction::forward;
    double flops = 0;        ///< of products and attention
    double bytes = 0;        ///< read and written in the device's memory; of communication: sent by the rank
    std::string_view axis{}; ///< of communication
    double messages = 0;     ///< of communication: one after another
    bool is_message = false; ///< of communication: from rank to rank, no collective
    double meetings = 0;     ///< of communication: how often the ranks wait for each other
    double dispatches = 1;   ///< operations that a framework starts for it, one by one
};

/// The mesh as the layouts see it: tp is split where it exceeds the kv heads, pp where stages have
/// copies, dp where ZeRO is hybrid.
inline std::array<MeshAxisValue, 5> mesh_of(Configuration const& c, Model const& model, int copies = 1) {
    std::array<MeshAxisValue, 5> mesh;
    int stride = 1;
    for (std::size_t i = mesh.size(); i-- > 0;) {
        int const extent = static_cast<int>(c.extent(c.order[i]));
        mesh[i] = {.name = c.order[i], .extent = extent, .stride = stride};
        stride *= extent;
        if (c.order[i] == tp::name && model.attention.kv_heads > 0)
            mesh[i].inner = static_cast<int>(std::max<std::int64_t>(1, c.tp / model.attention.kv_heads));
        if (c.order[i] == pp::name) mesh[i].inner = copies;
        if (c.order[i] == dp::name && c.zero_ranks > 0) mesh[i].inner = static_cast<int>(c.zero_ranks);
    }
    return mesh;
}

/// Adds up what the parts of a model do. Sizes are a rank's own, for one micro-batch.
class Work {
  public:
    /// @param nodes to which dispatch takes a token once each: dispatch_nodes()
    Work(Model const& model, Configuration const& c, std::int64_t nodes = 1)
        : model_(&model), c_(&c), nodes_(nodes), mesh_(mesh_of(c, model)), size_(size_of(c.element)),
          tokens_(static_cast<double>(c.micro_batch * c.seq) / static_cast<double>(c.cp)),
          streamed_(c.sequence_parallel ? tokens_ / static_cast<double>(c.tp) : tokens_),
          hidden_(static_cast<double>(model.hidden)), tp_(static_cast<double>(c.tp)) {}

    [[nodiscard]] std::vector<Operation> const& operations() const { return operations_; }
    [[nodiscard]] double tokens() const { return tokens_; }     ///< of a rank
    [[nodiscard]] double streamed() const { return streamed_; } ///< where the residual stream is sharded over tp too
    /// Heads of keys and values of a rank; those of latent attention are made for each head of queries.
    [[nodiscard]] double kv_heads() const {
        auto const& a = model_->attention;
        if (a.is_latent()) return static_cast<double>(a.heads) / tp_;
        return static_cast<double>(a.kv_heads) /
               static_cast<double>(std::min(c_->tp, std::max<std::int64_t>(1, a.kv_heads)));
    }

    void layer(std::int64_t number) {
        if (model_->attention.heads > 0)
            attention();
        else if (model_->mamba.heads > 0)
            mamba();
        if (model_->has_experts(number))
            experts();
        else if (model_->ffn > 0)
            feed_forward("feed-forward", static_cast<double>(model_->ffn), tokens_, true);
    }
    void embedding() {
        vector("embedding", 2 * tokens_ * hidden_, 6, 2 * tokens_ * hidden_, 6);
        gathered_from_partial("embedding");
    }
    /// The last norm, the logits and the cross-entropy.
    void head() {
        norm("last norm", streamed_);
        whole_from_stream("head");
        double const vocab = static_cast<double>((model_->vocab + c_->tp - 1) / c_->tp);
        product("head", tokens_, vocab, hidden_);
        // Each pass over the logits: largest, sum of exponentials, target; then their gradient.
        vector("cross-entropy", 3 * tokens_ * vocab, 12, 2 * tokens_ * vocab, 8);
        using Value = Layout<f32, Dims<Dim<batch, dynamic, dp, ep>, Dim<seq, dynamic, cp>>>;
        using Sum = Layout<f32, Dims<Dim<batch, dynamic, dp, ep>, Dim<seq, dynamic, cp>>, Partial<tp>>;
        for (auto const* name : {"log-sum-exp", "target logit"})
            send<Sum, Value>(name, Direction::forward, std::array{batch_extent(), extent(c_->seq)},
                             accumulator_size(c_->element));
    }

  private:
    static std::size_t extent(std::int64_t n) { return static_cast<std::size_t>(n); }
    [[nodiscard]] std::size_t batch_extent() const { return extent(c_->micro_batch * c_->dp * c_->ep); }

    // --- operations

    /// y = x W^T of [rows, inner] and [columns, inner], and its two products backward; rows are shared out over as many
    /// experts.
    void product(std::string_view name, double rows, double columns, double inner, double count = 1,
                 double experts = 1) {
        double const flops = 2 * rows * columns * inner * count;
        double const activations = rows * (columns + inner) * count, weights = columns * inner * count * experts;
        add({name, Kind::product, Direction::forward, flops, size_ * (activations + weights)});
        add({name, Kind::product, Direction::backward_data, flops, size_ * (activations + weights)});
        add({.name = name,
             .kind = Kind::product,
             .direction = Direction::backward_weight,
             .flops = flops,
             .bytes = size_ * activations + 2 * accumulator_size(c_->element) * weights,
             .dispatches = 2});
    }
    /// Elements read and written, and what a framework starts for it.
    void vector(std::string_view name, double forward, double starts, double backward, double backward_starts) {
        add({.name = name, .kind = Kind::vector, .bytes = size_ * forward, .dispatches = starts});
        add({.name = name,
             .kind = Kind::vector,
             .direction = Direction::backward_data,
             .bytes = size_ * backward,
             .dispatches = backward_starts});
    }
    /// A fused kernel that computes again, in the backward pass, what it has not kept: 5 products for 2.
    void fused(std::string_view name, double flops, double bytes, double starts, double backward_bytes,
               double backward_starts) {
        add({.name = name, .kind = Kind::attention, .flops = flops, .bytes = bytes, .dispatches = starts});
        add({.name = name,
             .kind = Kind::attention,
             .direction = Direction::backward_data,
             .flops = 2.5 * flops,
             .bytes = backward_bytes,
             .dispatches = backward_starts});
    }
    void norm(std::string_view name, double rows) { vector(name, 2 * rows * hidden_, 6, 4 * rows * hidden_, 9); }
    void residual() { vector("residual", 3 * streamed_ * hidden_, 1, 3 * streamed_ * hidden_, 1); }

    void add(Operation operation) { operations_.push_back(operation); }

    // --- what is sent

    /// What the plan between two layouts sends, a whole axis at a time.
    template <class From, class To, std::size_t Rank>
    void send(std::string_view name, Direction direction, std::array<std::size_t, Rank> const& extents,
              double element_size) {
        LayoutValue from = From::value;
        from.element_size = static_cast<std::size_t>(element_size);
        auto const cost = cost_of(Plan<From, To>::value, from, extents, mesh_);
        for (std::size_t i = 0; i < cost.axes.size(); ++i) {
            if (cost.bytes[i] == 0) continue;
            double const steps = find_axis(mesh_, cost.axes[i]).extent - 1;
            communicate(name, direction, whole_axis_name(cost.axes[i]), cost.bytes[i],
                        (is_sum_kept_whole<From, To> ? 2 : 1) * steps);
        }
    }
    /// An all-reduce goes twice round.
    template <class From, class To>
    static constexpr bool is_sum_kept_whole = [] {
        for (auto const& step : Plan<From, To>::value)
            if (step.kind == StepKind::all_reduce) return true;
        return false;
    }();
    /// A redistribution of the residual stream, and its adjoint.
    template <class From, class To>
    void redistribution(std::string_view name, std::size_t columns, double element_size) {
        std::array const extents{batch_extent(), extent(c_->seq), columns};
        send<From, To>(name, Direction::forward, extents, element_size);
        send<dual_t<To>, dual_t<From>>(name, Direction::backward_data, extents, element_size);
    }
    void whole_from_stream(std::string_view name, std::size_t columns = 0, double element_size = 0) {
        auto const width = columns == 0 ? extent(model_->hidden) : columns;
        auto const size = element_size == 0 ? size_ : element_size;
        if (c_->sequence_parallel)
            redistribution<SequenceStream<f32>, GatheredStream<f32>>(name, width, size);
        else
            redistribution<InvariantStream<f32>, GatheredStream<f32>>(name, width, size);
    }
    void gathered_from_partial(std::string_view name) {
        if (c_->sequence_parallel)
            redistribution<PartialStream<f32>, SequenceStream<f32>>(name, extent(model_->hidden), size_);
        else
            redistribution<PartialStream<f32>, InvariantStream<f32>>(name, extent(model_->hidden), size_);
    }
    void communicate(std::string_view name, Direction direction, std::string_view axis, double bytes, double messages,
                     double meetings = 1, bool is_message = false) {
        add({.name = name,
             .kind = Kind::communication,
             .direction = direction,
             .bytes = bytes,
             .axis = axis,
             .messages = messages,
             .is_message = is_message,
             .meetings = meetings,
             .dispatches = 6});
    }

    // --- the layers

    void attention() {
        auto const& a = model_->attention;
        double const own = static_cast<double>(a.heads) / tp_, kv = kv_heads();
        double const keys = static_cast<double>(a.key_width()), values = static_cast<double>(a.value_width());
        norm("attention norm", streamed_);
        whole_from_stream("attention input");
        if (a.is_latent()) {
            // The projections to the latent vectors are small, and every rank of tp does them.
            double const query = static_cast<double>(a.query_rank), latent = static_cast<double>(a.kv_rank);
            double const rope = static_cast<double>(a.rope_dim), plain = static_cast<double>(a.head_dim);
            if (query > 0) product("query latent", tokens_, query, hidden_);
            product("query", tokens_, own * keys, query > 0 ? query : hidden_);
            product("key, value latent", tokens_, latent + rope, hidden_);
            product("key, value", tokens_, own * (plain + values), latent);
            vector("latent norms", 2 * tokens_ * (query + latent), 12, 4 * tokens_ * (query + latent), 18);
        } else {
            product("query", tokens_, own * keys, hidden_);
            product("key", tokens_, kv * keys, hidden_);
            product("value", tokens_, kv * values, hidden_);
        }
        double const rotated = tokens_ * (own + kv) * keys;
        vector("rotary embedding", 2 * rotated, 12, 2 * rotated, 14);
        exchange_keys(kv * (keys + values));
        attention_core(own, kv, keys, values);
        product("attention output", tokens_, hidden_, own * values);
        gathered_from_partial("attention output");
        residual();
    }
    /// Keys and values of `width` elements a token go to the other ranks of cp: forward, again backward, and their
    /// gradients come home in accumulators. Round a ring, from neighbour to neighbour, or gathered at once.
    void exchange_keys(double width) {
        double const n = static_cast<double>(c_->cp);
        if (n == 1) return;
        bool const goes_round = c_->context == ContextStrategy::ring;
        double const others = (n - 1) * tokens_ * width, meetings = goes_round ? n - 1 : 1;
        auto const exchange = [&](std::string_view name, Direction direction, double size) {
            communicate(name, direction, cp::name, size * others, n - 1, meetings, goes_round);
        };
        exchange("keys, values", Direction::forward, size_);
        exchange("keys, values", Direction::backward_data, size_);
        exchange("their gradients", Direction::backward_data, accumulator_size(c_->element));
    }
    /// The causal half of softmax(q k^T) v; backward computes the scores again (Dao 2023, section 2.3). Where a rank of
    /// cp has one piece of the sequence, the last one sees the most.
    void attention_core(double heads, double kv, double keys, double values) {
        double const n = static_cast<double>(c_->cp);
        double const share = c_->zigzag ? 1 / n : (2 * n - 1) / (n * n);
        double const sequence = static_cast<double>(c_->seq);
        double const flops =
            static_cast<double>(c_->micro_batch) * sequence * sequence * share * heads * (keys + values);
        double const moved = size_ * tokens_ * (heads * (keys + values) + kv * (keys + values));
        fused("attention", flops, moved, 4, 2 * moved, 5);
    }
    /// A dense block of width `ffn`, or experts on their `rows`.
    void feed_forward(std::string_view name, double ffn, double rows, bool whole, double experts = 1) {
        double const width = ffn / tp_;
        bool const gated = model_->feed_forward == FeedForward::swiglu;
        if (whole) {
            norm("feed-forward norm", streamed_);
            whole_from_stream("feed-forward input");
        }
        product(name, rows, width, hidden_, gated ? 2 : 1, experts);
        bool const again = c_->recompute == Recompute::selective;
        double const activated = (gated ? 3 : 2) * rows * width;
        vector(gated ? "swiglu" : "gelu", activated, 2, (again ? activated : 0) + (gated ? 5 : 3) * rows * width,
               again ? 5 : 3);
        product(name, rows, hidden_, width, 1, experts);
        if (!whole) return;
        gathered_from_partial("feed-forward output");
        residual();
    }
    void experts() {
        auto const& e = model_->experts;
        double const count = static_cast<double>(e.count), top_k = static_cast<double>(e.top_k);
        double const n = static_cast<double>(c_->ep);
        norm("feed-forward norm", streamed_);
        product("router", streamed_, count, hidden_);
        vector("router", 4 * streamed_ * count, 20, 4 * streamed_ * count, 20);
        using Counted = summed_t<f64, Dims<Dim<expert>>, InvariantStream<f32>>;
        using CountedInPieces = summed_t<f64, Dims<Dim<expert>>, SequenceStream<f32>>;
        std::array const sums{extent(2 * e.count + 1)};
        if (c_->sequence_parallel)
            send<CountedInPieces, invariant_t<CountedInPieces>>("router losses", Direction::forward, sums, 8);
        else
            send<Counted, invariant_t<Counted>>("router losses", Direction::forward, sums, 8);
        // The choices have no gradient; the weights of the choices do.
        if (c_->sequence_parallel)
            send<SequenceStream<i32>, GatheredStream<i32>>(
                "choices", Direction::forward, std::array{batch_extent(), extent(c_->seq), extent(e.top_k)}, 4);
        whole_from_stream("choices", extent(e.top_k), accumulator_size(c_->element));
        whole_from_stream("feed-forward input");

        double const rows = tokens_ * top_k;
        vector("permutation", 2 * rows * hidden_, 10, 2 * rows * hidden_, 10);
        dispatch(rows);
        // Of the rank's experts those that any of the tokens of all ranks of ep chooses, if all are as likely.
        double const chosen = count / n * (1 - std::pow(1 - top_k / count, tokens_ * n));
        feed_forward("experts", static_cast<double>(e.ffn), rows * e.imbalance, false, chosen);
        vector("weighted sum", 2 * rows * hidden_, 3, 3 * rows * hidden_, 6);
        if (e.shared > 0) feed_forward("shared experts", static_cast<double>(e.shared * e.ffn), tokens_, false);
        gathered_from_partial("feed-forward output");
        residual();
    }
    /// Rows go to their experts and back, forward and backward: in one hop over ep; or across nodes, a token once to
    /// each with what it chose there, and then within them (experts/dispatch.hpp).
    void dispatch(double rows) {
        auto const& e = model_->experts;
        if (c_->ep == 1) return;
        auto const sent = sent_rows_of_a_token(*model_, *c_, nodes_);
        bool const goes_by_node = nodes_ > 1;
        if (goes_by_node) {
            double const n = static_cast<double>(nodes_), top_k = static_cast<double>(e.top_k);
            double const here = // tokens on the node, those of other nodes too
                tokens_ * mean_groups_of_a_token({.experts = e.count, .groups = nodes_, .top_k = e.top_k});
            double const across = tokens_ * sent.across, weights = top_k * accumulator_size(c_->element);
            vector("rows by node", (3 * here + tokens_) * hidden_, 10, (3 * here + tokens_) * hidden_, 10);
            communicate("row counts across nodes", Direction::forward, outer<ep>::name, 8 * (n - 1), n - 1);
            communicate("choices across nodes", Direction::forward, outer<ep>::name, across * 2 * weights, n - 1, 1,
                        true);
            communicate("choices across nodes", Direction::backward_data, outer<ep>::name, across * weights, n - 1, 1,
                        true);
            exchange_rows("dispatch across nodes", "combine across nodes", outer<ep>::name, across, n);
        }
        double const n = static_cast<double>(c_->ep / nodes_), experts = static_cast<double>(e.count / nodes_);
        if (n == 1) return;
        auto const axis = goes_by_node ? inner<ep>::name : ep::name;
        // Rows come from rank after rank, and are put in the order of the experts.
        vector("exchanged rows", 2 * rows * hidden_, 4, 2 * rows * hidden_, 4);
        communicate("row counts", Direction::forward, axis, 8 * experts * (n - 1) / n, n - 1);
        exchange_rows("dispatch", "combine", axis, tokens_ * sent.inside, n);
    }
    void exchange_rows(std::string_view there, std::string_view back, std::string_view axis, double rows, double n) {
        for (auto const direction : {Direction::forward, Direction::backward_data})
            for (auto const name : {there, back})
                communicate(name, direction, axis, size_ * rows * hidden_, n - 1, 1, true);
    }
    /// The chunked scan of Mamba-2 (Dao and Gu 2024, section 6): within chunks as attention without softmax, across
    /// them by states.
    void mamba() {
        auto const& m = model_->mamba;
        double const inner = static_cast<double>(m.inner()) / tp_, heads = static_cast<double>(m.heads) / tp_;
        double const groups = std::max(1.0, static_cast<double>(m.groups) / tp_);
        double const state = static_cast<double>(m.state), width = static_cast<double>(m.head_dim);
        double const chunk = static_cast<double>(std::min(m.chunk, c_->seq));
        double const mixed = inner + 2 * groups * state;
        norm("mixer norm", streamed_);
        whole_from_stream("mixer input");
        product("mixer input", tokens_, inner + mixed + heads, hidden_);
        vector("convolution", 2 * tokens_ * mixed, 4, 4 * tokens_ * mixed, 8);
        double const scan = tokens_ * (groups * chunk * state        // C B^T, the causal half
                                       + heads * chunk * width       // times x
                                       + 4 * heads * state * width); // into the states, and out of them
        double const states = tokens_ / chunk * heads * state * width;
        double const moved = size_ * tokens_ * (2 * inner + 2 * groups * state) + 4 * 2 * states;
        fused("scan", scan, moved, 20, 3 * moved, 40);
        if (c_->cp > 1) {
            double const n = static_cast<double>(c_->cp);
            double const carry = 4 * static_cast<double>(c_->micro_batch) * heads * state * width;
            for (auto const direction : {Direction::forward, Direction::backward_data})
                communicate("states", direction, cp::name, carry * (n - 1) / n, n - 1);
        }
        vector("gated norm", 4 * tokens_ * inner, 10, 7 * tokens_ * inner, 14);
        product("mixer output", tokens_, hidden_, inner);
        gathered_from_partial("mixer output");
        residual();
    }

    Model const* model_;
    Configuration const* c_;
    std::int64_t nodes_;
    std::array<MeshAxisValue, 5> mesh_;
    double size_, tokens_, streamed_, hidden_, tp_;
    std::vector<Operation> operations_;
};

} // namespace pentad::planner

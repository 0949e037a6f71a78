// The one redistribution that depends on data: tokens become rows sharded by expert over the axes that
// hold different experts, ep or ep and tp, and come back. Dropless: every chosen (token, slot) counts. Across nodes a
// token goes once to each node.
#pragma once

#include <pentad/experts/detail/expected_nodes.hpp>
#include <pentad/experts/detail/row_exchange.hpp>
#include <pentad/kernels/choices.hpp>
#include <pentad/layout/ml.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace pentad::experts {

using namespace ml;

/// Experts on the ranks of ep, the width of each sharded over tp (model::ExpertSharding::width).
struct ShardedExperts {
    using Axes = AxisSet<ep>; ///< that hold different experts, major to minor
    using Expert = Dim<expert, dynamic, ep>;
    using Width = Dim<ffn, dynamic, tp>;
    template <class Stream>
    using routed = Stream; ///< tokens that the router works on
    template <class Stream>
    using sent = gathered_stream_t<Stream>; ///< tokens that go to the experts
    template <class Stream>
    using returned = partial_stream_t<Stream>;
};
/// Whole experts on the ranks of ep and tp, which have different tokens (model::ExpertSharding::whole).
struct WholeExperts {
    using Axes = AxisSet<ep, tp>;
    using Expert = Dim<expert, dynamic, ep, tp>;
    using Width = Dim<ffn>;
    template <class Stream>
    using routed = dealt_stream_t<Stream>;
    template <class Stream>
    using sent = dealt_stream_t<Stream>;
    template <class Stream>
    using returned = dealt_stream_t<Stream>;
};

namespace detail {
template <class Tokens, class Expert, class Set>
struct OfRows;
template <class T, class D, class... States, class Expert, class... Axes>
struct OfRows<Layout<T, D, States...>, Expert, AxisSet<Axes...>> {
    using type = Layout<T, Dims<Dim<token, dynamic, Axes...>, Dim<hidden>>, States...>;
    using by_expert = Layout<T, Dims<Expert, Dim<token, dynamic, Axes...>, Dim<hidden>>, States...>;
};
template <class Tokens, class Experts>
using RowLayouts = OfRows<Tokens, typename Experts::Expert, minus_t<sharded_axes_t<Tokens>, typename Experts::Axes>>;
} // namespace detail

/// Tokens as rows in the order of their experts, as the experts' products see them: sharded by expert, and over the
/// axes that share out the tokens otherwise; replicated over the axis that shards the experts' width.
template <class Tokens, class Experts>
using dispatched_t = typename detail::RowLayouts<Tokens, Experts>::by_expert;
/// The rows of one expert.
template <class Tokens, class Experts>
using expert_rows_t = typename detail::RowLayouts<Tokens, Experts>::type;

/// How many choices tokens have, in slots of which some may be empty.
struct Routed {
    double tokens = 1;                      ///< the part of the tokens that choose at all
    double choices = 1;                     ///< of each of these, in the mean: what a dry run takes them to be
    bool fills_all = true;                  ///< every slot of every token that chooses names an expert
    std::size_t groups = 1, top_groups = 1; ///< of experts: a token chooses within the best
};

/// For the tokens of one micro-batch in one layer: y = D' w E(D x), where D copies rows, E are the experts and w weighs
/// what they give. Filled by `route`; kept until the backward pass.
///
/// Where ep goes across nodes, D = I N: N takes a token once to each node that holds experts of its, to
/// the rank of the same number there, and its choices and weights along with it; I takes it from there to the ranks of
/// these experts. So y = N' (I' w E(I (N x))): a node's experts are summed there, rounded to T, and one row for each
/// token and node comes back.
/// @tparam Axes that hold different experts, major to minor: ep first
template <class T, class Exec, class Axes = AxisSet<ep>>
class Dispatch {
  public:
    using A = accumulator_t<T>;

    /// Whether tokens of so many choices each go by node. The first call makes the communicators, which is collective
    /// over the axes.
    static bool goes_by_node(Context<Exec> const& context, std::size_t top_k) {
        auto& communicators = context.communicators();
        (void)communicators.along(Axes::names);
        if (top_k < 2 || !communicators.split_by_node(ep::name)) return false;
        (void)communicators.along(AxisNames(outer<ep>::name));
        return communicators.along(on_a_node()).nodes().count() == 1;
    }
    /// @param choice [tokens, slots] experts, of which each rank along the axes holds as many; slots from the first on
    /// that is negative name none
    /// @param weight the same shape
    void route(Context<Exec> const& context, View<i32 const, 2, Exec> choice, View<A const, 2, Exec> weight,
               std::size_t experts, Routed const& routed) {
        using enum kernels::Chosen;
        auto& communicators = context.communicators();
        goes_by_node_ = goes_by_node(context, choice.extent(1));
        if (!goes_by_node_) {
            auto const& ranks = communicators.along(Axes::names);
            if (routed.tokens < 1 || !routed.fills_all)
                inside_.template route<sometimes>(context, ranks, choice, experts,
                                                  routed.choices / static_cast<double>(choice.extent(1)),
                                                  routed.tokens);
            else
                inside_.template route<always>(context, ranks, choice, experts);
            return;
        }
        auto const& exec = context.exec();
        auto const& across = communicators.along(AxisNames(outer<ep>::name));
        auto const nodes = static_cast<std::size_t>(across.size());
        std::size_t const tokens = choice.extent(0), top_k = choice.extent(1), experts_of_node = experts / nodes;
        RowBuffer<i32, Exec> const node(context, tokens, std::min(top_k, nodes));
        kernels::nodes_of_choices(exec, choice, static_cast<int>(experts_of_node), node.view());
        double const visited = detail::expected_nodes(experts, nodes, routed.choices, routed.groups, routed.top_groups);
        across_.template route<sometimes>(context, across, node.view(), nodes,
                                          visited / static_cast<double>(node.columns), routed.tokens);

        RowBuffer<A, Exec> packed(context, across_.leaving(), 2 * top_k);
        place_ = RowBuffer<i32, Exec>(context, tokens, top_k);
        kernels::pack_choices<A>(exec, choice, weight, static_cast<int>(experts_of_node), node.view(),
                                 across_.position(), packed.view(), place_.view());
        auto const unpacked = across_.to_experts(context, std::move(packed));
        RowBuffer<i32, Exec> const chosen_here(context, unpacked.count, top_k);
        weight_ = RowBuffer<A, Exec>(context, unpacked.count, top_k);
        kernels::unpack_choices<A>(exec, unpacked.view(), chosen_here.view(), weight_.view());
        inside_.template route<sometimes>(context, communicators.along(on_a_node()), chosen_here.view(),
                                          experts_of_node, routed.choices / static_cast<double>(top_k) / visited);
    }

    /// Offsets of the local experts' rows: local experts + 1 numbers.
    [[nodiscard]] std::span<i64 const> offsets() const { return inside_.offsets(); }
    [[nodiscard]] std::size_t rows() const { return inside_.rows(); }

    /// D x: the tokens x [tokens, hidden] as rows of the local experts.
    RowBuffer<T, Exec> forward(Context<Exec> const& context, View<T const, 2, Exec> x) {
        if (!goes_by_node_) return inside_.template forward<T>(context, x);
        auto const here = across_.template forward<T>(context, x);
        return inside_.template forward<T>(context, here.view());
    }
    /// Its adjoint, D' drows: the gradient of the tokens from that of the rows.
    void backward(Context<Exec> const& context, RowBuffer<T, Exec> drows, View<T, 2, Exec> dx) {
        if (!goes_by_node_) return inside_.template backward<T>(context, std::move(drows), dx);
        RowBuffer<T, Exec> dhere(context, across_.rows(), dx.extent(1));
        inside_.template backward<T>(context, std::move(drows), dhere.view());
        across_.template backward<T>(context, std::move(dhere), dx);
    }

    /// D' w out: the sum of what a token's experts give, by `weight`, that of `route`. Keeps `out` for its backward.
    void combine(Context<Exec> const& context, RowBuffer<T, Exec> out, View<A const, 2, Exec> weight,
                 View<T, 2, Exec> y) {
        output_ = inside_.from_experts(context, std::move(out));
        auto const sum = [&](View<A const, 2, Exec> w, View<T, 2, Exec> to) {
            kernels::combine_forward<T>(context.exec(), output_.view(), inside_.position(), w, to);
        };
        if (!goes_by_node_) return sum(weight, y);
        RowBuffer<T, Exec> here(context, across_.rows(), y.extent(1));
        sum(weight_.view(), here.view());
        across_.template backward<T>(context, std::move(here), y);
    }
    /// The gradients of the rows, w D dy, which it returns, and of the weights.
    RowBuffer<T, Exec> combine_backward(Context<Exec> const& context, View<T const, 2, Exec> dy,
                                        View<A const, 2, Exec> weight, View<A, 2, Exec> dweight) {
        auto const weigh = [&](View<T const, 2, Exec> d, View<A const, 2, Exec> w, View<A, 2, Exec> dw) {
            kernels::combine_backward<T>(context.exec(), d, output_.view(), inside_.position(), w, output_.view(), dw);
        };
        if (goes_by_node_) {
            auto const here = across_.template forward<T>(context, dy);
            RowBuffer<A, Exec> dweight_here(context, weight_.count, weight_.columns);
            weigh(here.view(), weight_.view(), dweight_here.view());
            auto const back = across_.from_experts(context, std::move(dweight_here));
            kernels::take_places<A>(context.exec(), back.flat(), place_.flat(),
                                    View<A, 1, Exec>(dweight.data(), dweight.size()));
        } else
            weigh(dy, weight, dweight);
        return inside_.to_experts(context, std::move(output_));
    }

  private:
    /// The axes within a node, where ep goes across nodes.
    static AxisNames on_a_node() {
        AxisNames names;
        for (auto const name : Axes::names) names.push(name == ep::name ? inner<ep>::name : name);
        return names;
    }

    bool goes_by_node_ = false;
    RowExchange<Exec> across_;   ///< from node to node, which are what is chosen
    RowExchange<Exec> inside_;   ///< to the experts, of a node or of all
    RowBuffer<i32, Exec> place_; ///< of each choice among those that arrive here again
    RowBuffer<A, Exec> weight_;  ///< of the choices of the tokens that are here
    RowBuffer<T, Exec> output_;  ///< what the experts gave, by choice
};

} // namespace pentad::experts

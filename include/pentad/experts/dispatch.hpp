// The one redistribution that depends on data: tokens become rows in the order of experts, which ep shards, and come
// back. Dropless: every chosen (token, slot) counts. A token goes once to each rank, and across nodes once to each
// node.
#pragma once

#include <pentad/experts/detail/expected_nodes.hpp>
#include <pentad/experts/detail/row_exchange.hpp>
#include <pentad/experts/detail/row_gather.hpp>
#include <pentad/kernels/choices.hpp>
#include <pentad/layout/ml.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

namespace pentad::experts {

using namespace ml;

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
/// D = P G H: hops H take a token once to each place that holds experts of its, and its choices and weights along with
/// it. Where ep goes across nodes these are first the nodes, to the rank of the same number there, then the ranks of
/// that node; else the ranks of ep. G gathers what arrived over the ranks of etp, which share the width of the same
/// experts, and P sorts it by expert. So y = H' G' (P' w E(D x)): what a token's experts give is summed where they are,
/// rounded to T, and one row for each token and place comes back.
template <class T, class Exec>
class Dispatch {
  public:
    using A = accumulator_t<T>;

    /// Whether tokens of so many choices each go by node. The first call makes the communicators, which is collective
    /// over ep and etp.
    static bool goes_by_node(Context<Exec> const& context, std::size_t top_k) {
        auto& communicators = context.communicators();
        (void)communicators.along(AxisNames(ep::name));
        (void)communicators.along(AxisNames(etp::name));
        if (top_k < 2 || !communicators.split_by_node(ep::name)) return false;
        (void)communicators.along(AxisNames(outer<ep>::name));
        return communicators.along(AxisNames(inner<ep>::name)).nodes().count() == 1;
    }
    /// @param choice [tokens, slots] experts, of which each rank of ep holds as many; slots from the first on that is
    /// negative name none
    /// @param weight the same shape
    /// @param element in which rows travel to the experts, and their gradients; fp8: sums come back in bf16
    void route(Context<Exec> const& context, View<i32 const, 2, Exec> choice, View<A const, 2, Exec> weight,
               std::size_t experts, Routed const& routed, Compact element = Compact::none) {
        element_ = element;
        using enum kernels::Chosen;
        auto& communicators = context.communicators();
        bool const by_node = goes_by_node(context, choice.extent(1));
        hop_count_ = 0;
        auto const top_k = static_cast<double>(choice.extent(1));
        Choices here{choice, weight, experts, experts, routed.choices, routed.tokens};
        if (by_node) hop(context, communicators.along(AxisNames(outer<ep>::name)), routed, here);
        auto const& ranks = communicators.along(AxisNames(by_node ? inner<ep>::name : ep::name));
        if (ranks.size() > 1) hop(context, ranks, routed, here);
        gather_.route(context, communicators.along(AxisNames(etp::name)), here.choice.extent(0));
        if (!gather_.is_of_one()) {
            choice_ = gather_.template gather<i32>(context, here.choice);
            weight_ = gather_.template gather<A>(context, here.weight);
            here.choice = choice_.view();
        }
        auto const& self = communicators.along(AxisNames());
        if (is_local() && routed.tokens >= 1 && routed.fills_all)
            sorted_.template route<always>(context, self, here.choice, here.experts);
        else
            sorted_.template route<sometimes>(context, self, here.choice, here.experts, here.choices / top_k,
                                              here.tokens);
        choice_ = {};
    }

    /// Offsets of the local experts' rows: local experts + 1 numbers.
    [[nodiscard]] std::span<i64 const> offsets() const { return sorted_.offsets(); }
    [[nodiscard]] std::size_t rows() const { return sorted_.rows(); }

    /// D x: the tokens x [tokens, hidden] as rows of the local experts.
    RowBuffer<T, Exec> forward(Context<Exec> const& context, View<T const, 2, Exec> x) {
        if (is_local()) return sorted_.template forward<T>(context, x);
        auto const here = to_experts(context, x);
        return sorted_.template forward<T>(context, here.view());
    }
    /// Its adjoint, D' drows: the gradient of the tokens from that of the rows.
    void backward(Context<Exec> const& context, RowBuffer<T, Exec> drows, View<T, 2, Exec> dx) {
        if (is_local()) return sorted_.template backward<T>(context, std::move(drows), dx);
        RowBuffer<T, Exec> dhere(context, gather_.rows(), dx.extent(1));
        sorted_.template backward<T>(context, std::move(drows), dhere.view());
        from_experts(context, std::move(dhere), dx);
    }

    /// D' w out: the sum of what a token's experts give, by `weight`, that of `route`. Keeps `out` for its backward.
    void combine(Context<Exec> const& context, RowBuffer<T, Exec> out, View<A const, 2, Exec> weight,
                 View<T, 2, Exec> y) {
        output_ = std::move(out);
        auto const sum = [&](View<A const, 2, Exec> w, View<T, 2, Exec> to) {
            kernels::combine_forward<T>(context.exec(), output_.view(), sorted_.position(), w, to);
        };
        if (is_local()) return sum(weight, y);
        RowBuffer<T, Exec> here(context, gather_.rows(), y.extent(1));
        sum(weight_.view(), here.view());
        from_experts(context, std::move(here), y);
    }
    /// The gradients of the rows, w D dy, which it returns, and of the weights.
    RowBuffer<T, Exec> combine_backward(Context<Exec> const& context, View<T const, 2, Exec> dy,
                                        View<A const, 2, Exec> weight, View<A, 2, Exec> dweight) {
        auto const weigh = [&](View<T const, 2, Exec> d, View<A const, 2, Exec> w, View<A, 2, Exec> dw) {
            kernels::combine_backward<T>(context.exec(), d, output_.view(), sorted_.position(), w, output_.view(), dw);
        };
        if (is_local()) {
            weigh(dy, weight, dweight);
            return std::move(output_);
        }
        auto const here = to_experts(context, dy);
        RowBuffer<A, Exec> dhere(context, weight_.count, weight_.columns);
        weigh(here.view(), weight_.view(), dhere.view());
        if (hop_count_ == 0) {
            gather_.template scatter_sum<A>(context, dhere.view(), dweight); // of the shares of the width
            return std::move(output_);
        }
        if (!gather_.is_of_one()) {
            RowBuffer<A, Exec> own(context, hops_[hop_count_ - 1].rows(), dhere.columns);
            gather_.template scatter_sum<A>(context, dhere.view(), own.view());
            dhere = std::move(own);
        }
        for (std::size_t h = hop_count_; h-- > 0;) {
            auto const back = hops_[h].template from_experts<A>(context, std::move(dhere));
            if (h > 0) dhere = RowBuffer<A, Exec>(context, entry_[h].count, entry_[h].columns);
            kernels::take_entries<A>(context.exec(), back.flat(), entry_[h].flat(),
                                     h > 0 ? dhere.flat() : View<A, 1, Exec>(dweight.data(), dweight.size()));
        }
        return std::move(output_);
    }

  private:
    /// What the tokens that have come to a place chose there.
    struct Choices {
        View<i32 const, 2, Exec> choice; ///< of the experts of the place, numbered from 0
        View<A const, 2, Exec> weight;
        std::size_t all;     ///< experts
        std::size_t experts; ///< of the place
        double choices;      ///< of a token, in the mean
        double tokens;       ///< the part of the tokens that choose at all
    };

    [[nodiscard]] bool is_local() const { return hop_count_ == 0 && gather_.is_of_one(); }

    /// Tokens go to the ranks of a group, which share out the experts.
    void hop(Context<Exec> const& context, comm::Communicator const& comm, Routed const& routed, Choices& here) {
        auto const& exec = context.exec();
        auto const places = static_cast<std::size_t>(comm.size());
        std::size_t const tokens = here.choice.extent(0), top_k = here.choice.extent(1),
                          experts = here.experts / places;
        auto& exchange = hops_[hop_count_];
        auto& entry = entry_[hop_count_];
        RowBuffer<i32, Exec> const chosen(context, tokens, std::min(top_k, places));
        kernels::places_of_choices(exec, here.choice, static_cast<int>(experts), chosen.view());
        // Of all places of this size, and of those that a token meets after the hop before.
        double const visited = detail::expected_nodes(here.all, here.all / experts, routed.choices, routed.groups,
                                                      routed.top_groups),
                     of_row = visited * here.choices / routed.choices;
        exchange.template route<kernels::Chosen::sometimes>(context, comm, chosen.view(), places,
                                                            of_row / static_cast<double>(chosen.columns), here.tokens);
        RowBuffer<A, Exec> packed(context, exchange.leaving(), 2 * top_k);
        entry = RowBuffer<i32, Exec>(context, tokens, top_k);
        kernels::pack_choices<A>(exec, here.choice, here.weight, static_cast<int>(experts), chosen.view(),
                                 exchange.position(), packed.view(), entry.view());
        auto const unpacked = exchange.to_experts(context, std::move(packed));
        choice_ = RowBuffer<i32, Exec>(context, unpacked.count, top_k);
        weight_ = RowBuffer<A, Exec>(context, unpacked.count, top_k);
        kernels::unpack_choices<A>(exec, unpacked.view(), choice_.view(), weight_.view());
        here = {choice_.view(), weight_.view(), here.all, experts, routed.choices / visited, 1};
        ++hop_count_;
    }
    /// G H x.
    RowBuffer<T, Exec> to_experts(Context<Exec> const& context, View<T const, 2, Exec> x) {
        RowBuffer<T, Exec> here;
        for (std::size_t h = 0; h < hop_count_; ++h)
            here = hops_[h].template forward<T>(context, h > 0 ? View<T const, 2, Exec>(here.view()) : x, element_);
        if (gather_.is_of_one()) return here;
        return gather_.template gather<T>(context, hop_count_ > 0 ? View<T const, 2, Exec>(here.view()) : x);
    }
    /// Its adjoint.
    void from_experts(Context<Exec> const& context, RowBuffer<T, Exec> here, View<T, 2, Exec> x) {
        if (!gather_.is_of_one()) {
            if (hop_count_ == 0) return gather_.template scatter_sum<T>(context, here.view(), x);
            RowBuffer<T, Exec> own(context, hops_[hop_count_ - 1].rows(), here.columns);
            gather_.template scatter_sum<T>(context, here.view(), own.view());
            here = std::move(own);
        }
        for (std::size_t h = hop_count_; h-- > 0;) {
            RowBuffer<T, Exec> before;
            if (h > 0) before = RowBuffer<T, Exec>(context, hops_[h - 1].rows(), here.columns);
            hops_[h].template backward<T>(context, std::move(here), h > 0 ? before.view() : x,
                                          element_ == Compact::none ? Compact::none : Compact::bf16);
            here = std::move(before);
        }
    }

    Compact element_ = Compact::none;
    std::size_t hop_count_ = 0;
    std::array<RowExchange<Exec>, 2> hops_;
    std::array<RowBuffer<i32, Exec>, 2> entry_; ///< of each choice among what a hop takes along
    RowGather<Exec> gather_;
    RowExchange<Exec> sorted_;    ///< by the experts of this rank
    RowBuffer<i32, Exec> choice_; ///< of the tokens that are here, while they are routed
    RowBuffer<A, Exec> weight_;   ///< of these choices, where tokens came from other ranks
    RowBuffer<T, Exec> output_;   ///< what the experts gave, by choice
};

} // namespace pentad::experts

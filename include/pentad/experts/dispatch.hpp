// The one redistribution that depends on data: tokens become rows in the order of experts, which ep shards, and come
// back. Dropless: every chosen (token, slot) counts. A token goes once to each rank, and across nodes once to each
// node.
#pragma once

#include <pentad/experts/detail/dispatch_parts.hpp>
#include <pentad/experts/detail/expected_nodes.hpp>
#include <pentad/experts/detail/row_exchange.hpp>
#include <pentad/experts/detail/row_gather.hpp>
#include <pentad/experts/detail/row_transfer.hpp>
#include <pentad/kernels/choices.hpp>
#include <pentad/kernels/elementwise.hpp>
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

/// How rows travel.
struct Travel {
    Compact element = Compact::none; ///< to the experts, and their gradients; fp8: sums come back in bf16
    /// 0: an exchange of rows is waited for where it begins; else it is waited for where its rows are needed, and rows
    /// travel in at most so many parts.
    std::size_t parts = 0;
};

/// For the tokens of one micro-batch in one layer: y = D' w E(D x), where D copies rows, E are the experts and w weighs
/// what they give. Filled by `route`; kept until the backward pass.
///
/// D = P G H: hops H take a token once to each place that holds experts of its, and its choices and weights along with
/// it. Where ep goes across nodes these are first the nodes, to the rank of the same number there, then the ranks of
/// that node; else the ranks of ep. G gathers what arrived over the ranks of etp, which share the width of the same
/// experts, and P sorts it by expert. So y = H' G' (P' w E(D x)): what a token's experts give is summed where they are,
/// rounded to T, and one row for each token and place comes back.
///
/// The first hop can be hidden: rows travel in parts (detail/dispatch_parts.hpp), of which each serves some experts of
/// a rank. These compute while the rows of the others are on their way. No sum depends on it.
template <class T, class Exec>
class Dispatch {
  public:
    using A = accumulator_t<T>;
    using Rows = RowBuffer<T, Exec>;
    using Part = DispatchPart<Exec>;

    /// Tokens, or their gradients, on their way to the experts.
    class Coming {
        friend Dispatch;
        View<T const, 2, Exec> tokens_;
        std::array<Rows, 2> landed_; ///< of each hop
        Rows gathered_;
        std::array<RowTransfer<T, Exec>, most_parts> transfers_; ///< of the first hop's parts
        RowBuffer<A, Exec> dweight_;                             ///< of the choices that are here; then as returned
        RowTransfer<A, Exec> dweight_transfer_;
    };
    /// Rows on their way back to their tokens, to become a sum for each.
    class Leaving {
      public:
        explicit Leaving(View<T, 2, Exec> tokens) : tokens_(tokens) {}

      private:
        friend Dispatch;
        View<T, 2, Exec> tokens_;
        std::array<Rows, 2> landed_; ///< of each hop
        std::array<RowTransfer<T, Exec>, most_parts> transfers_;
    };

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
    void route(Context<Exec> const& context, View<i32 const, 2, Exec> choice, View<A const, 2, Exec> weight,
               std::size_t experts, Routed const& routed, Travel const& travel = {}) {
        using enum kernels::Chosen;
        auto& communicators = context.communicators();
        bool const by_node = goes_by_node(context, choice.extent(1));
        auto const& all = communicators.along(AxisNames(ep::name));
        auto const& shares = communicators.along(AxisNames(etp::name));
        std::size_t const local = experts / static_cast<std::size_t>(all.size());
        travel_ = travel;
        // What etp gathers lies by rank, not by part. With one expert a part is of ranks, which one hop tells apart.
        std::size_t most = local > 1 ? local : static_cast<std::size_t>(all.size());
        if (all.size() == 1 || shares.size() > 1 || (local == 1 && by_node)) most = 1;
        parts_.begin(std::clamp<std::size_t>(travel.parts, 1, std::min(most, most_parts)), local);
        hop_count_ = 0;
        auto const top_k = static_cast<double>(choice.extent(1));
        Choices here{choice, weight, experts, experts, routed.choices, routed.tokens};
        if (by_node) hop(context, communicators.along(AxisNames(outer<ep>::name)), routed, here);
        auto const& ranks = by_node ? communicators.along(AxisNames(inner<ep>::name)) : all;
        if (ranks.size() > 1) hop(context, ranks, routed, here);
        gather_.route(context, shares, here.choice.extent(0));
        if (!gather_.is_of_one()) {
            choice_ = gather_.template gather<i32>(context, here.choice);
            weight_ = gather_.template gather<A>(context, here.weight);
            here.choice = choice_.view();
        }
        auto const& self = communicators.along(AxisNames());
        fills_all_ = is_local() && routed.tokens >= 1 && routed.fills_all;
        if (fills_all_)
            sorted_.template route<always>(context, self, here.choice, here.experts);
        else
            sorted_.template route<sometimes>(context, self, here.choice, here.experts, here.choices / top_k,
                                              here.tokens);
        choice_ = {};
        if (is_in_parts()) parts_.complete(context, {hops_.data(), hop_count_}, sorted_, weight_.view());
    }

    /// Offsets of the local experts' rows: local experts + 1 numbers.
    [[nodiscard]] std::span<i64 const> offsets() const { return sorted_.offsets(); }
    [[nodiscard]] std::size_t rows() const { return sorted_.rows(); }
    [[nodiscard]] std::size_t parts() const { return parts_.count(); }
    [[nodiscard]] Part part(std::size_t number) const {
        if (is_in_parts()) return parts_.part(number);
        return {0, 0, offsets().size() - 1, 0, rows(), offsets()};
    }

    /// D x: begins to take the tokens x [tokens, hidden], or gradients, to their experts.
    Coming start(Context<Exec> const& context, View<T const, 2, Exec> x) {
        Coming coming;
        coming.tokens_ = x;
        if (!is_hidden()) return coming;
        coming.landed_[0] = Rows(context, hops_[0].rows(), x.extent(1));
        if (is_in_parts())
            for (std::size_t i = 0; i < parts(); ++i)
                parts_.template start<T>(context, 0, hops_[0], i, x, coming.landed_[0].view(), travel_.element,
                                         coming.transfers_[i]);
        else
            coming.transfers_[0].start(context, hops_[0].comm(), hops_[0].template permuted<T>(context, x),
                                       hops_[0].sent(), coming.landed_[0].view(), hops_[0].received(), travel_.element);
        return coming;
    }
    /// What a part's experts get, once it has come. Parts are taken in order, here and below.
    void take(Context<Exec> const& context, Coming& coming, Part const& part, View<T, 2, Exec> rows) {
        auto const here = arrive(context, coming, part.number);
        auto const from = sources_of(part);
        kernels::gather_rows<T>(context.exec(), here, from.row, rows, from.divisor);
    }
    /// All of D x, waited for.
    Rows forward(Context<Exec> const& context, View<T const, 2, Exec> x) {
        auto coming = start(context, x);
        Rows all(context, rows(), x.extent(1));
        for (std::size_t i = 0; i < parts(); ++i) take(context, coming, part(i), part(i).of(all));
        return all;
    }

    /// D' drows: begins to take back the sums that no later part adds to.
    void give_back(Context<Exec> const& context, Part const& part, View<T const, 2, Exec> drows, Leaving& leaving) {
        give(context, part.number, leaving, [&](View<i32 const, 2, Exec> summands, View<T, 2, Exec> sums) {
            kernels::permute_backward<T>(context.exec(), summed(drows), summands, sums, false);
        });
    }
    /// D' w out, the same for what the experts give, weighed by `weight`, that of `route`.
    void combine(Context<Exec> const& context, Part const& part, View<T const, 2, Exec> out,
                 View<A const, 2, Exec> weight, Leaving& leaving) {
        auto const w = is_in_parts() ? parts_.summand_weight(part.number) : weight_here(weight);
        give(context, part.number, leaving, [&](View<i32 const, 2, Exec> summands, View<T, 2, Exec> sums) {
            kernels::combine_forward<T>(context.exec(), summed(out), summands, w, sums);
        });
    }
    /// Waits until all sums are with the tokens.
    void finish(Context<Exec> const& context, Leaving& leaving) {
        if (!is_hidden()) return;
        for (std::size_t i = 0; i < parts(); ++i) leaving.transfers_[i].finish(context);
        kernels::permute_backward<T>(context.exec(), leaving.landed_[0].view(),
                                     is_in_parts() ? parts_.slots() : hops_[0].position(), leaving.tokens_, false);
    }
    /// All of D' drows, waited for.
    void backward(Context<Exec> const& context, View<T const, 2, Exec> drows, View<T, 2, Exec> dx) {
        Leaving leaving(dx);
        for (std::size_t i = 0; i < parts(); ++i) give_back(context, part(i), drows, leaving);
        finish(context, leaving);
    }

    /// Begins to take the gradients dy of the sums to the experts, for take_gradients.
    Coming start_backward(Context<Exec> const& context, View<T const, 2, Exec> dy, View<A, 2, Exec> dweight) {
        auto coming = start(context, dy);
        if (!is_local()) coming.dweight_ = RowBuffer<A, Exec>(context, weight_.count, weight_.columns);
        auto const dw = is_local() ? dweight : coming.dweight_.view();
        if (!fills_all_) kernels::fill<A>(context.exec(), flat(dw), A(0)); // slots without a choice
        return coming;
    }
    /// Replaces `out`, the output of a part's experts, by its gradient, w D dy.
    void take_gradients(Context<Exec> const& context, Coming& coming, Part const& part, View<A const, 2, Exec> weight,
                        View<T, 2, Exec> out, View<A, 2, Exec> dweight) {
        auto const here = arrive(context, coming, part.number);
        auto const from = sources_of(part);
        auto const dw = is_local() ? dweight : coming.dweight_.view();
        kernels::combine_backward<T>(context.exec(), here, from.row, from.divisor, out, from.slot,
                                     flat(weight_here(weight)), out, flat(dw));
    }
    /// When all parts have been taken: begins to take dweight back to the ranks of the tokens, ahead of rows that
    /// leave later.
    void return_weight_gradients(Context<Exec> const& context, Coming& coming) {
        if (hop_count_ == 0) return;
        auto dhere = own_rows<A>(context, std::move(coming.dweight_));
        for (std::size_t h = hop_count_ - 1; h > 0; --h) {
            auto const back = hops_[h].template from_experts<A>(context, std::move(dhere));
            dhere = RowBuffer<A, Exec>(context, entry_[h].count, entry_[h].columns);
            kernels::take_entries<A>(context.exec(), back.flat(), entry_[h].flat(), dhere.flat());
        }
        coming.dweight_ = RowBuffer<A, Exec>(context, hops_[0].leaving(), dhere.columns);
        coming.dweight_transfer_.start(context, hops_[0].comm(), std::move(dhere), hops_[0].received(),
                                       coming.dweight_.view(), hops_[0].sent(), Compact::none);
    }
    /// After return_weight_gradients: dweight, on the ranks of the tokens.
    void finish_backward(Context<Exec> const& context, Coming& coming, View<A, 2, Exec> dweight) {
        if (is_local()) return;
        if (hop_count_ == 0) // of the shares of the width
            return gather_.template scatter_sum<A>(context, coming.dweight_.view(), dweight);
        coming.dweight_transfer_.finish(context);
        kernels::take_entries<A>(context.exec(), coming.dweight_.flat(), entry_[0].flat(), flat(dweight));
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
    [[nodiscard]] bool is_hidden() const { return hop_count_ > 0 && travel_.parts > 0; }
    [[nodiscard]] bool is_in_parts() const { return parts() > 1; }
    [[nodiscard]] Compact back_element() const {
        return travel_.element == Compact::none ? Compact::none : Compact::bf16;
    }
    /// The weights of the choices that are here.
    [[nodiscard]] View<A const, 2, Exec> weight_here(View<A const, 2, Exec> weight) const {
        return is_local() ? weight : View<A const, 2, Exec>(weight_.view());
    }
    template <class V>
    static View<typename V::value_type, 1, Exec> flat(V const& matrix) {
        return View<typename V::value_type, 1, Exec>(matrix.data(), matrix.size());
    }

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
        // The mean number of places of this size that a token visits: in total, and from one place of the hop before.
        double const visited = detail::expected_nodes(here.all, here.all / experts, routed.choices, routed.groups,
                                                      routed.top_groups),
                     of_row = visited * here.choices / routed.choices;
        exchange.template route<kernels::Chosen::sometimes>(context, comm, chosen.view(), places,
                                                            of_row / static_cast<double>(chosen.columns), here.tokens);
        RowBuffer<A, Exec> const packed(context, exchange.leaving(), 2 * top_k);
        entry = RowBuffer<i32, Exec>(context, tokens, top_k);
        kernels::pack_choices<A>(exec, here.choice, here.weight, static_cast<int>(experts), chosen.view(),
                                 exchange.position(), packed.view(), entry.view());
        auto const unpacked = exchange.template to_experts<A>(context, packed);
        if (is_in_parts()) parts_.add_hop(context, exchange, packed.view(), unpacked.view());
        choice_ = RowBuffer<i32, Exec>(context, unpacked.count, top_k);
        weight_ = RowBuffer<A, Exec>(context, unpacked.count, top_k);
        kernels::unpack_choices<A>(exec, unpacked.view(), choice_.view(), weight_.view());
        here = {choice_.view(), weight_.view(), here.all, experts, routed.choices / visited, 1};
        ++hop_count_;
    }
    /// G H x: what has come to this rank when a part has.
    View<T const, 2, Exec> arrive(Context<Exec> const& context, Coming& coming, std::size_t part) {
        View<T const, 2, Exec> here = coming.tokens_;
        for (std::size_t h = 0; h < hop_count_; ++h) {
            auto& landed = coming.landed_[h];
            if (h == 0 && is_hidden()) {
                coming.transfers_[part].finish(context);
            } else if (!is_in_parts()) {
                landed = hops_[h].template forward<T>(context, here, travel_.element);
            } else {
                if (part == 0) landed = Rows(context, hops_[h].rows(), here.extent(1));
                RowTransfer<T, Exec> transfer;
                parts_.template start<T>(context, h, hops_[h], part, here, landed.view(), travel_.element, transfer);
                transfer.finish(context);
            }
            here = landed.view();
        }
        if (gather_.is_of_one()) return here;
        coming.gathered_ = gather_.template gather<T>(context, here);
        return coming.gathered_.view();
    }
    /// Where the rows of a part's experts are found.
    struct Sources {
        View<i32 const, 1, Exec> slot, row;
        int divisor; ///< of `row`
    };
    [[nodiscard]] Sources sources_of(Part const& part) const {
        auto const of_part = [&](View<i32 const, 1, Exec> all) {
            return View<i32 const, 1, Exec>(all.data() + part.first_row, part.end_row - part.first_row);
        };
        auto const slot = of_part(sorted_.source());
        if (!is_in_parts()) return {slot, slot, sorted_.slots()};
        return {slot, of_part(parts_.row()), 1};
    }

    /// The sum of an etp group's rows, of which each rank gets those that have come to it.
    template <class U>
    RowBuffer<U, Exec> own_rows(Context<Exec> const& context, RowBuffer<U, Exec> here) const {
        if (gather_.is_of_one()) return here;
        RowBuffer<U, Exec> own(context, hops_[hop_count_ - 1].rows(), here.columns);
        gather_.template scatter_sum<U>(context, here.view(), own.view());
        return own;
    }
    /// H' G' of the sums of this rank's experts' rows, which sum(summands, sums) writes.
    template <class Sum>
    void give(Context<Exec> const& context, std::size_t part, Leaving& leaving, Sum&& sum) {
        if (is_local()) return sum(sorted_.position(), leaving.tokens_);
        if (is_in_parts()) return give_in_parts(context, part, leaving, std::forward<Sum>(sum));
        std::size_t const columns = leaving.tokens_.extent(1);
        Rows here(context, gather_.rows(), columns);
        sum(sorted_.position(), here.view());
        if (hop_count_ == 0) return gather_.template scatter_sum<T>(context, here.view(), leaving.tokens_);
        here = own_rows<T>(context, std::move(here));
        for (std::size_t h = hop_count_ - 1; h > 0; --h) {
            Rows before(context, hops_[h - 1].rows(), columns);
            hops_[h].template backward<T>(context, std::move(here), before.view(), back_element());
            here = std::move(before);
        }
        if (!is_hidden())
            return hops_[0].template backward<T>(context, std::move(here), leaving.tokens_, back_element());
        leaving.landed_[0] = Rows(context, hops_[0].leaving(), columns);
        leaving.transfers_[0].start(context, hops_[0].comm(), std::move(here), hops_[0].received(),
                                    leaving.landed_[0].view(), hops_[0].sent(), back_element());
    }
    template <class Sum>
    void give_in_parts(Context<Exec> const& context, std::size_t part, Leaving& leaving, Sum&& sum) {
        std::size_t const columns = leaving.tokens_.extent(1);
        for (std::size_t h = hop_count_; h-- > 0;) {
            auto const summands = parts_.summands(h, part);
            Rows sums(context, summands.extent(0), columns);
            if (h + 1 == hop_count_)
                sum(summands, sums.view());
            else
                kernels::permute_backward<T>(context.exec(), summed(leaving.landed_[h + 1].view()), summands,
                                             sums.view(), false);
            auto& landed = leaving.landed_[h];
            if (part == 0) landed = Rows(context, hops_[h].leaving(), columns);
            RowTransfer<T, Exec> inner;
            auto& transfer = h == 0 ? leaving.transfers_[part] : inner;
            parts_.template start_back<T>(context, h, hops_[h], part, std::move(sums), landed.view(), back_element(),
                                          transfer);
            if (h > 0) transfer.finish(context);
        }
    }
    /// The rows that a part's sums are made of; in a dry run only as many as they read.
    [[nodiscard]] View<T const, 2, Exec> summed(View<T const, 2, Exec> rows) const {
        return observe::dry_run() == nullptr ? rows : row_range(rows, 0, rows.extent(0) / parts());
    }

    Travel travel_;
    bool fills_all_ = false; ///< every slot of this rank's tokens names an expert, and its experts are here
    std::size_t hop_count_ = 0;
    std::array<RowExchange<Exec>, 2> hops_;
    std::array<RowBuffer<i32, Exec>, 2> entry_; ///< of each choice among what a hop takes along
    RowGather<Exec> gather_;
    RowExchange<Exec> sorted_; ///< by the experts of this rank
    DispatchParts<A, Exec> parts_;
    RowBuffer<i32, Exec> choice_; ///< of the tokens that are here, while they are routed
    RowBuffer<A, Exec> weight_;   ///< of these choices, where tokens came from other ranks
};

} // namespace pentad::experts

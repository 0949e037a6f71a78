// The one redistribution that depends on data: tokens become rows in the order of experts, which ep shards, and come
// back. Dropless: every chosen (token, slot) counts. A token goes once to each rank, and across nodes once to each
// node.
#pragma once

#include <pentad/experts/detail/expected_nodes.hpp>
#include <pentad/experts/detail/row_exchange.hpp>
#include <pentad/experts/detail/row_gather.hpp>
#include <pentad/experts/detail/row_parts.hpp>
#include <pentad/experts/detail/row_transfer.hpp>
#include <pentad/kernels/choices.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/layout/ml.hpp>

#include <Kokkos_Core.hpp>

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
    bool is_hidden = false;          ///< exchanges are started, and waited for where their rows are needed
    std::size_t parts = 1;           ///< in which rows travel that are hidden, at most
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
/// The first hop can be hidden: rows travel in parts, of which each serves some experts of a rank. These compute while
/// the rows of the others are on their way. No sum depends on it.
template <class T, class Exec>
class Dispatch {
  public:
    using A = accumulator_t<T>;
    using Rows = RowBuffer<T, Exec>;

    /// Consecutive experts of this rank, and their rows; or some rows of its one expert.
    struct Part {
        std::size_t number, first_expert, end_expert, first_row, end_row;
        std::span<i64 const> offsets; ///< of each expert's rows, from the first of the part's

        /// Theirs of an array of all rows.
        template <class U>
        [[nodiscard]] View<U, 2, Exec> of(RowBuffer<U, Exec> const& rows) const {
            return rows_of(rows.view(), first_row, end_row);
        }
        /// Theirs of the weights of all experts of the rank.
        template <class V>
            requires(V::rank() == 3)
        [[nodiscard]] V of(V const& weights) const {
            return V(weights.data() + first_expert * weights.extent(1) * weights.extent(2), end_expert - first_expert,
                     weights.extent(1), weights.extent(2));
        }
    };
    /// Tokens, or their gradients, on their way to the experts.
    class Coming {
        friend Dispatch;
        View<T const, 2, Exec> tokens_;
        std::array<Rows, 2> landed_; ///< of each hop
        Rows gathered_;
        std::array<RowTransfer<T, Exec>, most_parts> transfers_; ///< of the first hop's parts
        RowBuffer<A, Exec> dweight_;
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
        // What is gathered over etp lies by rank. Which rows come from which rank is known after one hop.
        by_ranks_ = local == 1;
        bool const in_parts = travel.is_hidden && all.size() > 1 && shares.size() == 1 && !(by_ranks_ && by_node);
        std::size_t const most = std::min(by_ranks_ ? static_cast<std::size_t>(all.size()) : local, most_parts);
        travel_.parts = in_parts ? std::clamp<std::size_t>(travel.parts, 1, most) : 1;
        expert_parts_ = {static_cast<int>(local), by_ranks_ ? 1 : static_cast<int>(travel_.parts)};
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
        if (!is_in_parts()) return;
        find_summands(context);
        find_parts();
    }

    /// Offsets of the local experts' rows: local experts + 1 numbers.
    [[nodiscard]] std::span<i64 const> offsets() const { return sorted_.offsets(); }
    [[nodiscard]] std::size_t rows() const { return sorted_.rows(); }
    [[nodiscard]] std::size_t parts() const { return travel_.parts; }
    [[nodiscard]] Part part(std::size_t number) const {
        if (!is_in_parts()) return {0, 0, offsets().size() - 1, 0, rows(), offsets()};
        std::size_t const first = by_ranks_ ? 0 : expert_parts_.begin(number),
                          end = by_ranks_ ? 1 : expert_parts_.begin(number + 1);
        auto const begin = static_cast<std::size_t>(part_rows_[number]);
        auto const own = part_offsets_.span().subspan(first + (by_ranks_ ? 2 : 1) * number, end - first + 1);
        return {number, first, end, begin, begin + static_cast<std::size_t>(own.back()), own};
    }

    /// D x: begins to take the tokens x [tokens, hidden], or gradients, to their experts.
    Coming start(Context<Exec> const& context, View<T const, 2, Exec> x) {
        Coming coming;
        coming.tokens_ = x;
        if (hop_count_ == 0 || !travel_.is_hidden) return coming;
        coming.landed_[0] = Rows(context, hops_[0].rows(), x.extent(1));
        if (is_in_parts())
            for (std::size_t i = 0; i < parts(); ++i)
                send(context, 0, i, x, coming.landed_[0].view(), coming.transfers_[i]);
        else
            hops_[0].template start_forward<T>(context, x, coming.landed_[0].view(), travel_.element,
                                               coming.transfers_[0]);
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

    /// D' drows: begins to take back what no later part adds to.
    void give_back(Context<Exec> const& context, Part const& part, View<T const, 2, Exec> drows, Leaving& leaving) {
        give(context, part.number, leaving, [&](View<i32 const, 2, Exec> summands, std::size_t, View<T, 2, Exec> to) {
            kernels::permute_backward<T>(context.exec(), summed(drows), summands, to, false);
        });
    }
    /// D' w out, the same for what the experts give, weighed by `weight`, that of `route`.
    void combine(Context<Exec> const& context, Part const& part, View<T const, 2, Exec> out,
                 View<A const, 2, Exec> weight, Leaving& leaving) {
        View<A const, 2, Exec> const w = is_local() ? weight : is_in_parts() ? summand_weight_.view() : weight_.view();
        give(context, part.number, leaving,
             [&](View<i32 const, 2, Exec> summands, std::size_t first, View<T, 2, Exec> to) {
                 kernels::combine_forward<T>(context.exec(), summed(out), summands,
                                             rows_of(w, first, first + summands.extent(0)), to);
             });
    }
    /// Waits until all sums are with the tokens.
    void finish(Context<Exec> const& context, Leaving& leaving) {
        if (hop_count_ == 0 || !travel_.is_hidden) return;
        for (std::size_t i = 0; i < parts(); ++i) leaving.transfers_[i].finish(context);
        kernels::permute_backward<T>(context.exec(), leaving.landed_[0].view(), slots_of(0), leaving.tokens_, false);
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
        if (!fills_all_) // slots without a choice
            kernels::fill<A>(context.exec(), View<A, 1, Exec>(dw.data(), dw.size()), A(0));
        return coming;
    }
    /// w D dy of a part's experts, into `out`, which holds what they gave.
    void take_gradients(Context<Exec> const& context, Coming& coming, Part const& part, View<A const, 2, Exec> weight,
                        View<T, 2, Exec> out, View<A, 2, Exec> dweight) {
        auto const here = arrive(context, coming, part.number);
        auto const from = sources_of(part);
        auto const w = is_local() ? weight : View<A const, 2, Exec>(weight_.view());
        auto const dw = is_local() ? dweight : coming.dweight_.view();
        kernels::combine_backward<T>(context.exec(), here, from.row, from.divisor, out, from.slot,
                                     View<A const, 1, Exec>(w.data(), w.size()), out,
                                     View<A, 1, Exec>(dw.data(), dw.size()));
    }
    /// After all parts: dweight, on the ranks of the tokens.
    void finish_backward(Context<Exec> const& context, Coming& coming, View<A, 2, Exec> dweight) {
        if (is_local()) return;
        auto dhere = std::move(coming.dweight_);
        if (hop_count_ == 0) {
            gather_.template scatter_sum<A>(context, dhere.view(), dweight); // of the shares of the width
            return;
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
    /// A hop whose rows travel in parts.
    struct Parts {
        RowParts<Exec> there, back;
        RowBuffer<i32, Exec> leaving;  ///< which token each row that leaves is; of the first hop, which slot
        RowBuffer<i32, Exec> summands; ///< which rows of the next hop, or of the experts, a row that goes back sums
        RowBuffer<i32, Exec> slots;    ///< of the tokens: which of the rows that came back
    };

    [[nodiscard]] bool is_local() const { return hop_count_ == 0 && gather_.is_of_one(); }
    [[nodiscard]] bool is_in_parts() const { return travel_.parts > 1; }
    [[nodiscard]] Compact back_element() const {
        return travel_.element == Compact::none ? Compact::none : Compact::bf16;
    }
    template <class V>
    static V rows_of(V const& all, std::size_t first, std::size_t end) {
        return V(all.data() + first * all.extent(1), end - first, all.extent(1));
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
        // Of all places of this size, and of those that a token meets after the hop before.
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
        if (is_in_parts()) order_parts(context, packed.view(), unpacked.view());
        choice_ = RowBuffer<i32, Exec>(context, unpacked.count, top_k);
        weight_ = RowBuffer<A, Exec>(context, unpacked.count, top_k);
        kernels::unpack_choices<A>(exec, unpacked.view(), choice_.view(), weight_.view());
        here = {choice_.view(), weight_.view(), here.all, experts, routed.choices / visited, 1};
        ++hop_count_;
    }
    /// Of the hop that is being made, from what goes along with the rows of both sides.
    void order_parts(Context<Exec> const& context, View<A const, 2, Exec> sent, View<A const, 2, Exec> received) {
        auto const& exchange = hops_[hop_count_];
        auto& hop = hop_parts_[hop_count_];
        if (by_ranks_) {
            hop.there = hop.back = RowParts<Exec>::of_ranks(context, exchange, parts());
        } else {
            auto const by = [&](kernels::Needed needed) {
                return RowParts<Exec>::template of_experts<A>(context, exchange, sent, received, expert_parts_, needed);
            };
            hop.there = by(kernels::Needed::first);
            hop.back = by(kernels::Needed::last);
        }
        View<i32 const, 1, Exec> const order = hop.there.leaving.source.flat();
        hop.leaving = composed<Exec>(context, order, 1, exchange.source());
        if (hop_count_ == 0) return;
        View<i32 const, 1, Exec> const slots = hop.leaving.flat(), come = hop_parts_[0].there.arriving.position.flat();
        hop.leaving = composed<Exec>(context, slots, exchange.slots(), come);
    }
    /// What the rows of the last hop are made of, and what those are that go back: hops take them in other orders.
    void find_summands(Context<Exec> const& context) {
        auto position = sorted_.position();
        for (std::size_t h = hop_count_; h-- > 0;) {
            auto& hop = hop_parts_[h];
            View<i32 const, 1, Exec> const order = hop.back.arriving.source.flat();
            hop.summands = reordered<i32, Exec>(context, position, order);
            if (h + 1 == hop_count_) summand_weight_ = reordered<A, Exec>(context, weight_.view(), order);
            hop.slots = composed<Exec>(context, hops_[h].position(), 1,
                                       View<i32 const, 1, Exec>(hop.back.leaving.position.flat()));
            position = hop.slots.view();
        }
        View<i32 const, 1, Exec> const come = hop_parts_[hop_count_ - 1].there.arriving.position.flat();
        row_ = composed<Exec>(context, sorted_.source(), sorted_.slots(), come);
    }

    /// The rows of each part, and the offsets of its experts.
    void find_parts() {
        part_rows_ = memory::HostArray<i64>(parts(), 0);
        if (!by_ranks_) {
            part_offsets_ = memory::HostArray<i64>(offsets().size() - 1 + parts());
            for (std::size_t p = 0; p < parts(); ++p) {
                part_rows_[p] = offsets()[expert_parts_.begin(p)];
                for (std::size_t e = expert_parts_.begin(p); e <= expert_parts_.begin(p + 1); ++e)
                    part_offsets_[e + p] = offsets()[e] - part_rows_[p];
            }
            return;
        }
        // The one expert's rows lie as they came, by rank.
        auto const& comm = hops_[0].comm();
        auto const ranks = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
        part_offsets_ = memory::HostArray<i64>(2 * parts(), 0);
        i64 row = 0;
        for (std::size_t r = 0; r < ranks; ++r) {
            std::size_t const part = part_of_rank(r, me, ranks, parts());
            if (part_offsets_[2 * part + 1] == 0) part_rows_[part] = row;
            i64 const end = std::min(row + hops_[0].received()[r], static_cast<i64>(rows())); // a dry run rounds both
            part_offsets_[2 * part + 1] += end - row;
            row = end;
        }
    }

    /// Starts to take the rows of a part over a hop, from what has come by the hop before.
    void send(Context<Exec> const& context, std::size_t h, std::size_t part, View<T const, 2, Exec> x,
              View<T, 2, Exec> to, RowTransfer<T, Exec>& transfer) const {
        auto const& hop = hop_parts_[h];
        auto const sent = hop.there.leaving.of(part), received = hop.there.arriving.of(part);
        Rows from(context, sent.rows, x.extent(1));
        View<i32 const, 1, Exec> const source(hop.leaving.flat().data() + sent.first, sent.rows);
        kernels::gather_rows<T>(context.exec(), x, source, from.view(), h == 0 ? hops_[0].slots() : 1);
        transfer.start(context, hops_[h].comm(), std::move(from), sent.counts,
                       rows_of(to, received.first, received.first + received.rows), received.counts, travel_.element,
                       share());
    }
    /// G H x: what has come to this rank when a part has.
    View<T const, 2, Exec> arrive(Context<Exec> const& context, Coming& coming, std::size_t part) {
        View<T const, 2, Exec> here = coming.tokens_;
        for (std::size_t h = 0; h < hop_count_; ++h) {
            auto& landed = coming.landed_[h];
            if (h == 0 && travel_.is_hidden) {
                coming.transfers_[part].finish(context);
            } else if (!is_in_parts()) {
                landed = hops_[h].template forward<T>(context, here, travel_.element);
            } else {
                if (part == 0) landed = Rows(context, hops_[h].rows(), here.extent(1));
                RowTransfer<T, Exec> transfer;
                send(context, h, part, here, landed.view(), transfer);
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
        std::size_t const rows = part.end_row - part.first_row;
        View<i32 const, 1, Exec> const slot(sorted_.source().data() + part.first_row, rows);
        if (!is_in_parts()) return {slot, slot, sorted_.slots()};
        return {slot, View<i32 const, 1, Exec>(row_.flat().data() + part.first_row, rows), 1};
    }

    /// H' G' of what sum(summands, first, to) writes: rows of this rank's experts, summed as the rows from `first` on
    /// of those that go back.
    template <class Sum>
    void give(Context<Exec> const& context, std::size_t part, Leaving& leaving, Sum&& sum) {
        if (is_local()) return sum(sorted_.position(), 0, leaving.tokens_);
        if (is_in_parts()) return give_in_parts(context, part, leaving, std::forward<Sum>(sum));
        std::size_t const columns = leaving.tokens_.extent(1);
        Rows here(context, gather_.rows(), columns);
        sum(sorted_.position(), 0, here.view());
        if (!gather_.is_of_one()) {
            if (hop_count_ == 0) return gather_.template scatter_sum<T>(context, here.view(), leaving.tokens_);
            Rows own(context, hops_[hop_count_ - 1].rows(), columns);
            gather_.template scatter_sum<T>(context, here.view(), own.view());
            here = std::move(own);
        }
        for (std::size_t h = hop_count_ - 1; h > 0; --h) {
            Rows before(context, hops_[h - 1].rows(), columns);
            hops_[h].template backward<T>(context, std::move(here), before.view(), back_element());
            here = std::move(before);
        }
        if (!travel_.is_hidden)
            return hops_[0].template backward<T>(context, std::move(here), leaving.tokens_, back_element());
        leaving.landed_[0] = Rows(context, hops_[0].leaving(), columns);
        hops_[0].template start_from_experts<T>(context, std::move(here), leaving.landed_[0].view(), back_element(),
                                                leaving.transfers_[0]);
    }
    template <class Sum>
    void give_in_parts(Context<Exec> const& context, std::size_t part, Leaving& leaving, Sum&& sum) {
        std::size_t const columns = leaving.tokens_.extent(1);
        for (std::size_t h = hop_count_; h-- > 0;) {
            auto const& hop = hop_parts_[h];
            auto const sent = hop.back.arriving.of(part), received = hop.back.leaving.of(part);
            auto const summands =
                rows_of(View<i32 const, 2, Exec>(hop.summands.view()), sent.first, sent.first + sent.rows);
            Rows rows(context, sent.rows, columns);
            if (h + 1 == hop_count_)
                sum(summands, sent.first, rows.view());
            else
                kernels::permute_backward<T>(context.exec(), summed(leaving.landed_[h + 1].view()), summands,
                                             rows.view(), false);
            auto& landed = leaving.landed_[h];
            if (part == 0) landed = Rows(context, hops_[h].leaving(), columns);
            RowTransfer<T, Exec> blocking;
            auto& transfer = h == 0 ? leaving.transfers_[part] : blocking;
            transfer.start(context, hops_[h].comm(), std::move(rows), sent.counts,
                           rows_of(landed.view(), received.first, received.first + received.rows), received.counts,
                           back_element(), share());
            if (h > 0) transfer.finish(context);
        }
    }
    /// Which rows that have come back a token is the sum of.
    [[nodiscard]] View<i32 const, 2, Exec> slots_of(std::size_t h) const {
        return is_in_parts() ? View<i32 const, 2, Exec>(hop_parts_[h].slots.view()) : hops_[h].position();
    }
    /// Rows of which a part's sums are made. In a dry run as many as it reads.
    [[nodiscard]] View<T const, 2, Exec> summed(View<T const, 2, Exec> rows) const {
        return observe::dry_run() == nullptr ? rows : rows_of(rows, 0, rows.extent(0) / parts());
    }
    [[nodiscard]] double share() const { return 1 / static_cast<double>(parts()); }

    Travel travel_;
    kernels::ExpertParts expert_parts_;
    bool by_ranks_ = false;                           ///< parts are of ranks, not of experts
    memory::HostArray<i64> part_rows_, part_offsets_; ///< of each: the first row, and its experts' offsets from there
    bool fills_all_ = false; ///< every slot of this rank's tokens names an expert, and its experts are here
    std::size_t hop_count_ = 0;
    std::array<RowExchange<Exec>, 2> hops_;
    std::array<RowBuffer<i32, Exec>, 2> entry_; ///< of each choice among what a hop takes along
    std::array<Parts, 2> hop_parts_;
    RowGather<Exec> gather_;
    RowExchange<Exec> sorted_;          ///< by the experts of this rank
    RowBuffer<i32, Exec> row_;          ///< in parts: which of the rows that came an expert's row is
    RowBuffer<A, Exec> summand_weight_; ///< in parts: of the summands of the last hop
    RowBuffer<i32, Exec> choice_;       ///< of the tokens that are here, while they are routed
    RowBuffer<A, Exec> weight_;         ///< of these choices, where tokens came from other ranks
};

} // namespace pentad::experts

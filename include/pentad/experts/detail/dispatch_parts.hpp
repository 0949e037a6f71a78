// A dispatch in parts: which rows each hop takes in which part, and where the next finds them.
#pragma once

#include <pentad/experts/detail/row_buffer.hpp>
#include <pentad/experts/detail/row_exchange.hpp>
#include <pentad/experts/detail/row_parts.hpp>
#include <pentad/experts/detail/row_transfer.hpp>
#include <pentad/kernels/choices.hpp>
#include <pentad/kernels/permute.hpp>
#include <pentad/memory/host_array.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

namespace pentad::experts {

/// Consecutive experts of a rank and all their rows; of a rank with one expert, some of that expert's rows.
template <class Exec>
struct DispatchPart {
    std::size_t number, first_expert, end_expert, first_row, end_row;
    std::span<i64 const> offsets; ///< of each expert's rows, from first_row on: one number more than experts

    /// The part's rows of a matrix of all rows.
    template <class U>
    [[nodiscard]] View<U, 2, Exec> of(RowBuffer<U, Exec> const& rows) const {
        return row_range(rows.view(), first_row, end_row);
    }
    /// The part's experts of an array of all experts' weights.
    template <class V>
        requires(V::rank() == 3)
    [[nodiscard]] V of(V const& weights) const {
        return V(weights.data() + first_expert * weights.extent(1) * weights.extent(2), end_expert - first_expert,
                 weights.extent(1), weights.extent(2));
    }
};

/// Filled hop by hop, from the tokens to the experts, then by `complete`; kept until the backward pass.
template <class A, class Exec>
class DispatchParts {
  public:
    /// @param experts of this rank
    void begin(std::size_t count, std::size_t experts) {
        count_ = count;
        hop_count_ = 0;
        is_by_rank_ = experts == 1;
        experts_ = {static_cast<int>(experts), is_by_rank_ ? 1 : static_cast<int>(count)};
    }
    [[nodiscard]] std::size_t count() const { return count_; }

    /// Orders the rows of the next hop. @param sent what pack_choices has packed for the rows that leave, @param
    /// received for those that arrive
    void add_hop(Context<Exec> const& context, RowExchange<Exec> const& exchange, View<A const, 2, Exec> sent,
                 View<A const, 2, Exec> received) {
        auto& hop = hops_[hop_count_];
        if (is_by_rank_) {
            hop.there = hop.back = RowParts<Exec>::of_ranks(context, exchange, count_);
        } else {
            auto const by = [&](kernels::Needed needed) {
                return RowParts<Exec>::template of_experts<A>(context, exchange, sent, received, experts_, needed);
            };
            hop.there = by(kernels::Needed::first);
            hop.back = by(kernels::Needed::last);
        }
        hop.leaving = composed<Exec>(context, hop.there.leaving.source.elements(), 1, exchange.source());
        if (hop_count_ > 0)
            hop.leaving = composed<Exec>(context, hop.leaving.elements(), exchange.slots(),
                                         hops_[hop_count_ - 1].there.arriving.position.elements());
        ++hop_count_;
    }
    /// @param exchanges of the hops @param sorted the rows by expert @param weight of the choices that have arrived
    void complete(Context<Exec> const& context, std::span<RowExchange<Exec> const> exchanges,
                  RowExchange<Exec> const& sorted, View<A const, 2, Exec> weight) {
        auto& last = hops_[hop_count_ - 1];
        row_ = composed<Exec>(context, sorted.source(), sorted.slots(), last.there.arriving.position.elements());
        summand_weight_ = reordered<A, Exec>(context, weight, last.back.arriving.source.elements());
        auto position = sorted.position();
        for (std::size_t h = hop_count_; h-- > 0;) {
            auto& hop = hops_[h];
            hop.summands = reordered<i32, Exec>(context, position, hop.back.arriving.source.elements());
            hop.slots = composed<Exec>(context, exchanges[h].position(), 1, hop.back.leaving.position.elements());
            position = hop.slots.view();
        }
        for (auto& hop : hops_)
            for (auto* const parts : {&hop.there, &hop.back}) parts->keep_counts();
        if (is_by_rank_)
            cut_by_rank(exchanges[0], sorted.rows());
        else
            cut_by_expert(sorted.offsets());
    }

    [[nodiscard]] DispatchPart<Exec> part(std::size_t number) const {
        std::size_t const first = is_by_rank_ ? 0 : experts_.begin(number),
                          end = is_by_rank_ ? 1 : experts_.begin(number + 1),
                          before = is_by_rank_ ? 2 * number : first + number;
        auto const offsets = offsets_.span().subspan(before, end - first + 1);
        auto const begin = static_cast<std::size_t>(first_rows_[number]);
        return {number, first, end, begin, begin + static_cast<std::size_t>(offsets.back()), offsets};
    }
    /// For each of the experts' rows, which of the rows that arrived by the last hop it is a copy of.
    [[nodiscard]] View<i32 const, 1, Exec> row() const { return row_.elements(); }
    /// For each token, which of the rows that came back by the first hop it is the sum of.
    [[nodiscard]] View<i32 const, 2, Exec> slots() const { return hops_[0].slots.view(); }
    /// For each row that hop h takes back in a part, which rows of the next hop, or of the experts, it is the sum of.
    [[nodiscard]] View<i32 const, 2, Exec> summands(std::size_t h, std::size_t part) const {
        return range_of(hops_[h].summands, hops_[h].back.arriving.of(part));
    }
    /// Their weights, where they are rows of the experts.
    [[nodiscard]] View<A const, 2, Exec> summand_weight(std::size_t part) const {
        return range_of(summand_weight_, hops_[hop_count_ - 1].back.arriving.of(part));
    }

    /// Starts to take a part over hop h: from x, the tokens or the rows of the hop before, to `to`, all that arrives.
    template <class T>
    void start(Context<Exec> const& context, std::size_t h, RowExchange<Exec> const& exchange, std::size_t part,
               View<T const, 2, Exec> x, View<T, 2, Exec> to, Compact element, RowTransfer<T, Exec>& transfer) const {
        auto const& hop = hops_[h];
        auto const sent = hop.there.leaving.of(part), received = hop.there.arriving.of(part);
        RowBuffer<T, Exec> from(context, sent.rows, x.extent(1));
        View<i32 const, 1, Exec> const source(hop.leaving.flat().data() + sent.first, sent.rows);
        kernels::gather_rows<T>(context.exec(), x, source, from.view(), h == 0 ? exchange.slots() : 1);
        transfer.start(context, exchange.comm(), std::move(from), sent.counts,
                       row_range(to, received.first, received.first + received.rows), received.counts, element,
                       share());
    }
    /// Starts to take a part of the sums back. @param to all that comes back
    template <class T>
    void start_back(Context<Exec> const& context, std::size_t h, RowExchange<Exec> const& exchange, std::size_t part,
                    RowBuffer<T, Exec> sums, View<T, 2, Exec> to, Compact element,
                    RowTransfer<T, Exec>& transfer) const {
        auto const sent = hops_[h].back.arriving.of(part), received = hops_[h].back.leaving.of(part);
        transfer.start(context, exchange.comm(), std::move(sums), sent.counts,
                       row_range(to, received.first, received.first + received.rows), received.counts, element,
                       share());
    }

  private:
    struct Hop {
        RowParts<Exec> there, back;
        RowBuffer<i32, Exec> leaving;  ///< which token each row that leaves is; of the first hop, which slot
        RowBuffer<i32, Exec> summands; ///< of each row that goes back
        RowBuffer<i32, Exec> slots;    ///< for each token of the hop, which of the rows that came back
    };

    template <class U>
    static View<U const, 2, Exec> range_of(RowBuffer<U, Exec> const& rows, typename RowOrder<Exec>::Part const& part) {
        return row_range(View<U const, 2, Exec>(rows.view()), part.first, part.first + part.rows);
    }
    [[nodiscard]] double share() const { return 1 / static_cast<double>(count_); }

    void cut_by_expert(std::span<i64 const> offsets) {
        first_rows_ = memory::HostArray<i64>(count_);
        offsets_ = memory::HostArray<i64>(offsets.size() - 1 + count_);
        for (std::size_t p = 0; p < count_; ++p) {
            first_rows_[p] = offsets[experts_.begin(p)];
            for (std::size_t e = experts_.begin(p); e <= experts_.begin(p + 1); ++e)
                offsets_[e + p] = offsets[e] - first_rows_[p];
        }
    }
    /// The rows of the one expert lie as they arrived, by rank.
    void cut_by_rank(RowExchange<Exec> const& exchange, std::size_t rows) {
        auto const ranks = exchange.received().size(), me = static_cast<std::size_t>(exchange.comm().rank());
        first_rows_ = memory::HostArray<i64>(count_, 0);
        offsets_ = memory::HostArray<i64>(2 * count_, 0);
        i64 row = 0;
        for (std::size_t r = 0; r < ranks; ++r) {
            std::size_t const part = part_of_rank(r, me, ranks, count_);
            if (offsets_[2 * part + 1] == 0) first_rows_[part] = row;
            i64 const end = std::min(row + exchange.received()[r], static_cast<i64>(rows)); // a dry run rounds both
            offsets_[2 * part + 1] += end - row;
            row = end;
        }
    }

    std::size_t count_ = 1, hop_count_ = 0;
    bool is_by_rank_ = false; ///< a part is what some of the ranks send, and not of some of the experts
    kernels::ExpertParts experts_;
    std::array<Hop, 2> hops_;
    RowBuffer<i32, Exec> row_;
    RowBuffer<A, Exec> summand_weight_;
    memory::HostArray<i64> first_rows_, offsets_; ///< of each part, one after the other
};

} // namespace pentad::experts

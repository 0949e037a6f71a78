// The order in which rows travel in parts, so that experts compute with some while others are on their way. Where a
// rank has several experts, a part serves some of them: rows come with the first part that needs them, and go back with
// the last. Where it has one, a part is what some of the ranks send.
#pragma once

#include <pentad/experts/detail/row_buffer.hpp>
#include <pentad/experts/detail/row_exchange.hpp>
#include <pentad/kernels/choices.hpp>
#include <pentad/kernels/permute.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/memory/host_array.hpp>

#include <cstddef>
#include <span>

namespace pentad::experts {

/// How many parts there may be.
inline constexpr std::size_t most_parts = 16;

/// Rows of one side of an exchange in the order (part, rank), within which they lie as in that of the exchange: by
/// rank.
template <class Exec>
struct RowOrder {
    RowBuffer<i32, Exec> position, source; ///< from the exchange's order to this one, and back
    memory::HostArray<i64> counts;         ///< rows, [part, rank]
    std::size_t ranks = 0;

    struct Part {
        std::size_t first, rows;
        std::span<i64 const> counts; ///< of each rank
    };
    [[nodiscard]] Part of(std::size_t part) const {
        auto const sum = [](std::span<i64 const> rows) {
            std::size_t all = 0;
            for (i64 const n : rows) all += static_cast<std::size_t>(n);
            return all;
        };
        std::span<i64 const> const all = counts.span(), mine = all.subspan(part * ranks, ranks);
        return {sum(all.first(part * ranks)), sum(mine), mine};
    }

    /// @param rows how many rows of the exchange each rank has @param part_of_row empty where the part of a row is that
    /// of its rank, in part_of_rank
    static RowOrder sorted(Context<Exec> const& context, std::span<i64 const> rows, std::size_t parts,
                           View<i32 const, 1, Exec> part_of_row, std::span<i32 const> part_of_rank) {
        auto const& exec = context.exec();
        std::size_t const ranks = rows.size(), keys = ranks * parts;
        memory::HostArray<i64> const ends(ranks);
        for (std::size_t r = 0; r < ranks; ++r) ends[r] = (r == 0 ? 0 : ends[r - 1]) + rows[r];
        auto const n = static_cast<std::size_t>(ends[ranks - 1]);
        RowOrder order{{context, n, 1}, {context, n, 1}, memory::HostArray<i64>(keys), ranks};
        RowBuffer<i64, Exec> const ends_there(context, ranks, 1), key_counts(context, keys, 1);
        RowBuffer<i32, Exec> const key(context, n, 1), of_rank(context, part_of_rank.size(), 1),
            scratch(context, static_cast<std::size_t>(kernels::sort_scratch_rows(exec, n)), keys);
        memory::copy_from_host(exec, ends_there.flat().data(), ends.data(), ranks * sizeof(i64));
        memory::copy_from_host(exec, of_rank.flat().data(), part_of_rank.data(), part_of_rank.size_bytes());
        kernels::part_and_rank<Exec>(exec, ends_there.flat(), part_of_row, of_rank.flat(), key.flat());
        kernels::sort_by_expert<kernels::Chosen::always>(exec, key.view(), key_counts.flat(), order.position.view(),
                                                         order.source.flat(), scratch.view());
        memory::copy_to_host(exec, order.counts.data(), key_counts.flat().data(), keys * sizeof(i64));
        if (observe::dry_run() == nullptr) return order;
        for (std::size_t p = 0; p < parts; ++p)
            for (std::size_t r = 0; r < ranks; ++r) {
                auto const before = [&](std::size_t i) {
                    return rows[r] * static_cast<i64>(i) / static_cast<i64>(parts);
                };
                order.counts[p * ranks + r] = before(p + 1) - before(p);
            }
        return order;
    }
};

/// The part in which rows go from one rank to another: groups of consecutive ranks send in turn, the receiver's own
/// group first.
constexpr std::size_t part_of_rank(std::size_t from, std::size_t to, std::size_t ranks, std::size_t parts) {
    return (from * parts / ranks + parts - to * parts / ranks) % parts;
}

/// The order of parts on both sides of an exchange. Each side sorts by itself: no numbers are sent.
template <class Exec>
struct RowParts {
    RowOrder<Exec> leaving, arriving;

    /// Frees what is needed for routing only.
    void keep_counts() {
        for (auto* const order : {&leaving, &arriving}) order->position = order->source = {};
    }

    /// By what goes along with each row, pack_choices': by the experts that need it.
    template <class A>
    static RowParts of_experts(Context<Exec> const& context, RowExchange<Exec> const& exchange,
                               View<A const, 2, Exec> leaving, View<A const, 2, Exec> arriving,
                               kernels::ExpertParts const& parts, kernels::Needed needed) {
        auto const order = [&](View<A const, 2, Exec> rows, std::span<i64 const> of_ranks) {
            RowBuffer<i32, Exec> const part(context, rows.extent(0), 1);
            kernels::part_of_rows<A>(context.exec(), rows, parts, needed, part.flat());
            return RowOrder<Exec>::sorted(context, of_ranks, static_cast<std::size_t>(parts.count), part.flat(), {});
        };
        return {order(leaving, exchange.sent()), order(arriving, exchange.received())};
    }
    /// By the ranks that send them (part_of_rank).
    static RowParts of_ranks(Context<Exec> const& context, RowExchange<Exec> const& exchange, std::size_t parts) {
        auto const ranks = exchange.sent().size(), me = static_cast<std::size_t>(exchange.comm().rank());
        memory::HostArray<i32> const sent(ranks), received(ranks);
        for (std::size_t r = 0; r < ranks; ++r) {
            sent[r] = static_cast<i32>(part_of_rank(me, r, ranks, parts));
            received[r] = static_cast<i32>(part_of_rank(r, me, ranks, parts));
        }
        using Order = RowOrder<Exec>;
        return {Order::sorted(context, exchange.sent(), parts, {}, sent.span()),
                Order::sorted(context, exchange.received(), parts, {}, received.span())};
    }
};

/// through[index / divisor] for each of `index`, or that itself where it is negative.
template <class Exec>
RowBuffer<i32, Exec> composed(Context<Exec> const& context, View<i32 const, 2, Exec> index, int divisor,
                              View<i32 const, 1, Exec> through) {
    RowBuffer<i32, Exec> out(context, index.extent(0), index.extent(1));
    kernels::compose<Exec>(context.exec(), View<i32 const, 1, Exec>(index.data(), index.size()), divisor, through,
                           out.flat());
    return out;
}
template <class Exec>
RowBuffer<i32, Exec> composed(Context<Exec> const& context, View<i32 const, 1, Exec> index, int divisor,
                              View<i32 const, 1, Exec> through) {
    return composed<Exec>(context, View<i32 const, 2, Exec>(index.data(), index.extent(0), 1), divisor, through);
}
/// Rows in the order of `source`.
template <class T, class Exec>
RowBuffer<T, Exec> reordered(Context<Exec> const& context, View<T const, 2, Exec> rows,
                             View<i32 const, 1, Exec> source) {
    RowBuffer<T, Exec> out(context, source.extent(0), rows.extent(1));
    kernels::gather_rows<T>(context.exec(), rows, source, out.view());
    return out;
}

} // namespace pentad::experts

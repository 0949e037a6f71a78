// Carries out an exchange: boxes of elements straight from the ranks that hold them to those that need them.
#pragma once

#include <pentad/comm/box_exchange.hpp>
#include <pentad/comm/boxes.hpp>
#include <pentad/comm/collectives.hpp>
#include <pentad/layout/exchange.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/tensor/shard.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace pentad::detail {

/// Copies a box between two arrays of which it is a part. Both begin at some element of the group's.
template <class T, class Exec>
void copy_box(Context<Exec> const& context, std::size_t rank, ElementBox const& box, T* to, ElementBox const& target,
              T const* from, ElementBox const& source) {
    auto const copy = comm::box_copy(rank, sizeof(T), box, target, source);
    memory::copy("exchange", context.exec(), copy.runs, reinterpret_cast<std::byte*>(to) + copy.to,
                 reinterpret_cast<std::byte const*>(from) + copy.from);
}

/// Sums of up to `most` arrays, element by element, in accumulators.
template <class T>
struct SumOfPieces { // T: what kernels compute with
    static constexpr std::size_t most = 16;
    std::array<T const*, most> pieces;
    int count;
    accumulator_t<T>* total; ///< partial sums over earlier pieces; not used where there is one launch
    T* result;               ///< null: the sums stay in `total`, for the next launch
    bool is_first;           ///< `total` holds nothing yet

    KOKKOS_FUNCTION void operator()(std::int64_t i) const {
        auto sum = is_first ? static_cast<accumulator_t<T>>(pieces[0][i]) : total[i];
        for (int p = is_first ? 1 : 0; p < count; ++p)
            sum = sum + static_cast<accumulator_t<T>>(pieces[static_cast<std::size_t>(p)][i]);
        if (result != nullptr)
            result[i] = static_cast<T>(sum);
        else
            total[i] = sum;
    }
};
/// The sum of some arrays, rounded once, in place of the first.
template <class T, class Exec>
void sum_pieces(Context<Exec> const& context, std::span<T* const> pieces, std::size_t elements) {
    if (memory::detail::dry("sum of pieces", (pieces.size() + 1) * elements * sizeof(T))) return;
    using Kernel = SumOfPieces<kernel_element_t<T>>;
    using Sum = accumulator_t<kernel_element_t<T>>;
    bool const in_turns = pieces.size() > Kernel::most;
    auto const total = in_turns ? context.take(elements * sizeof(Sum)) : memory::Buffer<typename Exec::memory_space>();
    for (std::size_t first = 0; first < pieces.size(); first += Kernel::most) {
        std::size_t const last = std::min(first + Kernel::most, pieces.size());
        Kernel sum{{}, static_cast<int>(last - first), static_cast<Sum*>(total.data()), nullptr, first == 0};
        for (std::size_t p = first; p < last; ++p)
            sum.pieces[p - first] = reinterpret_cast<kernel_element_t<T> const*>(pieces[p]);
        if (last == pieces.size()) sum.result = reinterpret_cast<kernel_element_t<T>*>(pieces[0]);
        Kokkos::parallel_for("pentad::sum_pieces",
                             Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(
                                 context.exec(), 0, static_cast<std::int64_t>(elements)),
                             sum);
    }
}

/// @param place of the result; null: in a buffer of its own
template <class T, class Exec>
Shard<T, Exec> exchange(Context<Exec> const& context, PlanStep const& step, ExchangeValue const& value,
                        comm::Communicator const& comm, Shard<T, Exec> shard, T* place = nullptr) {
    if (comm.size() == 1) return shard;
    auto const& exec = context.exec();
    std::size_t const rank = shard.rank;
    ExchangeShape const shape(step, value, std::span(shard.local).first(rank), context.communicators().mesh());
    std::size_t const n = shape.size(), me = static_cast<std::size_t>(comm.rank());
    auto const held = shape.before_of(me), needed = shape.after_of(me);
    Shard<T, Exec> result{{}, nullptr, shard.local, rank};
    for (std::size_t d = 0; d < rank; ++d) result.local[d] = needed.extent(d);

    comm::Boxes boxes(rank, n);
    auto &given = boxes.given, &taken = boxes.taken;
    std::size_t covered = 0; // the rest are zeros
    for (std::size_t p = 0; p < n; ++p) {
        boxes.held[p] = shape.before_of(p);
        boxes.longest = std::max(boxes.longest, boxes.held[p].size(rank));
        given[p] = shape.given(me, p);
        taken[p] = shape.given(p, me);
        if (shape.is_first_summand(p)) covered += taken[p].size(rank);
    }
    boxes.needed = needed;
    bool const sums = shape.summands() > 1;
    if (!sums && comm::can_exchange_boxes<Exec>(comm)) {
        result = result.in(context, place);
        if (covered < result.size()) memory::clear(exec, result.data, result.size() * sizeof(T));
        comm::exchange_boxes(exec, comm, observe::Operation::all_to_all, boxes, shard.data, result.data);
        return result;
    }

    // Boxes for others and from others, in the order of ranks; behind what arrives, the own part where it is summed.
    std::vector<MPI_Count> sent(n), received(n);
    std::vector<MPI_Aint> offsets(2 * n);
    std::vector<std::size_t> places(n);
    std::size_t leaving = 0, arriving = 0;
    for (std::size_t p = 0; p < n; ++p) {
        places[p] = arriving;
        if (p == me) continue;
        std::size_t const out = given[p].size(rank), in = taken[p].size(rank);
        leaving += out;
        arriving += in;
        sent[p] = static_cast<MPI_Count>(out);
        received[p] = static_cast<MPI_Count>(in);
    }
    auto const array = [&](std::size_t elements) { return context.take(elements * sizeof(T)); };
    auto packed = array(leaving);
    std::size_t at = 0;
    for (std::size_t p = 0; p < n; ++p) {
        if (sent[p] == 0) continue;
        copy_box(context, rank, given[p], static_cast<T*>(packed.data()) + at, given[p], shard.data, held);
        at += given[p].size(rank);
    }
    auto const& kept = taken[me];
    auto const arrived = array(arriving + (sums ? kept.size(rank) : 0));
    auto* const pieces = static_cast<T*>(arrived.data());
    if (sums) {
        places[me] = arriving;
        copy_box(context, rank, kept, pieces + arriving, kept, shard.data, held);
        shard.block = {};
    }
    using Flat = View<T, 1, Exec>;
    comm::all_to_all(exec, comm, Flat(static_cast<T*>(packed.data()), leaving), sent, Flat(pieces, arriving), received,
                     offsets);
    packed = {};
    result = result.in(context, place);
    if (covered < result.size()) memory::clear(exec, result.data, result.size() * sizeof(T));
    std::vector<T*> summands;
    for (std::size_t p = 0; p < n; ++p) {
        auto const& box = taken[p];
        if (!shape.is_first_summand(p) || box.size(rank) == 0) continue;
        if constexpr (Summable<T>) // others are never partial
            if (sums) {
                summands.clear();
                for (std::size_t i = 0; i < shape.summands(); ++i)
                    summands.push_back(pieces + places[shape.summand(p, i)]);
                sum_pieces(context, std::span<T* const>(summands), box.size(rank));
            }
        if (p == me && !sums)
            copy_box(context, rank, box, result.data, needed, shard.data, held);
        else
            copy_box(context, rank, box, result.data, needed, pieces + places[p], box);
    }
    return result;
}

} // namespace pentad::detail

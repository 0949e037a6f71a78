// What a node's ranks do together: which bytes each gives and gets, and how far they are.
#pragma once

#include <pentad/comm/boxes.hpp>
#include <pentad/comm/node/group.hpp>
#include <pentad/comm/node/reduction.hpp>
#include <pentad/observe/ledger.hpp>

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pentad::comm::node {

using observe::Operation;

/// How ranks are to get what lies in no segment: as is fastest, or only through mailboxes or by the kernel, for tests
/// and measurements.
enum class Access { fastest, mailboxes, processes };

/// Copies bytes [first, first + bytes) of a strided copy, counted in the order of its runs, on the threads of an
/// execution space, or on this one where that is as fast.
struct ThreadedCopy {
    void const* space = nullptr;
    void (*copy)(void const* space, memory::Runs const& runs, std::size_t first, std::size_t bytes, std::byte* to,
                 std::byte const* from, bool past_caches) = nullptr;
};

/// What is to be done. Ranks are those of the group.
struct Task {
    Operation operation{};
    std::byte const* in = nullptr; ///< all-reduce and broadcast: their one buffer, as `out`
    std::byte* out = nullptr;
    std::size_t bytes = 0; ///< of the unscattered side: what an all-reduce sums, an all-gather gives; of boxes: of `in`
    std::size_t piece = 0; ///< of a piece, of which the last may be shorter or empty
    std::size_t element = 1; ///< bytes of an element
    std::uint32_t type = 0;  ///< which elements, and how they are reduced
    Reduction reduction = nullptr;
    int root = -1;
    /// All-to-all of given counts: elements for each rank, and where they begin: of those sent, then of those received.
    std::span<MPI_Count const> sent{}, received{};
    std::span<MPI_Aint const> offsets{};
    /// An all-to-all or an all-gather of boxes: what they are. Counts are given too, and no offsets.
    Boxes const* boxes = nullptr;
    ThreadedCopy threaded{};
    Access access = Access::fastest;
    bool is_awaited = false; ///< whoever began it does nothing else until it is complete

    [[nodiscard]] bool is_counted() const { return !sent.empty(); }
    /// True when a rank gives a part to each.
    [[nodiscard]] bool cuts() const {
        return operation == Operation::reduce_scatter || operation == Operation::all_to_all;
    }
    /// True when what ranks give is combined.
    [[nodiscard]] bool reduces() const {
        return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
    }
    /// True when others read what rank p gives: all do but in a broadcast.
    [[nodiscard]] bool is_source(std::size_t p) const { return root < 0 || static_cast<int>(p) == root; }
    /// The piece of the unscattered side that rank p has on the scattered side.
    [[nodiscard]] Piece piece_of(std::size_t p) const {
        std::size_t const begin = std::min(p * piece, bytes);
        return {begin, std::min(piece, bytes - begin)};
    }
    /// What rank `me` gives to rank p: where it lies in `in`, but for boxes.
    [[nodiscard]] Piece given(std::size_t me, std::size_t p) const {
        if (is_counted()) return counted(p, sent[p]);
        if (operation == Operation::all_gather) return {0, piece_of(me).bytes};
        return operation == Operation::broadcast ? Piece{0, bytes} : piece_of(p);
    }
    /// What rank p gives to this one: where it belongs in `out`, but for boxes.
    [[nodiscard]] Piece taken(std::size_t p) const {
        if (is_counted()) return counted(sent.size() + p, received[p]);
        return operation == Operation::broadcast ? Piece{0, bytes} : piece_of(p);
    }
    /// Bytes that no box exceeds, the same number on all ranks.
    [[nodiscard]] std::size_t longest_box() const { return boxes->longest * element; }
    /// Bytes of the array of rank p, of boxes.
    [[nodiscard]] std::size_t held_by(std::size_t p) const { return boxes->held[p].size(boxes->rank) * element; }
    /// Moves a part of the box that rank p gives to this one: from the array there, which is found at `array`.
    void move_box(std::size_t p, Piece part, std::byte const* array, bool past_caches) const {
        auto const& box = boxes->taken[p];
        copy(box_copy(boxes->rank, element, box, boxes->needed, boxes->held[p]), part, out, array, past_caches);
    }
    /// Packs a part of the box that this rank, `me`, gives to rank p.
    void pack_box(std::size_t me, std::size_t p, Piece part, std::byte* packed, bool past_caches) const {
        auto const& box = boxes->given[p];
        copy(box_copy(boxes->rank, element, box, box, boxes->held[me]), part, packed - part.offset, in, past_caches);
    }
    /// Unpacks a part of the box that rank p gives to this one.
    void unpack_box(std::size_t p, Piece part, std::byte const* packed, bool past_caches) const {
        auto const& box = boxes->taken[p];
        copy(box_copy(boxes->rank, element, box, boxes->needed, box), part, out, packed - part.offset, past_caches);
    }

  private:
    void copy(BoxCopy const& box, Piece part, std::byte* to, std::byte const* from, bool past_caches) const {
        threaded.copy(threaded.space, box.runs, part.offset, part.bytes, to + box.to, from + box.from, past_caches);
    }
    [[nodiscard]] Piece counted(std::size_t offset, MPI_Count count) const {
        return {offsets.empty() ? 0 : static_cast<std::uint64_t>(offsets[offset]) * element,
                static_cast<std::uint64_t>(count) * element};
    }
};

/// The part of `bytes` bytes that rank p of n sums.
inline Piece share(std::size_t bytes, std::size_t n, std::size_t p) {
    auto const cut = [&](std::size_t i) { return i == n ? bytes : bytes / n * i / 64 * 64; };
    return {cut(p), cut(p + 1) - cut(p)};
}

/// An exchange among those of its group, and how far its ranks are.
struct ExchangeState {
    using Number = std::atomic<std::uint64_t> Slot::*;

    Group* group = nullptr;
    std::uint64_t number = 0;

    [[nodiscard]] std::size_t slot() const { return number % Group::slots; }
    [[nodiscard]] Slot& of(std::size_t rank) const { return group->slot(rank, slot()); }
    [[nodiscard]] Slot& own() const { return of(group->rank()); }
    /// What a rank's number is when it has come `steps` far.
    [[nodiscard]] std::uint64_t at(std::uint64_t steps) const { return (number << 24) + steps; }
    [[nodiscard]] bool all_at(Number which, std::uint64_t steps) const {
        return group->all_at(slot(), which, at(steps));
    }
    /// Whether the ranks from which others read have come so far.
    [[nodiscard]] bool sources_at(Task const& task, Number which, std::uint64_t steps) const {
        if (task.root < 0) return all_at(which, steps);
        auto const& root = of(static_cast<std::size_t>(task.root));
        return (root.*which).load(std::memory_order_acquire) >= at(steps);
    }
};

} // namespace pentad::comm::node

// Boxes straight from array to array, where the ranks of a group share a node: each rank reads its boxes in the others'
// memory, or, where that lies in no segment, they are packed into mailboxes and unpacked from there.
#pragma once

#include <pentad/comm/boxes.hpp>
#include <pentad/comm/collectives.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/memory/view.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace pentad::comm {

/// Whether `exchange_boxes` can be called: the ranks share a node, and host memory is theirs to move. Elsewhere boxes
/// are packed, and go by all_to_all. In a dry run: whether it could.
template <class Exec>
bool can_exchange_boxes(Communicator const& comm) {
    return memory::runs_on_host<Exec> && !comm.crosses_network() && forced_algorithm() != Algorithm::mpi;
}

namespace detail {

/// A node::ThreadedCopy for a host's execution space.
template <class Exec>
void copy_on_threads(void const* space, memory::Runs const& runs, std::size_t first, std::size_t bytes, std::byte* to,
                     std::byte const* from, bool past_caches) {
    static constexpr std::size_t worth_threads = std::size_t{256} << 10;
    auto const& exec = *static_cast<Exec const*>(space);
    if (bytes < worth_threads || exec.concurrency() == 1)
        return node::copy_part(runs, first, bytes, to, from, past_caches);
    memory::for_parts_on_host("pentad::exchange_boxes", exec, bytes, memory::grain_of(runs),
                              [=](std::size_t begin, std::size_t count) {
                                  node::copy_part(runs, first + begin, count, to, from, past_caches);
                                  node::order_stores();
                              });
    exec.fence("pentad: boxes have been copied");
}

inline void require_box(bool holds, Communicator const& comm, Operation operation, char const* what) {
    if (!holds)
        throw Error(std::string(observe::name(operation)) + " of boxes " + comm.where() + ": a box is not " + what);
}
inline bool is_within(ElementBox const& box, ElementBox const& array, std::size_t rank) {
    if (box.size(rank) == 0) return true;
    for (std::size_t d = 0; d < rank; ++d)
        if (box.begin[d] < array.begin[d] || box.end[d] > array.end[d]) return false;
    return true;
}

} // namespace detail

/// Box `given[p]` of `in` goes to rank p, where it is box `taken[me]` of the result, `out`; own boxes are copied. What
/// is in no box stays as it is in `out`. Both arrays are row-major, and do not overlap. Collective; blocks until `out`
/// is there and nobody reads `in` any more. What a rank takes must be what the other gives, and holds (@throws Error).
/// @param operation all_to_all, or all_gather where each rank gives all of its array to all: for the ledger, and for
/// how mailboxes are divided
template <class T, class Exec>
void exchange_boxes(Exec const& exec, Communicator const& comm, observe::Operation operation, Boxes const& boxes,
                    T const* in, T* out) {
    using Flat = View<T, 1, Exec>;
    auto const n = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
    std::size_t const rank = boxes.rank;
    if (boxes.held.size() != n || boxes.given.size() != n || boxes.taken.size() != n)
        throw Error("exchange_boxes " + comm.where() + " needs a box for each rank");
    std::vector<MPI_Count> sent(n), received(n);
    std::size_t leaving = 0;
    for (std::size_t p = 0; p < n; ++p) {
        auto const &given = boxes.given[p], &taken = boxes.taken[p];
        detail::require_box(detail::is_within(given, boxes.held[me], rank), comm, operation,
                            "within what its rank holds");
        detail::require_box(detail::is_within(taken, boxes.held[p], rank), comm, operation,
                            "within what its rank holds");
        detail::require_box(detail::is_within(taken, boxes.needed, rank), comm, operation, "within the result");
        detail::require_box(operation != observe::Operation::all_gather ||
                                given.size(rank) == boxes.held[me].size(rank),
                            comm, operation, "all that its rank holds");
        sent[p] = static_cast<MPI_Count>(given.size(rank));
        received[p] = static_cast<MPI_Count>(taken.size(rank));
        if (std::max(given.size(rank), taken.size(rank)) > boxes.longest)
            throw Error("exchange_boxes " + comm.where() + ": a box has more elements than the longest");
        if (p != me) leaving += given.size(rank);
    }
    Flat const source(const_cast<T*>(in), boxes.held[me].size(rank)), target(out, boxes.needed.size(rank));
    detail::require_disjoint(comm, operation, source, target);
    if (n == 1) {
        auto const own = box_copy(rank, sizeof(T), boxes.taken[0], boxes.needed, boxes.held[0]);
        return memory::copy("boxes", exec, own.runs, reinterpret_cast<std::byte*>(out) + own.to,
                            reinterpret_cast<std::byte const*>(in) + own.from);
    }
    if (!can_exchange_boxes<Exec>(comm))
        throw Error("exchange_boxes " + comm.where() +
                    " is for host memory of ranks that share a node: see can_exchange_boxes");
    auto const cost = detail::cost_of_sent(comm, static_cast<double>(leaving * sizeof(T)));
    if (auto* const dry = observe::dry_run()) return dry->exchange(operation, cost, comm.size(), false, 0, false);
    if constexpr (memory::runs_on_host<Exec>) {
        using Buffer = detail::Staged<Flat>;
        Request<Buffer, Buffer> request(comm, Buffer(exec, source, detail::Use::send),
                                        Buffer(exec, target, detail::Use::both));
        node::Task const task{.operation = operation,
                              .in = detail::address(in),
                              .out = detail::address(out),
                              .bytes = source.size() * sizeof(T),
                              .element = sizeof(T),
                              .type = type_code<T>(),
                              .sent = sent,
                              .received = received,
                              .boxes = &boxes,
                              .threaded = {&exec, &detail::copy_on_threads<Exec>}};
        request.run(
            detail::Form::block, {.operation = operation, .type = task.type, .sent = sent, .received = received},
            task.bytes,
            [=, &comm] { return detail::begin(detail::Form::block, comm, task, MPI_DATATYPE_NULL, MPI_OP_NULL); }, {},
            [](MPI_Request*) { return MPI_SUCCESS; });
        comm.ledger().record(operation, cost, false, 0, false);
    }
}

} // namespace pentad::comm

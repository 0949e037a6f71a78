// Collectives on Views of any rank and layout, each blocking (`all_reduce`) and non-blocking
// (`start_all_reduce`, which returns a Request).
//
// For all of them: every rank of the communicator calls the same form with the same sizes (a checked build compares:
// checked.hpp). Elements travel in row-major order,
// however a view lies in memory; one that lies otherwise is packed. The execution space instance `exec` is fenced
// first, since its work wrote the views, and again where a copy has brought what was received; nothing else is. A
// blocking call returns when the result is in the view that receives; after a non-blocking one both views belong to the
// operation until `wait`. A group of one rank copies locally and calls nothing. Which algorithm runs (choice.hpp)
// depends on what all ranks know; the order of sums is fixed for a given size, type and group.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/comm/detail/datatype.hpp>
#include <pentad/comm/detail/staging.hpp>
#include <pentad/comm/request.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/observe/ledger.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace pentad::comm {

namespace detail {

using observe::Operation;

/// What a collective sends, for the ledger. `whole` is what add_scatter_cost takes: the bytes of the unscattered side.
[[gnu::noinline]] inline Cost cost_of(Communicator const& comm, double whole) {
    Cost cost;
    add_scatter_cost(cost, comm.mesh(), comm.axes(), whole);
    return cost;
}

/// The cost of bytes that this rank sends to others.
[[gnu::noinline]] inline Cost cost_of_sent(Communicator const& comm, double sent) {
    Cost cost;
    add_sent_cost(cost, comm.mesh(), comm.axes(), sent);
    return cost;
}

inline void require(bool holds, Communicator const& comm, Operation operation, std::size_t sent, std::size_t received) {
    if (!holds)
        throw Error(std::string(observe::name(operation)) + " " + comm.where() + ": " + std::to_string(sent) +
                    " elements are given and " + std::to_string(received) + " are to be received");
}

/// The memory of a view.
struct Extent {
    std::byte const *begin, *end;
};
template <class V>
Extent extent_of(V const& view) {
    auto const* const begin = reinterpret_cast<std::byte const*>(view.data());
    return {begin, view.size() == 0 ? begin : begin + view.span() * sizeof(typename V::value_type)};
}

/// True when `in` already lies where this rank's piece of `out` belongs.
template <class A, class B>
bool in_place(Communicator const& comm, A const& in, B const& out) {
    return is_row_major(in) && is_row_major(out) &&
           in.data() == out.data() + static_cast<std::size_t>(comm.rank()) * in.size();
}

inline bool overlap(Extent const& a, Extent const& b) {
    return a.begin != a.end && b.begin != b.end && a.begin < b.end && b.begin < a.end;
}
inline void require_disjoint(Communicator const& comm, Operation operation, Extent const& in, Extent const& out) {
    if (overlap(in, out))
        throw Error(std::string(observe::name(operation)) + " " + comm.where() +
                    ": what is sent and what is received overlap in memory");
}
template <class A, class B>
void require_disjoint(Communicator const& comm, Operation operation, A const& in, B const& out) {
    require_disjoint(comm, operation, extent_of(in), extent_of(out));
}

/// What a group of one rank does: the first `count` elements of `in` become those of `out`.
template <class Exec, class In, class Out>
void copy_locally(Exec const& exec, In const& in, Out const& out, std::size_t count) {
    using T = typename Out::non_const_value_type;
    if (auto* const dry = observe::dry_run()) return dry->pass("copy", 2.0 * static_cast<double>(count * sizeof(T)));
    Staged<In> from(exec, in, Use::send);
    Staged<Out> to(exec, out, count == out.size() ? Use::receive : Use::both);
    if (Staged<Out>::on_host || !gpu_aware()) // both are on the host
        std::copy_n(from.data(), count, to.data());
    else
        memory::copy(exec, to.data(), from.data(), count * sizeof(T));
    to.unpack();
}
template <class Exec, class In, class Out>
void copy_locally(Exec const& exec, In const& in, Out const& out) {
    copy_locally(exec, in, out, in.size());
}

inline std::byte* address(void const* data) { return static_cast<std::byte*>(const_cast<void*>(data)); }

/// The library's own operation for a task, begun.
Pending* begin(Form form, Communicator const& comm, node::Task task, MPI_Datatype type, MPI_Op sum);
/// What this rank sends to other nodes for a task.
inline NetworkBytes network_of(Communicator const& comm, node::Task const& task, bool by_mpi) {
    if (comm.nodes().count() == 1) return {};
    return by_mpi ? mpi_network(comm.nodes(), comm.size(), comm.rank(), task)
                  : two_level_network(comm.nodes(), comm.rank(), task);
}
/// Carries out a task or starts it: by the library itself where it can and the host can reach the buffers, else by MPI.
/// `cost` is for the ledger.
void carry_out(UnderWay& under_way, bool is_reachable, Form form, Communicator const& comm, node::Task const& task,
               MPI_Datatype type, MPI_Op sum, Cost const& cost, bool modelled);
template <class... Buffers>
void carry_out(Request<Buffers...>& request, Form form, Communicator const& comm, node::Task const& task,
               MPI_Datatype type, MPI_Op sum, Cost const& cost, bool modelled) {
    bool const is_reachable = ((Buffers::on_host || !gpu_aware()) && ...);
    carry_out(request.under_way(), is_reachable, form, comm, task, type, sum, cost, modelled);
    if (form == Form::block) request.unpack();
}

template <class Exec, class V>
Request<Staged<V>> all_reduce(Form form, Exec const& exec, Communicator const& comm, V const& view,
                              Placement placement) {
    using T = typename V::non_const_value_type;
    using R = Request<Staged<V>>;
    if (comm.size() == 1) return R(comm, {});
    R request(comm, Staged<V>(exec, view, Use::both));
    void* const data = request.template buffer<0>().data();
    std::size_t const bytes = view.size() * sizeof(T);
    carry_out(request, form, comm,
              {.operation = Operation::all_reduce,
               .in = address(data),
               .out = address(data),
               .bytes = bytes,
               .element = sizeof(T),
               .type = type_code<T>(placement),
               .reduction = node::reduction<T>(placement)},
              datatype<T>(), reduction<T>(placement), cost_of(comm, 2.0 * static_cast<double>(bytes)), true);
    return request;
}

template <class Exec, class In, class Out>
Request<Staged<In>, Staged<Out>> all_gather(Form form, Exec const& exec, Communicator const& comm, In const& in,
                                            Out const& out) {
    using T = typename Out::non_const_value_type;
    using R = Request<Staged<In>, Staged<Out>>;
    require(out.size() == in.size() * static_cast<std::size_t>(comm.size()), comm, Operation::all_gather, in.size(),
            out.size());
    bool const placed = in_place(comm, in, out);
    if (!placed) require_disjoint(comm, Operation::all_gather, in, out);
    if (comm.size() == 1) {
        if (!placed) copy_locally(exec, in, out);
        return R(comm, {}, {});
    }
    R request(comm, Staged<In>(exec, in, Use::send), Staged<Out>(exec, out, Use::receive));
    void const* const from = request.template buffer<0>().data();
    void* const to = request.template buffer<1>().data();
    std::size_t const bytes = out.size() * sizeof(T);
    carry_out(request, form, comm,
              {.operation = Operation::all_gather,
               .in = address(from),
               .out = address(to),
               .bytes = bytes,
               .piece = in.size() * sizeof(T),
               .element = sizeof(T),
               .type = type_code<T>()},
              datatype<T>(), MPI_OP_NULL, cost_of(comm, static_cast<double>(bytes)), true);
    return request;
}

template <class Exec, class In, class Out>
Request<Staged<In>, Staged<Out>> reduce_scatter(Form form, Exec const& exec, Communicator const& comm, In const& in,
                                                Out const& out) {
    using T = typename Out::non_const_value_type;
    using R = Request<Staged<In>, Staged<Out>>;
    require(in.size() == out.size() * static_cast<std::size_t>(comm.size()), comm, Operation::reduce_scatter, in.size(),
            out.size());
    require_disjoint(comm, Operation::reduce_scatter, in, out);
    if (comm.size() == 1) {
        copy_locally(exec, in, out);
        return R(comm, {}, {});
    }
    R request(comm, Staged<In>(exec, in, Use::send), Staged<Out>(exec, out, Use::receive));
    void const* const from = request.template buffer<0>().data();
    void* const to = request.template buffer<1>().data();
    std::size_t const bytes = in.size() * sizeof(T);
    carry_out(request, form, comm,
              {.operation = Operation::reduce_scatter,
               .in = address(from),
               .out = address(to),
               .bytes = bytes,
               .piece = out.size() * sizeof(T),
               .element = sizeof(T),
               .type = type_code<T>(),
               .reduction = node::reduction<T>(Placement::partial)},
              datatype<T>(), reduction<T>(Placement::partial), cost_of(comm, static_cast<double>(bytes)), true);
    return request;
}

template <class Exec, class In, class Out>
Request<Staged<In>, Staged<Out>> all_to_all(Form form, Exec const& exec, Communicator const& comm, In const& in,
                                            Out const& out) {
    using T = typename Out::non_const_value_type;
    using R = Request<Staged<In>, Staged<Out>>;
    auto const n = static_cast<std::size_t>(comm.size());
    require(in.size() == out.size() && in.size() % n == 0, comm, Operation::all_to_all, in.size(), out.size());
    require_disjoint(comm, Operation::all_to_all, in, out);
    if (n == 1) {
        copy_locally(exec, in, out);
        return R(comm, {}, {});
    }
    R request(comm, Staged<In>(exec, in, Use::send), Staged<Out>(exec, out, Use::receive));
    void const* const from = request.template buffer<0>().data();
    void* const to = request.template buffer<1>().data();
    std::size_t const bytes = in.size() * sizeof(T);
    carry_out(request, form, comm,
              {.operation = Operation::all_to_all,
               .in = address(from),
               .out = address(to),
               .bytes = bytes,
               .piece = bytes / n,
               .element = sizeof(T),
               .type = type_code<T>()},
              datatype<T>(), MPI_OP_NULL, cost_of(comm, static_cast<double>(bytes)), false);
    return request;
}

template <class Exec, class In, class Out>
Request<Staged<In>, Staged<Out>> all_to_all(Form form, Exec const& exec, Communicator const& comm, In const& in,
                                            std::span<MPI_Count const> sent, Out const& out,
                                            std::span<MPI_Count const> received, std::span<MPI_Aint> offsets,
                                            bool gives_all_the_same = false) {
    using T = typename Out::non_const_value_type;
    using R = Request<Staged<In>, Staged<Out>>;
    auto const n = static_cast<std::size_t>(comm.size());
    if (sent.size() != n || received.size() != n || offsets.size() != 2 * n)
        throw Error("all_to_all " + comm.where() + " needs a count for each rank, and room for two offsets a rank");
    MPI_Count total_sent = 0, total_received = 0;
    for (std::size_t i = 0; i < n; ++i) {
        offsets[i] = gives_all_the_same ? 0 : static_cast<MPI_Aint>(total_sent);
        offsets[n + i] = static_cast<MPI_Aint>(total_received);
        total_sent += sent[i];
        total_received += received[i];
    }
    MPI_Count const given = gives_all_the_same ? *std::max_element(sent.begin(), sent.end()) : total_sent;
    require(static_cast<std::size_t>(given) <= in.size() && static_cast<std::size_t>(total_received) <= out.size(),
            comm, Operation::all_to_all, in.size(), out.size());
    require_disjoint(comm, Operation::all_to_all, in, out);
    auto const me = static_cast<std::size_t>(comm.rank());
    require(sent[me] == received[me], comm, Operation::all_to_all, static_cast<std::size_t>(sent[me]),
            static_cast<std::size_t>(received[me]));
    if (n == 1) {
        copy_locally(exec, in, out, static_cast<std::size_t>(given));
        return R(comm, {}, {});
    }
    auto const use = static_cast<std::size_t>(total_received) == out.size() ? Use::receive : Use::both;
    R request(comm, Staged<In>(exec, in, Use::send), Staged<Out>(exec, out, use));
    void const* const from = request.template buffer<0>().data();
    void* const to = request.template buffer<1>().data();
    auto const bytes = static_cast<std::size_t>(given) * sizeof(T);
    double const leaving = static_cast<double>(total_sent - sent[me]) * sizeof(T);
    carry_out(request, form, comm,
              {.operation = Operation::all_to_all,
               .in = address(from),
               .out = address(to),
               .bytes = bytes,
               .element = sizeof(T),
               .type = type_code<T>(),
               .sent = sent,
               .received = received,
               .offsets = offsets},
              datatype<T>(), MPI_OP_NULL, cost_of_sent(comm, leaving), false);
    return request;
}

} // namespace detail

/// Every rank's `view` becomes the sum (maximum, minimum, log-sum-exp) over the group, in place.
template <class Exec, class V>
auto start_all_reduce(Exec const& exec, Communicator const& comm, V const& view,
                      Placement placement = Placement::partial) {
    return detail::all_reduce(detail::Form::start, exec, comm, view, placement);
}
template <class Exec, class V>
void all_reduce(Exec const& exec, Communicator const& comm, V const& view, Placement placement = Placement::partial) {
    (void)detail::all_reduce(detail::Form::block, exec, comm, view, placement);
}

/// `out` holds the `in` of all ranks, one after the other: out.size() == size x in.size(). `in` may be this rank's
/// piece of `out`; any other overlap is refused.
template <class Exec, class In, class Out>
auto start_all_gather(Exec const& exec, Communicator const& comm, In const& in, Out const& out) {
    return detail::all_gather(detail::Form::start, exec, comm, in, out);
}
template <class Exec, class In, class Out>
void all_gather(Exec const& exec, Communicator const& comm, In const& in, Out const& out) {
    (void)detail::all_gather(detail::Form::block, exec, comm, in, out);
}

/// Pieces of given sizes: `out` holds the `in` of all ranks, one after the other, counts[i] elements of rank i, and
/// what lies behind them stays as it is. `in` lies elsewhere, and this rank's count of it is sent.
/// @param sent memory for a count of each rank @param offsets for two of each
template <class Exec, class In, class Out>
void all_gather(Exec const& exec, Communicator const& comm, In const& in, Out const& out,
                std::span<MPI_Count const> counts, std::span<MPI_Count> sent, std::span<MPI_Aint> offsets) {
    std::fill(sent.begin(), sent.end(), counts[static_cast<std::size_t>(comm.rank())]);
    (void)detail::all_to_all(detail::Form::block, exec, comm, in, sent, out, counts, offsets, true);
}
/// all_gather() that allocates that memory.
template <class Exec, class In, class Out>
void all_gather(Exec const& exec, Communicator const& comm, In const& in, Out const& out,
                std::span<MPI_Count const> counts) {
    auto const n = static_cast<std::size_t>(comm.size());
    if (counts.size() != n)
        throw Error("all_gather " + comm.where() + ": " + std::to_string(counts.size()) + " counts for " +
                    std::to_string(n) + " ranks");
    std::vector<MPI_Count> sent(n);
    std::vector<MPI_Aint> offsets(2 * n);
    all_gather(exec, comm, in, out, counts, std::span(sent), std::span(offsets));
}

/// `out` is this rank's piece of the sum over the group: in.size() == size x out.size().
template <class Exec, class In, class Out>
auto start_reduce_scatter(Exec const& exec, Communicator const& comm, In const& in, Out const& out) {
    return detail::reduce_scatter(detail::Form::start, exec, comm, in, out);
}
template <class Exec, class In, class Out>
void reduce_scatter(Exec const& exec, Communicator const& comm, In const& in, Out const& out) {
    (void)detail::reduce_scatter(detail::Form::block, exec, comm, in, out);
}

/// Piece i of `in` goes to rank i, whose piece for this rank arrives as piece i of `out`: pieces of equal size.
template <class Exec, class In, class Out>
auto start_all_to_all(Exec const& exec, Communicator const& comm, In const& in, Out const& out) {
    return detail::all_to_all(detail::Form::start, exec, comm, in, out);
}
template <class Exec, class In, class Out>
void all_to_all(Exec const& exec, Communicator const& comm, In const& in, Out const& out) {
    (void)detail::all_to_all(detail::Form::block, exec, comm, in, out);
}

/// Pieces of given sizes: `sent[i]` elements of `in` go to rank i and `received[i]` elements arrive from it, each in
/// rank order without gaps; what lies behind them in `out` stays as it is. The counts are in elements; what rank i
/// receives from j must be what j sends to i. Counts and offsets belong to the operation as the views do.
template <class Exec, class In, class Out>
auto start_all_to_all(Exec const& exec, Communicator const& comm, In const& in, std::span<MPI_Count const> sent,
                      Out const& out, std::span<MPI_Count const> received, std::span<MPI_Aint> offsets) {
    return detail::all_to_all(detail::Form::start, exec, comm, in, sent, out, received, offsets);
}
template <class Exec, class In, class Out>
void all_to_all(Exec const& exec, Communicator const& comm, In const& in, std::span<MPI_Count const> sent,
                Out const& out, std::span<MPI_Count const> received, std::span<MPI_Aint> offsets) {
    (void)detail::all_to_all(detail::Form::block, exec, comm, in, sent, out, received, offsets);
}

} // namespace pentad::comm

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/collectives.hpp>
#endif

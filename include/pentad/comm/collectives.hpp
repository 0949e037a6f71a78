// Room: comm. Collectives on Views of any rank and layout, each blocking (`all_reduce`) and non-blocking
// (`start_all_reduce`, which returns a Request).
//
// For all of them: every rank of the communicator calls with the same sizes. Elements travel in row-major order,
// however a view lies in memory; one that lies otherwise is packed. The execution space instance `exec` is fenced
// first, since its work wrote the views, and again where a copy has brought what was received; nothing else is. A
// blocking call returns when the result is in the view that receives; after a non-blocking one both views belong to the
// operation until `wait`. A group of one rank copies locally and calls nothing. Sums are made in an order fixed by the
// MPI library for a given size, type and group.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/comm/datatype.hpp>
#include <pentad/comm/request.hpp>
#include <pentad/comm/staging.hpp>
#include <pentad/observe/ledger.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace pentad::comm {

namespace detail {

using observe::Operation;

/// Books a collective in the ledger. `whole` is what add_scatter_cost takes: the bytes of the unscattered side.
inline void book(Communicator const& comm, Operation operation, double whole, bool modelled = true) {
    Cost cost;
    add_scatter_cost(cost, comm.mesh(), comm.axes(), whole);
    observe::ledger().record(operation, cost, modelled);
}

inline void require(bool holds, Communicator const& comm, Operation operation, std::size_t sent, std::size_t received) {
    if (!holds)
        throw Error(std::string(observe::name(operation)) + " " + comm.where() + ": " + std::to_string(sent) +
                    " elements are given and " + std::to_string(received) + " are to be received");
}

template <class A, class B>
bool overlap(A const& a, B const& b) {
    auto const* first = reinterpret_cast<std::byte const*>(a.data());
    auto const* second = reinterpret_cast<std::byte const*>(b.data());
    return a.size() > 0 && b.size() > 0 && first < second + b.span() * sizeof(typename B::value_type) &&
           second < first + a.span() * sizeof(typename A::value_type);
}

/// True when `in` already lies where this rank's piece of `out` belongs.
template <class A, class B>
bool in_place(Communicator const& comm, A const& in, B const& out) {
    return is_row_major(in) && is_row_major(out) &&
           in.data() == out.data() + static_cast<std::size_t>(comm.rank()) * in.size();
}

template <class A, class B>
void require_disjoint(Communicator const& comm, Operation operation, A const& in, B const& out) {
    if (overlap(in, out))
        throw Error(std::string(observe::name(operation)) + " " + comm.where() +
                    ": what is sent and what is received overlap in memory");
}

/// What a group of one rank does: the first `count` elements of `in` become those of `out`.
template <class Exec, class In, class Out>
void copy_locally(Exec const& exec, In const& in, Out const& out, std::size_t count) {
    using T = typename Out::non_const_value_type;
    Staged<In> from(exec, in, Use::send);
    Staged<Out> to(exec, out, count == out.size() ? Use::receive : Use::both);
    if (Staged<Out>::on_host || !gpu_aware()) // both are on the host
        std::copy_n(from.data(), count, to.data());
    else
        copy(exec, to.data(), from.data(), count * sizeof(T));
    to.unpack();
}
template <class Exec, class In, class Out>
void copy_locally(Exec const& exec, In const& in, Out const& out) {
    copy_locally(exec, in, out, in.size());
}

} // namespace detail

/// Every rank's `view` becomes the sum (maximum, log-sum-exp) over the group, in place.
template <class Exec, class V>
Request<detail::Staged<V>> start_all_reduce(Exec const& exec, Communicator const& comm, V const& view,
                                            Placement placement = Placement::partial) {
    using T = typename V::non_const_value_type;
    if (comm.size() == 1) return Request<detail::Staged<V>>(comm, {});
    Request<detail::Staged<V>> request(comm, detail::Staged<V>(exec, view, detail::Use::both));
    check(MPI_Iallreduce_c(MPI_IN_PLACE, request.template buffer<0>().data(), static_cast<MPI_Count>(view.size()),
                           datatype<T>(), reduction<T>(placement), comm.handle(),
                           request.start(observe::name(detail::Operation::all_reduce), view.size() * sizeof(T))),
          "MPI_Iallreduce", comm.where());
    detail::book(comm, detail::Operation::all_reduce, 2.0 * static_cast<double>(view.size() * sizeof(T)));
    return request;
}
template <class Exec, class V>
void all_reduce(Exec const& exec, Communicator const& comm, V const& view, Placement placement = Placement::partial) {
    using T = typename V::non_const_value_type;
    if (comm.size() == 1) return;
    detail::Timed const timed(comm, observe::name(detail::Operation::all_reduce), view.size() * sizeof(T));
    detail::Staged<V> buffer(exec, view, detail::Use::both);
    check(MPI_Allreduce_c(MPI_IN_PLACE, buffer.data(), static_cast<MPI_Count>(view.size()), datatype<T>(),
                          reduction<T>(placement), comm.handle()),
          "MPI_Allreduce", comm.where());
    buffer.unpack();
    detail::book(comm, detail::Operation::all_reduce, 2.0 * static_cast<double>(view.size() * sizeof(T)));
}

/// `out` holds the `in` of all ranks, one after the other: out.size() == size x in.size(). `in` may be this rank's
/// piece of `out`; any other overlap is refused.
template <class Exec, class In, class Out>
Request<detail::Staged<In>, detail::Staged<Out>> start_all_gather(Exec const& exec, Communicator const& comm,
                                                                  In const& in, Out const& out) {
    using T = typename Out::non_const_value_type;
    using R = Request<detail::Staged<In>, detail::Staged<Out>>;
    detail::require(out.size() == in.size() * static_cast<std::size_t>(comm.size()), comm,
                    detail::Operation::all_gather, in.size(), out.size());
    bool const in_place = detail::in_place(comm, in, out);
    if (!in_place) detail::require_disjoint(comm, detail::Operation::all_gather, in, out);
    if (comm.size() == 1) {
        if (!in_place) detail::copy_locally(exec, in, out);
        return R(comm, {}, {});
    }
    R request(comm, detail::Staged<In>(exec, in, detail::Use::send),
              detail::Staged<Out>(exec, out, detail::Use::receive));
    auto const& to = request.template buffer<1>();
    void const* const from = request.template buffer<0>().data();
    auto const count = static_cast<MPI_Count>(in.size());
    check(MPI_Iallgather_c(in_place && to.data() == out.data() ? MPI_IN_PLACE : from, count, datatype<T>(), to.data(),
                           count, datatype<T>(), comm.handle(),
                           request.start(observe::name(detail::Operation::all_gather), out.size() * sizeof(T))),
          "MPI_Iallgather", comm.where());
    detail::book(comm, detail::Operation::all_gather, static_cast<double>(out.size() * sizeof(T)));
    return request;
}
template <class Exec, class In, class Out>
void all_gather(Exec const& exec, Communicator const& comm, In const& in, Out const& out) {
    using T = typename Out::non_const_value_type;
    detail::require(out.size() == in.size() * static_cast<std::size_t>(comm.size()), comm,
                    detail::Operation::all_gather, in.size(), out.size());
    bool const in_place = detail::in_place(comm, in, out);
    if (comm.size() == 1 && in_place) return;
    if (!in_place) detail::require_disjoint(comm, detail::Operation::all_gather, in, out);
    if (comm.size() == 1) return detail::copy_locally(exec, in, out);
    detail::Timed const timed(comm, observe::name(detail::Operation::all_gather), out.size() * sizeof(T));
    detail::Staged<In> from(exec, in, detail::Use::send);
    detail::Staged<Out> to(exec, out, detail::Use::receive);
    bool const staged_in_place = in_place && to.data() == out.data();
    auto const count = static_cast<MPI_Count>(in.size());
    check(MPI_Allgather_c(staged_in_place ? MPI_IN_PLACE : static_cast<void const*>(from.data()), count, datatype<T>(),
                          to.data(), count, datatype<T>(), comm.handle()),
          "MPI_Allgather", comm.where());
    to.unpack();
    detail::book(comm, detail::Operation::all_gather, static_cast<double>(out.size() * sizeof(T)));
}

/// `out` is this rank's piece of the sum over the group: in.size() == size x out.size().
template <class Exec, class In, class Out>
Request<detail::Staged<In>, detail::Staged<Out>> start_reduce_scatter(Exec const& exec, Communicator const& comm,
                                                                      In const& in, Out const& out) {
    using T = typename Out::non_const_value_type;
    using R = Request<detail::Staged<In>, detail::Staged<Out>>;
    detail::require(in.size() == out.size() * static_cast<std::size_t>(comm.size()), comm,
                    detail::Operation::reduce_scatter, in.size(), out.size());
    detail::require_disjoint(comm, detail::Operation::reduce_scatter, in, out);
    if (comm.size() == 1) {
        detail::copy_locally(exec, in, out);
        return R(comm, {}, {});
    }
    R request(comm, detail::Staged<In>(exec, in, detail::Use::send),
              detail::Staged<Out>(exec, out, detail::Use::receive));
    check(MPI_Ireduce_scatter_block_c(
              request.template buffer<0>().data(), request.template buffer<1>().data(),
              static_cast<MPI_Count>(out.size()), datatype<T>(), reduction<T>(Placement::partial), comm.handle(),
              request.start(observe::name(detail::Operation::reduce_scatter), in.size() * sizeof(T))),
          "MPI_Ireduce_scatter_block", comm.where());
    detail::book(comm, detail::Operation::reduce_scatter, static_cast<double>(in.size() * sizeof(T)));
    return request;
}
template <class Exec, class In, class Out>
void reduce_scatter(Exec const& exec, Communicator const& comm, In const& in, Out const& out) {
    using T = typename Out::non_const_value_type;
    detail::require(in.size() == out.size() * static_cast<std::size_t>(comm.size()), comm,
                    detail::Operation::reduce_scatter, in.size(), out.size());
    detail::require_disjoint(comm, detail::Operation::reduce_scatter, in, out);
    if (comm.size() == 1) return detail::copy_locally(exec, in, out);
    detail::Timed const timed(comm, observe::name(detail::Operation::reduce_scatter), in.size() * sizeof(T));
    detail::Staged<In> from(exec, in, detail::Use::send);
    detail::Staged<Out> to(exec, out, detail::Use::receive);
    check(MPI_Reduce_scatter_block_c(from.data(), to.data(), static_cast<MPI_Count>(out.size()), datatype<T>(),
                                     reduction<T>(Placement::partial), comm.handle()),
          "MPI_Reduce_scatter_block", comm.where());
    to.unpack();
    detail::book(comm, detail::Operation::reduce_scatter, static_cast<double>(in.size() * sizeof(T)));
}

/// Piece i of `in` goes to rank i, whose piece for this rank arrives as piece i of `out`: pieces of equal size.
template <class Exec, class In, class Out>
Request<detail::Staged<In>, detail::Staged<Out>> start_all_to_all(Exec const& exec, Communicator const& comm,
                                                                  In const& in, Out const& out) {
    using T = typename Out::non_const_value_type;
    using R = Request<detail::Staged<In>, detail::Staged<Out>>;
    auto const n = static_cast<std::size_t>(comm.size());
    detail::require(in.size() == out.size() && in.size() % n == 0, comm, detail::Operation::all_to_all, in.size(),
                    out.size());
    detail::require_disjoint(comm, detail::Operation::all_to_all, in, out);
    if (comm.size() == 1) {
        detail::copy_locally(exec, in, out);
        return R(comm, {}, {});
    }
    R request(comm, detail::Staged<In>(exec, in, detail::Use::send),
              detail::Staged<Out>(exec, out, detail::Use::receive));
    auto const count = static_cast<MPI_Count>(in.size() / n);
    check(MPI_Ialltoall_c(request.template buffer<0>().data(), count, datatype<T>(),
                          request.template buffer<1>().data(), count, datatype<T>(), comm.handle(),
                          request.start(observe::name(detail::Operation::all_to_all), in.size() * sizeof(T))),
          "MPI_Ialltoall", comm.where());
    detail::book(comm, detail::Operation::all_to_all, static_cast<double>(in.size() * sizeof(T)), false);
    return request;
}
template <class Exec, class In, class Out>
void all_to_all(Exec const& exec, Communicator const& comm, In const& in, Out const& out) {
    start_all_to_all(exec, comm, in, out).wait();
}

/// Pieces of given sizes: `sent[i]` elements of `in` go to rank i and `received[i]` elements arrive from it, each in
/// rank order without gaps; what lies behind them in `out` stays as it is. The counts are in elements; what rank i
/// receives from j must be what j sends to i. Counts and offsets belong to the operation as the views do.
template <class Exec, class In, class Out>
Request<detail::Staged<In>, detail::Staged<Out>>
start_all_to_all(Exec const& exec, Communicator const& comm, In const& in, std::span<MPI_Count const> sent,
                 Out const& out, std::span<MPI_Count const> received, std::span<MPI_Aint> offsets) {
    using T = typename Out::non_const_value_type;
    using R = Request<detail::Staged<In>, detail::Staged<Out>>;
    auto const n = static_cast<std::size_t>(comm.size());
    if (sent.size() != n || received.size() != n || offsets.size() != 2 * n)
        throw Error("all_to_all " + comm.where() + " needs a count for each rank, and room for two offsets a rank");
    MPI_Count total_sent = 0, total_received = 0;
    for (std::size_t i = 0; i < n; ++i) {
        offsets[i] = static_cast<MPI_Aint>(total_sent);
        offsets[n + i] = static_cast<MPI_Aint>(total_received);
        total_sent += sent[i];
        total_received += received[i];
    }
    detail::require(static_cast<std::size_t>(total_sent) <= in.size() &&
                        static_cast<std::size_t>(total_received) <= out.size(),
                    comm, detail::Operation::all_to_all, in.size(), out.size());
    detail::require_disjoint(comm, detail::Operation::all_to_all, in, out);
    if (comm.size() == 1) {
        detail::require(total_sent == total_received, comm, detail::Operation::all_to_all,
                        static_cast<std::size_t>(total_sent), static_cast<std::size_t>(total_received));
        detail::copy_locally(exec, in, out, static_cast<std::size_t>(total_sent));
        return R(comm, {}, {});
    }
    auto const use = static_cast<std::size_t>(total_received) == out.size() ? detail::Use::receive : detail::Use::both;
    R request(comm, detail::Staged<In>(exec, in, detail::Use::send), detail::Staged<Out>(exec, out, use));
    check(MPI_Ialltoallv_c(request.template buffer<0>().data(), sent.data(), offsets.data(), datatype<T>(),
                           request.template buffer<1>().data(), received.data(), offsets.data() + n, datatype<T>(),
                           comm.handle(),
                           request.start(observe::name(detail::Operation::all_to_all),
                                         static_cast<std::size_t>(total_sent) * sizeof(T))),
          "MPI_Ialltoallv", comm.where());
    Cost cost;
    auto const own = sent[static_cast<std::size_t>(comm.rank())];
    if (comm.axes().size() == 1)
        cost.add(comm.axes()[0], static_cast<double>(total_sent - own) * sizeof(T));
    else // told apart as an all-to-all with equal pieces would be
        add_scatter_cost(cost, comm.mesh(), comm.axes(),
                         static_cast<double>(total_sent - own) * sizeof(T) * comm.size() / (comm.size() - 1));
    observe::ledger().record(detail::Operation::all_to_all, cost, false);
    return request;
}
template <class Exec, class In, class Out>
void all_to_all(Exec const& exec, Communicator const& comm, In const& in, std::span<MPI_Count const> sent,
                Out const& out, std::span<MPI_Count const> received, std::span<MPI_Aint> offsets) {
    start_all_to_all(exec, comm, in, sent, out, received, offsets).wait();
}

} // namespace pentad::comm

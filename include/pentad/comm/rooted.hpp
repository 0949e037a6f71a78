// Collectives with a root, and sends from one rank to another: broadcast, reduce, gather, send, receive and
// the shift along a ring. The contract is that of collectives.hpp.
#pragma once

#include <pentad/comm/collectives.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <string>

namespace pentad::comm {

namespace detail {

template <class Exec, class V>
Request<Staged<V>> broadcast(Form form, Exec const& exec, Communicator const& comm, V const& view, int root) {
    using T = typename V::non_const_value_type;
    using R = Request<Staged<V>>;
    if (root < 0 || root >= comm.size())
        throw Error("broadcast " + comm.where() + ": there is no rank " + std::to_string(root));
    if (comm.size() == 1) return R(comm, {});
    R request(comm, Staged<V>(exec, view, comm.rank() == root ? Use::send : Use::receive));
    void* const data = request.template buffer<0>().data();
    std::size_t const bytes = view.size() * sizeof(T);
    carry_out(request, form, comm,
              {.operation = Operation::broadcast,
               .in = address(data),
               .out = address(data),
               .bytes = bytes,
               .element = sizeof(T),
               .type = type_code<T>(),
               .root = root},
              datatype<T>(), MPI_OP_NULL, cost_of(comm, static_cast<double>(bytes)), true);
    return request;
}

} // namespace detail

/// Every rank's `view` becomes that of `root`.
template <class Exec, class V>
auto start_broadcast(Exec const& exec, Communicator const& comm, V const& view, int root) {
    return detail::broadcast(detail::Form::start, exec, comm, view, root);
}
template <class Exec, class V>
void broadcast(Exec const& exec, Communicator const& comm, V const& view, int root) {
    (void)detail::broadcast(detail::Form::block, exec, comm, view, root);
}

/// The root's `view` becomes the sum (maximum, minimum, log-sum-exp) over the group; the other ranks' views stay as
/// they are.
template <class Exec, class V>
Request<detail::Staged<V>> start_reduce(Exec const& exec, Communicator const& comm, V const& view, int root,
                                        Placement placement = Placement::partial) {
    using T = typename V::non_const_value_type;
    if (comm.size() == 1) return Request<detail::Staged<V>>(comm, {});
    bool const is_root = comm.rank() == root;
    Request<detail::Staged<V>> request(comm,
                                       detail::Staged<V>(exec, view, is_root ? detail::Use::both : detail::Use::send));
    T* const data = request.template buffer<0>().data();
    std::size_t const bytes = view.size() * sizeof(T);
    auto const count = static_cast<MPI_Count>(view.size());
    auto const operation = reduction<T>(placement);
    auto const cost = detail::cost_of(comm, static_cast<double>(bytes));
    auto const& nodes = comm.nodes(); // once from each
    double const crossing = nodes.leads() && !nodes.is_here(root) ? static_cast<double>(bytes) : 0;
    if (auto* const dry = observe::dry_run()) {
        dry->exchange(detail::Operation::reduce, cost, comm.size(), true, crossing, nodes.count() > 1);
        return request;
    }
    request.start(
        {.operation = detail::Operation::reduce, .type = type_code<T>(placement), .count = view.size(), .root = root},
        bytes, "MPI_Ireduce", [=, &comm](MPI_Request* handle) {
            return MPI_Ireduce_c(is_root ? MPI_IN_PLACE : static_cast<void*>(data), is_root ? data : nullptr, count,
                                 datatype<T>(), operation, root, comm.handle(), handle);
        });
    comm.ledger().record(detail::Operation::reduce, cost, true, crossing, nodes.count() > 1);
    return request;
}
template <class Exec, class V>
void reduce(Exec const& exec, Communicator const& comm, V const& view, int root,
            Placement placement = Placement::partial) {
    start_reduce(exec, comm, view, root, placement).wait();
}

/// The root's `out` holds the `in` of all ranks, one after the other. On other ranks `out` is not touched.
template <class Exec, class In, class Out>
Request<detail::Staged<In>, detail::Staged<Out>> start_gather(Exec const& exec, Communicator const& comm, In const& in,
                                                              Out const& out, int root) {
    using T = typename Out::non_const_value_type;
    using R = Request<detail::Staged<In>, detail::Staged<Out>>;
    bool const is_root = comm.rank() == root;
    detail::require(!is_root || out.size() == in.size() * static_cast<std::size_t>(comm.size()), comm,
                    detail::Operation::gather, in.size(), out.size());
    if (is_root) detail::require_disjoint(comm, detail::Operation::gather, in, out);
    if (comm.size() == 1) {
        detail::copy_locally(exec, in, out);
        return R(comm, {}, {});
    }
    R request(comm, detail::Staged<In>(exec, in, detail::Use::send),
              is_root ? detail::Staged<Out>(exec, out, detail::Use::receive) : detail::Staged<Out>());
    auto const count = static_cast<MPI_Count>(in.size());
    std::size_t const bytes = in.size() * sizeof(T);
    void const* const from = request.template buffer<0>().data();
    void* const to = request.template buffer<1>().data();
    // (n-1)/n of n pieces is booked by the n-1 ranks that send
    auto const cost = detail::cost_of_sent(comm, static_cast<double>(bytes));
    double const crossing = comm.nodes().is_here(root) ? 0 : static_cast<double>(bytes);
    bool const is_modelled = comm.nodes().count() > 1;
    if (auto* const dry = observe::dry_run()) {
        if (!is_root) dry->exchange(detail::Operation::gather, cost, comm.size(), true, crossing, is_modelled);
        return request;
    }
    request.start({.operation = detail::Operation::gather,
                   .type = type_code<T>(),
                   .count = in.size() * static_cast<std::size_t>(comm.size()),
                   .root = root},
                  bytes, "MPI_Igather", [=, &comm](MPI_Request* handle) {
                      return MPI_Igather_c(from, count, datatype<T>(), to, count, datatype<T>(), root, comm.handle(),
                                           handle);
                  });
    if (!is_root) comm.ledger().record(detail::Operation::gather, cost, true, crossing, is_modelled);
    return request;
}
template <class Exec, class In, class Out>
void gather(Exec const& exec, Communicator const& comm, In const& in, Out const& out, int root) {
    start_gather(exec, comm, in, out, root).wait();
}

namespace detail {

/// The communicator of a group's messages; that of a group of one rank is MPI_COMM_SELF.
inline MPI_Comm sending_handle(Communicator const& comm) { return comm.size() == 1 ? MPI_COMM_SELF : comm.handle(); }

/// Records a send of so many bytes, to a rank of this node or another, in a dry run.
inline void dry_send(observe::DryRun& run, Communicator const& comm, double bytes, bool crosses) {
    run.exchange(Operation::send, cost_of_sent(comm, bytes), comm.size(), true, crosses ? bytes : 0, false);
}

} // namespace detail

/// Sends `view` to rank `to` of the group. The receiver's view has the same size and the same tag. A rank that sends to
/// itself calls start_receive first. All groups of one rank share one space of tags.
template <class Exec, class V>
Request<detail::Staged<V>> start_send(Exec const& exec, Communicator const& comm, V const& view, int to, int tag = 0) {
    using T = typename V::non_const_value_type;
    Request<detail::Staged<V>> request(comm, detail::Staged<V>(exec, view, detail::Use::send));
    double const bytes = static_cast<double>(view.size() * sizeof(T));
    double const crossing = comm.size() == 1 || comm.nodes().is_here(to) ? 0 : bytes;
    if (auto* const dry = observe::dry_run()) {
        if (to != comm.rank()) detail::dry_send(*dry, comm, bytes, crossing > 0);
        return request;
    }
    request.start(observe::name(detail::Operation::send), view.size() * sizeof(T), "MPI_Isend",
                  [&](MPI_Request* handle) {
                      return MPI_Isend_c(request.template buffer<0>().data(), static_cast<MPI_Count>(view.size()),
                                         datatype<T>(), to, tag, detail::sending_handle(comm), handle);
                  });
    if (to == comm.rank()) return request; // nothing leaves this rank
    auto const cost = detail::cost_of_sent(comm, bytes);
    comm.ledger().record(detail::Operation::send, cost, false, crossing, false);
    return request;
}
template <class Exec, class V>
void send(Exec const& exec, Communicator const& comm, V const& view, int to, int tag = 0) {
    start_send(exec, comm, view, to, tag).wait();
}

/// Receives `view` from rank `from` of the group.
template <class Exec, class V>
Request<detail::Staged<V>> start_receive(Exec const& exec, Communicator const& comm, V const& view, int from,
                                         int tag = 0) {
    using T = typename V::non_const_value_type;
    Request<detail::Staged<V>> request(comm, detail::Staged<V>(exec, view, detail::Use::receive));
    if (observe::dry_run() != nullptr) return request;
    request.start("receive", view.size() * sizeof(T), "MPI_Irecv", [&](MPI_Request* handle) {
        return MPI_Irecv_c(request.template buffer<0>().data(), static_cast<MPI_Count>(view.size()), datatype<T>(),
                           from, tag, detail::sending_handle(comm), handle);
    });
    return request;
}
template <class Exec, class V>
void receive(Exec const& exec, Communicator const& comm, V const& view, int from, int tag = 0) {
    start_receive(exec, comm, view, from, tag).wait();
}

/// A shift along the ring of the group: `out` goes to the rank `steps` further, `in` comes from the rank `steps` back.
template <class Send, class Receive>
class [[nodiscard]] Shift {
  public:
    Shift(Send sent, Receive received) : sent_(std::move(sent)), received_(std::move(received)) {}
    /// Blocks until `in` has arrived and `out` may be written again.
    void wait() {
        received_.wait();
        sent_.wait();
    }

  private:
    Send sent_;
    Receive received_;
};

/// @param ends open: the ranks at the ends of the row have no neighbour beyond; what would come from there leaves `in`
/// as it is
template <class Exec, class Out, class In>
auto start_ring_shift(Exec const& exec, Communicator const& comm, Out const& out, In const& in, int steps = 1,
                      int tag = 0, Boundary ends = Boundary::periodic) {
    detail::require(in.size() == out.size(), comm, detail::Operation::send, out.size(), in.size());
    detail::require_disjoint(comm, detail::Operation::send, out, in);
    using Sending = Request<detail::Staged<Out>>;
    using Receiving = Request<detail::Staged<In>>;
    int const n = comm.size();
    auto const at = [&](int offset) { return ((comm.rank() + offset) % n + n) % n; };
    auto const is_there = [&](int offset) {
        return ends == Boundary::periodic || (comm.rank() + offset >= 0 && comm.rank() + offset < n);
    };
    if (n == 1) {
        if (is_there(steps)) detail::copy_locally(exec, out, in);
        return Shift(Sending(comm, {}), Receiving(comm, {}));
    }
    auto received = is_there(-steps) ? start_receive(exec, comm, in, at(-steps), tag) : Receiving(comm, {});
    return Shift(is_there(steps) ? start_send(exec, comm, out, at(steps), tag) : Sending(comm, {}),
                 std::move(received));
}
template <class Exec, class Out, class In>
void ring_shift(Exec const& exec, Communicator const& comm, Out const& out, In const& in, int steps = 1, int tag = 0,
                Boundary ends = Boundary::periodic) {
    start_ring_shift(exec, comm, out, in, steps, tag, ends).wait();
}

} // namespace pentad::comm

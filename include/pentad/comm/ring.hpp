// All-gather and reduce-scatter round the ring of a group, piece by piece, beside the computation that uses
// or makes each piece: a rank works on one while others are on their way (Wang et al. 2023, "Overlap communication with
// dependent computation via decomposition", section 5; Patarasuk and Yuan 2009 for the rings).
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/memory/strided_copy.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

namespace pentad::comm {

/// Rows [first_row, last_row) of columns [first_column, last_column) of a View [rows, columns, depth].
struct Box {
    std::size_t first_row, last_row, first_column, last_column;
};

/// A reference to a function that takes a box. The function outlives it.
class OnBox {
  public:
    template <class F>
        requires(std::is_invocable_v<F&, Box const&> && !std::is_same_v<std::remove_cvref_t<F>, OnBox>)
    OnBox(F&& f) // NOLINT: an argument that is a function
        : object_(&f), call_([](void const* object, Box const& box) {
              (*const_cast<std::remove_reference_t<F>*>(static_cast<std::remove_reference_t<F> const*>(object)))(box);
          }) {}
    void operator()(Box const& box) const { call_(object_, box); }

  private:
    void const* object_;
    void (*call_)(void const*, Box const&);
};

/// A shard [rows, columns, depth] cut into pieces of similar size, along its rows where it has enough of them.
class Pieces {
  public:
    static constexpr std::size_t most = 16;
    /// `wanted` pieces, or fewer where there are not as many columns. @pre wanted <= most
    Pieces(std::size_t rows, std::size_t columns, std::size_t wanted)
        : rows_(rows), columns_(columns), by_rows_(rows >= wanted),
          count_(by_rows_ ? wanted : std::min(wanted, columns)) {}
    [[nodiscard]] std::size_t count() const { return count_; }
    /// Piece i, where the shard's first column is `column` of a wider View.
    [[nodiscard]] Box at(std::size_t i, std::size_t column = 0) const {
        auto const cut = [&](std::size_t extent, std::size_t part) { return extent * part / count_; };
        if (by_rows_) return {cut(rows_, i), cut(rows_, i + 1), column, column + columns_};
        return {0, rows_, column + cut(columns_, i), column + cut(columns_, i + 1)};
    }
    /// Cut along the columns only.
    static Pieces of_columns(std::size_t rows, std::size_t columns, std::size_t wanted) {
        Pieces pieces(rows, columns, wanted);
        pieces.by_rows_ = false;
        pieces.count_ = std::min(wanted, columns);
        return pieces;
    }
    [[nodiscard]] Box all(std::size_t column) const { return {0, rows_, column, column + columns_}; }

  private:
    std::size_t rows_, columns_;
    bool by_rows_;
    std::size_t count_;
};

namespace detail {

template <class V>
auto box_of(V const& view, Box const& box) {
    return Kokkos::subview(view, std::pair(box.first_row, box.last_row), std::pair(box.first_column, box.last_column),
                           Kokkos::ALL);
}

template <class T, class Exec>
using BoxOf = decltype(box_of(View<T, 3, Exec>(), Box()));

/// y += x, added in accumulators, for two Views [rows, columns, depth] whose depth is contiguous.
template <class Exec, class Y, class X>
void add(Exec const& exec, Y const& y, X const& x) {
    using Team = Kokkos::TeamPolicy<Exec>;
    using T = typename Y::value_type;
    using A = accumulator_t<T>;
    static_assert(Summable<T>, "pentad: what cannot be added in any order of ranks is not reduced");
    std::size_t const columns = y.extent(1), depth = y.extent(2);
    if (y.size() == 0) return;
    if (auto* const dry = observe::dry_run()) return dry->pass("ring", 3.0 * static_cast<double>(y.size() * sizeof(T)));
    Kokkos::parallel_for(
        "pentad::ring", Team(exec, static_cast<int>(y.extent(0) * columns), Kokkos::AUTO),
        KOKKOS_LAMBDA(typename Team::member_type const& team) {
            auto const row = static_cast<std::size_t>(team.league_rank());
            T* const to = &y(row / columns, row % columns, 0);
            T const* const from = &x(row / columns, row % columns, 0);
            Kokkos::parallel_for(Kokkos::TeamVectorRange(team, depth),
                                 [=](std::size_t i) { to[i] = T(A(to[i]) + A(from[i])); });
        });
}
/// y = 0, for a View [rows, columns, depth] whose depth is contiguous.
template <class Exec, class Y>
void clear(Exec const& exec, Y const& y) {
    using Team = Kokkos::TeamPolicy<Exec>;
    using T = typename Y::value_type;
    std::size_t const columns = y.extent(1), depth = y.extent(2);
    if (y.size() == 0) return;
    Kokkos::parallel_for(
        "pentad::clear", Team(exec, static_cast<int>(y.extent(0) * columns), Kokkos::AUTO),
        KOKKOS_LAMBDA(typename Team::member_type const& team) {
            auto const row = static_cast<std::size_t>(team.league_rank());
            T* const to = &y(row / columns, row % columns, 0);
            Kokkos::parallel_for(Kokkos::TeamVectorRange(team, depth), [=](std::size_t i) { to[i] = T(0); });
        });
}

} // namespace detail

/// The transfers of a ring: for each piece of Views [rows, columns, depth], one that leaves for the next rank and one
/// that comes from the last.
template <class Exec, class V>
class RingTransfers {
  public:
    using Part = decltype(detail::box_of(V(), Box()));

    /// @param first_tag of Pieces::most: transfers of one group that are under way together need different ones
    RingTransfers(Exec const& exec, Communicator const& comm, int first_tag = 0)
        : exec_(&exec), comm_(&comm), first_tag_(first_tag) {}
    /// The rank `steps` back in the ring.
    [[nodiscard]] std::size_t back(std::size_t steps) const {
        auto const n = static_cast<std::size_t>(comm_->size());
        return (static_cast<std::size_t>(comm_->rank()) + n - steps % n) % n;
    }
    /// Sends a piece on, when the one before it has left.
    void send(std::size_t i, V const& view, Box const& box) {
        send_to((comm_->rank() + 1) % comm_->size(), i, view, box);
    }
    void receive(std::size_t i, V const& view, Box const& box) {
        receive_from(static_cast<int>(back(1)), i, view, box);
    }
    /// Sends to another rank than a neighbour.
    void send_to(int rank, std::size_t i, V const& view, Box const& box) {
        if (leaving_[i]) leaving_[i]->wait();
        leaving_[i].emplace(start_send(*exec_, *comm_, detail::box_of(view, box), rank, tag(i)));
    }
    void receive_from(int rank, std::size_t i, V const& view, Box const& box) {
        arriving_[i].emplace(start_receive(*exec_, *comm_, detail::box_of(view, box), rank, tag(i)));
    }
    /// Blocks until piece i has arrived.
    void await(std::size_t i) { arriving_[i]->wait(); }
    /// Waits until all that was sent has left.
    void finish() {
        for (auto& leaving : leaving_)
            if (leaving) leaving->wait();
    }

  private:
    [[nodiscard]] int tag(std::size_t i) const { return first_tag_ + static_cast<int>(i); }

    Exec const* exec_;
    Communicator const* comm_;
    int first_tag_;
    std::array<std::optional<Request<detail::Staged<Part>>>, Pieces::most> leaving_, arriving_;
};

/// Gathers `in` [rows, columns, depth] of each rank into `out` [rows, ranks x columns, depth], and calls use(box) for
/// each part of `out` that is there, this rank's first. What `use` computes runs beside the transfers: (n-1)/n of `out`
/// arrives from one neighbour and leaves for the other, each shard in `wanted` pieces.
template <class Exec, class V>
void ring_all_gather(Exec const& exec, Communicator const& comm, V const& in, V const& out, std::size_t wanted,
                     OnBox use) {
    auto const n = static_cast<std::size_t>(comm.size());
    std::size_t const columns = in.extent(1);
    Pieces const pieces(in.extent(0), columns, wanted);
    RingTransfers<Exec, V> ring(exec, comm);
    for (std::size_t i = 0; i < pieces.count(); ++i) {
        ring.receive(i, out, pieces.at(i, ring.back(1) * columns));
        ring.send(i, in, pieces.at(i));
    }
    Box const mine = pieces.all(ring.back(0) * columns);
    auto const own = detail::box_of(out, mine);
    memory::copy("ring", exec, memory::runs_between(own, in), own.data(), in.data());
    use(mine);
    for (std::size_t step = 1; step < n; ++step)
        for (std::size_t i = 0; i < pieces.count(); ++i) {
            Box const here = pieces.at(i, ring.back(step) * columns);
            ring.await(i);
            if (step + 1 < n) {
                ring.receive(i, out, pieces.at(i, ring.back(step + 1) * columns));
                ring.send(i, out, here);
            }
            use(here);
        }
    ring.finish();
}

/// Sums the ranks' `in` [rows, ranks x columns, depth], of which each gets its columns in `out` [rows, columns, depth].
/// make(box) computes a part of `in`, once each, this rank's columns last. What it computes runs beside the transfers.
/// A sum of bf16 is rounded at each rank that it passes. The order of summands is that of the ring.
template <class Exec, class V>
void ring_reduce_scatter(Exec const& exec, Communicator const& comm, V const& in, V const& out, std::size_t wanted,
                         OnBox make) {
    auto const n = static_cast<std::size_t>(comm.size());
    std::size_t const columns = out.extent(1);
    Pieces const pieces(out.extent(0), columns, wanted);
    RingTransfers<Exec, V> ring(exec, comm);
    for (std::size_t i = 0; i < pieces.count(); ++i) ring.receive(i, out, pieces.at(i)); // sums land in `out`
    for (std::size_t step = 0; step + 1 < n; ++step)
        for (std::size_t i = 0; i < pieces.count(); ++i) {
            Box const there = pieces.at(i, ring.back(step + 1) * columns);
            make(there);
            if (step > 0) {
                ring.await(i);
                detail::add(exec, detail::box_of(in, there), detail::box_of(out, pieces.at(i)));
                exec.fence("pentad: before the next piece lands");
                ring.receive(i, out, pieces.at(i));
            }
            ring.send(i, in, there);
        }
    std::size_t const first = ring.back(0) * columns;
    make(pieces.all(first));
    for (std::size_t i = 0; i < pieces.count(); ++i) {
        ring.await(i);
        detail::add(exec, detail::box_of(out, pieces.at(i)), detail::box_of(in, pieces.at(i, first)));
    }
    ring.finish();
}

} // namespace pentad::comm

#if PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/ring.hpp>
#endif

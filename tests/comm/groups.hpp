// What the tests of collectives share: groups along axes of meshes of every shape, Views of every kind, and what an
// operation must add to the ledger.
#pragma once

#include <doctest/doctest.h>

#include "support/pmpi_counter.hpp"
#include "support/world.hpp"

#include <pentad/comm/communicator.hpp>
#include <pentad/layout/algebra.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/observe/ledger.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace comm_tests {

using namespace pentad;
using namespace pentad::ml;
using observe::Operation;
using support::world_rank;
using support::world_size;
using Exec = Kokkos::DefaultHostExecutionSpace;

/// A communicator and, by the mesh's word, the world ranks of its members.
struct Group {
    comm::Communicator const& comm;
    std::vector<int> members;

    [[nodiscard]] std::size_t size() const { return members.size(); }
    [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(comm.rank()); }
};

/// f(group) for groups along one axis and along several in different orders, of meshes of all shapes of this world: for
/// 6 ranks 6, 3x2, 2x3, 3x2x1 and another order in rank space.
template <class F>
void for_each_group(F&& f) {
    using M = Mesh<Axis<dp>, Axis<cp>, Axis<tp>>;
    int const n = world_size(), me = world_rank();
    std::vector<M> meshes;
    for (int a = n; a >= 1; --a)
        if (n % a == 0) meshes.push_back(M(a, n / a, 1));
    if (n == 6) meshes.push_back(M(2, 1, 3).template ordered<tp, cp, dp>());
    for (auto const& mesh : meshes) {
        comm::Communicators communicators(MPI_COMM_WORLD, mesh);
        auto const along = [&]<class... A>(AxisSet<A...>) {
            Group const group{communicators.along(AxisNames(A::name...)), mesh.template group<A...>(me)};
            REQUIRE(static_cast<std::size_t>(group.comm.size()) == group.size());
            REQUIRE(group.members[group.rank()] == me);
            f(group);
        };
        along(AxisSet<dp>{});
        along(AxisSet<cp>{});
        along(AxisSet<tp>{});
        along(AxisSet<dp, cp>{});
        along(AxisSet<tp, cp, dp>{});
    }
}

/// f() with each algorithm in turn.
template <class F>
void for_each_algorithm(F&& f) {
    using comm::Algorithm;
    for (auto const algorithm : {Algorithm::mpi, Algorithm::mailbox, Algorithm::direct, Algorithm::process}) {
        CAPTURE(comm::algorithm_names[static_cast<std::size_t>(algorithm)]);
        comm::forced_algorithm() = algorithm;
        f();
    }
    comm::forced_algorithm() = Algorithm::automatic;
}

// Views of n elements, n a multiple of 4, each a part of a frame.
template <class T>
struct Flat {
    using element = T;
    Kokkos::View<T*, Exec> frame;
    Kokkos::View<T*, Exec> view;
    explicit Flat(std::size_t n) : frame("frame", n), view(frame) {}
};
template <class T>
struct Column {
    using element = T;
    Kokkos::View<T**, Kokkos::LayoutRight, Exec> frame;
    Kokkos::View<T*, Kokkos::LayoutStride, Exec> view;
    explicit Column(std::size_t n) : frame("frame", n, 3), view(Kokkos::subview(frame, Kokkos::ALL, 1)) {}
};
template <class T>
struct Matrix {
    using element = T;
    Kokkos::View<T**, Kokkos::LayoutRight, Exec> frame;
    Kokkos::View<T**, Kokkos::LayoutStride, Exec> view;
    explicit Matrix(std::size_t n)
        : frame("frame", n / 2, 4), view(Kokkos::subview(frame, Kokkos::ALL, std::pair(1, 3))) {}
};
template <class T>
struct Left {
    using element = T;
    Kokkos::View<T***, Kokkos::LayoutLeft, Exec> frame;
    Kokkos::View<T***, Kokkos::LayoutLeft, Exec> view;
    explicit Left(std::size_t n) : frame("frame", 2, n / 4, 2), view(frame) {}
};
template <class T>
struct Box {
    using element = T;
    Kokkos::View<T****, Kokkos::LayoutRight, Exec> frame;
    Kokkos::View<T****, Kokkos::LayoutStride, Exec> view;
    explicit Box(std::size_t n)
        : frame("frame", 2, n / 4, 3, 2),
          view(Kokkos::subview(frame, Kokkos::ALL, Kokkos::ALL, std::pair(0, 2), std::pair(1, 2))) {}
};

/// f(i, element i) in row-major order.
template <class V, class F>
void for_each_element(V const& view, F&& f) {
    std::size_t const b = view.rank() > 1 ? view.extent(1) : 1, c = view.rank() > 2 ? view.extent(2) : 1,
                      d = view.rank() > 3 ? view.extent(3) : 1;
    for (std::size_t i = 0; i < view.size(); ++i) f(i, view.access(i / (b * c * d), i / (c * d) % b, i / d % c, i % d));
}
/// Element i becomes f(i).
template <class V, class F>
void fill(V const& view, F&& f) {
    using T = typename V::non_const_value_type;
    for_each_element(view, [&](std::size_t i, T& element) { element = static_cast<T>(f(i)); });
}
template <class V>
std::vector<double> values(V const& view) {
    std::vector<double> result(view.size());
    for_each_element(view, [&](std::size_t i, auto const& element) { result[i] = static_cast<double>(element); });
    return result;
}
template <class F>
std::vector<double> expected(std::size_t n, F&& f) {
    std::vector<double> result(n);
    for (std::size_t i = 0; i < n; ++i) result[i] = static_cast<double>(f(i));
    return result;
}

/// A View whose elements are f(i) in a frame of 77s.
template <class K, class F>
K made(std::size_t n, F&& f) {
    K array(n);
    fill(array.frame, [](std::size_t) { return 77; });
    fill(array.view, f);
    return array;
}
template <class K>
bool frame_is_untouched(K const& array) {
    fill(array.view, [](std::size_t) { return 77; });
    return values(array.frame) == expected(array.frame.size(), [](std::size_t) { return 77; });
}

/// Watches one operation: what it books, and what MPI was asked to send: nothing where the memory of the node is used.
class Watch {
  public:
    explicit Watch(Group const& group) : group_(&group) {
        observe::ledger().clear();
        pmpi::clear();
    }
    /// The operation sent `bytes` in one call, told apart by axis as an exchange over them one after the other would
    /// be, the innermost with the most.
    void check(Operation operation, double bytes, bool modelled, std::int64_t mpi_calls = 1) const {
        auto const& comm = group_->comm;
        bool const through_node = comm.node() != nullptr && comm::forced_algorithm() != comm::Algorithm::mpi &&
                                  operation != Operation::reduce && operation != Operation::gather &&
                                  operation != Operation::send;
        double const n = comm.size();
        double whole = bytes * n / (n - 1), all = 0;
        for (std::size_t i = comm.axes().size(); i-- > 0;) {
            auto const axis = comm.axes()[i];
            double const extent = find_axis(comm.mesh(), axis).extent;
            auto const entry = observe::ledger().entry(axis, operation);
            CHECK(entry.bytes == doctest::Approx(whole * (extent - 1) / extent));
            CHECK(entry.calls == 1);
            CHECK(entry.modelled == (modelled && !through_node));
            all += observe::ledger().bytes(axis);
            whole /= extent;
        }
        CHECK(all == doctest::Approx(bytes));
        CHECK(pmpi::count().bytes == doctest::Approx(through_node ? 0 : bytes));
        CHECK(pmpi::count().calls == (through_node ? 0 : mpi_calls));
    }
    /// A group of one rank calls nothing and books nothing.
    void check_silence() const {
        CHECK(pmpi::count().calls == 0);
        for (auto const axis : observe::ledger().axes()) CHECK(observe::ledger().bytes(axis) == 0);
    }
    void check_collective(Operation operation, double bytes, bool modelled) const {
        if (group_->size() == 1)
            check_silence();
        else
            check(operation, bytes, modelled);
    }

  private:
    Group const* group_;
};

} // namespace comm_tests

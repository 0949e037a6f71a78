// ranks: 2 3 4 6 8
//
// From a mesh of some ranks to a mesh of others, or of the same: values, and that each element is sent once.
#include <doctest/doctest.h>

#include "support/holding.hpp"
#include "support/world.hpp"

#include <pentad/layout/ml.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/tensor/mesh_bridge.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using support::Holding;
using support::world_rank;
using support::world_size;

namespace {

struct row {
    static constexpr std::string_view name = "row";
    static constexpr bool has_uneven_blocks = true;
};
struct column {
    static constexpr std::string_view name = "column";
    static constexpr bool has_uneven_blocks = true;
};

using Exec = Kokkos::DefaultExecutionSpace;
using M = Mesh<Axis<dp>, Axis<tp>>;
template <class Row, class Column, class... States>
using L = Layout<f64, Dims<Row, Column>, States...>;
constexpr std::array<std::size_t, 2> extents{11, 7};

/// Ranks [first, first + count) of the world as a mesh.
struct Side {
    M mesh;
    MPI_Comm comm = MPI_COMM_NULL;
    std::unique_ptr<comm::Communicators> communicators;
    std::unique_ptr<Context<Exec>> context;

    Side(int first, int count, int tp) : mesh(count / tp, tp) {
        bool const is_in = world_rank() >= first && world_rank() < first + count;
        // Ranks in reversed order, so that places in the mesh and in the world differ.
        MPI_Comm_split(MPI_COMM_WORLD, is_in ? 0 : MPI_UNDEFINED, -world_rank(), &comm);
        if (!is_in) return;
        communicators = std::make_unique<comm::Communicators>(comm, mesh);
        context = std::make_unique<Context<Exec>>(*communicators);
    }
    ~Side() {
        context.reset();
        communicators.reset();
        if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    }
    Side(Side const&) = delete;
    Side& operator=(Side const&) = delete;
    [[nodiscard]] int rank() const { return communicators == nullptr ? -1 : communicators->world().rank(); }
};

template <class From, class To>
void check(Side const& source, Side const& target, bool are_disjoint) {
    CAPTURE(layout_text<From>.view());
    CAPTURE(layout_text<To>.view());
    MeshBridge const bridge(MPI_COMM_WORLD, source.mesh, source.communicators.get(), target.mesh,
                            target.communicators.get());
    Tensor<From, Exec> x;
    std::optional<Holding> held, needed;
    if (source.context) {
        x = Tensor<From, Exec>(*source.context, extents);
        held.emplace(From::value, extents, source.mesh.axes(), source.rank());
        std::vector<f64> values(held->size());
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = 3 + static_cast<f64>(held->global(i));
        x.set(values.data());
    }
    if (target.context) needed.emplace(To::value, extents, target.mesh.axes(), target.rank());
    observe::ledger().clear();
    auto const y = redistribute_across<To>(bridge, x, extents, target.context.get());
    CHECK(y.empty() == (target.context == nullptr));
    if (needed) {
        REQUIRE(y.size() == needed->size());
        std::vector<f64> values(y.size());
        y.get(values.data());
        for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == 3 + static_cast<f64>(needed->global(i)));
    }
    // What crosses: what ranks miss, each element once; to copies on ranks of another mesh, one for all of them.
    std::vector<char> have(extents[0] * extents[1], 0);
    long missing = 0;
    for (std::size_t i = 0; held && i < held->size(); ++i) have[held->global(i)] = 1;
    for (std::size_t i = 0; needed && i < needed->size(); ++i) missing += have[needed->global(i)] == 0 ? 1 : 0;
    double sent = observe::ledger().bytes("bridge") / sizeof(f64);
    auto const planned = bridge.shape(From::value, bridge.arriving(To::value, extents), extents).sent_by(world_rank());
    CHECK(sent == doctest::Approx(static_cast<double>(planned)));
    PMPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Allreduce(MPI_IN_PLACE, &sent, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sent == doctest::Approx(are_disjoint ? static_cast<double>(have.size()) : static_cast<double>(missing)));
}

template <class From>
void check_all(Side const& source, Side const& target, bool are_disjoint) {
    using Row = Dim<row>;
    using Column = Dim<column>;
    check<From, L<Dim<row, dynamic, dp, tp>, Column>>(source, target, are_disjoint);
    check<From, L<Dim<row, dynamic, tp>, Dim<column, dynamic, dp>>>(source, target, are_disjoint);
    check<From, L<Row, Dim<column, dynamic, tp>, Replicated<dp>>>(source, target, are_disjoint);
    check<From, L<Row, Column>>(source, target, are_disjoint);
}

} // namespace

TEST_CASE("a tensor goes from a mesh to another of the same or other ranks") {
    struct Case {
        int source_first, source, target_first, target;
    };
    int const n = world_size();
    for (auto const& [a, m, b, k] : {Case{0, n, 0, n},
                                     {0, n / 2, n / 2, n - n / 2},
                                     {n - 1, 1, 0, n - 1},
                                     {0, n, n / 2, n - n / 2},
                                     {0, n - 1, 1, n - 1}}) {
        bool const are_disjoint = a + m <= b || b + k <= a;
        for (int const columns : {1, 2}) {
            if (m % columns != 0) continue;
            Side const source(a, m, columns), target(b, k, k % 2 == 0 ? 2 : 1);
            CAPTURE(a);
            CAPTURE(m);
            CAPTURE(b);
            CAPTURE(k);
            check_all<L<Dim<row, dynamic, dp>, Dim<column, dynamic, tp>>>(source, target, are_disjoint);
            check_all<L<Dim<row>, Dim<column, dynamic, dp>>>(source, target, are_disjoint);
            check_all<L<Dim<row>, Dim<column>, Replicated<tp>>>(source, target, are_disjoint);
        }
    }
}

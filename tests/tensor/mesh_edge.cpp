// ranks: 1 2 4 6 8
//
// From a part to the next where these see their ranks as different meshes: values and gradients, and that each element
// that a rank misses is sent to it once.
#include <doctest/doctest.h>

#include "support/holding.hpp"
#include "support/world.hpp"

#include <pentad/layout/ml.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/mesh/value_mesh.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/tensor/mesh_edge.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using support::Holding;
using support::world_size;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
constexpr std::array<std::size_t, 3> extents{24, 24, 3};

/// All ranks, in stages of pp, as pp x dp x cp x tp.
struct Folded {
    ValueMesh mesh;
    comm::Communicators communicators;
    Context<Exec> context;

    Folded(int stages, int cp, int tp)
        : mesh(made(stages, cp, tp)), communicators(MPI_COMM_WORLD, mesh), context(communicators) {}
    static ValueMesh made(int stages, int cp, int tp) {
        int const ranks = world_size() / stages;
        Mesh<Axis<pp>, Axis<dp>, Axis<ml::cp>, Axis<ml::tp>> const all(stages, ranks, 1, 1);
        return refolded(all.axes(), std::array<MeshAxisValue, 3>{{{"dp", ranks / (cp * tp)}, {"cp", cp}, {"tp", tp}}});
    }
};

/// A value whose elements are numbered, on a mesh.
AnyTensor<f64, Exec> numbered(Folded const& view, LayoutValue const& layout) {
    AnyTensor<f64, Exec> x(view.context, layout, extents);
    Holding const held(layout, extents, view.mesh.axes(), view.communicators.world().rank());
    std::vector<f64> values(x.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 3 + static_cast<f64>(held.global(i));
    x.set(values.data());
    return x;
}
void check_numbered(Folded const& view, AnyTensor<f64, Exec> const& y, LayoutValue const& layout) {
    Holding const needed(layout, extents, view.mesh.axes(), view.communicators.world().rank());
    CHECK(y.layout() == layout);
    REQUIRE(y.size() == needed.size());
    std::vector<f64> values(y.size());
    y.get(values.data());
    long wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
        wrong += values[i] == 3 + static_cast<f64>(needed.global(i)) ? 0 : 1;
    CHECK(wrong == 0);
}
/// Elements that ranks lack of what they need, on all of them.
double missing(Folded const& from, LayoutValue const& held_layout, Folded const& to, LayoutValue const& needed_layout) {
    int const rank = from.communicators.world().rank();
    Holding const held(held_layout, extents, from.mesh.axes(), rank),
        needed(needed_layout, extents, to.mesh.axes(), rank);
    std::vector<char> have(extents[0] * extents[1] * extents[2], 0);
    double count = 0;
    for (std::size_t i = 0; i < held.size(); ++i) have[held.global(i)] = 1;
    for (std::size_t i = 0; i < needed.size(); ++i) count += have[needed.global(i)] == 0 ? 1 : 0;
    PMPI_Allreduce(MPI_IN_PLACE, &count, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return count;
}
double sent_by_all() {
    double sent = 0;
    for (auto const axis : {"dp", "cp", "tp"}) sent += observe::ledger().bytes(axis) / sizeof(f64);
    PMPI_Allreduce(MPI_IN_PLACE, &sent, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sent;
}

void check(Folded const& a, LayoutValue const& from, Folded const& b, LayoutValue const& to) {
    MeshEdge<Exec> const edge(a.context, from, b.context, to, AxisNames(dp::name, cp::name, tp::name), extents);
    auto const x = numbered(a, from);
    observe::ledger().clear();
    check_numbered(b, edge.forward(x), to);
    CHECK(sent_by_all() == doctest::Approx(missing(a, from, b, to)));
    LayoutValue const of_gradient = dual(to), back = dual(from);
    auto const dy = numbered(b, of_gradient);
    observe::ledger().clear();
    check_numbered(a, edge.backward(dy), back);
    CHECK(sent_by_all() == doctest::Approx(missing(b, of_gradient, a, back)));
    CHECK_THROWS_AS((void)edge.forward(AnyTensor<f64, Exec>(a.context, from, std::array<std::size_t, 3>{24, 24, 6})),
                    std::logic_error);
}

} // namespace

TEST_CASE("a stream goes from any view of the ranks of a stage to any other, and its gradient comes back") {
    auto const& whole = InvariantStream<f64>::value;
    auto const& shards = SequenceStream<f64>::value;
    for (int const stages : {1, 2}) {
        if (world_size() % stages != 0) continue;
        int const ranks = world_size() / stages;
        std::vector<std::array<int, 2>> splits; // cp and tp
        for (int cp = 1; cp <= ranks; ++cp)
            for (int tp = 1; cp * tp <= ranks; ++tp)
                if (ranks % (cp * tp) == 0) splits.push_back({cp, tp});
        for (auto const& [cp_a, tp_a] : splits)
            for (auto const& [cp_b, tp_b] : splits) {
                Folded const a(stages, cp_a, tp_a), b(stages, cp_b, tp_b);
                CAPTURE(cp_a);
                CAPTURE(tp_a);
                CAPTURE(cp_b);
                CAPTURE(tp_b);
                check(a, whole, b, whole);
                check(a, whole, b, shards);
                check(a, shards, b, shards);
            }
    }
}

TEST_CASE("partial values do not go from a mesh to another") {
    Folded const a(1, 1, 1), b(1, 1, world_size());
    using Summands = PartialStream<f64>;
    CHECK_THROWS_AS(MeshEdge<Exec>(a.context, Summands::value, b.context, InvariantStream<f64>::value,
                                   AxisNames(dp::name, cp::name, tp::name), extents),
                    std::invalid_argument);
}

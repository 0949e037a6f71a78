// ranks: 1 2 6
//
// The code of docs/hpc.md that is in no example: it compiles, and does what the page says. A test of the pages compares
// both.
#include <doctest/doctest.h>

#include "support/world.hpp"

#include <pentad/comm.hpp>
#include <pentad/layout.hpp>
#include <pentad/tensor.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

struct Conserved {
    double mass, momentum;
    KOKKOS_FUNCTION friend Conserved operator+(Conserved a, Conserved b) {
        return {a.mass + b.mass, a.momentum + b.momentum};
    }
};
template <>
struct pentad::Element<Conserved> {
    static constexpr std::string_view name = "conserved"; // in layouts and messages
    using accumulator = Conserved;                        // in which sums are made
    static constexpr bool is_commutative = true;          // a + b is b + a, whatever a and b are
};

using namespace pentad;
using support::world_rank;
using support::world_size;

namespace {

struct y {
    static constexpr std::string_view name = "y";
    static constexpr bool has_uneven_blocks = true;
};
struct x {
    static constexpr std::string_view name = "x";
    static constexpr bool has_uneven_blocks = true;
};
struct line {
    static constexpr std::string_view name = "line";
};
struct rows {
    static constexpr std::string_view name = "rows";
};
struct columns {
    static constexpr std::string_view name = "columns";
};

using Exec = Kokkos::DefaultExecutionSpace;
using RankMesh = Mesh<Axis<rows>, Axis<columns>>;
using Lines = Layout<f64, Dims<Dim<y, dynamic, rows, columns>, Dim<x>>>;
using Files = Layout<f64, Dims<Dim<y>, Dim<x, dynamic, rows, columns>>>;

/// As many ranks along rows as the world allows with two along columns.
RankMesh mesh_of_world() { return world_size() % 2 == 0 ? RankMesh(world_size() / 2, 2) : RankMesh(world_size(), 1); }

struct Fill {
    View<f64, 2, Exec> cells;
    double value;
    KOKKOS_FUNCTION void operator()(std::size_t j, std::size_t i) const { cells(j, i) = value; }
};
struct Largest {
    View<f64, 2, Exec> cells;
    KOKKOS_FUNCTION void operator()(std::size_t i, double& largest) const {
        double const value = cells.data()[i];
        if (value > largest) largest = value;
    }
};

/// The place of this rank's shard in a row-major file of the whole array.
template <class L, class M>
MPI_Datatype place_in_file(Tensor<L, Exec, M> const& tensor) {
    auto const& communicators = tensor.context().communicators();
    int const rank = communicators.world().rank();
    std::array<int, L::rank> whole{}, part{}, first{};
    for (std::size_t d = 0; d < L::rank; ++d) {
        auto const block = block_of(L::value.dimensions[d], tensor.extents()[d], communicators.mesh(), rank);
        whole[d] = static_cast<int>(block.extent);
        part[d] = static_cast<int>(block.end() - block.begin());
        first[d] = static_cast<int>(block.begin());
    }
    MPI_Datatype place = MPI_DATATYPE_NULL;
    MPI_Type_create_subarray(L::rank, whole.data(), part.data(), first.data(), MPI_ORDER_C, MPI_DOUBLE, &place);
    MPI_Type_commit(&place);
    return place;
}

} // namespace

TEST_CASE("sizes and costs of blocks that differ") {
    RankMesh const mesh(3, 2);
    auto const n = std::array<std::size_t, 2>{31, 17};
    auto const local = local_extents(Lines::value, n, mesh.axes(), 5); // of rank 5: 6 of the 31 lines, 17 elements each
    auto const cost = cost_of(Plan<Lines, Files>::value, Lines::value, n, mesh.axes(), 5);
    CHECK(local[0] == 6);
    CHECK(local[1] == 17);
    CHECK(cost.total() == 6 * (17 - 3) * sizeof(f64));
}

TEST_CASE("memory that a program has") {
    auto const mesh = mesh_of_world();
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    MeshContext const context(communicators, mesh);
    std::array<std::size_t, 2> const n{31, 17};

    auto const local = local_extents(Lines::value, n, mesh.axes(), communicators.world().rank());
    Kokkos::View<f64**, Kokkos::LayoutRight, Exec> const mine("mine", local[0], local[1]);
    Tensor<Lines, Exec, RankMesh> const field(context, n, mine); // no copy: `mine` must outlive it
    Kokkos::deep_copy(mine, 1.0 + world_rank());
    auto const turned = redistribute<Files>(field); // on one rank nothing has to move: then it is `mine`
    Kokkos::deep_copy(turned.view(), 5);
    redistribute_into(turned, field); // back into `mine`

    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), mine);
    for (std::size_t j = 0; j < host.extent(0); ++j)
        for (std::size_t i = 0; i < host.extent(1); ++i) CHECK(host(j, i) == 5);
    CHECK(field.data() == mine.data());
}

TEST_CASE("layouts that are chosen while the program runs") {
    auto const mesh = mesh_of_world();
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    MeshContext const context(communicators, mesh);
    std::array<std::size_t, 2> const n{31, 17};
    for (bool const by_lines : {true, false}) {
        LayoutValue const& chosen = by_lines ? Lines::value : Files::value;
        AnyTensor<f64, Exec> field(context, chosen, n);
        Kokkos::deep_copy(field.flat(), 1.0 + world_rank());
        Edge const edge(chosen, Lines::value);
        Tensor<Lines, Exec> const lines = edge.forward(std::move(field)).as<Lines>();

        auto const local = local_extents(Lines::value, n, mesh.axes(), world_rank());
        CHECK(lines.local()[0] == local[0]);
        CHECK(edge.is_nothing() == by_lines);
    }
}

TEST_CASE("communicators that a program has") {
    auto const mesh = mesh_of_world();
    std::array<int, 2> const ranks{mesh.extent<rows>(), mesh.extent<columns>()}, is_periodic{0, 0};
    MPI_Comm grid = MPI_COMM_NULL, along_rows = MPI_COMM_NULL, along_columns = MPI_COMM_NULL;
    MPI_Cart_create(MPI_COMM_WORLD, 2, ranks.data(), is_periodic.data(), 0, &grid);
    std::array<int, 2> const first{1, 0}, second{0, 1};
    MPI_Cart_sub(grid, first.data(), &along_rows);
    MPI_Cart_sub(grid, second.data(), &along_columns);
    {
        comm::Communicators communicators(grid, mesh, {{"rows", along_rows}, {"columns", along_columns}});
        MeshContext const context(communicators, mesh);

        int row = 0;
        MPI_Comm_rank(along_rows, &row);
        CHECK(context.coordinate<rows>() == row);
    }
    for (auto* comm : {&grid, &along_rows, &along_columns}) MPI_Comm_free(comm);
}

TEST_CASE("reductions, and what goes on beside one") {
    auto const mesh = mesh_of_world();
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    MeshContext const context(communicators, mesh);
    auto field = make_tensor<Lines>(context, {31, 17}), other = make_tensor<Lines>(context, {31, 17});
    for_each_cell<2>("fill", context.exec(), owned_cells(field), Fill{field.view(), 1.0 + world_rank()});

    using Highest = Layout<f64, Dims<>, PartialMax<rows, columns>>;
    Tensor<Highest, Exec, RankMesh> highest(context, {});
    Kokkos::parallel_reduce("highest", Kokkos::RangePolicy<Exec>(context.exec(), 0, field.size()),
                            Largest{field.view()}, Kokkos::Max<f64, Exec::memory_space>(highest.summands()));
    Redistribution<invariant_t<Highest>, Highest, Exec, RankMesh> reduction(std::move(highest)); // has begun
    for_each_cell<2>("other work", context.exec(), owned_cells(other), Fill{other.view(), 0});
    double speed = 0;
    reduction.wait().get(&speed);
    CHECK(speed == world_size());

    using Sums = Layout<Conserved, Dims<Dim<y>>, Partial<rows, columns>>;
    auto sums = make_tensor<Sums>(context, {2});
    std::array<Conserved, 2> const own{{{1, 2}, {world_rank() + 0.0, 4}}};
    sums.set(own.data());
    std::array<Conserved, 2> all{};
    redistribute<invariant_t<Sums>>(std::move(sums)).get(all.data());
    CHECK(all[0].momentum == 2 * world_size());
    CHECK(all[1].mass == world_size() * (world_size() - 1) / 2);
}

TEST_CASE("a file that all ranks write, and read in another layout") {
    auto const mesh = mesh_of_world();
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    MeshContext const context(communicators, mesh);
    auto const field = make_tensor<Lines>(context, {31, 17});
    for_each_cell<2>("fill", context.exec(), owned_cells(field), Fill{field.view(), 1.0 + world_rank()});
    context.exec().fence();
    std::string const name = "hpc_guide_" + std::to_string(world_size()) + ".array";

    MPI_File file = MPI_FILE_NULL;
    MPI_File_open(MPI_COMM_WORLD, name.c_str(), MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    MPI_Datatype place = place_in_file(field);
    MPI_File_set_view(file, 0, MPI_DOUBLE, place, "native", MPI_INFO_NULL);
    MPI_File_write_all(file, field.data(), static_cast<int>(field.size()), MPI_DOUBLE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Type_free(&place);

    auto const read = make_tensor<Files>(context, {31, 17});
    MPI_File_open(MPI_COMM_WORLD, name.c_str(), MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    place = place_in_file(read);
    MPI_File_set_view(file, 0, MPI_DOUBLE, place, "native", MPI_INFO_NULL);
    MPI_File_read_all(file, read.data(), static_cast<int>(read.size()), MPI_DOUBLE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Type_free(&place);
    auto const expected = redistribute<Files>(field);
    auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), read.flat());
    auto const right = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), expected.flat());
    for (std::size_t i = 0; i < right.size(); ++i) CHECK(found(i) == right(i));
}

TEST_CASE("an extent that does not fit is a sentence") {
    auto const mesh = mesh_of_world();
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    Context<Exec> const context(communicators);
    using Even = Layout<f64, Dims<Dim<line, dynamic, rows, columns>>>;
    std::string problem;
    try {
        (void)make_tensor<Even>(context, {static_cast<std::size_t>(world_size()) + 1});
    } catch (std::invalid_argument const& error) {
        problem = error.what(); // line = 7 is not divisible by rows x columns = 6
    }
    if (world_size() == 6) CHECK(problem == "line = 7 is not divisible by rows x columns = 6");
    CHECK(problem.empty() == (world_size() == 1));
}

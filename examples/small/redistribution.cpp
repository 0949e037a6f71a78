// Redistribution with axes of one's own: the transposes of a three-dimensional array that a parallel FFT needs. The
// compiler finds each collective from the two layouts, and says what it sends before it runs.
//
// ranks: 6
#include <pentad/comm.hpp>
#include <pentad/layout.hpp>
#include <pentad/tensor.hpp>

#include <cstdio>
#include <vector>

using namespace pentad;

struct rows {
    static constexpr std::string_view name = "rows";
};
struct columns {
    static constexpr std::string_view name = "columns";
};
struct x {
    static constexpr std::string_view name = "x";
};
struct y {
    static constexpr std::string_view name = "y";
};
struct z {
    static constexpr std::string_view name = "z";
};

// Pencils: each is whole along one dimension, which a rank can transform by itself.
using AlongX = Layout<f64, Dims<Dim<z, dynamic, rows>, Dim<y, dynamic, columns>, Dim<x>>>;
using AlongY = Layout<f64, Dims<Dim<z, dynamic, rows>, Dim<y>, Dim<x, dynamic, columns>>>;
using AlongZ = Layout<f64, Dims<Dim<z>, Dim<y, dynamic, rows>, Dim<x, dynamic, columns>>>;
static_assert(Plan<AlongX, AlongY>::text() == "all_to_all(columns) from y to x");
static_assert(Plan<AlongY, AlongZ>::text() == "all_to_all(rows) from z to y");

int main(int argc, char** argv) {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    Mesh<Axis<rows, 2>, Axis<columns, 3>> const mesh;
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    MeshContext const context(communicators, mesh, Kokkos::DefaultHostExecutionSpace());

    constexpr std::size_t n = 12;
    auto array = make_tensor<AlongX>(context, {n, n, n}); // only where the mesh has the axes of the layout
    auto const [depth, height, width] = array.local();
    std::size_t const first_z = depth * communicators.shard_index(AxisNames("rows"));
    std::size_t const first_y = height * communicators.shard_index(AxisNames("columns"));
    for (std::size_t k = 0; k < depth; ++k)
        for (std::size_t j = 0; j < height; ++j)
            for (std::size_t i = 0; i < width; ++i)
                array.view()(k, j, i) = static_cast<double>(((first_z + k) * n + first_y + j) * n + i);

    auto const cost = cost_of(Plan<AlongX, AlongY>::value, AlongX::value, std::array{n, n, n}, mesh.axes());
    if (communicators.world().rank() == 0)
        std::printf("%.*s sends %g bytes from each rank\n", static_cast<int>(Plan<AlongX, AlongY>::text().size()),
                    Plan<AlongX, AlongY>::text().data(), cost.total());
    auto const turned = redistribute<AlongZ>(redistribute<AlongY>(std::move(array)));

    // This rank now has all z of its part of y and x.
    auto const [all_z, part_y, part_x] = turned.local();
    std::size_t const y_at = part_y * communicators.shard_index(AxisNames("rows"));
    std::size_t const x_at = part_x * communicators.shard_index(AxisNames("columns"));
    bool is_right = all_z == n;
    for (std::size_t k = 0; k < all_z; ++k)
        for (std::size_t j = 0; j < part_y; ++j)
            for (std::size_t i = 0; i < part_x; ++i)
                is_right = is_right && turned.view()(k, j, i) == static_cast<double>((k * n + y_at + j) * n + x_at + i);
    return is_right ? 0 : 1;
}

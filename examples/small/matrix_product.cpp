// A product of two matrices on the grid of ranks that sends least for their shape, checked with a random vector
// (Freivalds 1977: A (B x) = C x), and what it sent beside the bound that no product is below.
//   matrix_product [M N K]: of M x K and K x N
// ranks: 4
#include <pentad/comm.hpp>
#include <pentad/observe.hpp>
#include <pentad/product.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace pentad;
using Exec = Kokkos::DefaultHostExecutionSpace;

struct Uneven {
    static constexpr bool has_uneven_blocks = true; // any extent on any grid
};
struct i : Uneven {
    static constexpr std::string_view name = "i";
};
struct j : Uneven {
    static constexpr std::string_view name = "j";
};
struct k : Uneven {
    static constexpr std::string_view name = "k";
};

/// f(row, column, element) for each element of this rank.
template <class L, class F>
void for_each(Tensor<L, Exec> const& matrix, F const& f) {
    auto const& all = matrix.context().communicators();
    auto const blocks = shard_shape(L::value, matrix.extents(), all.mesh(), all.world().rank()).blocks;
    auto const [rows, columns] = matrix.local();
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < columns; ++c) f(blocks[0].begin() + r, blocks[1].begin() + c, matrix.view()(r, c));
}
template <class L>
std::vector<double> times(Tensor<L, Exec> const& matrix, std::vector<double> const& x) {
    std::vector<double> y(matrix.extents()[0]);
    for_each(matrix, [&](auto row, auto column, double a) { y[row] += a * x[column]; });
    auto const& context = matrix.context();
    comm::all_reduce(context.exec(), context.communicators().world(), View<f64, 1, Exec>(y.data(), y.size()));
    return y;
}

int main(int argc, char** argv) try {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    auto const extent = [&](int at) { return argc > at ? std::strtoul(argv[at], nullptr, 10) : 499; };
    auto const m = extent(1), n = extent(2), inner = extent(3);
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    GridContext<Exec> const on(MPI_COMM_WORLD, choose_grid(m, n, inner, ranks, GridBlocks::uneven));
    int const rank = on.context().communicators().world().rank();
    auto const a = make_tensor<GridLeft<f64, i, k>>(on.context(), {m, inner});
    auto const b = make_tensor<GridRight<f64, k, j>>(on.context(), {inner, n});
    auto const draw = [](auto, auto, double& number) { number = 2.0 * std::rand() / RAND_MAX - 1; };
    std::vector<double> x(n);
    for (auto& number : x) draw(0, 0, number); // the same on all ranks
    std::srand(static_cast<unsigned>(rank) + 2);
    for_each(a, draw);
    for_each(b, draw);
    observe::ledger().clear();
    double const start = MPI_Wtime();
    auto const c = multiply(on, a, b);
    double const seconds = MPI_Wtime() - start;
    double sent = 0, error = 0;
    for (auto const axis : observe::ledger().axes()) sent += observe::ledger().bytes(axis);
    auto const abx = times(a, times(b, x)), cx = times(c, x);
    for (std::size_t row = 0; row < m; ++row) error = std::fmax(error, std::fabs(abx[row] - cx[row]));
    double const bound = product_lower_bound(m, n, inner, ranks) - 1.0 * (m * inner + inner * n + m * n) / ranks;
    if (rank == 0)
        std::printf("%d x %d x %d ranks: %.4f s, a rank sends %.0f bytes (the bound is %.0f), residual %.1e\n",
                    on.grid().rows, on.grid().columns, on.grid().inner, seconds, sent, 8 * std::fmax(bound, 0), error);
    return error < 1e-10 * static_cast<double>(inner * n) ? 0 : 1;
} catch (std::invalid_argument const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 2;
}

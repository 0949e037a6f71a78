// A product of square matrices, C[i@rows, j@columns] = A[i@rows, k@columns] B[k@rows, j@columns], beside ScaLAPACK's
// pdgemm and psgemm on the same grid, in blocks of 32 to 256, of which the fastest counts. Times of the two are
// measured in turn.
//   bench_products ROWS COLUMNS [N] [REPEATS] [f64|f32]: on ROWS x COLUMNS ranks. A line of JSON: seconds of the
//   slowest rank, medians; GFLOP/s of all ranks; the kernels that both run; the median of the ratios, where it was
//   built with ScaLAPACK
#include "median.hpp"

#include <pentad/comm/environment.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/kernels/gemm_libraries.hpp>
#include <pentad/product/multiply.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#if defined(BENCH_SCALAPACK)
#include "scalapack.hpp"
#endif

using namespace pentad;

namespace {

struct rows {
    static constexpr std::string_view name = "rows";
};
struct columns {
    static constexpr std::string_view name = "columns";
};
struct i {
    static constexpr std::string_view name = "i";
};
struct j {
    static constexpr std::string_view name = "j";
};
struct k {
    static constexpr std::string_view name = "k";
};

using Exec = Kokkos::DefaultHostExecutionSpace;
template <class T, class First, class Second>
using OnGrid = Layout<T, Dims<Dim<First, dynamic, rows>, Dim<Second, dynamic, columns>>>;

double element(std::size_t row, std::size_t column, int seed) {
    auto const x = (row * 2654435761u + column * 40503u + static_cast<std::size_t>(seed) * 97u) % 1009;
    return static_cast<double>(x) / 1009 - 0.5;
}
/// Weights of a sum over all elements: the products are compared by it.
double weight(std::size_t row, std::size_t column) { return element(row, 0, 5) * element(column, 1, 7); }

double sum_of_ranks(double x) {
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return x;
}
double seconds_of(std::function<void()> const& product) {
    MPI_Barrier(MPI_COMM_WORLD);
    double const start = MPI_Wtime();
    product();
    double seconds = MPI_Wtime() - start;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

template <class L, class F>
void for_each(Tensor<L, Exec> const& matrix, F const& f) {
    auto const [local_rows, local_columns] = matrix.local();
    auto const& context = matrix.context();
    std::size_t const first_row = local_rows * static_cast<std::size_t>(context.template coordinate<rows>()),
                      first_column = local_columns * static_cast<std::size_t>(context.template coordinate<columns>());
    auto const view = matrix.view();
    for (std::size_t row = 0; row < local_rows; ++row)
        for (std::size_t column = 0; column < local_columns; ++column)
            f(first_row + row, first_column + column, view(row, column));
}

template <class T>
int measure(int grid_rows, int grid_columns, std::size_t n, int repeats) {
    Mesh<Axis<rows>, Axis<columns>> const mesh(grid_rows, grid_columns);
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    Context<Exec> const context(communicators);
    Tensor<OnGrid<T, i, k>, Exec> a(context, {n, n});
    Tensor<OnGrid<T, k, j>, Exec> b(context, {n, n});
    Tensor<OnGrid<T, i, j>, Exec> c;
    for_each(a, [](auto row, auto column, T& x) { x = static_cast<T>(element(row, column, 1)); });
    for_each(b, [](auto row, auto column, T& x) { x = static_cast<T>(element(row, column, 2)); });
    auto const ours = [&] {
        c = {};
        c = multiply<OnGrid<T, i, j>>(a, b);
    };
    (void)seconds_of(ours);  // takes memory, and maps that of others
    long double partial = 0; // of millions of numbers, whose roundings would be more than those of the products
    for_each(c, [&](auto row, auto column, T x) { partial += weight(row, column) * static_cast<long double>(x); });
    [[maybe_unused]] double const sum = sum_of_ranks(static_cast<double>(partial));

    std::vector<double> times, peer_times, ratios;
    bool is_right = true;
#if defined(BENCH_SCALAPACK)
    scalapack::Grid const grid(grid_rows, grid_columns);
    auto const size = static_cast<int>(n);
    int best_block = 0;
    double fastest = std::numeric_limits<double>::infinity();
    auto const with_block = [&](int block, auto const& use) {
        scalapack::Matrix<T> x(grid, size, block), y(grid, size, block), z(grid, size, block);
        x.for_each([](auto row, auto column, T& number) { number = static_cast<T>(element(row, column, 1)); });
        y.for_each([](auto row, auto column, T& number) { number = static_cast<T>(element(row, column, 2)); });
        use([&] { scalapack::multiply(size, x, y, z); });
        long double peer_sum = 0;
        z.for_each([&](auto row, auto column, T number) {
            peer_sum += weight(row, column) * static_cast<long double>(number);
        });
        double const error =
            std::abs(sum_of_ranks(static_cast<double>(peer_sum)) - sum) / (std::abs(sum) + static_cast<double>(n));
        is_right = is_right && error < 1000 * static_cast<double>(std::numeric_limits<T>::epsilon());
    };
    for (int const block : {32, 64, 128, 256})
        with_block(block, [&](auto const& product) {
            double const seconds = seconds_of(product);
            if (seconds < fastest) fastest = seconds, best_block = block;
        });
    with_block(best_block, [&](auto const& product) {
        for (int repeat = 0; repeat < repeats; ++repeat) {
            times.push_back(seconds_of(ours));
            peer_times.push_back(seconds_of(product));
            ratios.push_back(times.back() / peer_times.back());
        }
    });
#else
    for (int repeat = 0; repeat < repeats; ++repeat) times.push_back(seconds_of(ours));
#endif
    if (!is_right) std::fprintf(stderr, "bench_products: the products differ\n");
    if (communicators.world().rank() == 0) {
        double const flops = 2 * std::pow(static_cast<double>(n), 3);
        std::printf("{\"n\": %zu, \"grid\": \"%d x %d\", \"element\": \"%s\", \"ours\": %.4f, \"GFLOP/s\": %.1f, "
                    "\"libraries\": \"%s\"",
                    n, grid_rows, grid_columns, Element<T>::name.data(), median(times), flops / median(times) * 1e-9,
                    kernels::gemm_libraries().c_str());
#if defined(BENCH_SCALAPACK)
        std::printf(
            ", \"ScaLAPACK\": %.4f, \"its GFLOP/s\": %.1f, \"its block\": %d, \"its BLAS\": \"%s\", \"ratio\": %.3f",
            median(peer_times), flops / median(peer_times) * 1e-9, best_block, scalapack::blas().c_str(),
            median(ratios));
#endif
        std::printf("}\n");
    }
    return is_right ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    auto const number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
    bool const is_f32 = argc > 5 && std::string_view(argv[5]) == "f32";
    auto const n = static_cast<std::size_t>(number(3, 2048));
    return is_f32 ? measure<f32>(number(1, 1), number(2, 1), n, number(4, 5))
                  : measure<f64>(number(1, 1), number(2, 1), n, number(4, 5));
}

// A stencil of 13 points in three dimensions, two cells wide, whose halo is filled beside the computation and before
// it. lab/halo.py starts it on hosts joined by links of a known rate.
//   bench_halo [N] [REPEATS]: N x N x N cells a rank, of f64, the ranks along the first dimension. A line of JSON:
//   seconds of the slowest rank, medians of REPEATS, measured in turn, and the bytes that the rank that sends most
//   sends
#include "median.hpp"

#include <pentad/comm/environment.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/tensor/stencil.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

using namespace pentad;

namespace {

struct planes {
    static constexpr std::string_view name = "planes";
};
struct z {
    static constexpr std::string_view name = "z";
};
struct y {
    static constexpr std::string_view name = "y";
};
struct x {
    static constexpr std::string_view name = "x";
};

using Exec = Kokkos::DefaultExecutionSpace;
constexpr std::size_t width = 2;
using Field = Layout<f64, Dims<Halo<Dim<z, dynamic, planes>, width>, Halo<Dim<y>, width>, Halo<Dim<x>, width>>>;
using Cells = View<f64, 3, Exec>;

struct Star {
    Cells from, to;
    KOKKOS_FUNCTION void operator()(std::size_t i, std::size_t j, std::size_t k) const {
        double const near = from(i - 1, j, k) + from(i + 1, j, k) + from(i, j - 1, k) + from(i, j + 1, k) +
                            from(i, j, k - 1) + from(i, j, k + 1);
        double const far = from(i - 2, j, k) + from(i + 2, j, k) + from(i, j - 2, k) + from(i, j + 2, k) +
                           from(i, j, k - 2) + from(i, j, k + 2);
        to(i, j, k) = 0.5 * from(i, j, k) + 0.1 * near - 0.01 * far;
    }
};

void measure(std::size_t n, int repeats) {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<planes>>(ranks));
    Context<Exec> const context(communicators);
    std::array<std::size_t, 3> const extents{n * static_cast<std::size_t>(ranks), n, n};
    Tensor<stale_t<Field>, Exec> now(context, extents), next(context, extents);
    now.clear();
    next.clear();
    auto const apply = [&](Cells const& from, ElementBox const& box) {
        for_each_cell<3>("star", context.exec(), box, Star{from, next.view()});
    };
    auto const alone = [&] { // no message
        apply(now.view(), owned_cells(now));
        context.exec().fence();
        std::swap(now, next);
    };
    auto const before = [&] {
        auto filled = redistribute<Field>(std::move(now));
        apply(filled.view(), owned_cells(filled));
        context.exec().fence();
        now = std::exchange(next, std::move(filled).template as<stale_t<Field>>());
    };
    auto const beside = [&] {
        auto filled = fill_halo_and_compute<Field>(std::move(now), apply);
        context.exec().fence();
        now = std::exchange(next, std::move(filled).template as<stale_t<Field>>());
    };
    std::array<std::vector<double>, 3> seconds;
    double bytes = 0;
    for (int i = -3; i < repeats; ++i) {
        auto const time = [&](auto const& step) {
            MPI_Barrier(MPI_COMM_WORLD);
            double spent = -MPI_Wtime();
            step();
            spent += MPI_Wtime();
            MPI_Allreduce(MPI_IN_PLACE, &spent, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            return spent;
        };
        observe::ledger().clear();
        std::array const times{time(alone), time(before), time(beside)};
        bytes = observe::ledger().bytes("planes") / 2; // of two variants that send
        for (std::size_t v = 0; i >= 0 && v < times.size(); ++v) seconds[v].push_back(times[v]);
    }
    MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (communicators.world().rank() == 0)
        std::printf("{\"computation\": %.6f, \"before\": %.6f, \"beside\": %.6f, \"bytes\": %.0f}\n",
                    median(seconds[0]), median(seconds[1]), median(seconds[2]), bytes);
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    std::size_t const n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 192;
    int const repeats = argc > 2 ? std::atoi(argv[2]) : 11;
    try {
        measure(n, repeats);
    } catch (std::exception const& error) {
        std::fprintf(stderr, "bench_halo: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return 0;
}

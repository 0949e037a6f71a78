// The transposes of a three-dimensional FFT on pencils, [z@rows, y@columns, x] to [z@rows, y, x@columns] to [z, y@rows,
// x@columns] and back, beside the same written by hand with MPI_Alltoall and no copy that changes nothing. f64 complex.
//   bench_transposes ROWS COLUMNS [N] [REPEATS]: N^3 elements on ROWS x COLUMNS ranks. A line of JSON: seconds of both,
//   the medians of REPEATS of the slowest rank, measured in turn, their ratio, and the most memory in shards
#include "median.hpp"

#include <pentad/comm/environment.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/observe/counters.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <complex>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

using namespace pentad;

namespace {

struct rows {
    static constexpr std::string_view name = "rows";
};
struct columns {
    static constexpr std::string_view name = "columns";
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

using Exec = Kokkos::DefaultHostExecutionSpace;
using Element = std::complex<f64>;
template <class... D>
using L = Layout<Element, Dims<D...>>;
using AlongX = L<Dim<z, dynamic, rows>, Dim<y, dynamic, columns>, Dim<x>>;
using AlongY = L<Dim<z, dynamic, rows>, Dim<y>, Dim<x, dynamic, columns>>;
using AlongZ = L<Dim<z>, Dim<y, dynamic, rows>, Dim<x, dynamic, columns>>;

/// to[j, i, :] = from[i, j, :] for `from` of extents [p, q, r].
void swap_leading(Element const* from, Element* to, std::size_t p, std::size_t q, std::size_t r) {
    for (std::size_t j = 0; j < q; ++j)
        for (std::size_t i = 0; i < p; ++i)
            std::memcpy(to + (j * p + i) * r, from + (i * q + j) * r, r * sizeof(Element));
}

/// Transposes by hand, in place of the data, through two buffers as large. Extents are local, before the exchange.
class ByHand {
  public:
    explicit ByHand(std::size_t elements) : one_(elements), two_(elements) {}

    /// [a, b / n, c] to [a, b, c / n]
    void gather_second(MPI_Comm comm, int n, std::vector<Element>& data, std::size_t a, std::size_t b, std::size_t c) {
        if (n == 1) return;
        auto const ranks = static_cast<std::size_t>(n);
        swap_leading(data.data(), one_.data(), a * b, ranks, c / ranks);
        exchange(comm, ranks);
        swap_leading(two_.data(), data.data(), ranks, a, b * c / ranks);
    }
    /// [a, b, c / n] to [a, b / n, c]
    void gather_third(MPI_Comm comm, int n, std::vector<Element>& data, std::size_t a, std::size_t b, std::size_t c) {
        if (n == 1) return;
        auto const ranks = static_cast<std::size_t>(n);
        swap_leading(data.data(), one_.data(), a, ranks, b / ranks * c);
        exchange(comm, ranks);
        swap_leading(two_.data(), data.data(), ranks, a * b / ranks, c);
    }
    /// [a / n, b, c] to [a, b / n, c]: what arrives is in place.
    void gather_first(MPI_Comm comm, int n, std::vector<Element>& data, std::size_t a, std::size_t b, std::size_t c) {
        if (n == 1) return;
        auto const ranks = static_cast<std::size_t>(n);
        swap_leading(data.data(), one_.data(), a, ranks, b / ranks * c);
        exchange(comm, ranks);
        data.swap(two_);
    }
    /// [a, b / n, c] to [a / n, b, c]: what leaves is in place.
    void scatter_first(MPI_Comm comm, int n, std::vector<Element>& data, std::size_t a, std::size_t b, std::size_t c) {
        if (n == 1) return;
        auto const ranks = static_cast<std::size_t>(n);
        one_.swap(data);
        exchange(comm, ranks);
        swap_leading(two_.data(), data.data(), ranks, a / ranks, b * c);
    }

  private:
    void exchange(MPI_Comm comm, std::size_t ranks) {
        auto const count = static_cast<int>(one_.size() / ranks);
        MPI_Alltoall(one_.data(), count, MPI_C_DOUBLE_COMPLEX, two_.data(), count, MPI_C_DOUBLE_COMPLEX, comm);
    }
    std::vector<Element> one_, two_;
};

int measure(int r, int c, std::size_t n, int repeats) {
    Mesh<Axis<rows>, Axis<columns>> const mesh(r, c);
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    Context<Exec> const context(communicators);
    auto const lines = static_cast<std::size_t>(r), files = static_cast<std::size_t>(c);
    Tensor<AlongX, Exec> field(context, {n, n, n});
    std::vector<Element> data(field.size());
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = {static_cast<double>(i), context.coordinate<rows>() + 0.5};
    field.set(data.data());
    auto const original = data;
    ByHand by_hand(data.size());
    MPI_Comm row = MPI_COMM_NULL, column = MPI_COMM_NULL; // along `columns`, along `rows`
    MPI_Comm_split(MPI_COMM_WORLD, context.coordinate<rows>(), context.coordinate<columns>(), &row);
    MPI_Comm_split(MPI_COMM_WORLD, context.coordinate<columns>(), context.coordinate<rows>(), &column);

    std::vector<double> ours, theirs;
    for (int i = 0; i < repeats + 20; ++i) { // the first ones learn how to copy
        MPI_Barrier(MPI_COMM_WORLD);
        double times[2];
        double start = MPI_Wtime();
        auto along_y = redistribute<AlongY>(std::move(field));
        auto along_z = redistribute<AlongZ>(std::move(along_y));
        along_y = redistribute<AlongY>(std::move(along_z));
        field = redistribute<AlongX>(std::move(along_y));
        times[0] = MPI_Wtime() - start;
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        by_hand.gather_second(row, c, data, n / lines, n / files, n);
        by_hand.gather_first(column, r, data, n / lines, n, n / files);
        by_hand.scatter_first(column, r, data, n, n / lines, n / files);
        by_hand.gather_third(row, c, data, n / lines, n, n / files);
        times[1] = MPI_Wtime() - start;
        MPI_Allreduce(MPI_IN_PLACE, times, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (i < 20) continue;
        ours.push_back(times[0]);
        theirs.push_back(times[1]);
    }
    std::vector<Element> back(field.size());
    field.get(back.data());
    bool const is_same = back == original && data == original;
    if (!is_same) std::fprintf(stderr, "bench_transposes: the field has changed\n");
    if (communicators.world().rank() == 0)
        std::printf("{\"ours\": %.6f, \"by hand\": %.6f, \"ratio\": %.3f, \"shards\": %.2f}\n", median(ours),
                    median(theirs), median(ours) / median(theirs),
                    static_cast<double>(observe::counters()[observe::Memory::activations].peak) /
                        static_cast<double>(field.size() * sizeof(Element)));
    MPI_Comm_free(&row);
    MPI_Comm_free(&column);
    return is_same ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    auto const number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
    return measure(number(1, 1), number(2, 1), static_cast<std::size_t>(number(3, 256)), number(4, 20));
}

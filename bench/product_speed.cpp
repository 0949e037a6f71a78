// Products of 1024 x 1024 matrices on one rank, in f64, f32 and bf16: the fastest of some. library_kernels.py prints
// them beside those of peers, at the head of each benchmark. Prints a line of JSON: the libraries with their kernels,
// and GFLOP/s.
#include <pentad/kernels/gemm.hpp>
#include <pentad/kernels/gemm_libraries.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdio>
#include <limits>

using namespace pentad;

namespace {

using Exec = Kokkos::DefaultHostExecutionSpace;

template <class T>
double speed() {
    constexpr int n = 1024;
    constexpr double seconds_in_all = 0.3;
    Kokkos::View<T**, Kokkos::LayoutRight, Exec> const a("a", n, n), b("b", n, n), c("c", n, n);
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
            a(i, j) = T(static_cast<f32>((i * 31 + j * 17) % 251) / 251.0F);
            b(i, j) = T(static_cast<f32>((i * 13 + j * 29) % 241) / 241.0F);
        }
    Exec const exec;
    double fastest = std::numeric_limits<double>::infinity();
    Kokkos::Timer const all;
    do { // the first one warms up
        Kokkos::Timer const one;
        kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::no, 1.0, a, b, 0.0, c);
        exec.fence();
        fastest = std::min(fastest, one.seconds());
    } while (all.seconds() < seconds_in_all);
    return 2.0 * n * n * n / fastest * 1e-9;
}

} // namespace

int main(int argc, char** argv) {
    Kokkos::ScopeGuard const kokkos(argc, argv);
    std::printf("{\"libraries\": \"%s\", \"f64\": %.1f, \"f32\": %.1f, \"bf16\": %.1f}\n",
                kernels::gemm_libraries().c_str(), speed<f64>(), speed<f32>(), speed<bf16>());
}

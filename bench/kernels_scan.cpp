// FLOP/s of the chunked scan, forward and backward, and of matrix products of the same shapes. Only the visible half of
// a chunk's scores is counted.
#include <pentad/kernels/chunk_scan.hpp>
#include <pentad/kernels/gemm.hpp>

#include <Kokkos_Core.hpp>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>

namespace {

using namespace pentad;
using Exec = Kokkos::DefaultExecutionSpace;

template <class View>
void fill(View const& view, float scale = 1, float shift = 0) {
    auto const host = Kokkos::create_mirror_view(view);
    unsigned state = 1;
    for (std::size_t i = 0; i < host.size(); ++i) {
        state = state * 1664525u + 1013904223u;
        host.data()[i] = scale * (static_cast<float>(state >> 8) / 8388608.0f - 1.0f) + shift;
    }
    Kokkos::deep_copy(view, host);
}

void report(benchmark::State& state, double flops) {
    state.counters["FLOP/s"] =
        benchmark::Counter(flops * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

template <class T>
struct Scan {
    using Acc = accumulator_t<T>;
    explicit Scan(benchmark::State const& state)
        : sizes{1, state.range(0), state.range(1), state.range(2), state.range(3), state.range(4), state.range(5)},
          q("q", 1, sizes.seq, sizes.groups, sizes.state), k("k", 1, sizes.seq, sizes.groups, sizes.state),
          v("v", 1, sizes.seq, sizes.heads, sizes.head_dim), y("y", 1, sizes.seq, sizes.heads, sizes.head_dim),
          dy("dy", 1, sizes.seq, sizes.heads, sizes.head_dim), dq("dq", 1, sizes.seq, sizes.groups, sizes.state),
          dk("dk", 1, sizes.seq, sizes.groups, sizes.state), dv("dv", 1, sizes.seq, sizes.heads, sizes.head_dim),
          final_state("final", 1, sizes.heads, sizes.state, sizes.head_dim) {
        if (state.range(6) != 0) {
            a = {"a", 1, sizes.seq, sizes.heads};
            da = {"da", 1, sizes.seq, sizes.heads};
            fill(a, 0.1f, -0.1f);
        }
        for (auto const& tensor : {q, k, v, dy}) fill(tensor);
        workspace = {"workspace", std::max(kernels::chunk_scan_workspace<T>(exec, sizes),
                                           kernels::chunk_scan_backward_workspace<T>(exec, sizes))};
    }
    void forward() const {
        kernels::chunk_scan_forward(exec, q, k, v, a, none, sizes.chunk, y, final_state, workspace);
        exec.fence();
    }
    void backward() const {
        kernels::chunk_scan_backward(exec, q, k, v, a, none, dy, none, sizes.chunk, dq, dk, dv, da, none, workspace);
        exec.fence();
    }
    [[nodiscard]] kernels::detail::ScanFlops flops() const { return kernels::detail::ScanFlops(sizes); }

    template <class E>
    using Tensor = Kokkos::View<E****, Kokkos::LayoutRight, Exec>;
    Exec exec;
    kernels::ScanSizes sizes;
    Tensor<T> q, k, v, y, dy;
    Tensor<Acc> dq, dk, dv, final_state, none;
    Kokkos::View<Acc***, Kokkos::LayoutRight, Exec> a, da;
    Kokkos::View<Acc*, Exec> workspace;
};

template <class T>
void scan_forward(benchmark::State& state) {
    Scan<T> const scan(state);
    scan.forward();
    for (auto _ : state) scan.forward();
    report(state, scan.flops().forward());
}

template <class T>
void scan_backward(benchmark::State& state) {
    Scan<T> const scan(state);
    scan.backward();
    for (auto _ : state) scan.backward();
    report(state, scan.flops().backward());
}

template <class T>
void scan_both(benchmark::State& state) {
    Scan<T> const scan(state);
    scan.backward();
    for (auto _ : state) {
        scan.forward();
        scan.backward();
    }
    report(state, scan.flops().forward() + scan.flops().backward());
}

/// C[m, n] = A B of the sizes of one of the scan's products, in the cache.
void product(benchmark::State& state) {
    i64 const m = state.range(0), n = state.range(1), k = state.range(2);
    Kokkos::View<f32**, Kokkos::LayoutRight, Exec> const a("a", m, k), b("b", k, n), c("c", m, n);
    fill(a);
    fill(b);
    Exec const exec;
    for (auto _ : state) {
        kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::no, 1.0, a, b, 0.0, c);
        exec.fence();
    }
    report(state, 2.0 * static_cast<double>(m * n * k));
}

// The argument's type has another name in each version of Google Benchmark.
constexpr auto shapes = [](auto* test) {
    for (i64 groups : {8, 1}) // linear attention, Mamba-2
        for (i64 state : {64, 128})
            for (i64 chunk : {64, 128, 256}) test->Args({2048, 8, groups, state, 64, chunk, 1});
    test->Args({2048, 8, 8, 64, 64, 64, 0});
    test->ArgNames({"seq", "heads", "groups", "state", "head_dim", "chunk", "decay"})
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
};
constexpr auto products = [](auto* test) {
    for (i64 state : {64, 128})
        for (i64 chunk : {64, 128, 256}) test->Args({chunk, chunk, state});
    for (i64 chunk : {64, 128, 256}) test->Args({chunk, 64, chunk})->Args({chunk, 64, 128})->Args({128, 64, chunk});
    test->ArgNames({"m", "n", "k"})->Unit(benchmark::kMicrosecond)->UseRealTime();
};

BENCHMARK(product)->Apply(products);
BENCHMARK(scan_forward<f32>)->Apply(shapes);
BENCHMARK(scan_backward<f32>)->Apply(shapes);
BENCHMARK(scan_both<f32>)->Apply(shapes);
BENCHMARK(scan_both<bf16>)->Args({2048, 8, 1, 128, 64, 128, 1})->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(scan_both<f64>)->Args({2048, 8, 1, 128, 64, 128, 1})->Unit(benchmark::kMillisecond)->UseRealTime();

} // namespace

int main(int argc, char** argv) {
    Kokkos::ScopeGuard const kokkos(argc, argv);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
}

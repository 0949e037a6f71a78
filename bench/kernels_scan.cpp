// FLOP/s of the chunked scan, forward and backward, and of matrix products of the same shapes. Only the visible half of
// a chunk's scores is counted.
#include "kernels.hpp"

#include <pentad/kernels/chunk_scan.hpp>
#include <pentad/kernels/gemm.hpp>

#include <Kokkos_Core.hpp>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>

namespace {

using namespace kernel_bench;

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
            draw(a, 0.1f, -0.1f);
        }
        for (auto const& tensor : {q, k, v, dy}) draw(tensor);
        workspace = {"workspace", std::max(kernels::chunk_scan_workspace<T>(exec, sizes),
                                           kernels::chunk_scan_backward_workspace<T>(exec, sizes))};
    }
    void forward() const {
        kernels::chunk_scan_forward(exec, q, k, v, a, none, sizes.chunk, y, final_state, workspace);
    }
    void backward() const {
        kernels::chunk_scan_backward(exec, q, k, v, a, none, dy, none, sizes.chunk, dq, dk, dv, da, none, workspace);
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
    timed_flops(state, scan.flops().forward(), [&] { scan.forward(); });
}

template <class T>
void scan_backward(benchmark::State& state) {
    Scan<T> const scan(state);
    timed_flops(state, scan.flops().backward(), [&] { scan.backward(); });
}

template <class T>
void scan_both(benchmark::State& state) {
    Scan<T> const scan(state);
    timed_flops(state, scan.flops().forward() + scan.flops().backward(), [&] {
        scan.forward();
        scan.backward();
    });
}

/// C[m, n] = A B of the sizes of one of the scan's products, in the cache.
void product(benchmark::State& state) {
    i64 const m = state.range(0), n = state.range(1), k = state.range(2);
    Kokkos::View<f32**, Kokkos::LayoutRight, Exec> const a("a", m, k), b("b", k, n), c("c", m, n);
    draw(a);
    draw(b);
    Exec const exec;
    timed_flops(state, 2.0 * static_cast<double>(m * n * k),
                [&] { kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::no, 1.0, a, b, 0.0, c); });
}

// The argument's type has another name in each version of Google Benchmark.
constexpr auto shapes = [](auto* test) {
    i64 const seq = on_device ? 8192 : 2048, heads = on_device ? 32 : 8;
    for (i64 groups : {heads, i64{1}}) // linear attention, Mamba-2
        for (i64 state : {64, 128})
            for (i64 chunk : {64, 128, 256}) test->Args({seq, heads, groups, state, 64, chunk, 1});
    test->Args({seq, heads, heads, 64, 64, 64, 0});
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
constexpr auto one_shape = [](auto* test) {
    test->Args({on_device ? 8192 : 2048, on_device ? 32 : 8, 1, 128, 64, 128, 1})
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
};
BENCHMARK(scan_both<bf16>)->Apply(one_shape);
BENCHMARK(scan_both<f64>)->Apply(one_shape);

} // namespace

int main(int argc, char** argv) { return kernel_bench::run(argc, argv); }

// Shared by the benchmarks of kernels, on the host and on a device: data drawn where the kernels run, timing, main.
#pragma once

#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace kernel_bench {

using namespace pentad;
using Exec = Kokkos::DefaultExecutionSpace;

/// A device gets sizes that fill it, and whose data exceed its caches.
inline constexpr bool on_device =
    !Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;
/// Between two waits: a launch and a wait take microseconds on a device.
inline constexpr i64 launches = on_device ? 10 : 1;

/// Element i of a buffer: scale * x + shift, x in [-1, 1) drawn from i.
template <class T>
struct Draw {
    T* data;
    float scale, shift;
    KOKKOS_FUNCTION void operator()(i64 i) const {
        auto x = static_cast<std::uint32_t>(i) * 0x9e3779b9u + 1u;
        x = (x ^ (x >> 16)) * 0x85ebca6bu;
        x = (x ^ (x >> 13)) * 0xc2b2ae35u;
        data[i] = T(scale * (static_cast<float>((x ^ (x >> 16)) >> 8) * 0x1p-23f - 1.0f) + shift);
    }
};
template <class View>
void draw(View const& view, float scale = 1, float shift = 0) {
    using T = typename View::non_const_value_type;
    Kokkos::parallel_for("draw", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(0, static_cast<i64>(view.size())),
                         Draw<T>{view.data(), scale, shift});
    Kokkos::fence();
}

/// Times `kernel`, after a call that is not timed. Returns the seconds of a call in the fastest of the batches that are
/// waited for.
template <class F>
double timed(benchmark::State& state, F const& kernel) {
    kernel();
    Kokkos::fence();
    double best = 1e30;
    while (state.KeepRunningBatch(launches)) {
        Kokkos::Timer timer;
        for (i64 i = 0; i < launches; ++i) kernel();
        Kokkos::fence();
        best = std::min(best, timer.seconds() / launches);
    }
    return best;
}
/// Times `kernel`, which does so many operations.
template <class F>
void timed_flops(benchmark::State& state, double flops, F const& kernel) {
    timed(state, kernel);
    state.counters["FLOP/s"] =
        benchmark::Counter(flops * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

inline int run(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); // who reads it through a pipe sees each result as it comes
    Kokkos::ScopeGuard const kokkos(argc, argv);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

} // namespace kernel_bench

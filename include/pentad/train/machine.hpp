// Measures the machine that it runs on, all ranks at work, as the planner's hardware.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/kernels/activation.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/planner/hardware.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

namespace detail {
/// Seconds of a call, the median of many, on the slowest rank; the ranks begin together. Collective.
inline double seconds_of(int repeats, std::function<void()> const& call) {
    std::vector<double> times;
    for (int i = 0; i < repeats + 2; ++i) {
        comm::check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
        auto const start = std::chrono::steady_clock::now();
        call();
        double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        comm::check(MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD), "MPI_Allreduce");
        if (i >= 2) times.push_back(took);
    }
    std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
    return times[static_cast<std::size_t>(repeats / 2)];
}
/// Bytes that all ranks of a machine share.
template <class Exec>
double memory_of_machine() {
#ifdef KOKKOS_ENABLE_CUDA
    if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) {
        std::size_t free = 0, all = 0;
        (void)cudaMemGetInfo(&free, &all);
        return static_cast<double>(all);
    }
#endif
    return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
}
inline double least_of_ranks(double value) {
    comm::check(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
    return value;
}
/// What an exchange between computations takes longer than in a loop of its own: the ranks are not there at once.
template <class Exec>
double jitter(Exec const& exec, Context<Exec> const& context) {
    using Matrix = Kokkos::View<f32**, Kokkos::LayoutRight, Kokkos::Device<Exec, typename Exec::memory_space>>;
    Matrix const x("pentad::measure", 256, 96), w("pentad::measure", 96, 96), y("pentad::measure", 256, 96);
    auto const compute = [&] {
        for (int i = 0; i < 40; ++i)
            kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::yes, 1.0, x, w, 0.0, y);
    };
    using Sum = Layout<f32, Dims<Dim<flat>>, Partial<dp>>;
    Tensor<Sum, Exec> sum(context, {8});
    sum.clear();
    std::vector<double> longer;
    for (int i = 0; i < 31; ++i) {
        double const alone = seconds_of(1, [&] {
            for (int k = 0; k < 10; ++k) compute();
            exec.fence("pentad: jitter is measured");
        });
        double const synchronised = seconds_of(1, [&] {
            for (int k = 0; k < 10; ++k) {
                compute();
                sum = redistribute<invariant_t<Sum>>(std::move(sum)).template reinterpret_as<Sum>();
            }
        });
        longer.push_back((synchronised - alone) / 10);
    }
    std::nth_element(longer.begin(), longer.begin() + 15, longer.end());
    return std::max(0.0, longer[15]);
}
} // namespace detail

/// What each rank gets while all of them work: FLOP/s of products, bytes/s of passes over memory, the time to start an
/// operation, latency and bandwidth of the library's collectives, the waiting for each other; what one gets while the
/// others sleep; its part of the memory. All ranks are taken as one node. The same on every rank. Collective.
template <class Exec>
planner::Hardware measured_machine(Exec const& exec) {
    int ranks = 1, rank = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    auto const together = [] { comm::check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); };
    planner::Hardware machine{.name = "measured", .devices = ranks, .devices_per_node = ranks};
    machine.memory_bytes = detail::least_of_ranks(detail::memory_of_machine<Exec>() / ranks);
    machine.peak_f32 = detail::least_of_ranks(kernels::measure_gemm_speed<f32>(exec, together));
    machine.peak_bf16 = detail::least_of_ranks(kernels::measure_gemm_speed<bf16>(exec, together));
    // One alone, while the others sleep.
    double alone = 0;
    if (rank == 0) alone = kernels::measure_gemm_speed<f32>(exec, [] {});
    MPI_Request done = MPI_REQUEST_NULL;
    comm::check(MPI_Ibarrier(MPI_COMM_WORLD, &done), "MPI_Ibarrier");
    for (int is_done = 0; is_done == 0; std::this_thread::sleep_for(std::chrono::milliseconds(2)))
        comm::check(MPI_Test(&done, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
    comm::check(MPI_Bcast(&alone, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD), "MPI_Bcast");
    if (ranks > 1) machine.sharing = std::clamp((alone / machine.peak_f32 - 1) / (ranks - 1), 0.0, 1.0);

    // A pass over activations of a small model: SwiGLU, which is neither the cheapest nor the dearest.
    std::size_t const elements = std::size_t{1} << 18;
    using Buffer = Kokkos::View<f32*, Kokkos::LayoutRight, Kokkos::Device<Exec, typename Exec::memory_space>>;
    Buffer const buffers[] = {Buffer("pentad::measure", elements), Buffer("pentad::measure", elements),
                              Buffer("pentad::measure", elements)};
    auto const rows = [&](int i) { return View<f32, 2, Exec>(buffers[i].data(), elements / 256, 256); };
    // Long enough that ranks which share a core each have had their turns.
    constexpr int passes = 400;
    double const pass = detail::seconds_of(9, [&] {
        for (int i = 0; i < passes; ++i) kernels::swiglu_forward<f32>(exec, rows(0), rows(1), rows(2));
        exec.fence("pentad: passes are measured");
    });
    machine.memory_bandwidth = passes * 3 * static_cast<double>(elements * sizeof(f32)) / pass;
    View<f32, 1, Exec> const few(buffers[0].data(), 8), more(buffers[1].data(), 8);
    machine.launch_s = detail::seconds_of(31,
                                          [&] {
                                              for (int i = 0; i < 100; ++i) kernels::add<f32>(exec, few, more);
                                              exec.fence("pentad: kernel launches are measured");
                                          }) /
                       100;
    if (ranks == 1) return machine;

    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(ranks));
    Context<Exec> const context(communicators);
    using Sum = Layout<f32, Dims<Dim<flat>>, Partial<dp>>;
    auto const all_reduce = [&](std::size_t n) {
        Tensor<Sum, Exec> x(context, {n});
        x.clear();
        return detail::seconds_of(
                   31,
                   [&] {
                       for (int i = 0; i < 10; ++i)
                           x = redistribute<invariant_t<Sum>>(std::move(x)).template reinterpret_as<Sum>();
                   }) /
               10;
    };
    // Messages round the ring, as keys and values go.
    auto const& ring = communicators.along(AxisNames(dp::name));
    auto const message = [&](std::size_t n) {
        View<f32, 1, Exec> const out(buffers[0].data(), n), in(buffers[1].data(), n);
        return detail::seconds_of(31,
                                  [&] {
                                      for (int i = 0; i < 10; ++i) {
                                          auto received =
                                              comm::start_receive(exec, ring, in, (rank + ranks - 1) % ranks);
                                          auto sent = comm::start_send(exec, ring, out, (rank + 1) % ranks);
                                          received.wait();
                                          sent.wait();
                                      }
                                  }) /
               10;
    };
    double const rounds = 2 * (ranks - 1), small = all_reduce(8), large = all_reduce(elements);
    double const sent = 2 * static_cast<double>(elements * sizeof(f32)) * (ranks - 1) / ranks;
    std::size_t const length = elements / 8;
    double const note = message(8), letter = message(length);
    machine.links = {
        {.devices = ranks,
         .latency_s = small / rounds,
         .bandwidth = sent / std::max(large - small, large / 4),
         .message_latency_s = note,
         .message_bandwidth = static_cast<double>(length * sizeof(f32)) / std::max(letter - note, letter / 4)}};
    machine.jitter_s = detail::jitter(exec, context) / std::log2(ranks);
    return machine;
}

#if PENTAD_COMPILED_DECODER_LAYERS
extern template planner::Hardware measured_machine(Kokkos::DefaultExecutionSpace const&);
#endif

} // namespace pentad::train

#include "offload_summary.hpp"

#include <pentad/comm/error.hpp>
#include <pentad/model/offload.hpp>
#include <pentad/report/format.hpp>

#include <mpi.h>

#include <array>
#include <cstdio>
#include <string>

namespace train_lm {

namespace {

namespace report = pentad::report;

/// @param what was offloaded
void print_bytes(Options const& options, pentad::model::OffloadReport const& own, std::string const& what, int rank) {
    std::array<double, 6> sums{
        own.state_bytes,          own.window_bytes, own.read_bytes + own.written_bytes, own.disk_seconds, 1.0,
        own.is_direct ? 1.0 : 0.0};
    pentad::comm::check(
        MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
        "MPI_Allreduce");
    auto const [state, windows, moved, disk_seconds, ranks, direct] = sums;
    if (rank != 0) return;
    if (state == 0)
        std::printf("offload: the windows, %s on all ranks, hold all %s: nothing is in files; a smaller "
                    "--bucket-elements or --offload-window changes that\n",
                    report::bytes(windows).c_str(), what.c_str());
    else if (options.offload_folder.empty())
        std::printf("offload: %s of %s in the memory of the hosts\n", report::bytes(state).c_str(), what.c_str());
    else
        std::printf("offload: %s of %s in %s, windows of %s on all ranks; the disk gave %s/s to a rank%s\n",
                    report::bytes(state).c_str(), what.c_str(), options.offload_folder.c_str(),
                    report::bytes(windows).c_str(), report::bytes(disk_seconds > 0 ? moved / disk_seconds : 0).c_str(),
                    direct == ranks ? "" : ", through the kernel's memory");
}

} // namespace

void print_offload(Options const& options, Training const& training, double waited, double seconds, int rank) {
    auto const state = training.offload_report(), activations = training.activation_report();
    if (state) print_bytes(options, *state, "optimizer state", rank);
    if (activations) print_bytes(options, *activations, "activations", rank);
    if (rank == 0 && waited > 0)
        std::printf("offload: steps waited %s for it, %.1f%% of their time%s\n", report::duration(waited).c_str(),
                    100 * waited / seconds,
                    options.strategy.sharding.releases_gradients || !state
                        ? ""
                        : "; --gradient-release spreads updates over the backward pass");
}

} // namespace train_lm

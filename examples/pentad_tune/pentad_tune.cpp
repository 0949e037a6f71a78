// Measures where the MPI library's collectives are faster than Pentad's on this machine, and writes a file for
// PENTAD_TUNING: mpiexec -n 8 pentad_tune --out tuning. Groups of 2, 4, 8, ... and all ranks are measured, one after
// the other. Exit status: 0 done, 2 bad input, 3 the file cannot be written.
#include "collective_calls.hpp"

#include <pentad/io/atomic_file.hpp>
#include <pentad/tensor/context.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace pentad;
using namespace collective_calls;

namespace {

constexpr double worth_it = 1.05; ///< MPI is taken where Pentad takes that many times as long, or longer

struct Settings {
    std::string out;
    std::size_t largest = std::size_t{64} << 20;
    int repeats = 11;
};

double median(std::vector<double> values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// The lines for the group `world`. Collective over it.
std::string tune(MPI_Comm world, Settings const& settings) {
    int ranks = 1, rank = 0;
    MPI_Comm_size(world, &ranks);
    MPI_Comm_rank(world, &rank);
    comm::Communicators communicators(world, Mesh<Axis<dp>>(ranks));
    Context<Exec> const context(communicators);
    auto const& comm = communicators.along(AxisNames(dp::name));
    auto const in_block = context.take(settings.largest), out_block = context.take(settings.largest);
    Kokkos::View<f32*, Exec> const own_in("in", settings.largest / sizeof(f32)), own_out("out", own_in.size());
    std::fill_n(static_cast<f32*>(in_block.data()), own_in.size(), 0.0F);

    std::ostringstream lines;
    lines << "group " << ranks << " ranks " << (comm.levels() == nullptr ? 1 : comm.levels()->nodes()) << " nodes\n";
    for (auto const operation : operations) {
        std::size_t from = 0, begin = 0;
        bool by_mpi = false;
        auto const close = [&](std::size_t end) {
            if (by_mpi) lines << "mpi " << observe::name(operation) << ' ' << begin << ' ' << end << '\n';
        };
        for (std::size_t bytes = 1024; bytes <= settings.largest; from = bytes * 2, bytes *= 4) {
            auto const by = [&](Algorithm algorithm, f32* in, f32* out) {
                auto const buffers = views(operation, bytes, ranks, in, out);
                return [=, &comm] { call(algorithm, operation, comm, buffers); };
            };
            auto const mpi = by(Algorithm::mpi, own_in.data(), own_out.data());
            auto const outside = by(Algorithm::direct, own_in.data(), own_out.data());
            auto const segment =
                by(Algorithm::direct, static_cast<f32*>(in_block.data()), static_cast<f32*>(out_block.data()));
            for (auto const& ours : {outside, segment}) seconds(world, comm::node::Ways::exchanges_to_learn, ours);
            int const times = std::clamp(static_cast<int>(1e-3 / seconds(world, 1, mpi)), 1, 1000);
            std::vector<double> ratios;
            for (int i = 0; i < settings.repeats; ++i) {
                double const peer = seconds(world, times, mpi);
                ratios.push_back(
                    std::sqrt(seconds(world, times, outside) / peer * (seconds(world, times, segment) / peer)));
            }
            int slower = median(ratios) > worth_it ? 1 : 0; // both kinds of buffers count alike
            MPI_Bcast(&slower, 1, MPI_INT, 0, world);
            if ((slower != 0) != by_mpi) {
                close(from);
                begin = from;
                by_mpi = slower != 0;
            }
        }
        close(settings.largest * 2);
    }
    return lines.str();
}

/// Waits for all ranks without taking a processor from those that measure.
void wait_for_all() {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (int done = 0; done == 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE)) usleep(2000);
}

int run(int argc, char** argv) {
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    Settings settings;
    CLI::App app("Measures where the MPI library's collectives are faster, for PENTAD_TUNING.", "pentad_tune");
    app.add_option("--out", settings.out, "the file to write")->required();
    app.add_option("--largest", settings.largest, "largest size to measure, in bytes, 1024 or more")
        ->capture_default_str()
        ->check(CLI::Range(std::size_t{1024}, std::size_t{1} << 33));
    app.add_option("--repeats", settings.repeats, "pairs of measurements of a size")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000));
    try {
        app.parse(argc, argv);
    } catch (CLI::ParseError const& error) {
        std::ostringstream out, err;
        int const status = app.exit(error, out, err);
        if (rank == 0) std::fputs((out.str() + err.str()).c_str(), status == 0 ? stdout : stderr);
        return status == 0 ? 0 : 2;
    }
    if (ranks < 2) {
        if (rank == 0) std::fprintf(stderr, "pentad_tune: it measures groups of ranks: start it on 2 or more\n");
        return 2;
    }
    std::optional<io::AtomicFile> file;
    int fits = 1;
    auto const try_file = [&](auto&& use) {
        if (rank == 0) try {
                use();
            } catch (std::exception const& error) {
                std::fprintf(stderr, "pentad_tune: %s\n", error.what());
                fits = 0;
            }
        MPI_Bcast(&fits, 1, MPI_INT, 0, MPI_COMM_WORLD);
        return fits != 0;
    };
    if (!try_file([&] { file.emplace(settings.out); })) return 3; // before the measurements, which take a while
    Kokkos::ScopeGuard const kokkos(argc, argv);
    std::string text = "pentad tuning 1\nmachine " + comm::Tuning::machine() + "\n";
    std::vector<int> sizes;
    for (int size = 2; size < ranks; size *= 2) sizes.push_back(size);
    sizes.push_back(ranks);
    for (int const size : sizes) {
        MPI_Comm group = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, rank < size ? 0 : MPI_UNDEFINED, rank, &group);
        if (group != MPI_COMM_NULL) {
            auto const lines = tune(group, settings);
            text += lines;
            if (rank == 0) std::fputs(lines.c_str(), stdout);
            MPI_Comm_free(&group);
        }
        wait_for_all();
    }
    return try_file([&] {
        file->write(text);
        file->commit();
    })
               ? 0
               : 3;
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    return run(argc, argv);
}

// Measures where the MPI library's collectives are faster than Pentad's on this machine, and writes a file for
// PENTAD_TUNING: mpiexec -n 8 pentad_tune --out tuning. Groups of 2, 4, 8, ... and all ranks are measured, one after
// the other. Exit status: 0 done, 2 bad input, 3 a file cannot be written or memory is short, 1 anything else.
#include "collective_calls.hpp"
#include "command_line.hpp"
#include "progress_lines.hpp"

#include <pentad/comm/environment.hpp>
#include <pentad/comm/threads.hpp>
#include <pentad/io/atomic_file.hpp>
#include <pentad/io/distinct_files.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/program/memory.hpp>
#include <pentad/program/ranks.hpp>
#include <pentad/report/format.hpp>
#include <pentad/tensor/context.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using namespace collective_calls;

namespace {

constexpr double worth_it = 1.05;                ///< MPI is taken where Pentad takes that many times as long, or longer
constexpr std::size_t buffers = 4;               ///< of the largest size, on each rank
constexpr std::size_t smallest = 1024, step = 4; ///< sizes, and from one to the next

struct Settings {
    std::string out;
    std::size_t largest = std::size_t{64} << 20;
    int repeats = 11;

    [[nodiscard]] int sizes() const {
        int count = 0;
        for (std::size_t bytes = smallest; bytes <= largest; bytes *= step) ++count;
        return count;
    }
};

/// @throws program::BadInput where the buffers do not fit into the memory of this host
void check_memory(Settings const& settings, std::size_t ranks_here) {
    double const needed = static_cast<double>(ranks_here * buffers * settings.largest);
    double const free = program::memory_of_host().bytes;
    if (needed <= 0.9 * free) return;
    auto const fits = static_cast<std::size_t>(0.9 * free / static_cast<double>(ranks_here * buffers));
    throw program::BadInput("--largest " + std::to_string(settings.largest) + " takes " + std::to_string(buffers) +
                            " buffers of that size on each of " + std::to_string(ranks_here) + " ranks, " +
                            report::bytes(needed) + " on this host, where " + report::bytes(free) +
                            " are free: --largest " + std::to_string(std::max(std::bit_floor(fits), smallest)) +
                            " fits");
}

double median(std::vector<double> values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// The first ranks, and the buffers of each: of Pentad's own memory and of any other.
class Group {
  public:
    Group(MPI_Comm world, int ranks, std::size_t bytes)
        : communicators_(world, Mesh<Axis<dp>>(ranks)), context_(communicators_) {
        try {
            in = context_.take(bytes);
            out = context_.take(bytes);
            other_in = Kokkos::View<f32*, Exec>("in", bytes / sizeof(f32));
            other_out = Kokkos::View<f32*, Exec>("out", other_in.size());
        } catch (std::exception const&) { // Kokkos' is no std::bad_alloc
            throw program::OutsideFailure("there is not enough memory for " + std::to_string(buffers) +
                                          " buffers of --largest " + std::to_string(bytes) + ": give a smaller one");
        }
        std::fill_n(static_cast<f32*>(in.data()), other_in.size(), 0.0F);
    }
    [[nodiscard]] auto const& comm() { return communicators_.along(AxisNames(dp::name)); }

  private:
    comm::Communicators communicators_;
    Context<Exec> context_;

  public:
    decltype(std::declval<Context<Exec> const&>().take(1)) in, out;
    Kokkos::View<f32*, Exec> other_in, other_out;
};

/// The lines for a group. Collective over it.
std::string tune(Group& group, MPI_Comm world, Settings const& settings, ProgressLines& progress) {
    int ranks = 1, rank = 0;
    MPI_Comm_size(world, &ranks);
    MPI_Comm_rank(world, &rank);
    auto const& comm = group.comm();
    std::ostringstream lines;
    lines << "group " << ranks << " ranks " << (comm.levels() == nullptr ? 1 : comm.levels()->nodes()) << " nodes\n";
    for (auto const operation : operations) {
        std::size_t from = 0, begin = 0;
        bool by_mpi = false;
        auto const close = [&](std::size_t end) {
            if (by_mpi) lines << "mpi " << observe::name(operation) << ' ' << begin << ' ' << end << '\n';
        };
        for (std::size_t bytes = smallest; bytes <= settings.largest; from = bytes * 2, bytes *= step) {
            if (rank == 0)
                progress.next(std::to_string(ranks) + " ranks, " + std::string(observe::name(operation)) + " of " +
                              report::bytes(static_cast<double>(bytes)));
            auto const by = [&](Algorithm algorithm, f32* in, f32* out) {
                auto const buffers = views(operation, bytes, ranks, in, out);
                return [=, &comm] { call(algorithm, operation, comm, buffers); };
            };
            auto const mpi = by(Algorithm::mpi, group.other_in.data(), group.other_out.data());
            auto const outside = by(Algorithm::direct, group.other_in.data(), group.other_out.data());
            auto const segment =
                by(Algorithm::direct, static_cast<f32*>(group.in.data()), static_cast<f32*>(group.out.data()));
            for (auto const& ours : {outside, segment})
                seconds(world, comm::node::CopyMethods::exchanges_to_learn, ours);
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

/// @throws program::BadInput where the file is one that is read, io::FileError where it cannot be written
void check_file(Settings const& settings) {
    std::vector<io::FlagFile> files{{"--out", settings.out, true}};
    if (char const* const tuning = comm::environment::tuning(); tuning != nullptr && *tuning != 0)
        files.push_back({"PENTAD_TUNING", tuning, false});
    if (auto const why = io::refusal_of(files)) throw program::BadInput(*why);
    io::check_writable(settings.out);
}

int run(int argc, char** argv, program::Ranks const& world) {
    Settings settings;
    CLI::App app("Measures where the MPI library's collectives are faster, for PENTAD_TUNING.", "pentad_tune");
    app.add_option("--out", settings.out, "the file to write")->required();
    app.add_option("--largest", settings.largest, "largest size to measure, in bytes, 1024 or more")
        ->capture_default_str()
        ->check(command_line::whole_number(smallest, std::int64_t{1} << 33));
    app.add_option("--repeats", settings.repeats, "pairs of measurements of a size")
        ->capture_default_str()
        ->check(command_line::whole_number(1, 1000));
    try {
        app.parse(argc, argv);
    } catch (CLI::CallForHelp const&) {
        if (world.is_first()) std::fputs(app.help().c_str(), stdout);
        return program::done;
    } catch (CLI::ParseError const& error) {
        throw program::BadInput(error.what());
    }
    if (world.size() < 2) throw program::BadInput("it measures groups of ranks: start it on 2 or more, by mpiexec");
    world.on_first([&] { program::with_files_of_user([&] { check_file(settings); }); });
    world.on_all([&] { check_memory(settings, world.board().ranks().size()); });

    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    std::string text = "pentad tuning 1\nmachine " + comm::Tuning::machine() + "\n";
    std::vector<int> sizes;
    for (int size = 2; size < world.size(); size *= 2) sizes.push_back(size);
    sizes.push_back(world.size());
    ProgressLines progress("pentad_tune", static_cast<int>(sizes.size() * operations.size()) * settings.sizes());
    for (int const size : sizes) {
        MPI_Comm ranks = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, world.rank() < size ? 0 : MPI_UNDEFINED, world.rank(), &ranks);
        std::optional<Group> group;
        world.on_all([&] {
            if (ranks != MPI_COMM_NULL) group.emplace(ranks, size, settings.largest);
        });
        world.on_all([&] {
            if (!group) return;
            auto const lines = tune(*group, ranks, settings, progress);
            text += lines;
            if (!world.is_first()) return;
            std::fputs(lines.c_str(), stdout);
            std::fflush(stdout); // a failure is noticed at the end
        });
        group.reset();
        if (ranks != MPI_COMM_NULL) MPI_Comm_free(&ranks);
    }
    world.on_first([&] { io::write_file(settings.out, text); });
    return program::done;
}

} // namespace

int main(int argc, char** argv) {
    return program::run_on_ranks("pentad_tune", argc, argv,
                                 [&](program::Ranks const& ranks) { return run(argc, argv, ranks); });
}

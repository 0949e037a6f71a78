// Measures where the MPI library's collectives are faster than Pentad's on this machine, and writes a file for
// PENTAD_TUNING: mpiexec -n 8 pentad_tune --out tuning. Groups of 2, 4, 8, ... and all ranks are measured, one after
// the other. Exit status: 0 done, 2 bad input, 3 a file cannot be written or memory is short, 1 anything else.
#include "collective_calls.hpp"
#include "command_line.hpp"
#include "progress_lines.hpp"

#include <pentad/comm/threads.hpp>
#include <pentad/io/atomic_file.hpp>
#include <pentad/io/distinct_files.hpp>
#include <pentad/program/ranks.hpp>
#include <pentad/report/format.hpp>
#include <pentad/tensor/context.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <limits>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace pentad;
using namespace collective_calls;

namespace {

constexpr double worth_it = 1.05;                ///< MPI is taken where Pentad takes that many times as long, or longer
constexpr std::size_t buffers = 4;               ///< of the largest size, on each rank
constexpr std::size_t smallest = 1024, step = 4; ///< sizes, and from one to the next
using program::bad_input, program::outside_failure;

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

/// The first rank's sentence, of those that found something wrong, is said by that rank; then all know. Collective.
bool refused(std::string const& mine, MPI_Comm group = MPI_COMM_WORLD) {
    int rank = 0, first = 0;
    MPI_Comm_rank(group, &rank);
    int const found = mine.empty() ? std::numeric_limits<int>::max() : rank;
    MPI_Allreduce(&found, &first, 1, MPI_INT, MPI_MIN, group);
    if (first == rank) std::fprintf(stderr, "pentad_tune: %s\n", command_line::one_line(mine).c_str());
    return first != std::numeric_limits<int>::max();
}

/// Bytes that this host can still give out, as its kernel and a container's limit say.
double free_memory() {
    double free = std::numeric_limits<double>::infinity();
    std::string word;
    double kibibytes = 0;
    for (std::ifstream file("/proc/meminfo"); file >> word >> kibibytes; file.ignore(1 << 10, '\n'))
        if (word == "MemAvailable:") free = 1024 * kibibytes;
    double limit = 0, used = 0;
    if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used)
        free = std::min(free, limit - used);
    return free;
}

/// Why the buffers do not fit into the memory of this host, or nothing. Collective.
std::string check_memory(Settings const& settings) {
    char name[MPI_MAX_PROCESSOR_NAME]{};
    int length = 0, ranks = 1;
    MPI_Get_processor_name(name, &length);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::vector<char> names(static_cast<std::size_t>(ranks) * sizeof name);
    MPI_Allgather(name, sizeof name, MPI_CHAR, names.data(), sizeof name, MPI_CHAR, MPI_COMM_WORLD);
    std::size_t here = 0;
    for (std::size_t at = 0; at < names.size(); at += sizeof name)
        here += std::strcmp(name, names.data() + at) == 0 ? 1 : 0;
    double const needed = static_cast<double>(here * buffers * settings.largest), free = free_memory();
    if (needed <= 0.9 * free) return "";
    auto const fits = static_cast<std::size_t>(0.9 * free / static_cast<double>(here * buffers));
    return "--largest " + std::to_string(settings.largest) + " takes " + std::to_string(buffers) +
           " buffers of that size on each of " + std::to_string(here) + " ranks, " + report::bytes(needed) +
           " on this host, where " + report::bytes(free) + " are free: --largest " +
           std::to_string(std::max(std::bit_floor(fits), smallest)) + " fits";
}

double median(std::vector<double> values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// The lines for the group `world`, or nothing where its memory is short. Collective over it.
std::optional<std::string> tune(MPI_Comm world, Settings const& settings, ProgressLines& progress) {
    int ranks = 1, rank = 0;
    MPI_Comm_size(world, &ranks);
    MPI_Comm_rank(world, &rank);
    using Block = decltype(std::declval<Context<Exec> const&>().take(1));
    comm::Communicators communicators(world, Mesh<Axis<dp>>(ranks));
    Context<Exec> const context(communicators);
    auto const& comm = communicators.along(AxisNames(dp::name));
    Block in_block, out_block;
    Kokkos::View<f32*, Exec> own_in, own_out;
    std::string short_of_memory;
    try {
        in_block = context.take(settings.largest);
        out_block = context.take(settings.largest);
        own_in = Kokkos::View<f32*, Exec>("in", settings.largest / sizeof(f32));
        own_out = Kokkos::View<f32*, Exec>("out", own_in.size());
    } catch (std::exception const&) { // Kokkos' is no std::bad_alloc
        short_of_memory = "there is not enough memory for " + std::to_string(buffers) + " buffers of --largest " +
                          std::to_string(settings.largest) + ": give a smaller one";
    }
    if (refused(short_of_memory, world)) return std::nullopt;
    std::fill_n(static_cast<f32*>(in_block.data()), own_in.size(), 0.0F);

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

/// The largest status of all ranks, waited for without taking a processor from those that measure. Collective.
int agreed(int mine) {
    int status = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(&mine, &status, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
    for (int done = 0; done == 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE)) usleep(2000);
    return status;
}

/// Why the file cannot be written, or is one that is read, or nothing.
std::string check_file(Settings const& settings) {
    std::vector<io::FlagFile> files{{"--out", settings.out, true}};
    if (char const* tuning = std::getenv("PENTAD_TUNING"); tuning != nullptr && *tuning != 0)
        files.push_back({"PENTAD_TUNING", tuning, false});
    if (auto why = io::refusal_of(files)) return *why;
    try {
        io::check_writable(settings.out);
    } catch (io::FileError const& error) {
        return error.what();
    }
    return "";
}

int run(int argc, char** argv) {
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    auto const on_first = [&](auto&& sentence) { return rank == 0 ? sentence() : std::string(); };
    /// Writes on the first rank. The status of all.
    auto const write = [&](auto&& use) {
        return refused(on_first([&]() -> std::string {
            try {
                use();
                command_line::flush_output();
            } catch (io::FileError const& error) {
                return error.what();
            }
            return "";
        }))
                   ? outside_failure
                   : 0;
    };
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
        return write([&] { std::fputs(app.help().c_str(), stdout); });
    } catch (CLI::ParseError const& error) {
        refused(on_first([&] { return std::string(error.what()); }));
        return bad_input;
    }
    if (refused(on_first([&] {
            return ranks < 2 ? std::string("it measures groups of ranks: start it on 2 or more, by mpiexec")
                             : check_file(settings);
        })))
        return bad_input;
    if (refused(check_memory(settings))) return bad_input;

    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    std::string text = "pentad tuning 1\nmachine " + comm::Tuning::machine() + "\n";
    std::vector<int> sizes;
    for (int size = 2; size < ranks; size *= 2) sizes.push_back(size);
    sizes.push_back(ranks);
    ProgressLines progress("pentad_tune", static_cast<int>(sizes.size() * operations.size()) * settings.sizes());
    for (int const size : sizes) {
        int status = 0;
        MPI_Comm group = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, rank < size ? 0 : MPI_UNDEFINED, rank, &group);
        if (group != MPI_COMM_NULL) {
            auto const lines = tune(group, settings, progress);
            status = lines ? 0 : outside_failure;
            text += lines.value_or("");
            if (rank == 0) {
                std::fputs(lines.value_or("").c_str(), stdout);
                std::fflush(stdout); // a failure is noticed at the end
            }
            MPI_Comm_free(&group);
        }
        if (int const all = agreed(status); all != 0) return all;
    }
    return write([&] { io::write_file(settings.out, text); });
}

} // namespace

int main(int argc, char** argv) {
    return program::run_on_ranks("pentad_tune", argc, argv, [&](program::Ranks const&) { return run(argc, argv); });
}

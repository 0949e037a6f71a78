// Trains a LLaMA or Mixtral shaped language model on text over a mesh of dp, pp, ep, cp and tp. See --help.
// Exit status: 0 done, 2 bad input (refused before the first step), 3 a failure of the outside world, 1 anything else.
#include "auto_mesh.hpp"
#include "options.hpp"
#include "run.hpp"

#include <pentad/comm/error.hpp>
#include <pentad/comm/threads.hpp>
#include <pentad/io/file.hpp>

#include <Kokkos_Core.hpp>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

namespace {

constexpr int bad_input = 2, outside_failure = 3, internal_error = 1;

/// One rank speaks, all end alike. Collective.
int refuse(std::string const& message, int rank, int status) {
    if (rank == 0) std::fprintf(stderr, "train_lm: %s\n", message.c_str());
    return status;
}

/// Whether rank 0 has a message: known to all. Collective.
bool agree(bool failed) {
    int flag = failed ? 1 : 0;
    pentad::comm::check(MPI_Bcast(&flag, 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
    return flag != 0;
}

int run(int argc, char** argv) {
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::optional<Kokkos::ScopeGuard> guard;
    auto const start_kokkos = [&] {
        if (!guard) guard.emplace(pentad::comm::kokkos_settings());
    };
    auto const parsed = train_lm::parse(argc, argv, ranks, [&](train_lm::Options const& options) {
        start_kokkos(); // the machine is measured
        return train_lm::planned_mesh(options);
    });
    if (!parsed.help.empty()) {
        if (rank == 0) std::fputs(parsed.help.c_str(), stdout);
        return 0;
    }
    if (!parsed.options) return refuse(parsed.error, rank, bad_input);
    std::optional<std::string> refusal;
    if (rank == 0) refusal = train_lm::check_files(*parsed.options);
    if (agree(refusal.has_value())) return refuse(refusal.value_or(""), rank, bad_input);

    start_kokkos();
    return train_lm::run(*parsed.options) ? 0 : outside_failure;
}

} // namespace

int main(int argc, char** argv) {
    int rank = 0;
    try {
        pentad::comm::Environment const environment(argc, argv);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); // comm::check says what failed
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        try {
            return run(argc, argv);
        } catch (pentad::io::FileError const& error) {
            std::fprintf(stderr, "train_lm: rank %d: %s\n", rank, error.what());
            std::fflush(nullptr);
            MPI_Abort(MPI_COMM_WORLD, outside_failure);
        } catch (std::exception const& error) {
            std::fprintf(stderr, "train_lm: rank %d: %s\n", rank, error.what());
            std::fflush(nullptr);
            MPI_Abort(MPI_COMM_WORLD, internal_error);
        }
    } catch (std::exception const& error) {
        std::fprintf(stderr, "train_lm: %s\n", error.what());
    }
    return internal_error;
}

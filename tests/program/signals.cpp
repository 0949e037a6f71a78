// A hangup that arrives while MPI starts, between a library's handler and the program's.
#include <pentad/program/ranks.hpp>

#include <doctest/doctest.h>

#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace {

bool hangs_up = false;

} // namespace

/// In place of MPI's: a library below it sets a handler that goes on, as UCX does.
extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
    if (hangs_up) {
        std::signal(SIGHUP, [](int) {});
        ::raise(SIGHUP);
    }
    return PMPI_Init_thread(argc, argv, required, provided);
}

TEST_CASE("a hangup while MPI starts ends the program") {
    for (bool const now : {false, true}) {
        pid_t const process = ::fork();
        REQUIRE(process >= 0);
        if (process == 0) {
            hangs_up = now;
            std::signal(SIGHUP, SIG_DFL); // doctest has a handler
            int argc = 0;
            char* none = nullptr;
            ::_exit(pentad::program::run_on_ranks("test", argc, &none, [](pentad::program::Ranks&) { return 7; }));
        }
        int status = 0;
        REQUIRE(::waitpid(process, &status, 0) == process);
        CHECK(WIFSIGNALED(status) == now);
        if (now)
            CHECK(WTERMSIG(status) == SIGHUP);
        else
            CHECK(WEXITSTATUS(status) == 7);
    }
}

// ranks: 1 2 3
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/program/detail/lost_rank.hpp>

#include <support/world.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

using namespace pentad;
using support::world_rank, support::world_size;

namespace {

/// What is written to standard error while f runs.
template <class F>
std::string said_in(F&& f) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    int const before = ::dup(STDERR_FILENO);
    ::dup2(pipe[1], STDERR_FILENO);
    f();
    ::dup2(before, STDERR_FILENO);
    ::close(before);
    ::close(pipe[1]);
    std::string text;
    std::array<char, 512> part{};
    for (ssize_t got = 0; (got = ::read(pipe[0], part.data(), part.size())) > 0;)
        text.append(part.data(), static_cast<std::size_t>(got));
    ::close(pipe[0]);
    return text;
}

/// A process that waits, and how it ends.
int sleeper() {
    int const child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    return child;
}
void end(int child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}
void wait_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }

} // namespace

TEST_CASE("the ranks of a machine are known, each with the next one round the ring") {
    program::MachineBoard const board;
    CHECK(board.ranks().size() == static_cast<std::size_t>(world_size()));
    CHECK(board.neighbour() == (world_rank() + 1) % world_size());
}

TEST_CASE("one rank of a machine may speak") {
    program::MachineBoard board;
    MPI_Barrier(MPI_COMM_WORLD);
    int speakers = board.may_speak() ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &speakers, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(speakers == 1);
}

TEST_CASE("a rank that is lost is named, with its place and what to do, by one of the others") {
    program::MachineBoard board;
    int const child = sleeper();
    MPI_Barrier(MPI_COMM_WORLD);
    auto const said = said_in([&] {
        program::LostRank watch("program", board, child);
        watch.describe(" (stage 1)", ": start it again");
        end(child);
        wait_a_little();
    });
    int speakers = said.empty() ? 0 : 1;
    if (speakers == 1) {
        CHECK(said.find("program: rank " + std::to_string(board.neighbour()) + " on ") == 0);
        CHECK(said.find(" (stage 1) is lost: its process (" + std::to_string(child) +
                        ") was killed or has crashed: start it again\n") != said.npos);
    }
    MPI_Allreduce(MPI_IN_PLACE, &speakers, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(speakers == 1);
}

TEST_CASE("a rank that ends of its own will is not lost") {
    program::MachineBoard board;
    int const child = sleeper();
    auto const said = said_in([&] {
        program::LostRank const watch("program", board, child);
        board.leave(false);
        end(child);
        wait_a_little();
    });
    CHECK(said.empty());
}

// A program on all ranks of MPI: ranks that were started differently are refused before anything else,
// one rank says what went wrong, and all end with the same status.
#pragma once

#include <pentad/comm/agreement.hpp>
#include <pentad/comm/end_job.hpp>
#include <pentad/comm/environment.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/first_failure.hpp>
#include <pentad/io/temporaries.hpp>
#include <pentad/program/detail/lost_rank.hpp>
#include <pentad/program/detail/machine_board.hpp>
#include <pentad/program/exit_status.hpp>

#include <mpi.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace pentad::program {

/// The world of a program, made by run_on_ranks().
class Ranks {
  public:
    Ranks(std::string_view program, int argc, char** argv) : facts_(comm::start_facts(argc, argv)), mpi_(argc, argv) {
        comm::check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
        disagreement_ = comm::disagreement(MPI_COMM_WORLD, facts_);
        board_.emplace();
        watch_.emplace(program, *board_);
    }
    Ranks(Ranks const&) = delete;
    Ranks& operator=(Ranks const&) = delete;

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] bool is_first() const { return rank_ == 0; }
    LostRank& watch() { return *watch_; }
    MachineBoard& board() { return *board_; }
    [[nodiscard]] MachineBoard const& board() const { return *board_; }

    /// @throws BadInput on all ranks where they were started differently, each by itself, or their environment makes no
    /// sense
    void require_alike() const {
        if (auto const alone = comm::environment::lonely_rank(size_))
            throw BadInput(alone->speaks ? alone->sentence : "");
        if (!disagreement_.empty()) throw BadInput(disagreement_);
        try {
            comm::environment::check();
        } catch (comm::Error const& error) {
            throw BadInput(error.what());
        }
    }
    /// Collective. @throws BadInput on all ranks where the facts are not the same on all of them
    static void require_same(std::span<comm::Fact const> facts) {
        if (auto const sentence = comm::disagreement(MPI_COMM_WORLD, facts); !sentence.empty())
            throw BadInput(sentence);
    }
    /// Runs `f` on all ranks; where it throws on some of them, all throw the Ending of the first of those. A rank that
    /// waits leaves its processor to the others. Collective.
    template <class F>
    void on_all(F&& f) const {
        std::optional<Ending> own;
        try {
            f();
        } catch (...) {
            own = ending_of_current_exception();
        }
        std::optional<comm::Failure> failure;
        if (own) failure = {own->status(), own->what()};
        if (auto const first = comm::first_failure(MPI_COMM_WORLD, failure))
            throw Ending(static_cast<ExitStatus>(first->kind), first->text);
    }
    /// on_all() for `f` on the first rank alone.
    template <class F>
    void on_first(F&& f) const {
        on_all([&] {
            if (is_first()) f();
        });
    }

  private:
    std::vector<comm::Fact> facts_; // before MPI starts, which may take arguments of its own out
    comm::Environment mpi_;
    int rank_ = 0, size_ = 1;
    std::string disagreement_;
    std::optional<MachineBoard> board_;
    std::optional<LostRank> watch_;
};

/// Starts MPI, compares what the ranks were started with, and runs `body(ranks)`, which returns the exit status. An
/// Ending is thrown by all ranks, and rank 0 says it; any other exception may come from one rank alone, which says it
/// and ends the job.
template <class Body>
int run_on_ranks(std::string_view program, int argc, char** argv, Body&& body) {
    ignore_file_size_signal();
    std::optional<Ranks> ranks;
    try {
        io::remove_temporaries_on_signals();
        {
            // While MPI starts, UCX below it sets a handler of its own, which would swallow the signal.
            io::HeldSignal const hangup(SIGHUP);
            ranks.emplace(program, argc, argv);
            io::remove_temporaries_on_signals(); // again, as MPI may have set its own
        }
        ranks->require_alike();
        return flushed(program, body(*ranks));
    } catch (Ending const& ending) {
        bool const is_said = *ending.what() != '\0'; // elsewhere, where each process has an MPI of its own
        if (is_said && (!ranks || ranks->is_first())) say(program, ending.what());
        return flushed(program, ending.status());
    } catch (...) {
        auto const ending = ending_of_current_exception();
        if (!ranks || ranks->size() == 1) {
            say(program, ending.what());
            return flushed(program, ending.status());
        }
        // One rank of a machine speaks, and those of other machines leave it to that of the first: it ends the job.
        auto& board = ranks->board();
        bool const speaks = board.may_speak();
        board.leave(true);
        if (!speaks || board.ranks().front() != 0) std::this_thread::sleep_for(std::chrono::seconds(1));
        if (speaks) say(program, "rank " + std::to_string(ranks->rank()) + ": " + ending.what());
        comm::end_job(ending.status());
    }
}

} // namespace pentad::program

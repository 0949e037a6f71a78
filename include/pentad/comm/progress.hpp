// Room: comm. Who makes progress, and when: there is no thread beside the one that drives Pentad. Exchanges within a
// node advance whenever that thread waits for, or asks about, any operation of Pentad; what the MPI library has under
// way advances inside its calls, of which a wait for a node makes some as long as there is any.
#pragma once

#include <pentad/comm/error.hpp>
#include <pentad/comm/node/exchange.hpp>

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace pentad::comm {

/// Waits a moment for another process: first for one that runs on another core, then for one that needs this core.
class Patience {
  public:
    void wait() {
        if (++turns_ > spins)
            sched_yield();
        else
            pause();
    }
    [[nodiscard]] int turns() const { return turns_; }

  private:
    static constexpr int spins = 200;
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }
    int turns_ = 0;
};

/// What this process has under way.
class Progress {
  public:
    /// Begins an exchange of a node's ranks; `finish` must follow.
    node::Exchange* begin(node::Group& group, node::Task const& task) {
        if (idle_.empty()) {
            idle_.push_back(std::make_unique<node::Exchange>());
            active_.reserve(active_.capacity() + 1);
            idle_.reserve(active_.capacity());
        }
        active_.push_back(std::move(idle_.back()));
        idle_.pop_back();
        active_.back()->begin(group, task);
        return active_.back().get();
    }
    /// Advances everything under way once.
    void advance() {
        for (auto const& exchange : active_) exchange->advance();
    }
    /// Blocks until the exchange is complete.
    void wait(node::Exchange& exchange) {
        for (Patience patience; !exchange.advance(); patience.wait()) {
            if (active_.size() > 1) advance();
            if (mpi_operations_ > 0 && patience.turns() % 16 == 15) advance_mpi();
        }
    }
    /// Blocks until the MPI operation is complete.
    int wait(MPI_Request& request) {
        if (active_.empty()) return MPI_Wait(&request, MPI_STATUS_IGNORE);
        int done = 0;
        for (Patience patience; done == 0; patience.wait()) {
            int const code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            if (code != MPI_SUCCESS) return code;
            advance();
        }
        return MPI_SUCCESS;
    }
    /// Gives back an exchange that is complete, or has failed.
    void finish(node::Exchange const* exchange) {
        auto const at =
            std::find_if(active_.begin(), active_.end(), [&](auto const& e) { return e.get() == exchange; });
        idle_.push_back(std::move(*at));
        active_.erase(at);
    }
    /// An MPI operation began (+1) or ended (-1).
    void count_mpi(int change) { mpi_operations_ += change; }

  private:
    /// A look for messages to nobody in particular, which makes MPI go on (of the world: MPICH serves nothing but the
    /// rank itself in one of MPI_COMM_SELF).
    static void advance_mpi() {
        int arrived = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE);
    }

    std::vector<std::unique_ptr<node::Exchange>> active_, idle_; ///< in the order in which they began
    int mpi_operations_ = 0;
};

/// What this process has under way.
inline Progress& progress() {
    static Progress instance;
    return instance;
}

} // namespace pentad::comm

// Who makes progress, and when. The library's own operations advance whenever the thread that drives Pentad
// waits for, or asks about, any of them; what the MPI library has under way advances inside its calls, of which every
// such wait makes some as long as there is any. Across a network progress_thread.hpp does the same during computation.
#pragma once

#include <pentad/comm/detail/pending.hpp>

#include <mpi.h>
#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace pentad::comm {

/// Waits a moment for another process: first for one that runs on another core, then for one that needs this core;
/// where cores are shared, for such a one at once.
class Patience {
  public:
    explicit Patience(bool shares_cores) : spins_(shares_cores ? 0 : 200) {}
    void wait() {
        if (++turns_ > spins_)
            sched_yield();
        else
            pause();
    }
    [[nodiscard]] std::uint64_t turns() const { return turns_; }

  private:
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }
    std::uint64_t spins_, turns_ = 0;
};

/// What this process has under way.
class Progress {
  public:
    /// An operation of type O, begun with these arguments; `finish` must follow.
    template <class O, class... Arguments>
    O& begin(Arguments&&... arguments) {
        static Operations idle;
        if (idle.empty()) idle.push_back(std::make_unique<O>());
        auto& operation = static_cast<O&>(*idle.back());
        active_.push_back({std::move(idle.back()), &idle});
        idle.pop_back();
        operation.forget();
        try {
            operation.begin(std::forward<Arguments>(arguments)...);
        } catch (...) {
            finish(&operation);
            throw;
        }
        return operation;
    }
    /// Advances everything under way once.
    void advance() {
        for (std::size_t i = 0; i < active_.size(); ++i) // which may begin another
            active_[i].operation->advance();
    }
    /// advance(), and what the MPI library has under way.
    void advance_all() {
        advance();
        if (mpi_operations_ == 0) return;
        for (int i = 0; i < mpi_turns; ++i) advance_mpi();
    }
    /// True when nothing is under way.
    [[nodiscard]] bool is_idle() const { return active_.empty() && mpi_operations_ == 0; }
    /// Blocks until the operation is complete.
    /// @throws what it failed with
    void wait(Pending& operation) {
        for (Patience patience(shares_cores_); !operation.advance(); wait_a_turn(patience))
            if (active_.size() > 1) advance();
        operation.rethrow();
    }
    /// Blocks until the MPI operation is complete.
    int wait(MPI_Request& request);
    /// Lets go of an operation that is complete, or has failed.
    void finish(Pending const* operation);
    /// An MPI operation began (+1) or ended (-1).
    void count_mpi(int change) { mpi_operations_ += change; }
    /// This machine has more ranks than processors: whoever is waited for may need this one.
    void share_cores() { shares_cores_ = true; }

  private:
    /// A call of MPI takes at most 64 KiB from each socket (MPICH over UCX); it costs some 30 ns where nothing is.
    static constexpr int mpi_turns = 32;

    void wait_a_turn(Patience& patience) {
        if (mpi_operations_ > 0 && patience.turns() % 16 == 15) advance_mpi();
        patience.wait();
    }
    /// A look for messages to nobody in particular, which makes MPI go on (of the world: MPICH serves nothing but the
    /// rank itself in one of MPI_COMM_SELF).
    static void advance_mpi() {
        int arrived = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE);
    }

    using Operations = std::vector<std::unique_ptr<Pending>>;
    struct Entry {
        std::unique_ptr<Pending> operation;
        Operations* idle; ///< those of its type, where it goes in the end
    };

    std::vector<Entry> active_; ///< in the order in which they began
    int mpi_operations_ = 0;
    bool shares_cores_ = false;
};

/// What this process has under way.
inline Progress& progress() {
    static Progress instance;
    return instance;
}

} // namespace pentad::comm

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/progress.hpp>
#endif

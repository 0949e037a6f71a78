// A second thread, which makes progress while the one that drives Pentad computes: what is under way across
// a network needs somebody to call MPI on both sides. The two call it in turn, so that MPI_THREAD_SERIALIZED is enough.
#pragma once

#include <pentad/comm/progress.hpp>
#include <pentad/observe/host_work.hpp>

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace pentad::comm {

class ProgressThread final : private observe::HostWorkListener {
  public:
    ProgressThread() = default;
    ProgressThread(ProgressThread const&) = delete;
    ProgressThread& operator=(ProgressThread const&) = delete;
    ~ProgressThread() {
        if (!thread_.joinable()) return;
        observe::host_work_listener() = nullptr;
        access_ = MpiAccess::over;
        thread_.join();
    }
    /// Called by a process of which some group crosses a network. Without MPI_THREAD_SERIALIZED nothing happens, and
    /// what is under way advances in waits only.
    void start() {
        int level = MPI_THREAD_SINGLE;
        MPI_Query_thread(&level);
        if (level < MPI_THREAD_SERIALIZED || thread_.joinable()) return;
        thread_ = std::thread([this] { run(); });
        observe::host_work_listener() = this;
    }

  private:
    void host_work_begins() override {
        is_lent_ = !progress().is_idle();
        if (is_lent_) access_.store(MpiAccess::lent, std::memory_order_release);
    }
    void host_work_ends() override {
        if (!is_lent_) return;
        for (auto lent = MpiAccess::lent;
             !access_.compare_exchange_weak(lent, MpiAccess::kept, std::memory_order_acquire); lent = MpiAccess::lent)
            std::this_thread::yield();
    }

    /// Who may call MPI: the driving thread keeps that, or has lent it to this one, which has taken it.
    enum class MpiAccess { kept, lent, taken, over };

    void run() {
        // A few MB wait in the buffers of a socket: some 5 Gbit/s. More turns would only take time from the
        // computation.
        constexpr std::chrono::milliseconds pause(5);
        while (access_.load(std::memory_order_relaxed) != MpiAccess::over) {
            std::this_thread::sleep_for(pause);
            auto lent = MpiAccess::lent;
            if (!access_.compare_exchange_strong(lent, MpiAccess::taken, std::memory_order_acquire)) continue;
            progress().advance_all();
            access_.store(MpiAccess::lent, std::memory_order_release);
        }
    }

    std::atomic<MpiAccess> access_ = MpiAccess::kept;
    bool is_lent_ = false; ///< of the driving thread
    std::thread thread_;
};

inline ProgressThread& progress_thread() {
    (void)progress(); // which outlives it
    static ProgressThread instance;
    return instance;
}

} // namespace pentad::comm

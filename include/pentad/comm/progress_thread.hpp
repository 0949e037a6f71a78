// A second thread, which makes progress while the one that drives Pentad computes: what is under way across
// a network needs somebody to call MPI on both sides. The two call it in turn, so that MPI_THREAD_SERIALIZED is enough.
#pragma once

#include <pentad/comm/progress.hpp>
#include <pentad/observe/host_work.hpp>

#include <atomic>
#include <thread>

namespace pentad::comm {

class ProgressThread final : private observe::HostWorkListener {
  public:
    ProgressThread() = default;
    ProgressThread(ProgressThread const&) = delete;
    ProgressThread& operator=(ProgressThread const&) = delete;
    ~ProgressThread();
    /// Called by a process of which some group crosses a network. Without MPI_THREAD_SERIALIZED nothing happens, and
    /// what is under way advances in waits only.
    void start();

  private:
    void host_work_begins() override {
        is_lent_ = !progress().is_idle();
        if (!is_lent_) return;
        progress().advance_all(); // many computations end before the thread's next turn
        access_.store(MpiAccess::lent, std::memory_order_release);
    }
    void host_work_ends() override;

    /// Who may call MPI: the driving thread keeps that, or has lent it to this one, which has taken it.
    enum class MpiAccess { kept, lent, taken, over };

    void run();

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

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/progress_thread.hpp>
#endif

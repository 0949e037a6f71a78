// The functions of <pentad/comm/progress_thread.hpp>.
#pragma once

#include <pentad/comm/progress_thread.hpp>

#include <pentad/mesh/inline.hpp>

#include <mpi.h>

#include <chrono>
#include <cstring>

namespace pentad::comm {

PENTAD_INLINE ProgressThread::~ProgressThread() {
    if (!thread_.joinable()) return;
    observe::host_work_listener() = nullptr;
    access_ = MpiAccess::over;
    thread_.join();
}

PENTAD_INLINE void ProgressThread::start() {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED || thread_.joinable()) return;
    thread_ = std::thread([this] { run(); });
    observe::host_work_listener() = this;
}

PENTAD_INLINE void ProgressThread::host_work_ends() {
    if (!is_lent_) return;
    for (auto lent = MpiAccess::lent; !access_.compare_exchange_weak(lent, MpiAccess::kept, std::memory_order_acquire);
         lent = MpiAccess::lent)
        std::this_thread::yield();
}

PENTAD_INLINE void ProgressThread::run() {
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

} // namespace pentad::comm

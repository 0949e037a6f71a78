// Room: comm. A non-blocking operation under way. It cannot be dropped unfinished: its destructor waits.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/observe/trace.hpp>

#include <mpi.h>

#include <chrono>
#include <tuple>
#include <utility>

namespace pentad::comm {

/// A started operation, which owns the staging buffers it uses. The views it was given must live, and may not be
/// touched, until `wait` returns; then received data is in its view. `wait` blocks the host; MPI progresses inside MPI
/// calls.
template <class... Buffers>
class [[nodiscard]] Request {
  public:
    explicit Request(Communicator const& comm, Buffers... buffers) : comm_(&comm), buffers_(std::move(buffers)...) {}
    Request(Request&& other) noexcept
        : comm_(other.comm_), buffers_(std::move(other.buffers_)),
          handle_(std::exchange(other.handle_, MPI_REQUEST_NULL)), pending_(std::exchange(other.pending_, false)) {}
    Request& operator=(Request&& other) {
        wait();
        comm_ = other.comm_;
        buffers_ = std::move(other.buffers_);
        handle_ = std::exchange(other.handle_, MPI_REQUEST_NULL);
        pending_ = std::exchange(other.pending_, false);
        return *this;
    }
    ~Request() {
        if (!pending_ || handle_ == MPI_REQUEST_NULL) return;
        MPI_Wait(&handle_, MPI_STATUS_IGNORE);
        finish();
    }

    /// Blocks until the operation is complete and what it received is in its view.
    void wait() {
        if (!pending_) return;
        if (handle_ != MPI_REQUEST_NULL) {
            observe::Scope const scope("wait", "communication", {.axis = comm_->label()});
            auto const start = std::chrono::steady_clock::now();
            check(MPI_Wait(&handle_, MPI_STATUS_IGNORE), "MPI_Wait", comm_->where());
            std::chrono::duration<double> const waited = std::chrono::steady_clock::now() - start;
            observe::ledger().spend(comm_->shares(), waited.count());
        }
        finish();
    }
    /// True when it is complete; never blocks. Gives MPI a chance to progress.
    [[nodiscard]] bool test() {
        if (!pending_) return true;
        int done = 1;
        if (handle_ != MPI_REQUEST_NULL) check(MPI_Test(&handle_, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done != 0) finish();
        return done != 0;
    }

    // For the operations of collectives.hpp and rooted.hpp.
    MPI_Request* start() {
        pending_ = true;
        return &handle_;
    }
    template <std::size_t I>
    auto& buffer() {
        return std::get<I>(buffers_);
    }

  private:
    void finish() {
        pending_ = false;
        std::get<sizeof...(Buffers) - 1>(buffers_).unpack();
    }

    Communicator const* comm_;
    std::tuple<Buffers...> buffers_;
    MPI_Request handle_ = MPI_REQUEST_NULL;
    bool pending_ = false;
};

} // namespace pentad::comm

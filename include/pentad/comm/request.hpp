// Room: comm. A non-blocking operation under way. It cannot be dropped unfinished: its destructor waits.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/observe/trace.hpp>

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

namespace pentad::comm {

namespace detail {
/// A call of MPI that blocks: a span of the trace, and time that the ledger books.
class Timed {
  public:
    Timed(Communicator const& comm, std::string_view name, std::size_t bytes)
        : scope_(name, "communication", {.axis = comm.label(), .bytes = static_cast<std::int64_t>(bytes)}),
          comm_(&comm), start_(std::chrono::steady_clock::now()) {}
    Timed(Timed const&) = delete;
    Timed& operator=(Timed const&) = delete;
    ~Timed() {
        std::chrono::duration<double> const spent = std::chrono::steady_clock::now() - start_;
        observe::ledger().spend(comm_->shares(), spent.count());
    }

  private:
    observe::Scope scope_;
    Communicator const* comm_;
    std::chrono::steady_clock::time_point start_;
};
} // namespace detail

/// A started operation, which owns the staging buffers it uses. The views it was given must live, and may not be
/// touched, until `wait` returns; then received data is in its view. `wait` blocks the host; MPI progresses inside MPI
/// calls.
template <class... Buffers>
class [[nodiscard]] Request {
  public:
    explicit Request(Communicator const& comm, Buffers... buffers) : comm_(&comm), buffers_(std::move(buffers)...) {}
    Request(Request&& other) noexcept
        : comm_(other.comm_), buffers_(std::move(other.buffers_)),
          handle_(std::exchange(other.handle_, MPI_REQUEST_NULL)), pending_(std::exchange(other.pending_, false)),
          name_(other.name_), bytes_(other.bytes_), started_ns_(other.started_ns_) {}
    Request& operator=(Request&& other) {
        if (this == &other) return *this;
        wait(); // may throw: then nothing has changed
        std::destroy_at(this);
        return *std::construct_at(this, std::move(other));
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
            detail::Timed const timed(*comm_, name_, bytes_);
            check(MPI_Wait(&handle_, MPI_STATUS_IGNORE), "MPI_Wait", comm_->where());
        }
        finish();
    }
    /// True when it is complete; then what it received is in its view. Does not wait for other ranks. Gives MPI a
    /// chance to progress.
    [[nodiscard]] bool test() {
        if (!pending_) return true;
        int done = 1;
        if (handle_ != MPI_REQUEST_NULL) check(MPI_Test(&handle_, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done != 0) finish();
        return done != 0;
    }

    // For the operations of collectives.hpp and rooted.hpp.
    MPI_Request* start(std::string_view name, std::size_t bytes) {
        name_ = name;
        bytes_ = bytes;
        started_ns_ = observe::trace().enabled() ? observe::trace().now() : 0;
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
        auto& trace = observe::trace();
        if (trace.enabled())
            trace.record({name_,
                          "communication",
                          {.axis = comm_->label(), .bytes = static_cast<std::int64_t>(bytes_)},
                          started_ns_,
                          trace.now(),
                          /*in_flight=*/true});
    }

    Communicator const* comm_;
    std::tuple<Buffers...> buffers_;
    MPI_Request handle_ = MPI_REQUEST_NULL;
    bool pending_ = false;
    std::string_view name_;
    std::size_t bytes_ = 0;
    std::int64_t started_ns_ = 0;
};

} // namespace pentad::comm

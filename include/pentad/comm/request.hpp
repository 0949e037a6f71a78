// Room: comm. An operation under way. It cannot be dropped unfinished: its destructor waits.
#pragma once

#include <pentad/comm/checked.hpp>
#include <pentad/comm/communicator.hpp>
#include <pentad/comm/progress.hpp>
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

/// Time in which this rank waits for others: a span of the trace, and time that the ledger books.
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

/// The form of an operation: `all_reduce` blocks, `start_all_reduce` starts.
enum class Form { block, start };

} // namespace detail

/// A started operation, which owns the staging buffers it uses. The views it was given must live, and may not be
/// touched, until `wait` returns; then received data is in its view. Who makes progress meanwhile: progress.hpp.
template <class... Buffers>
class [[nodiscard]] Request {
  public:
    explicit Request(Communicator const& comm, Buffers... buffers) : comm_(&comm), buffers_(std::move(buffers)...) {}
    Request(Request&& other) noexcept
        : comm_(other.comm_), buffers_(std::move(other.buffers_)),
          handle_(std::exchange(other.handle_, MPI_REQUEST_NULL)), operation_(std::exchange(other.operation_, nullptr)),
          name_(other.name_), bytes_(other.bytes_), started_ns_(other.started_ns_), completed_ns_(other.completed_ns_) {
    }
    Request& operator=(Request&& other) {
        if (this == &other) return *this;
        wait(); // may throw: then nothing has changed
        std::destroy_at(this);
        return *std::construct_at(this, std::move(other));
    }
    ~Request() {
        if (!pending()) return;
        try {
            complete();
            finish();
        } catch (Error const&) { // whoever dropped it does not want to know
        }
    }

    /// Blocks until the operation is complete and what it received is in its view.
    /// @throws Error when it failed; it is over then
    void wait() {
        if (!pending()) return;
        {
            detail::Timed const timed(*comm_, name_, bytes_);
            check(complete(), "MPI_Wait", comm_->where());
        }
        finish();
    }
    /// True when it is complete; then what it received is in its view. Does not wait for other ranks.
    [[nodiscard]] bool test() {
        if (!pending()) return true;
        int done = 0;
        if (operation_ == nullptr) check(MPI_Test(&handle_, &done, MPI_STATUS_IGNORE), "MPI_Test");
        progress().advance_all();
        if (operation_ != nullptr) done = static_cast<int>(operation_->advance());
        if (done != 0) {
            {
                Release const release{this};
                if (operation_ != nullptr) operation_->rethrow();
            }
            finish();
        }
        return done != 0;
    }

    // For the operations of collectives.hpp and rooted.hpp.

    /// Carries out a collective or starts it. `begin()` begins one of the library's own, or returns null: then
    /// `mpi(MPI_Request*)` calls MPI, the blocking function when it is given null. Both are copied where the ranks
    /// compare their calls first, and so outlive this call.
    template <class Begin, class Mpi>
    void run(detail::Form form, Call const& call, std::size_t bytes, Begin const& begin, std::string_view mpi_call,
             Mpi const& mpi) {
        name_ = observe::name(call.operation);
        bytes_ = bytes;
        if (form == detail::Form::block) {
            {
                detail::Timed const timed(*comm_, name_, bytes_);
                launch(form, call, begin, mpi_call, mpi);
                if (pending()) check(complete(), mpi_call, comm_->where());
            }
            std::get<sizeof...(Buffers) - 1>(buffers_).unpack();
            return;
        }
        started_ns_ = observe::trace().enabled() ? observe::trace().now() : 0;
        launch(form, call, begin, mpi_call, mpi);
        if (operation_ != nullptr) operation_->advance();
    }
    /// Starts a collective of the MPI library.
    template <class Mpi>
    void start(Call const& call, std::size_t bytes, std::string_view mpi_call, Mpi const& mpi) {
        run(detail::Form::start, call, bytes, [] { return static_cast<Pending*>(nullptr); }, mpi_call, mpi);
    }
    /// Starts a message.
    template <class Mpi>
    void start(std::string_view name, std::size_t bytes, std::string_view mpi_call, Mpi const& mpi) {
        name_ = name;
        bytes_ = bytes;
        started_ns_ = observe::trace().enabled() ? observe::trace().now() : 0;
#if PENTAD_CHECKED
        checked::notice_board().write(std::string(name) + " of " + std::to_string(bytes) + " bytes over " +
                                      comm_->label());
#endif
        start_mpi(mpi_call, mpi);
    }
    template <std::size_t I>
    auto& buffer() {
        return std::get<I>(buffers_);
    }

  private:
    [[nodiscard]] bool pending() const { return handle_ != MPI_REQUEST_NULL || operation_ != nullptr; }
    struct Release {
        Request* request;
        ~Release() { request->release(); }
    };
    template <class Begin, class Mpi>
    void launch(detail::Form form, Call const& call, Begin const& begin, std::string_view mpi_call, Mpi const& mpi) {
#if PENTAD_CHECKED
        operation_ = &progress().begin<checked::Collective>(*comm_->checker(), call, begin, mpi_call, mpi);
        (void)form;
#else
        (void)call;
        operation_ = begin();
        if (operation_ != nullptr) return;
        if (form == detail::Form::block && comm_->may_block())
            check(mpi(nullptr), mpi_call, comm_->where());
        else
            start_mpi(mpi_call, mpi);
#endif
    }
    template <class Mpi>
    void start_mpi(std::string_view mpi_call, Mpi const& mpi) {
        check(mpi(&handle_), mpi_call, comm_->where());
        progress().count_mpi(1);
    }
    /// Waits, and lets go of what was under way, even when it failed.
    int complete() {
        Release const release{this};
        if (operation_ == nullptr) return progress().wait(handle_);
        progress().wait(*operation_);
        return MPI_SUCCESS;
    }
    void release() {
        if (observe::trace().enabled())
            completed_ns_ = operation_ != nullptr ? operation_->completed_ns() : observe::trace().now();
        if (operation_ != nullptr)
            progress().finish(std::exchange(operation_, nullptr));
        else
            progress().count_mpi(-1);
        handle_ = MPI_REQUEST_NULL;
    }
    void finish() {
        std::get<sizeof...(Buffers) - 1>(buffers_).unpack();
        auto& trace = observe::trace();
        if (trace.enabled())
            trace.record({name_,
                          "communication",
                          {.axis = comm_->label(), .bytes = static_cast<std::int64_t>(bytes_)},
                          started_ns_,
                          completed_ns_,
                          /*in_flight=*/true});
    }

    Communicator const* comm_;
    std::tuple<Buffers...> buffers_;
    MPI_Request handle_ = MPI_REQUEST_NULL;
    Pending* operation_ = nullptr;
    std::string_view name_;
    std::size_t bytes_ = 0;
    std::int64_t started_ns_ = 0, completed_ns_ = 0;
};

} // namespace pentad::comm

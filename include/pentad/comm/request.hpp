// An operation under way. It cannot be dropped unfinished: its destructor waits.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/comm/detail/checked.hpp>
#include <pentad/comm/detail/mpi_operation.hpp>
#include <pentad/comm/progress.hpp>
#include <pentad/comm/turns.hpp>
#include <pentad/memory/driving_thread.hpp>
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
        comm_->ledger().spend(comm_->shares(), spent.count());
    }

  private:
    observe::Scope scope_;
    Communicator const* comm_;
    std::chrono::steady_clock::time_point start_;
};

/// The form of an operation: `all_reduce` blocks, `start_all_reduce` starts.
enum class Form { block, start };

/// An operation under way, without the buffers that it uses: one class for all of them.
class UnderWay {
  public:
    explicit UnderWay(Communicator const& comm) : comm_(&comm) {}
    UnderWay(UnderWay&& other) noexcept
        : comm_(other.comm_), operation_(std::exchange(other.operation_, nullptr)), name_(other.name_),
          bytes_(other.bytes_), started_ns_(other.started_ns_), completed_ns_(other.completed_ns_) {}
    UnderWay& operator=(UnderWay&&) = delete;

    [[nodiscard]] bool pending() const { return operation_ != nullptr; }
    /// Carries out a collective or starts it. `begin()` begins one of the library's own, or returns null: then
    /// `mpi(MPI_Request*)` calls MPI, the blocking function when it is given null. Both are copied where the ranks
    /// compare their calls first, and so outlive this call.
    template <class Begin, class Mpi>
    void run(Form form, Call const& call, std::size_t bytes, Begin const& begin, std::string_view mpi_call,
             Mpi const& mpi) {
        prepare(observe::name(call.operation), bytes);
        if (form == Form::start || turns().is_on()) {
            note_start();
            launch(Form::start, call, begin, mpi_call, mpi);
            operation_->advance();
            if (form == Form::block) {
                wait();
                record();
            }
            return;
        }
        Timed const timed(*comm_, name_, bytes_);
        launch(form, call, begin, mpi_call, mpi);
        if (pending()) complete();
    }
    /// Starts a message.
    template <class Mpi>
    void start(std::string_view name, std::size_t bytes, std::string_view mpi_call, Mpi const& mpi) {
        prepare(name, bytes);
        note_start();
#if PENTAD_CHECKED
        checked::notice_board().write(std::string(name) + " of " + std::to_string(bytes) + " bytes over " +
                                      comm_->label());
#endif
        operation_ = &progress().begin<MpiOperation>(comm_->where(), mpi_call, mpi);
    }
    /// Blocks until it is complete. @throws Error when it failed; it is over then
    void wait() {
        try {
            turns().give_way();
        } catch (...) { // it was to end with what another computation has thrown
            complete();
            throw;
        }
        Timed const timed(*comm_, name_, bytes_);
        complete();
    }
    /// True when it is complete, and over. @throws Error when it failed
    [[nodiscard]] bool test() {
        progress().advance_all();
        if (!operation_->advance()) return false;
        Release const release{this};
        operation_->rethrow();
        return true;
    }
    /// Waits, and lets go of what was under way, even when it failed.
    void complete() {
        Release const release{this};
        progress().wait(*operation_);
    }
    /// Records in the trace that it was under way.
    void record() const {
        auto& trace = observe::trace();
        if (trace.enabled())
            trace.record({name_,
                          "communication",
                          {.axis = comm_->label(), .bytes = static_cast<std::int64_t>(bytes_)},
                          started_ns_,
                          completed_ns_,
                          /*in_flight=*/true});
    }

  private:
    struct Release {
        UnderWay* operation;
        ~Release() { operation->release(); }
    };
    void prepare(std::string_view name, std::size_t bytes) {
        memory::require_driving_thread();
        name_ = name;
        bytes_ = bytes;
    }
    void note_start() { started_ns_ = observe::trace().enabled() ? observe::trace().now() : 0; }
    template <class Begin, class Mpi>
    void launch(Form form, Call const& call, Begin const& begin, std::string_view mpi_call, Mpi const& mpi) {
#if PENTAD_CHECKED
        operation_ = &progress().begin<checked::Collective>(*comm_->checker(), call, begin, mpi_call, mpi);
        (void)form;
#else
        (void)call;
        operation_ = begin();
        if (operation_ != nullptr) return;
        if (form == Form::start) {
            operation_ = &progress().begin<MpiOperation>(comm_->where(), mpi_call, mpi);
            return;
        }
        MPI_Request request = MPI_REQUEST_NULL;
        check(mpi(comm_->may_block() ? nullptr : &request), mpi_call, comm_->where());
        check(progress().wait(request), mpi_call, comm_->where());
#endif
    }
    void release() {
        completed_ns_ = operation_->completed_ns();
        progress().finish(std::exchange(operation_, nullptr));
    }

    Communicator const* comm_;
    Pending* operation_ = nullptr;
    std::string_view name_;
    std::size_t bytes_ = 0;
    std::int64_t started_ns_ = 0, completed_ns_ = 0;
};

} // namespace detail

/// A started operation, which owns the staging buffers it uses. The views it was given must live, and may not be
/// touched, until `wait` returns; then received data is in its view. Who makes progress meanwhile: progress.hpp.
template <class... Buffers>
class [[nodiscard]] Request {
  public:
    explicit Request(Communicator const& comm, Buffers... buffers)
        : under_way_(comm), buffers_(std::move(buffers)...) {}
    Request(Request&&) noexcept = default;
    Request& operator=(Request&& other) {
        if (this == &other) return *this;
        wait(); // may throw: then nothing has changed
        std::destroy_at(this);
        return *std::construct_at(this, std::move(other));
    }
    ~Request() {
        if (!under_way_.pending()) return;
        try {
            under_way_.complete();
            finish();
        } catch (Error const&) { // whoever dropped it does not want to know
        }
    }

    /// Blocks until the operation is complete and what it received is in its view.
    /// @throws Error when it failed; it is over then
    void wait() {
        if (!under_way_.pending()) return;
        under_way_.wait();
        finish();
    }
    /// True when it is complete; then what it received is in its view. Does not wait for other ranks.
    [[nodiscard]] bool test() {
        if (!under_way_.pending()) return true;
        if (!under_way_.test()) return false;
        finish();
        return true;
    }

    // For the operations of collectives.hpp and rooted.hpp.

    /// As those of UnderWay; what a blocking operation has received is in its view.
    template <class Begin, class Mpi>
    void run(detail::Form form, Call const& call, std::size_t bytes, Begin const& begin, std::string_view mpi_call,
             Mpi const& mpi) {
        under_way_.run(form, call, bytes, begin, mpi_call, mpi);
        if (form == detail::Form::block) unpack();
    }
    /// Starts a collective of the MPI library.
    template <class Mpi>
    void start(Call const& call, std::size_t bytes, std::string_view mpi_call, Mpi const& mpi) {
        run(detail::Form::start, call, bytes, [] { return static_cast<Pending*>(nullptr); }, mpi_call, mpi);
    }
    template <class Mpi>
    void start(std::string_view name, std::size_t bytes, std::string_view mpi_call, Mpi const& mpi) {
        under_way_.start(name, bytes, mpi_call, mpi);
    }
    [[nodiscard]] detail::UnderWay& under_way() { return under_way_; }
    /// Brings what was received to its view.
    void unpack() { std::get<sizeof...(Buffers) - 1>(buffers_).unpack(); }
    template <std::size_t I>
    auto& buffer() {
        return std::get<I>(buffers_);
    }

  private:
    void finish() {
        unpack();
        under_way_.record();
    }

    detail::UnderWay under_way_;
    std::tuple<Buffers...> buffers_;
};

} // namespace pentad::comm

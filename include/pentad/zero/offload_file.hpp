// The file in which a rank keeps what it offloads, and the errors of these files.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/first_failure.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/file_queue.hpp>
#include <pentad/io/scratch_file.hpp>
#include <pentad/model/offload.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/observe/host_work.hpp>

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace pentad::zero {

/// Calls f() on each rank. Collective, but in a dry run. @throws io::FileError on all ranks: that of the first rank on
/// which f() throws one
template <class F>
void on_all_ranks(comm::Communicator const& world, F&& f) {
    std::optional<comm::Failure> failure;
    try {
        std::forward<F>(f)();
    } catch (io::FileError const& error) {
        failure = comm::Failure{0, error.what()};
    }
    if (observe::dry_run() != nullptr) return;
    if (auto const first = comm::first_failure(world.handle(), failure)) throw io::FileError(first->text);
}

/// Where there is no file, which is so before open() and in a dry run, requests do nothing and are done.
class OffloadFile {
    static_assert(model::offload_page % io::ScratchFile::page == 0);

  public:
    /// @param bytes that it has from the start @param requests that are usually under way at once
    /// @throws io::FileError where the folder has no room, or no files without a name
    void open(std::string const& folder, std::uint64_t bytes, std::size_t requests) {
        if (observe::dry_run() != nullptr) return;
        try {
            queue_.emplace(io::ScratchFile(folder, bytes), requests);
        } catch (std::system_error const& error) {
            throw io::FileError("offload needs a thread, and there is none: " + std::string(error.what()));
        }
    }
    [[nodiscard]] bool is_open() const { return queue_.has_value(); }

    /// Both give the number of the request.
    std::uint64_t read(std::uint64_t offset, void* data, std::size_t bytes) {
        return queue_ ? queue_->read(offset, data, bytes) : 0;
    }
    std::uint64_t write(std::uint64_t offset, void* data, std::size_t bytes) {
        return queue_ ? queue_->write(offset, data, bytes) : 0;
    }
    void wait(std::uint64_t request) {
        if (!queue_ || queue_->is_done(request)) return;
        observe::HostWork const work("pentad::offload wait");
        waited_ += queue_->wait(request);
    }

    /// What went wrong first; empty: nothing. From then on nothing is read or written.
    [[nodiscard]] std::string failure() const { return queue_ ? queue_->failure() : ""; }
    /// The seconds spent in wait() since the last call, on the rank where that was longest. Collective.
    /// @throws io::FileError on all ranks where the file of one has failed
    double require(comm::Communicator const& world) {
        if (observe::dry_run() != nullptr) return 0;
        auto const own = failure();
        std::array<double, 2> most{waited_ - std::exchange(told_, waited_), own.empty() ? 0.0 : 1.0};
        comm::check(MPI_Allreduce(MPI_IN_PLACE, most.data(), 2, MPI_DOUBLE, MPI_MAX, world.handle()), "MPI_Allreduce");
        if (most[1] > 0)
            on_all_ranks(world, [&] {
                if (!own.empty()) throw io::FileError(own);
            });
        return most[0];
    }
    /// @param state bytes that are offloaded @param window bytes of memory for them
    [[nodiscard]] model::OffloadReport report(std::uint64_t state, std::size_t window) const {
        auto const counts = queue_ ? queue_->counts() : io::FileQueue::Counts();
        return {.state_bytes = static_cast<double>(state),
                .window_bytes = static_cast<double>(window),
                .read_bytes = counts.read_bytes,
                .written_bytes = counts.written_bytes,
                .disk_seconds = counts.seconds,
                .waited_seconds = waited_,
                .is_direct = queue_ && queue_->is_direct()};
    }

  private:
    double waited_ = 0, told_ = 0; ///< seconds; those that require() has returned
    std::optional<io::FileQueue> queue_;
};

} // namespace pentad::zero

// Asynchronous file I/O: a background thread carries out reads and writes of a file in the order of submission.
#pragma once

#include <pentad/io/scratch_file.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace pentad::io {

/// A read that is submitted after a write of the same bytes returns what was written. After the first error nothing is
/// read or written any more, and all waits end. The memory of a request must stay until it is done. The thread keeps
/// its usual priority: it does little but wait for the disk, and others wait for it.
class FileQueue {
  public:
    struct Counts {
        double read_bytes = 0, written_bytes = 0;
        double seconds = 0; ///< in which the thread read or wrote
    };

    /// @param most the requests that are usually under way at once
    /// @throws std::system_error where there can be no further thread
    FileQueue(ScratchFile file, std::size_t most)
        : file_(std::move(file)), requests_(most), thread_([this] { work(); }) {}
    FileQueue(FileQueue const&) = delete;
    FileQueue& operator=(FileQueue const&) = delete;
    /// Requests that have not begun are forgotten.
    ~FileQueue();

    /// Both give the number of the request.
    std::uint64_t read(std::uint64_t offset, void* data, std::size_t bytes) {
        return add({false, offset, data, bytes});
    }
    std::uint64_t write(std::uint64_t offset, void* data, std::size_t bytes) {
        return add({true, offset, data, bytes});
    }
    [[nodiscard]] bool is_direct() const { return file_.is_direct(); }
    /// Whether a request and all before it are done.
    [[nodiscard]] bool is_done(std::uint64_t request) const {
        std::lock_guard const lock(mutex_);
        return done_ >= request;
    }
    /// Waits until they are. Gives the seconds.
    double wait(std::uint64_t request);
    /// What went wrong first; empty: nothing.
    [[nodiscard]] std::string failure() const {
        std::lock_guard const lock(mutex_);
        return failure_;
    }
    [[nodiscard]] Counts counts() const {
        std::lock_guard const lock(mutex_);
        return counts_;
    }

  private:
    using Clock = std::chrono::steady_clock;
    struct Request {
        bool is_write;
        std::uint64_t offset;
        void* data;
        std::size_t bytes;
    };

    static double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

    std::uint64_t add(Request const& request);
    void work();

    ScratchFile file_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Request> requests_;      ///< a ring: number i, counted from 0, at i mod its size
    std::uint64_t added_ = 0, done_ = 0; ///< requests
    std::string failure_;
    Counts counts_;
    bool ends_ = false;
    std::thread thread_; ///< the last member: it uses the others
};

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/file_queue.hpp>
#endif

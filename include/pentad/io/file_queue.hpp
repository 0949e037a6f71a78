// Asynchronous file I/O: a background thread carries out reads and writes of a file in the order of submission.
#pragma once

#include <pentad/io/scratch_file.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
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
    ~FileQueue() {
        {
            std::lock_guard const lock(mutex_);
            ends_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

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
    double wait(std::uint64_t request) {
        std::unique_lock lock(mutex_);
        auto const began = Clock::now();
        changed_.wait(lock, [&] { return done_ >= request; });
        return since(began);
    }
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

    std::uint64_t add(Request const& request) {
        std::uint64_t number = 0;
        {
            std::lock_guard const lock(mutex_);
            if (added_ - done_ == requests_.size()) { // more than usually: the ring grows
                std::vector<Request> larger(2 * requests_.size() + 1);
                for (auto i = done_; i < added_; ++i) larger[i % larger.size()] = requests_[i % requests_.size()];
                requests_ = std::move(larger);
            }
            requests_[added_ % requests_.size()] = request;
            number = ++added_;
        }
        changed_.notify_all();
        return number;
    }
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return ends_ || done_ < added_; });
            if (ends_) return;
            auto const request = requests_[done_ % requests_.size()];
            if (failure_.empty()) {
                lock.unlock();
                auto const began = Clock::now();
                std::string failure;
                try {
                    if (request.is_write)
                        file_.write(request.offset, request.data, request.bytes);
                    else
                        file_.read(request.offset, request.data, request.bytes);
                } catch (std::exception const& error) {
                    failure = error.what();
                }
                lock.lock();
                failure_ = std::move(failure);
                counts_.seconds += since(began);
                if (failure_.empty())
                    (request.is_write ? counts_.written_bytes : counts_.read_bytes) +=
                        static_cast<double>(request.bytes);
            }
            ++done_;
            changed_.notify_all();
        }
    }

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

// The functions of <pentad/io/file_queue.hpp>.
#pragma once

#include <pentad/io/file_queue.hpp>

#include <pentad/mesh/inline.hpp>

#include <exception>

namespace pentad::io {

PENTAD_INLINE FileQueue::~FileQueue() {
    {
        std::lock_guard const lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

PENTAD_INLINE double FileQueue::wait(std::uint64_t request) {
    std::unique_lock lock(mutex_);
    auto const began = Clock::now();
    changed_.wait(lock, [&] { return done_ >= request; });
    return since(began);
}

PENTAD_INLINE std::uint64_t FileQueue::add(Request const& request) {
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

PENTAD_INLINE void FileQueue::work() {
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
                (request.is_write ? counts_.written_bytes : counts_.read_bytes) += static_cast<double>(request.bytes);
        }
        ++done_;
        changed_.notify_all();
    }
}

} // namespace pentad::io

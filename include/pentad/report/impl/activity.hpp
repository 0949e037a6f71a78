// The functions of <pentad/report/activity.hpp>.
#pragma once

#include <pentad/report/activity.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/report/terminal.hpp>

#include <algorithm>
#include <system_error>
#include <utility>

namespace pentad::report {

PENTAD_INLINE Activity::Activity(std::FILE* output, std::chrono::milliseconds patience)
    : output_(output), begin_(Clock::now()), patience_(patience) {
    if (is_terminal(output)) try {
            drawing_ = std::thread([this] { draw_until_the_end(); });
        } catch (std::system_error const&) { // no thread to be had: the work goes on without a line
        }
}

PENTAD_INLINE Activity::~Activity() {
    hide();
    {
        std::lock_guard const lock(mutex_);
        ended_ = true;
    }
    changed_.notify_one();
    if (drawing_.joinable()) drawing_.join();
}

PENTAD_INLINE void Activity::now(std::string what) {
    std::lock_guard const lock(mutex_);
    what_ = std::move(what);
    since_ = Clock::now();
    part_ = 0;
}

PENTAD_INLINE void Activity::hide() {
    std::lock_guard const lock(mutex_);
    what_.clear();
    if (!std::exchange(shown_, false)) return;
    std::fputs("\r\x1b[K", output_);
    std::fflush(output_);
}

PENTAD_INLINE void Activity::draw_until_the_end() {
    std::unique_lock lock(mutex_);
    for (auto next = begin_ + patience_; !changed_.wait_until(lock, next, [this] { return ended_; });
         next = Clock::now() + std::chrono::milliseconds(200))
        if (!what_.empty()) draw();
}

PENTAD_INLINE void Activity::draw() {
    double const seconds = std::chrono::duration<double>(Clock::now() - since_).count();
    std::string line = what_;
    if (part_ > 0) {
        line += ": " + std::to_string(std::lround(std::floor(100 * part_))) + " %";
        if (part_ >= 0.01 && seconds > 0.5) line += ", " + whole(seconds * (1 - part_) / part_) + " left";
    } else if (seconds >= 1) {
        line += ": " + whole(seconds);
    }
    line.resize(std::min(line.size(), columns_of(output_) - 1));
    std::fputs(("\r" + line + "\x1b[K").c_str(), output_);
    std::fflush(output_);
    shown_ = true;
}

} // namespace pentad::report

// What a program is busy with, for the person who waits at a terminal: a line that appears when it takes
// longer than a second, is kept up to date, and goes before anything else is printed. Nothing where nobody looks.
#pragma once

#include <pentad/report/format.hpp>
#include <pentad/report/terminal.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace pentad::report {

class Activity {
  public:
    explicit Activity(std::FILE* output = stderr, std::chrono::milliseconds patience = std::chrono::seconds(1))
        : output_(output), begin_(Clock::now()), patience_(patience) {
        if (is_terminal(output)) try {
                drawing_ = std::thread([this] { draw_until_the_end(); });
            } catch (std::system_error const&) { // no thread to be had: the work goes on without a line
            }
    }
    Activity(Activity const&) = delete;
    Activity& operator=(Activity const&) = delete;
    ~Activity() {
        hide();
        {
            std::lock_guard const lock(mutex_);
            ended_ = true;
        }
        changed_.notify_one();
        if (drawing_.joinable()) drawing_.join();
    }

    /// Says what begins now: "proving 2.51 M instructions".
    void now(std::string what) {
        std::lock_guard const lock(mutex_);
        what_ = std::move(what);
        since_ = Clock::now();
        part_ = 0;
    }
    /// Says which part of it is done, 0 to 1.
    void done(double part) {
        std::lock_guard const lock(mutex_);
        part_ = part;
    }
    /// Takes the line away until the next thing begins.
    void hide() {
        std::lock_guard const lock(mutex_);
        what_.clear();
        if (!std::exchange(shown_, false)) return;
        std::fputs("\r\x1b[K", output_);
        std::fflush(output_);
    }

  private:
    using Clock = std::chrono::steady_clock;

    void draw_until_the_end() {
        std::unique_lock lock(mutex_);
        for (auto next = begin_ + patience_; !changed_.wait_until(lock, next, [this] { return ended_; });
             next = Clock::now() + std::chrono::milliseconds(200))
            if (!what_.empty()) draw();
    }
    /// "12 s", "2m 05s"
    static std::string whole(double seconds) {
        return seconds < 59.5 ? std::to_string(std::lround(seconds)) + " s" : duration(seconds);
    }
    void draw() {
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

    std::FILE* output_;
    Clock::time_point begin_, since_{};
    std::chrono::milliseconds patience_;
    std::mutex mutex_; ///< of what follows
    std::condition_variable changed_;
    std::string what_; ///< nothing: no line
    double part_ = 0;
    bool shown_ = false, ended_ = false;
    std::thread drawing_;
};

} // namespace pentad::report

// What a program is busy with, for the person who waits at a terminal: a line that appears when it takes
// longer than a second, is kept up to date, and goes before anything else is printed. Nothing where nobody looks.
#pragma once

#include <pentad/report/format.hpp>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace pentad::report {

class Activity {
  public:
    explicit Activity(std::FILE* output = stderr, std::chrono::milliseconds patience = std::chrono::seconds(1));
    Activity(Activity const&) = delete;
    Activity& operator=(Activity const&) = delete;
    ~Activity();

    /// Says what begins now: "proving 2.51 M instructions".
    void now(std::string what);
    /// Says which part of it is done, 0 to 1.
    void done(double part) {
        std::lock_guard const lock(mutex_);
        part_ = part;
    }
    /// Takes the line away until the next thing begins.
    void hide();

  private:
    using Clock = std::chrono::steady_clock;

    void draw_until_the_end();
    /// "12 s", "2m 05s"
    static std::string whole(double seconds) {
        return seconds < 59.5 ? std::to_string(std::lround(seconds)) + " s" : duration(seconds);
    }
    void draw();

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

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/activity.hpp>
#endif

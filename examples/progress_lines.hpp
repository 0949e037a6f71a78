// How far a long measurement is, as lines on standard error: what is measured now, of how many, and how long the rest
// takes. For one rank. mpiexec's standard error is no terminal, on which a line could be kept up to date.
#pragma once

#include <pentad/mesh/one_line.hpp>
#include <pentad/report/format.hpp>

#include <chrono>
#include <string>
#include <utility>

class ProgressLines {
  public:
    /// @param steps of about the same length
    ProgressLines(std::string program, int steps) : program_(std::move(program)), steps_(steps) {}

    /// Says what is measured now: a line after two seconds, then one in five seconds at most.
    void next(std::string const& what) {
        auto const now = Clock::now();
        ++step_;
        if (now < next_) return;
        next_ = now + std::chrono::seconds(5);
        std::string line =
            program_ + ": " + what + " (" + std::to_string(step_) + " of " + std::to_string(steps_) + ")";
        if (step_ > 1) {
            double const passed = std::chrono::duration<double>(now - begin_).count();
            line += ", about " + pentad::report::duration(passed * (steps_ - step_ + 1) / (step_ - 1)) + " left";
        }
        pentad::print_error(std::move(line));
    }

  private:
    using Clock = std::chrono::steady_clock;
    std::string program_;
    int steps_, step_ = 0;
    Clock::time_point begin_ = Clock::now(), next_ = begin_ + std::chrono::seconds(2);
};

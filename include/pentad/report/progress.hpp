// How a run gets on, for the person who waits: on a terminal a bar in one line that keeps being
// rewritten, in a file a plain line a step, or nothing. For one rank to own; the others make it quiet.
#pragma once

#include <pentad/report/format.hpp>
#include <pentad/report/terminal.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace pentad::report {

class Progress {
  public:
    enum class Style { quiet, lines, bar };

    /// The style that suits an output: a bar on a terminal, lines elsewhere.
    static Style style_for(std::FILE* output) { return is_terminal(output) ? Style::bar : Style::lines; }

    Progress(std::int64_t steps, double tokens_per_step, Style style, std::FILE* output = stdout)
        : steps_(steps), tokens_per_step_(tokens_per_step), style_(style), output_(output), last_(Clock::now()) {}
    Progress(Progress const&) = delete;
    Progress& operator=(Progress const&) = delete;
    ~Progress() { finish(); }

    /// Says that a step (counted from 1) is done.
    void step(std::int64_t step, double loss) {
        auto const now = Clock::now();
        double const seconds = std::chrono::duration<double>(now - last_).count();
        last_ = now;
        // The rate of the last steps, smoothed: the time left follows a change within some ten steps.
        double const rate = seconds > 0 ? tokens_per_step_ / seconds : 0;
        rate_ = rate_ == 0 ? rate : 0.8 * rate_ + 0.2 * rate;
        double const left = rate_ > 0 ? static_cast<double>(steps_ - step) * tokens_per_step_ / rate_ : 0;
        std::string const rest = step < steps_ ? "  " + duration(left) + " left" : "";
        if (style_ == Style::lines) print_line(step, loss, rate, rest);
        if (style_ == Style::bar) print_bar(step, loss, rest, now);
    }

    /// Something else came between the steps: the next one begins now.
    void resume() { last_ = Clock::now(); }

    /// Ends the bar's line, so that what is printed next has its own. Called again, it does nothing.
    void finish() {
        if (!bar_shown_) return;
        std::fputc('\n', output_);
        std::fflush(output_);
        bar_shown_ = false;
    }

  private:
    using Clock = std::chrono::steady_clock;

    static std::string loss_text(double loss) {
        std::array<char, 32> text{};
        std::snprintf(text.data(), text.size(), "%.4f", loss);
        return text.data();
    }

    void print_line(std::int64_t step, double loss, double rate, std::string const& rest) {
        std::fprintf(output_, "step %lld/%lld  loss %s  %s tokens/s%s\n", static_cast<long long>(step),
                     static_cast<long long>(steps_), loss_text(loss).c_str(), count(rate).c_str(), rest.c_str());
        std::fflush(output_);
    }

    void print_bar(std::int64_t step, double loss, std::string const& rest, Clock::time_point now) {
        // A terminal is slow and an eye slower: 20 pictures a second, and the last one.
        if (bar_shown_ && step < steps_ && now - drawn_ < std::chrono::milliseconds(50)) return;
        drawn_ = now;
        std::string const numbers = " " + std::to_string(step) + "/" + std::to_string(steps_) + "  loss " +
                                    loss_text(loss) + "  " + count(rate_) + " tokens/s" + rest;
        std::size_t const room = columns_of(output_);
        std::string line = "\r";
        // One column stays free: some terminals go to the next line when the last is written.
        if (std::size_t const taken = numbers.size() + 3; room >= taken + 10) {
            std::size_t const width = std::min<std::size_t>(room - taken, 40);
            auto const filled = static_cast<std::size_t>(static_cast<double>(width) * static_cast<double>(step) /
                                                         static_cast<double>(std::max<std::int64_t>(steps_, 1)));
            line += '[' + std::string(filled, '#') + std::string(width - filled, '.') + ']';
        }
        line += std::string_view(numbers).substr(0, room - 1);
        line += "\x1b[K"; // and nothing behind it
        std::fputs(line.c_str(), output_);
        std::fflush(output_);
        bar_shown_ = true;
    }

    std::int64_t steps_;
    double tokens_per_step_;
    Style style_;
    std::FILE* output_;
    Clock::time_point last_;
    Clock::time_point drawn_{};
    double rate_ = 0;
    bool bar_shown_ = false;
};

} // namespace pentad::report

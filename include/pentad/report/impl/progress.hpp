// The functions of <pentad/report/progress.hpp>.
#pragma once

#include <pentad/report/progress.hpp>

#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace pentad::report {

PENTAD_INLINE void Progress::step(std::int64_t step, std::optional<double> loss) {
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

PENTAD_INLINE void Progress::finish() {
    if (!bar_shown_) return;
    std::fputc('\n', output_);
    std::fflush(output_);
    bar_shown_ = false;
}

PENTAD_INLINE void Progress::print_bar(std::int64_t step, std::optional<double> loss, std::string const& rest,
                                       Clock::time_point now) {
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

} // namespace pentad::report

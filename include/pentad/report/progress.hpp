// How a run gets on, for the person who waits: on a terminal a bar in one line that keeps being
// rewritten, in a file a plain line a step, or nothing. For one rank to own; the others make it quiet.
#pragma once

#include <pentad/report/format.hpp>
#include <pentad/report/terminal.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

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

    /// Says that a step (counted from 1) is done. @param loss none: the step had no target
    void step(std::int64_t step, std::optional<double> loss);

    /// Something else came between the steps: the next one begins now.
    void resume() { last_ = Clock::now(); }

    /// Ends the bar's line, so that what is printed next has its own. Called again, it does nothing.
    void finish();

  private:
    using Clock = std::chrono::steady_clock;

    static std::string loss_text(std::optional<double> loss) {
        if (!loss) return "none";
        std::array<char, 32> text{};
        std::snprintf(text.data(), text.size(), "%.4f", *loss);
        return text.data();
    }

    void print_line(std::int64_t step, std::optional<double> loss, double rate, std::string const& rest) {
        std::fprintf(output_, "step %lld/%lld  loss %s  %s tokens/s%s\n", static_cast<long long>(step),
                     static_cast<long long>(steps_), loss_text(loss).c_str(), count(rate).c_str(), rest.c_str());
        std::fflush(output_);
    }

    void print_bar(std::int64_t step, std::optional<double> loss, std::string const& rest, Clock::time_point now);

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

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/progress.hpp>
#endif

// The functions of <pentad/report/chart_text.hpp>.
#pragma once

#include <pentad/report/chart_text.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/text.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

namespace pentad::report::detail {

inline constexpr std::string_view plain_colours = "\x1b[0m";

class TextCharts {
  public:
    TextCharts(std::span<PipelineChart const> charts, TextStyle style);

    std::string run();

  private:
    static std::size_t column(double place) { return static_cast<std::size_t>(std::lround(place)); }
    [[nodiscard]] std::string margin(std::string text) const {
        text.resize(margin_, ' ');
        return text;
    }
    [[nodiscard]] std::string letter(PipelineChart const& chart, pipeline::Instruction const& instruction) const;

    /// Wide enough for what the bars should say, if there is room; else what there is, but at least a column for most
    /// bars. Where all bars end on a grid, it has a whole number of columns.
    [[nodiscard]] double columns_per_time(PipelineChart const& chart) const;

    [[nodiscard]] double scale(PipelineChart const& chart) const {
        return full_ / static_cast<double>(width_of(charts_, chart));
    }

    std::string row(PipelineChart const& chart, std::span<Bar const> bars, double columns);

    [[nodiscard]] std::string axis(PipelineChart const& chart) const;

    [[nodiscard]] std::string legend() const;

    std::span<PipelineChart const> charts_;
    TextStyle style_;
    std::size_t margin_ = 0; ///< columns before the bars
    std::size_t room_ = 0;   ///< columns of the bars
    double full_ = 0;        ///< columns that they would take
    bool shortened_ = false; ///< a number did not fit
};

PENTAD_INLINE std::string on(Colour colour) {
    auto const level = [](int value) { // of the six that a terminal has: 0, 95, 135, 175, 215, 255
        return value < 48 ? 0 : value < 115 ? 1 : (value - 35) / 40;
    };
    int const number = 16 + 36 * level(colour.red) + 6 * level(colour.green) + level(colour.blue);
    return "\x1b[48;5;" + std::to_string(number) + (is_dark(colour) ? ";38;5;231m" : ";38;5;16m");
}

PENTAD_INLINE TextCharts::TextCharts(std::span<PipelineChart const> charts, TextStyle style)
    : charts_(charts), style_(style) {
    for (PipelineChart const& chart : charts_)
        margin_ = std::max(margin_, 7 + std::to_string(chart.ranks.size() - 1).size());
    room_ = style_.columns > margin_ + 10 ? style_.columns - margin_ - 1 : 10; // some terminals need the last column
    full_ = static_cast<double>(width_of(charts_, charts_[0])) * columns_per_time(charts_[0]);
}

PENTAD_INLINE std::string TextCharts::run() {
    std::string text;
    for (PipelineChart const& chart : charts_) {
        text += chart.title + "\n";
        double const columns = scale(chart);
        for (std::size_t rank = 0; rank < chart.ranks.size(); ++rank)
            text += margin("rank " + std::to_string(rank)) + row(chart, chart.ranks[rank], columns) + "\n";
        text += margin("") + axis(chart) + "\n";
    }
    if (full_ > static_cast<double>(room_))
        text += margin("") + "cut: the whole is " + std::to_string(margin_ + column(full_) + 1) + " columns wide\n";
    return text + legend();
}

PENTAD_INLINE std::string TextCharts::letter(PipelineChart const& chart,
                                             pipeline::Instruction const& instruction) const {
    std::string text(pipeline::symbol(instruction.operation));
    if (chart.shade_of(instruction.stage) % 2 != 0)
        text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
    return text;
}

PENTAD_INLINE double TextCharts::columns_per_time(PipelineChart const& chart) const {
    std::vector<pipeline::Time> lengths;
    pipeline::Time grid = 0;
    double wanted = 0;
    for (auto const& bars : chart.ranks)
        for (Bar const& bar : bars) {
            if (bar.start == bar.end) continue;
            lengths.push_back(bar.end - bar.start);
            grid = std::gcd(grid, std::gcd(bar.start, bar.end));
            wanted = std::max(wanted, static_cast<double>(number_text(chart, bar.instruction).size() + 1) /
                                          static_cast<double>(lengths.back()));
        }
    if (lengths.empty()) return 0;
    auto const median = lengths.begin() + static_cast<std::ptrdiff_t>((lengths.size() - 1) / 2);
    std::nth_element(lengths.begin(), median, lengths.end());
    double const fitting = static_cast<double>(room_) / static_cast<double>(width_of(charts_, chart));
    double const scale = std::max(std::min(wanted, fitting), 1 / static_cast<double>(*median));
    double const of_grid = std::floor(scale * static_cast<double>(grid));
    return of_grid < 1 ? scale : of_grid / static_cast<double>(grid);
}

PENTAD_INLINE std::string TextCharts::row(PipelineChart const& chart, std::span<Bar const> bars, double columns) {
    std::string text;
    std::size_t at = 0;
    for (Bar const& bar : bars) {
        // Measured passes that take turns overlap.
        auto const begin = std::max(at, std::min(room_, column(static_cast<double>(bar.start) * columns)));
        if (begin == room_) break; // what follows is cut
        auto const end = std::min(room_, column(static_cast<double>(bar.end) * columns));
        if (begin >= end) continue;
        if (style_.colours && begin > at && at > 0) text += plain_colours;
        text.append(begin - at, ' ');
        at = end;
        auto label = number_text(chart, bar.instruction);
        if (style_.colours) {
            text += on(colour_of(chart, bar.instruction.operation, chart.shade_of(bar.instruction.stage)));
            if (label.size() > end - begin) {
                shortened_ = true;
                label = std::to_string(bar.instruction.micro_batch % 10);
            }
        } else {
            label.insert(0, letter(chart, bar.instruction));
            if (label.size() > end - begin) label.resize(1);
        }
        label.resize(end - begin, style_.colours ? ' ' : '-');
        text += label;
    }
    if (style_.colours) text += plain_colours;
    return text;
}

PENTAD_INLINE std::string TextCharts::axis(PipelineChart const& chart) const {
    std::string text;
    pipeline::Time const step = tick_step(width_of(charts_, chart), full_ / 10);
    double const columns = scale(chart);
    for (pipeline::Time time = 0; time <= chart.end(); time += step) {
        auto const place = column(static_cast<double>(time) * columns);
        auto const label = tick_text(chart, time);
        if (place + label.size() > room_) break;
        text.resize(place, ' ');
        text += label;
    }
    return text;
}

PENTAD_INLINE std::string TextCharts::legend() const {
    std::string text = margin("");
    PipelineChart const& chart = charts_[0];
    for (auto const operation : operations_of(charts_)) {
        if (!pipeline::is_compute(operation)) continue;
        if (style_.colours)
            for (int shade = 0; shade < chart.shades; ++shade)
                text += on(colour_of(chart, operation, shade)).append("  ").append(plain_colours);
        else
            text += pipeline::symbol(operation);
        text += " " + std::string(pipeline::name(operation)) + "  ";
    }
    if (chart.shades > 1)
        text +=
            style_.colours ? "(darker: a later stage of the rank)  " : "(small letter: every second stage of the rank)";
    if (shortened_) text += "(numbers: last digit)";
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE std::string chart_text(std::span<PipelineChart const> charts, TextStyle style) {
    return detail::TextCharts(charts, style).run();
}

} // namespace pentad::report

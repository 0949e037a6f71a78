// The functions of <pentad/report/chart_svg.hpp>.
#pragma once

#include <pentad/report/chart_svg.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/report/detail/svg.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::report::detail {

class SvgCharts {
  public:
    explicit SvgCharts(std::span<PipelineChart const> charts);

    std::string run() {
        for (PipelineChart const& chart : charts_) draw(chart);
        legend();
        return svg::picture(right_, y_ + 8, out_);
    }

  private:
    static constexpr double margin = 58, lane = 22, gap = 3;

    static std::string hex(Colour colour);
    void text(double x, double y, std::string_view what, std::string_view more = "") {
        right_ = std::max(right_, x + svg::room_for(what));
        out_ += "<text x=\"" + svg::number(x) + "\" y=\"" + svg::number(y) + "\"" + std::string(more) + ">" +
                svg::escaped(what) + "</text>\n";
    }

    void draw(PipelineChart const& chart);

    /// Bars of one colour together, and what they say, so that each takes few bytes.
    void lane_of(PipelineChart const& chart, std::span<Bar const> bars, double scale);

    void legend();

    std::span<PipelineChart const> charts_;
    double width_ = 0; ///< of the bars
    double right_ = 0; ///< of all that is drawn
    double y_ = 0;     ///< where the next thing goes
    std::string out_;
};

PENTAD_INLINE SvgCharts::SvgCharts(std::span<PipelineChart const> charts) : charts_(charts) {
    PipelineChart const& first = charts_[0];
    double wanted = 0; // so that every number of the first chart can be read
    for (auto const& bars : first.ranks)
        for (Bar const& bar : bars)
            if (bar.end > bar.start)
                wanted = std::max(wanted, svg::room_for(number_text(first, bar.instruction)) /
                                              static_cast<double>(bar.end - bar.start));
    width_ = std::min(wanted * static_cast<double>(width_of(charts_, first)), 4000.0);
    right_ = margin + width_ + 14;
}

PENTAD_INLINE std::string SvgCharts::hex(Colour colour) {
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "#%02x%02x%02x", static_cast<unsigned>(colour.red) & 255u,
                  static_cast<unsigned>(colour.green) & 255u, static_cast<unsigned>(colour.blue) & 255u);
    return text.data();
}

PENTAD_INLINE void SvgCharts::draw(PipelineChart const& chart) {
    pipeline::Time const whole = width_of(charts_, chart);
    double const scale = width_ / static_cast<double>(whole);
    text(margin, y_ + 17, chart.title, " font-weight=\"bold\"");
    y_ += 26;
    double const height = static_cast<double>(chart.ranks.size()) * (lane + gap);
    pipeline::Time const step = tick_step(whole, width_ / 70);
    out_ += "<g fill=\"#666\" text-anchor=\"middle\">\n";
    std::string lines;
    for (pipeline::Time time = 0; time <= chart.end(); time += step) {
        double const x = margin + static_cast<double>(time) * scale;
        lines += "M" + svg::number(x) + " " + svg::number(y_) + "v" + svg::number(height + 2);
        text(x, y_ + height + 13, tick_text(chart, time));
    }
    out_ += "</g>\n<path d=\"" + lines + "\" stroke=\"#ddd\"/>\n";
    for (std::size_t rank = 0; rank < chart.ranks.size(); ++rank) {
        text(margin - 8, y_ + 15, "rank " + std::to_string(rank), " text-anchor=\"end\"");
        lane_of(chart, chart.ranks[rank], scale);
        y_ += lane + gap;
    }
    y_ += 20;
}

PENTAD_INLINE void SvgCharts::lane_of(PipelineChart const& chart, std::span<Bar const> bars, double scale) {
    std::map<std::pair<pipeline::Operation, int>, std::vector<Bar const*>> alike;
    for (Bar const& bar : bars)
        alike[{bar.instruction.operation, chart.shade_of(bar.instruction.stage)}].push_back(&bar);
    out_ += "<g transform=\"translate(" + svg::number(margin) + " " + svg::number(y_) + ")\" text-anchor=\"middle\">\n";
    for (auto const& [kind, same] : alike) {
        Colour const colour = colour_of(chart, kind.first, kind.second);
        if (!pipeline::is_compute(kind.first)) {
            std::string marks;
            for (Bar const* bar : same)
                marks += "M" + svg::number(static_cast<double>(bar->start) * scale) + " -1v" + svg::number(lane + 2);
            out_ += "<path d=\"" + marks + "\" stroke=\"" + hex(colour) + "\" stroke-width=\"2\"/>\n";
            continue;
        }
        std::string labels;
        out_ += "<g fill=\"" + hex(colour) + "\">\n";
        for (Bar const* bar : same) {
            double const x = static_cast<double>(bar->start) * scale;
            double const width = static_cast<double>(bar->end - bar->start) * scale;
            // A hair of white between bars, where there is room for it.
            out_ += "<rect x=\"" + svg::number(x) + "\" width=\"" + svg::number(width > 3 ? width - 1 : width) +
                    "\" height=\"" + svg::number(lane) + "\"/>\n";
            if (auto const what = number_text(chart, bar->instruction); svg::room_for(what) - 2 <= width)
                labels += "<text x=\"" + svg::number(x + width / 2 - 0.5) + "\" y=\"15\">" + what + "</text>\n";
        }
        if (!labels.empty())
            out_ += "<g fill=\"" + std::string(is_dark(colour) ? "#fff" : "#000") + "\">\n" + labels + "</g>\n";
        out_ += "</g>\n";
    }
    out_ += "</g>\n";
}

PENTAD_INLINE void SvgCharts::legend() {
    PipelineChart const& chart = charts_[0];
    double x = margin;
    auto const say = [&](std::string_view what) {
        text(x + 5, y_ + 10, what);
        x += svg::room_for(what) + 4;
    };
    for (auto const operation : operations_of(charts_)) {
        bool const compute = pipeline::is_compute(operation);
        for (int shade = 0; shade < (compute ? chart.shades : 1); ++shade, x += 14)
            out_ += "<path d=\"M" + svg::number(x) + " " + svg::number(y_) +
                    (compute ? "h13v13h-13z\"" : "m6 0h2v13h-2z\"") + " fill=\"" +
                    hex(colour_of(chart, operation, shade)) + "\"/>\n";
        say(pipeline::name(operation));
    }
    if (chart.shades > 1) say("darker: a later stage of the rank");
    y_ += 16;
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE std::string chart_svg(std::span<PipelineChart const> charts) { return detail::SvgCharts(charts).run(); }

} // namespace pentad::report

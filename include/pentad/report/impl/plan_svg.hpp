// The functions of <pentad/report/plan_svg.hpp>.
#pragma once

#include <pentad/report/plan_svg.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/report/detail/svg.hpp>
#include <pentad/report/plan_text.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::report::detail {

class PlanPicture {
  public:
    PlanPicture(planner::Findings const& findings, planner::Hardware const& hardware);

    std::string run();

  private:
    static constexpr double left = 58, top = 34, width = 640, height = 320, gibibyte = 1 << 30;

    /// 1, 2 or 5 times a power of 10.
    static double step(double least);
    [[nodiscard]] double x(double bytes) const { return left + width * bytes / gibibyte / most_memory_; }
    [[nodiscard]] double y(double mfu) const { return top + height * (1 - 100 * mfu / most_mfu_); }

    void text(double at_x, double at_y, std::string_view what, std::string_view more = "") {
        out_ += "<text x=\"" + svg::number(at_x) + "\" y=\"" + svg::number(at_y) + "\"" + std::string(more) + ">" +
                svg::escaped(what) + "</text>\n";
    }
    static std::string short_number(double value);
    void axes();
    void front();
    void point(planner::Candidate const& plan, double radius, std::string_view style);
    /// Where two would lie on each other, the better plan has its number.
    void numbers();
    void legend();

    planner::Findings const& findings_;
    planner::Hardware const& hardware_;
    double most_memory_ = 1, most_mfu_ = 1, memory_step_ = 1, mfu_step_ = 1; ///< GiB, percent
    std::string out_;
};

PENTAD_INLINE PlanPicture::PlanPicture(planner::Findings const& findings, planner::Hardware const& hardware)
    : findings_(findings), hardware_(hardware) {
    double memory = hardware.memory_bytes, mfu = 0;
    for (auto const* list : {&findings.best, &findings.near_misses, &findings.front})
        for (auto const& plan : *list) {
            memory = std::max(memory, plan.estimate.memory_peak);
            mfu = std::max(mfu, plan.estimate.mfu);
        }
    memory_step_ = step(memory / gibibyte / 8);
    mfu_step_ = step(100 * mfu / 6);
    most_memory_ = memory_step_ * std::ceil(1.02 * memory / gibibyte / memory_step_);
    most_mfu_ = mfu_step_ * std::ceil(1.05 * 100 * mfu / mfu_step_ + 0.01);
}

PENTAD_INLINE std::string PlanPicture::run() {
    text(left, 17, "MFU against the memory of the fullest rank", " font-weight=\"bold\"");
    axes();
    front();
    for (auto const& plan : findings_.front) point(plan, 2.5, "fill=\"#888\"");
    for (auto const& plan : findings_.near_misses)
        point(plan, 4, "fill=\"#fff\" stroke=\"#c0392b\" stroke-width=\"1.5\"");
    for (auto const& plan : findings_.best) point(plan, 4, "fill=\"#2c6fbb\"");
    numbers();
    legend();
    return svg::picture(left + width + 60, top + height + 60, out_);
}

PENTAD_INLINE double PlanPicture::step(double least) {
    if (!(least > 0)) return 1;
    double const power = std::pow(10, std::floor(std::log10(least)));
    for (double const times : {1, 2, 5})
        if (times * power >= least) return times * power;
    return 10 * power;
}

PENTAD_INLINE std::string PlanPicture::short_number(double value) {
    auto const figures = three_figures(value);
    return figures.substr(0, figures.find_last_not_of('0') + 1).ends_with('.') ? figures.substr(0, figures.find('.'))
                                                                               : figures;
}

PENTAD_INLINE void PlanPicture::axes() {
    std::string lines;
    out_ += "<g fill=\"#666\" text-anchor=\"middle\">\n";
    for (int i = 0; i * memory_step_ <= most_memory_ * 1.0001; ++i) {
        double const at = x(i * memory_step_ * gibibyte);
        lines += "M" + svg::number(at) + " " + svg::number(top) + "v" + svg::number(height);
        text(at, top + height + 14, short_number(i * memory_step_));
    }
    text(left + width / 2, top + height + 30, "GiB");
    out_ += "</g>\n<g fill=\"#666\" text-anchor=\"end\">\n";
    for (int i = 0; i * mfu_step_ <= most_mfu_ * 1.0001; ++i) {
        double const at = y(i * mfu_step_ / 100);
        lines += "M" + svg::number(left) + " " + svg::number(at) + "h" + svg::number(width);
        text(left - 6, at + 4, short_number(i * mfu_step_) + " %");
    }
    out_ += "</g>\n<path d=\"" + lines + "\" stroke=\"#ddd\"/>\n";
    double const limit = x(hardware_.memory_bytes);
    out_ += "<path id=\"limit\" d=\"M" + svg::number(limit) + " " + svg::number(top) + "v" + svg::number(height) +
            "\" stroke=\"#c0392b\" stroke-dasharray=\"5 3\"/>\n";
    text(limit - 4, top - 5, bytes(hardware_.memory_bytes) + " of " + hardware_.name,
         " text-anchor=\"end\" fill=\"#c0392b\"");
}

PENTAD_INLINE void PlanPicture::front() {
    auto plans = findings_.front;
    std::sort(plans.begin(), plans.end(),
              [](auto const& a, auto const& b) { return a.estimate.memory_peak < b.estimate.memory_peak; });
    std::string line;
    for (auto const& plan : plans)
        line += (line.empty() ? "M" : "L") + svg::number(x(plan.estimate.memory_peak)) + " " +
                svg::number(y(plan.estimate.mfu));
    if (!line.empty()) out_ += "<path id=\"front\" d=\"" + line + "\" fill=\"none\" stroke=\"#888\"/>\n";
}

PENTAD_INLINE void PlanPicture::point(planner::Candidate const& plan, double radius, std::string_view style) {
    auto const& [c, estimate] = plan;
    out_ += "<circle cx=\"" + svg::number(x(estimate.memory_peak)) + "\" cy=\"" + svg::number(y(estimate.mfu)) +
            "\" r=\"" + svg::number(radius) + "\" " + std::string(style) + "><title>" +
            svg::escaped(mesh_text(c) + " " + settings_text(c) + ": " + bytes(estimate.memory_peak) + ", " +
                         duration(estimate.step_s) + ", " + percent(estimate.mfu)) +
            "</title></circle>\n";
}

PENTAD_INLINE void PlanPicture::numbers() {
    std::vector<std::pair<double, double>> taken;
    for (std::size_t i = 0; i < findings_.best.size(); ++i) {
        auto const& estimate = findings_.best[i].estimate;
        std::pair const at{x(estimate.memory_peak) + 6, y(estimate.mfu) - 5};
        if (std::any_of(taken.begin(), taken.end(), [&](auto const& other) {
                return std::abs(other.first - at.first) < 10 && std::abs(other.second - at.second) < 11;
            }))
            continue;
        taken.push_back(at);
        text(at.first, at.second, std::to_string(i + 1));
    }
}

PENTAD_INLINE void PlanPicture::legend() {
    double at = left;
    double const line = top + height + 46;
    auto const entry = [&](std::string_view style, std::string_view what) {
        out_ += "<circle cx=\"" + svg::number(at + 4) + "\" cy=\"" + svg::number(line) + "\" r=\"4\" " +
                std::string(style) + "/>\n";
        text(at + 13, line + 4, what);
        at += svg::room_for(what) + 20;
    };
    entry("fill=\"#2c6fbb\"", "the best, as numbered in the table");
    entry("fill=\"#fff\" stroke=\"#c0392b\" stroke-width=\"1.5\"", "faster, but does not fit");
    entry("fill=\"#888\"", "front: nothing is as fast with less");
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE std::string plan_svg(planner::Findings const& findings, planner::Hardware const& hardware) {
    return detail::PlanPicture(findings, hardware).run();
}

} // namespace pentad::report

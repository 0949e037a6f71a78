// A lower bound of what is computed again within a room for activations: the linear relaxation of the knapsack.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace pentad::planner::detail {

/// One step of a part from one option to another that holds less: a segment of the convex hull of its options.
struct HullSegment {
    double bytes = 0, work = 0;
    [[nodiscard]] double price() const { return work / bytes; }
};
/// The convex hull of a part's options at a moment.
struct WorkHull {
    double most = 0, work = 0; ///< bytes and work of the option with the least work
    std::vector<HullSegment> segments{};

    static WorkHull of(std::vector<double> const& loads, std::vector<double> const& works) {
        std::vector<std::size_t> order(loads.size());
        std::iota(order.begin(), order.end(), 0U);
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return std::pair(works[a], loads[a]) < std::pair(works[b], loads[b]);
        });
        std::vector<std::size_t> hull;
        auto const segment = [&](std::size_t from, std::size_t to) {
            return HullSegment{loads[from] - loads[to], works[to] - works[from]};
        };
        for (auto const i : order) {
            if (!hull.empty() && loads[i] >= loads[hull.back()]) continue;
            while (hull.size() > 1 &&
                   segment(hull.back(), i).price() <= segment(hull[hull.size() - 2], hull.back()).price())
                hull.pop_back();
            hull.push_back(i);
        }
        WorkHull result{.most = loads[hull.front()], .work = works[hull.front()]};
        for (std::size_t i = 1; i < hull.size(); ++i) result.segments.push_back(segment(hull[i - 1], hull[i]));
        return result;
    }
};

/// The least work, as a function of the room at a moment, where parts may be divided: a lower bound.
class RelaxedWork {
  public:
    void add(WorkHull const& hull, std::size_t parts) {
        double const times = static_cast<double>(parts);
        most_ += times * hull.most;
        least_work_ += times * hull.work;
        for (auto const& one : hull.segments) segments_.push_back({times * one.bytes, times * one.work});
    }
    /// To be called after the last part was added.
    void finish() {
        std::sort(segments_.begin(), segments_.end(),
                  [](HullSegment const& a, HullSegment const& b) { return a.price() < b.price(); });
    }
    /// Infinity where there is no room.
    [[nodiscard]] double within(double room) const {
        double lacking = most_ - room, work = least_work_;
        for (auto const& segment : segments_) {
            if (lacking <= 0) return work;
            double const part = std::min(1.0, lacking / segment.bytes);
            work += part * segment.work;
            lacking -= part * segment.bytes;
        }
        // What is lacking after all segments is nothing but rounding, or real.
        return lacking <= 1e-9 * (most_ + 1) ? work : std::numeric_limits<double>::infinity();
    }

  private:
    double most_ = 0, least_work_ = 0;
    std::vector<HullSegment> segments_;
};

} // namespace pentad::planner::detail

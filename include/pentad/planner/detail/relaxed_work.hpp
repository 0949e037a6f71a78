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
        corners_ = {{0, least_work_, 0}};
        for (auto const& segment : segments_)
            corners_.push_back(
                {corners_.back().freed + segment.bytes, corners_.back().work + segment.work, segment.price()});
    }
    /// Infinity where there is no room.
    [[nodiscard]] double within(double room) const {
        double const lacking = most_ - room;
        if (lacking <= 0) return least_work_;
        auto const end = std::partition_point(corners_.begin(), corners_.end(),
                                              [&](Corner const& corner) { return corner.freed < lacking; });
        if (end != corners_.end()) return end->work - (end->freed - lacking) * end->price;
        // What is lacking after all segments is nothing but rounding, or real.
        auto const& last = corners_.back();
        return lacking - last.freed <= 1e-9 * (most_ + 1) ? last.work : std::numeric_limits<double>::infinity();
    }

  private:
    /// A corner of the function: bytes freed, least work, and the price of a byte before it.
    struct Corner {
        double freed = 0, work = 0, price = 0;
    };

    double most_ = 0, least_work_ = 0;
    std::vector<HullSegment> segments_;
    std::vector<Corner> corners_; ///< the beginning, and the end of each segment
};

} // namespace pentad::planner::detail

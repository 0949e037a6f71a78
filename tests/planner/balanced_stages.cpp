#include <doctest/doctest.h>

#include <pentad/planner/balanced_stages.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <random>
#include <vector>

using namespace pentad;

namespace {

using Cost = std::function<double(std::size_t, std::size_t, std::size_t)>;

struct Deal {
    double slowest = 0, squares = 0;
};
Deal weighed(std::vector<std::int64_t> const& dealt, Cost const& cost) {
    Deal deal;
    for (std::size_t stage = 0, begin = 0; stage < dealt.size(); begin += dealt[stage++]) {
        double const one = cost(stage, begin, begin + dealt[stage]);
        deal.slowest = std::max(deal.slowest, one);
        deal.squares += one * one;
    }
    return deal;
}

/// Calls f(layers of each stage) for every way to deal so many layers.
void for_each_deal(std::size_t layers, std::size_t stages, std::vector<std::int64_t>& dealt,
                   std::function<void(std::vector<std::int64_t> const&)> const& f) {
    if (dealt.size() + 1 == stages) {
        dealt.push_back(layers);
        f(dealt);
        dealt.pop_back();
        return;
    }
    for (std::size_t here = 0; here <= layers; ++here) {
        dealt.push_back(here);
        for_each_deal(layers - here, stages, dealt, f);
        dealt.pop_back();
    }
}

/// No way to deal has a cheaper costliest stage, and none of those that are as good has more even ones.
void check_best(std::size_t layers, std::size_t stages, Cost const& cost) {
    CAPTURE(layers);
    CAPTURE(stages);
    auto const found = weighed(planner::balanced_stages(layers, stages, cost), cost);
    Deal best{.slowest = 1e300, .squares = 1e300};
    std::vector<std::int64_t> dealt;
    for_each_deal(layers, stages, dealt, [&](std::vector<std::int64_t> const& other) {
        auto const deal = weighed(other, cost);
        if (deal.slowest < best.slowest * (1 - 1e-9)) best.squares = 1e300;
        best.slowest = std::min(best.slowest, deal.slowest);
        if (deal.slowest <= best.slowest * (1 + 1e-9)) best.squares = std::min(best.squares, deal.squares);
    });
    CHECK(found.slowest == doctest::Approx(best.slowest).epsilon(1e-9));
    CHECK(found.squares == doctest::Approx(best.squares).epsilon(1e-9));
}

} // namespace

TEST_CASE("stages that are balanced equal the best of all deals of up to 12 layers to 4 stages") {
    std::mt19937 random(40);
    std::uniform_real_distribution<double> costs(0.1, 2);
    for (std::size_t layers = 1; layers <= 12; ++layers)
        for (std::size_t stages = 1; stages <= 4; ++stages)
            for (int kind = 0; kind < 4; ++kind) {
                CAPTURE(kind);
                std::vector<double> layer(layers, 1);
                double first = 0.3, last = 3.4; // as of a large vocabulary
                if (kind > 0)
                    for (auto& one : layer) one = costs(random);
                if (kind == 2) first = costs(random), last = costs(random);
                auto const sum = [&](std::size_t stage, std::size_t begin, std::size_t end) {
                    double cost = (stage == 0 ? first : 0) + (stage + 1 == stages ? last : 0);
                    for (std::size_t i = begin; i < end; ++i) cost += layer[i];
                    return cost;
                };
                // Costs need not add up: where the host is slower than the device, a stage takes as long as the host.
                check_best(layers, stages, [&](std::size_t stage, std::size_t begin, std::size_t end) {
                    double const device = sum(stage, begin, end);
                    return kind < 3 ? device : std::max(device, 0.5 * static_cast<double>(end - begin) + 1);
                });
                if (kind < 3)
                    CHECK(planner::balanced_stages(layer, first, last, stages) ==
                          planner::balanced_stages(layers, stages, sum));
            }
}

TEST_CASE(
    "alike layers without ends are dealt evenly, the longer stages first, and a long head is a stage of its own") {
    std::vector<double> const layers(16, 1);
    CHECK(planner::balanced_stages(layers, 0, 0, 4) == std::vector<std::int64_t>{4, 4, 4, 4});
    CHECK(planner::balanced_stages(layers, 0, 0, 5) == std::vector<std::int64_t>{4, 3, 3, 3, 3});
    CHECK(planner::balanced_stages(layers, 0, 3.4, 8) == std::vector<std::int64_t>{3, 3, 2, 2, 2, 2, 2, 0});
}

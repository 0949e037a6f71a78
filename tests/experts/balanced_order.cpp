// Orders of experts in which ranks have more even loads.
#include <doctest/doctest.h>

#include <pentad/experts/balanced_order.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

using namespace pentad;

namespace {

std::vector<i32> by_number(std::size_t experts) {
    std::vector<i32> order(experts);
    std::iota(order.begin(), order.end(), 0);
    return order;
}
double largest(std::vector<i32> const& order, std::vector<double> const& loads, std::size_t ranks) {
    return std::ranges::max(experts::rank_loads(order, loads, ranks));
}
/// Loads in proportion to 1 / i, in random order: a few hot experts.
std::vector<double> skewed(std::size_t experts, unsigned seed) {
    std::vector<double> loads(experts);
    for (std::size_t i = 0; i < experts; ++i) loads[i] = std::floor(4096.0 / static_cast<double>(i + 1));
    std::shuffle(loads.begin(), loads.end(), std::mt19937(seed));
    return loads;
}

} // namespace

TEST_CASE("skewed loads become as even as the hottest expert lets them") {
    for (unsigned seed = 1; seed <= 20; ++seed)
        for (std::size_t const ranks : {2, 4, 8, 16}) {
            auto const loads = skewed(64, seed);
            auto const order = experts::balanced_order(by_number(64), loads, ranks);
            auto sorted = order;
            std::ranges::sort(sorted);
            CHECK(sorted == by_number(64));
            // The hottest expert beside the coldest ones is the least that any order can have.
            auto ascending = loads;
            std::ranges::sort(ascending);
            double const mean = std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(ranks);
            double const least =
                std::max(mean, std::accumulate(ascending.begin(), ascending.begin() + static_cast<long>(64 / ranks - 1),
                                               ascending.back()));
            CHECK(largest(order, loads, ranks) <= 1.03 * least);
        }
}

TEST_CASE("experts stay where ranks have even loads, and few move where one rank is heavy") {
    std::vector<double> const even(16, 100);
    CHECK(experts::balanced_order(by_number(16), even, 4) == by_number(16));
    std::vector<double> const nothing(16, 0);
    CHECK(experts::balanced_order(by_number(16), nothing, 4) == by_number(16));
    auto one_heavy = even;
    one_heavy[0] = one_heavy[1] = 200; // both on the first rank
    auto const order = experts::balanced_order(by_number(16), one_heavy, 4);
    int moved = 0;
    for (std::size_t place = 0; place < 16; ++place) moved += order[place] == static_cast<i32>(place) ? 0 : 1;
    CHECK(moved == 2);
    CHECK(largest(order, one_heavy, 4) == 500);
}

TEST_CASE("the next order begins where experts are, and groups keep their experts") {
    auto const loads = skewed(32, 3);
    auto const first = experts::balanced_order(by_number(32), loads, 8);
    CHECK(experts::balanced_order(first, loads, 8) == first);
    auto const grouped = experts::balanced_order(by_number(32), loads, 8, 4); // each on two ranks
    CHECK(grouped != by_number(32));
    CHECK(largest(grouped, loads, 8) < largest(by_number(32), loads, 8));
    for (std::size_t place = 0; place < 32; ++place) CHECK(static_cast<std::size_t>(grouped[place]) / 8 == place / 8);
    CHECK(experts::balanced_order(by_number(32), loads, 4, 4) == by_number(32)); // a group is a rank
}

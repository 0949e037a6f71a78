#include <doctest/doctest.h>

#include <pentad/planner/detail/queue.hpp>

#include "../support/near.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

using pentad::planner::PromptQueue;
using test::is_near;

namespace {

/// Waits of a server simulated arrival by arrival; whenever it is free it begins a step of other work.
std::vector<double> simulated(double rate, double service, double step, std::size_t count) {
    std::mt19937_64 random(7);
    std::exponential_distribution<double> gap(rate);
    std::vector<double> waits;
    double arrival = 0, free = 0;
    for (std::size_t i = 0; i < count; ++i) {
        arrival += gap(random);
        if (arrival > free) free = step == 0 ? arrival : free + step * std::ceil((arrival - free) / step);
        waits.push_back(free - arrival);
        free += service;
    }
    std::sort(waits.begin(), waits.end());
    return waits;
}

double mean_of(std::vector<double> const& values) {
    double sum = 0;
    for (double const x : values) sum += x;
    return sum / static_cast<double>(values.size());
}

/// Erlang 1909, for small time / service.
double erlang(double rate, double service, double time) {
    double sum = 0;
    for (int k = 0; k * service <= time; ++k) {
        double const x = rate * (k * service - time);
        sum += std::pow(x, k) / std::tgamma(k + 1) * std::exp(-x);
    }
    return (1 - rate * service) * sum;
}

} // namespace

TEST_CASE("the waiting time is that of a simulated server, with and without steps between services") {
    for (double const load : {0.3, 0.7, 0.9})
        for (double const step : {0.0, 0.2, 1.0, 3.5}) {
            CAPTURE(load);
            CAPTURE(step);
            double const service = 0.5;
            PromptQueue const queue(load / service, service, step);
            auto const waits = simulated(load / service, service, step, 2'000'000);
            CHECK(is_near(queue.mean(), mean_of(waits), 0.03));
            for (double const share : {0.5, 0.9, 0.95, 0.99}) {
                CAPTURE(share);
                double const seen = waits[static_cast<std::size_t>(share * static_cast<double>(waits.size()))];
                CHECK(is_near(queue.quantile(share), seen, 0.04));
                if (seen > 0) CHECK(queue.at_most(seen) == doctest::Approx(share).epsilon(0.01));
            }
        }
}

TEST_CASE("without steps it is Erlang's formula") {
    for (double const load : {0.1, 0.5, 0.8, 0.95})
        for (double time = 0; time < 8; time += 0.37) {
            CAPTURE(load);
            CAPTURE(time);
            CHECK(is_near(PromptQueue(load, 1).at_most(time), erlang(load, 1, time), 1e-9));
        }
}

TEST_CASE("a distribution goes from what need not wait to 1, at loads near 1 too, and its mean is its integral") {
    for (double const load : {0.05, 0.5, 0.99, 0.999}) {
        CAPTURE(load);
        PromptQueue const queue(load, 1);
        CHECK(queue.at_most(0) == doctest::Approx(1 - load));
        double const end = queue.quantile(0.999999);
        double before = 0, mean = 0;
        int const pieces = 4000;
        for (int i = 0; i <= pieces; ++i) {
            double const now = queue.at_most(end * i / pieces);
            CHECK(now >= before - 1e-12);
            mean += (1 - now) * end / pieces;
            before = now;
        }
        CHECK(is_near(mean, queue.mean(), 0.02));
    }
}

TEST_CASE("where more comes than the server can do, every wait is too short a time") {
    CHECK(std::isinf(PromptQueue(2, 0.5).quantile(0.5)));
    CHECK(std::isinf(PromptQueue(3, 0.5).mean()));
    CHECK(PromptQueue(3, 0.5).at_most(1e9) == 0);
    CHECK(PromptQueue(0, 0.5).quantile(0.95) == 0);
    CHECK(PromptQueue(0, 0.5, 2).quantile(0.95) == doctest::Approx(1.9));
}

// Variants of one thing, called in turn so that they see the same machine: their samples as a part of a line of JSON.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

template <class Sample>
struct Variant {
    char const* name;
    std::function<void()> call;
    std::vector<Sample> samples{};
};

/// `rounds` samples of each, sample(call), in turn, in an order drawn anew for each round (the same on all ranks): what
/// a variant finds in the caches is what the one before it left.
template <class Sample, class F>
void measure_in_turn(std::vector<Variant<Sample>>& variants, std::size_t rounds, F&& sample) {
    std::mt19937 random(1);
    std::vector<std::size_t> order(variants.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = 0; i < rounds; ++i) {
        std::shuffle(order.begin(), order.end(), random);
        for (auto const j : order) variants[j].samples.push_back(sample(variants[j].call));
    }
}

inline void print(double seconds) { std::printf("%.5g", seconds); }

/// `, "name": [samples]` for each, and the end of the line.
template <class Sample>
void print_and_end_line(std::vector<Variant<Sample>> const& variants) {
    for (auto const& variant : variants) {
        std::printf(", \"%s\": [", variant.name);
        for (std::size_t i = 0; i < variant.samples.size(); ++i) {
            if (i > 0) std::printf(", ");
            print(variant.samples[i]);
        }
        std::printf("]");
    }
    std::printf("}\n");
    std::fflush(stdout);
}

// What a run computes, to compare runs with.
#pragma once

#include <support/first_rank.hpp>
#include <support/parameters.hpp>
#include <support/training.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace support {

/// Losses and norms of each step, the losses of an evaluation after them, and all weights by name.
struct Outcome {
    std::vector<double> losses;
    std::map<std::string, Whole> weights;
};

inline void send_to_all(Outcome& outcome) {
    send_to_all(outcome.losses);
    send_to_all(outcome.weights);
}

template <class Stream>
Outcome outcome_of(Training<Stream>& training, std::int64_t steps) {
    Outcome outcome;
    auto const note = [&](train::StepResult const& result) {
        outcome.losses.insert(outcome.losses.end(), {result.loss, result.balance_loss, result.z_loss});
    };
    for (std::int64_t step = 1; step <= steps; ++step) {
        auto const result = training.trainer.step(step);
        note(result);
        outcome.losses.push_back(result.gradient_norm);
    }
    note(training.trainer.evaluate(steps + 1));
    training.trainer.store().for_each_exported([&](auto const& p) { outcome.weights[p.name()] = gather_exported(p); });
    return outcome;
}

/// f(training) on one rank, for all. Collective.
template <class Stream, class F>
Outcome trained_alone(train::RunSettings const& settings, F&& f) {
    return on_first_rank([&] {
        Alone const mesh;
        Training<Stream> training(mesh, settings);
        return f(training);
    });
}

} // namespace support

// How long a prompt waits before a server takes it up: Poisson arrivals, one service
// after another of the same length, first come first served. In the gaps the server does other work in steps that are
// not broken off: a queue M/D/1 with server vacations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace pentad::planner {

/// The stationary waiting time. Where the load is 1 or more there is none: every quantile is infinite.
class PromptQueue {
  public:
    /// @param arrivals_per_s of a Poisson process
    /// @param service_s of each arrival, above 0
    /// @param step_s of what the server does, step after step, whenever no prompt waits; 0: nothing
    PromptQueue(double arrivals_per_s, double service_s, double step_s = 0)
        : rate_(arrivals_per_s), service_(service_s), step_(step_s) {}

    [[nodiscard]] double load() const { return rate_ * service_; }
    [[nodiscard]] bool is_stable() const { return load() < 1; }

    /// Pollaczek and Khinchine's mean, and half a step.
    [[nodiscard]] double mean() const {
        return is_stable() ? load() * service_ / (2 * (1 - load())) + step_ / 2
                           : std::numeric_limits<double>::infinity();
    }
    /// The part of the arrivals that wait no longer than `time`. With steps the wait is that of the queue without them
    /// plus the rest of a step, independent of it and uniform (Fuhrmann and Cooper 1985, "Stochastic decompositions in
    /// the M/G/1 queue with generalized vacations").
    [[nodiscard]] double at_most(double time) const {
        if (!is_stable() || time < 0) return 0;
        if (step_ == 0) return without_steps(time);
        return (integral(time) - (time > step_ ? integral(time - step_) : 0)) / step_;
    }
    /// What the part `share` of the arrivals do not exceed.
    [[nodiscard]] double quantile(double share) const {
        if (!is_stable()) return std::numeric_limits<double>::infinity();
        if (share <= at_most(0)) return 0;
        double low = 0, high = step_ + service_;
        while (at_most(high) < share) low = high, high *= 2;
        for (int i = 0; i < 60; ++i) {
            double const middle = (low + high) / 2;
            (at_most(middle) < share ? low : high) = middle;
        }
        return high;
    }

  private:
    /// Franx 2001, "A simple solution for the M/D/c waiting time distribution", for c = 1. A wait ends
    /// before (k-1)D <= time < kD has passed where, kD - time earlier, those in the system and those who came since
    /// were at most k. Erlang's formula of 1909 is the same function; its terms cancel each other, these do not.
    [[nodiscard]] double without_steps(double time) const {
        std::size_t const k = static_cast<std::size_t>(time / service_) + 1;
        double const arrivals = rate_ * (static_cast<double>(k) * service_ - time);
        double probability = std::exp(-arrivals), sum = 0;
        for (std::size_t j = 0; j < k; ++j) {
            sum += probability * in_system_at_most(k - j);
            probability *= arrivals / static_cast<double>(j + 1);
        }
        return std::min(sum, 1.0);
    }
    /// The integral of without_steps from 0 to `time`, term by term: a Poisson probability of j, integrated over its
    /// mean, is the probability of more than j.
    [[nodiscard]] double integral(double time) const {
        if (rate_ == 0) return time;
        std::size_t const last = static_cast<std::size_t>(time / service_) + 1;
        double const rest = rate_ * (static_cast<double>(last) * service_ - time);
        double sum = 0;
        for (std::size_t k = 1; k <= last; ++k) {
            MoreThan whole(load()), remaining(k == last ? rest : 0);
            for (std::size_t j = 0; j < k; ++j)
                sum += (whole.next() - remaining.next()) * in_system_at_most(k - j) / rate_;
        }
        return sum;
    }
    /// P(X > 0), P(X > 1), ... of a Poisson variable.
    class MoreThan {
      public:
        explicit MoreThan(double mean) : mean_(mean), term_(std::exp(-mean)), tail_(-std::expm1(-mean)) {}
        double next() {
            double const tail = tail_;
            term_ *= mean_ / ++count_;
            tail_ = std::max(tail_ - term_, 0.0);
            return tail;
        }

      private:
        double mean_, term_, tail_, count_ = 0;
    };

    /// The probability of at most n in the system. Between n and n + 1 the chain of what departures leave behind goes
    /// up as often as down; a service in which none arrives, a, goes down, and all terms are positive.
    [[nodiscard]] double in_system_at_most(std::size_t n) const {
        if (states_.empty()) {
            states_ = totals_ = {1 - load()};
            for (MoreThan tail(load()); tails_.size() < 64;) tails_.push_back(tail.next());
        }
        while (totals_.size() <= n && totals_.back() < 1 - 1e-15) {
            std::size_t const top = states_.size() - 1;
            auto const more = [&](std::size_t than) { return than < tails_.size() ? tails_[than] : 0; };
            double up = states_[0] * more(top);
            for (std::size_t i = 1; i <= top; ++i) up += states_[i] * more(top + 1 - i);
            states_.push_back(up * std::exp(load()));
            totals_.push_back(std::min(totals_.back() + states_.back(), 1.0));
        }
        return totals_[std::min(n, totals_.size() - 1)];
    }

    double rate_, service_, step_;
    mutable std::vector<double> states_, totals_, tails_;
};

} // namespace pentad::planner

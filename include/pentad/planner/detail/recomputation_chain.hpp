// Solves a recomputation problem: a multiple-choice knapsack over a chain, exactly, by dynamic programming from the
// last block to the first, with a linear relaxation as bound. What a block needs for a while counts beside what the
// blocks before it keep: those after it have freed theirs.
#pragma once

#include <pentad/planner/detail/relaxed_work.hpp>
#include <pentad/planner/recomputation_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace pentad::planner::detail {

/// A problem from the last part to the first.
class RecomputationChain {
  public:
    explicit RecomputationChain(RecomputationProblem const& problem) : problem_(&problem) {
        for (std::size_t i = problem.parts.size(); i-- > 0;) {
            auto const& part = problem.parts[i];
            auto const found = std::find_if(alike_.begin(), alike_.end(), [&](Alike const& known) {
                return known.stage == part.stage && known.options == part.options;
            });
            alike_of_.push_back(static_cast<std::size_t>(found - alike_.begin()));
            if (found == alike_.end()) alike_.push_back({part.stage, part.options});
            ++alike_[alike_of_.back()].count;
        }
        for (auto const& moment : problem.moments) moments_.push_back(&moment);
        find_candidates();
        if (drop_moments()) find_candidates();
        for (auto& alike : alike_) alike.prepare(moments_);
        for (std::size_t done = 0; done <= alike_of_.size(); ++done) rests_.push_back(rest_after(done));
    }

    /// No choice that fits has less work; infinity where none fits.
    [[nodiscard]] double least_work() const {
        double least = 0;
        for (std::size_t m = 0; m < moments_.size(); ++m)
            least = std::max(least, rests_.front().relaxed[m].within(moments_[m]->room));
        return least;
    }
    [[nodiscard]] RecomputationChoice solve() {
        auto best = greedy();
        if (!best) { // moments that want opposite changes, or little room
            best = least_memory();
            if (best->lacking > 0 && cannot_fit_) return *best;
        }
        bool const fits = best->lacking <= 0;
        if (fits) best->lacking = 0;
        auto found = by_states(fits ? best->work : std::numeric_limits<double>::infinity());
        if (!found.options.empty()) return found;
        best->is_exact = found.is_exact;
        best->bound = found.is_exact ? best->work : std::min(found.bound, best->work);
        return *best;
    }

  private:
    /// An option that no other is better than.
    struct Candidate {
        std::size_t option;
        double work;
        std::vector<PartInMoment> in; ///< each moment

        [[nodiscard]] bool is_no_worse(Candidate const& other) const {
            if (work > other.work) return false;
            for (std::size_t m = 0; m < in.size(); ++m)
                if (in[m].peak > other.in[m].peak || in[m].before > other.in[m].before ||
                    in[m].after > other.in[m].after)
                    return false;
            return true;
        }
    };
    /// Parts of a stage that have the same options.
    struct Alike {
        std::size_t stage, options, count = 0;
        std::vector<Candidate> candidates{}; ///< that with the least work first
        std::vector<WorkHull> hulls{};       ///< of each moment: of what they hold while later parts compute
        std::vector<double> gap{};           ///< of each moment: the most that one needs for a while beside that
        std::vector<bool> shrinks{};         ///< of each moment: each holds no more when the pass has gone through it

        void prepare(std::vector<HeldMoment const*> const& moments) {
            std::vector<double> loads(candidates.size()), works;
            for (auto const& candidate : candidates) works.push_back(candidate.work);
            for (std::size_t m = 0; m < moments.size(); ++m) {
                double most = 0;
                bool less = true;
                for (std::size_t i = 0; i < candidates.size(); ++i) {
                    auto const& in = candidates[i].in[m];
                    loads[i] = in.before;
                    most = std::max(most, in.peak - in.before);
                    less = less && in.after <= in.before;
                }
                hulls.push_back(WorkHull::of(loads, works));
                gap.push_back(most);
                shrinks.push_back(less);
            }
        }
    };
    struct Step {
        std::size_t parent, candidate;
    };
    struct State {
        double work;
        double promise;   ///< the least work that it can come to
        std::size_t step; ///< of steps_
        std::size_t at;   ///< of its bytes at the first moment
    };
    static constexpr std::size_t no_step = static_cast<std::size_t>(-1);

    void find_candidates() {
        for (auto& alike : alike_) {
            std::vector<Candidate> all;
            auto const& options = problem_->options[alike.options];
            for (std::size_t i = 0; i < options.size(); ++i) {
                auto& one = all.emplace_back(Candidate{i, options[i].work, {}});
                for (auto const* const moment : moments_)
                    one.in.push_back(part_in_moment(options[i].memory, alike.stage, *moment));
            }
            std::stable_sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.work < b.work; });
            alike.candidates.clear();
            for (auto& one : all) {
                auto const no_worse = [&](Candidate const& other) { return other.is_no_worse(one); };
                if (std::any_of(alike.candidates.begin(), alike.candidates.end(), no_worse)) continue;
                std::erase_if(alike.candidates, [&](Candidate const& other) { return one.is_no_worse(other); });
                alike.candidates.push_back(std::move(one));
            }
        }
    }
    /// Drops moments that fit wherever another one does; true where there are any.
    bool drop_moments() {
        auto const before = moments_;
        std::vector<bool> dropped(before.size());
        for (std::size_t b = 0; b < before.size(); ++b)
            for (std::size_t a = 0; a < before.size() && !dropped[b]; ++a)
                dropped[b] = a != b && !dropped[a] && most_more(b, a) <= before[b]->room - before[a]->room;
        moments_.clear();
        for (std::size_t m = 0; m < before.size(); ++m)
            if (!dropped[m]) moments_.push_back(before[m]);
        return moments_.size() < before.size();
    }
    /// A bound of the bytes by which moment b can exceed moment a.
    [[nodiscard]] double most_more(std::size_t b, std::size_t a) const {
        double sum = 0, gap = 0;
        for (auto const& alike : alike_) {
            double most = -std::numeric_limits<double>::infinity();
            for (auto const& candidate : alike.candidates) {
                auto const& in = candidate.in[b];
                double const held = std::max(in.before, in.after);
                most = std::max(most, held - candidate.in[a].before);
                gap = std::max(gap, in.peak - held);
            }
            sum += static_cast<double>(alike.count) * most;
        }
        return sum + gap;
    }

    /// What the parts after the first `done` mean for states.
    struct Rest {
        std::vector<RelaxedWork> relaxed; ///< of each moment
        std::vector<double> gap;          ///< of each moment; infinity: what a part holds may grow
    };
    [[nodiscard]] Rest rest_after(std::size_t done) const {
        std::vector<std::size_t> left(alike_.size());
        for (std::size_t i = done; i < alike_of_.size(); ++i) ++left[alike_of_[i]];
        Rest rest{std::vector<RelaxedWork>(moments_.size()), std::vector<double>(moments_.size())};
        for (std::size_t m = 0; m < moments_.size(); ++m) {
            for (std::size_t i = 0; i < alike_.size(); ++i) {
                if (left[i] == 0) continue;
                rest.relaxed[m].add(alike_[i].hulls[m], left[i]);
                rest.gap[m] = alike_[i].shrinks[m] ? std::max(rest.gap[m], alike_[i].gap[m])
                                                   : std::numeric_limits<double>::infinity();
            }
            rest.relaxed[m].finish();
        }
        return rest;
    }
    /// Bytes with another part. A base that none of the parts before can count from is raised to where none can.
    static HeldBytes with(HeldBytes bytes, PartInMoment const& part, double gap_of_rest) {
        bytes.add(part);
        bytes.base = std::max(bytes.base, bytes.most - gap_of_rest);
        return bytes;
    }

    /// The worst moment of a choice.
    struct Worst {
        std::size_t moment = 0, part = 0; ///< and the part that the pass goes through then
        double lacking = -std::numeric_limits<double>::infinity();
    };
    /// @param chosen a candidate of each part, the last part first
    [[nodiscard]] Worst worst_of(std::vector<std::size_t> const& chosen) const {
        Worst worst;
        for (std::size_t m = 0; m < moments_.size(); ++m) {
            HeldBytes bytes;
            std::size_t at = 0;
            for (std::size_t i = 0; i < chosen.size(); ++i) {
                auto const& in = alike_[alike_of_[i]].candidates[chosen[i]].in[m];
                if (bytes.base + in.peak >= bytes.most + in.before) at = i;
                bytes.add(in);
            }
            if (bytes.most - moments_[m]->room > worst.lacking) worst = {m, at, bytes.most - moments_[m]->room};
        }
        return worst;
    }
    [[nodiscard]] RecomputationChoice choice_of(std::vector<std::size_t> const& chosen) const {
        RecomputationChoice choice;
        choice.options.resize(chosen.size());
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            auto const& candidate = alike_[alike_of_[i]].candidates[chosen[i]];
            choice.options[chosen.size() - 1 - i] = candidate.option;
            choice.work += candidate.work;
        }
        return choice;
    }
    /// A choice that fits, part by part the change that costs least for what is lacking; none where that leads to
    /// nothing.
    [[nodiscard]] std::optional<RecomputationChoice> greedy() const {
        std::vector<std::size_t> chosen(alike_of_.size(), 0);
        while (true) {
            auto const worst = worst_of(chosen);
            if (worst.lacking <= 0) return choice_of(chosen);
            auto const bytes = [&](std::size_t i, Candidate const& candidate) {
                auto const& in = candidate.in[worst.moment];
                return i < worst.part ? in.after : i == worst.part ? in.peak : in.before;
            };
            double best = std::numeric_limits<double>::infinity();
            std::size_t part = 0, to = 0;
            for (std::size_t i = chosen.size(); i-- > 0;) { // of parts that are alike, an early one
                auto const& candidates = alike_[alike_of_[i]].candidates;
                auto const& now = candidates[chosen[i]];
                for (std::size_t k = chosen[i] + 1; k < candidates.size(); ++k) { // of more work: this comes to an end
                    double const freed = bytes(i, now) - bytes(i, candidates[k]);
                    if (freed <= 0) continue;
                    double const price = (candidates[k].work - now.work) / std::min(freed, worst.lacking);
                    if (price < best) best = price, part = i, to = k;
                }
            }
            if (best == std::numeric_limits<double>::infinity()) return std::nullopt;
            chosen[part] = to;
        }
    }
    /// The choice that lacks the least memory among the choices that each need the least at one of the moments. Says
    /// whether none can fit.
    [[nodiscard]] RecomputationChoice least_memory() {
        RecomputationChoice best;
        best.lacking = std::numeric_limits<double>::infinity();
        for (std::size_t m = 0; m < moments_.size(); ++m) {
            struct Front {
                HeldBytes bytes;
                std::size_t step;
            };
            std::vector<Step> steps;
            std::vector<Front> front{{{}, no_step}}, next;
            for (std::size_t i = 0; i < alike_of_.size(); ++i) {
                auto const gap = rests_[i + 1].gap[m];
                auto const& candidates = alike_[alike_of_[i]].candidates;
                next.clear();
                for (auto const& state : front)
                    for (std::size_t k = 0; k < candidates.size(); ++k) {
                        steps.push_back({state.step, k});
                        next.push_back({with(state.bytes, candidates[k].in[m], gap), steps.size() - 1});
                    }
                std::stable_sort(next.begin(), next.end(), [](Front const& a, Front const& b) {
                    return std::pair(a.bytes.most, a.bytes.base) < std::pair(b.bytes.most, b.bytes.base);
                });
                front.clear();
                for (auto const& state : next)
                    if (front.empty() || state.bytes.base < front.back().bytes.base) front.push_back(state);
            }
            if (front.front().bytes.most > moments_[m]->room) cannot_fit_ = true;
            auto const chosen = chosen_by(steps, front.front().step);
            if (double const lacking = worst_of(chosen).lacking; lacking < best.lacking) {
                best = choice_of(chosen);
                best.lacking = lacking;
            }
        }
        return best;
    }
    [[nodiscard]] std::vector<std::size_t> chosen_by(std::vector<Step> const& steps, std::size_t step) const {
        std::vector<std::size_t> chosen(alike_of_.size());
        for (std::size_t i = chosen.size(); i-- > 0; step = steps[step].parent) chosen[i] = steps[step].candidate;
        return chosen;
    }

    /// The best choice with less work than `most`; without options where there is none.
    [[nodiscard]] RecomputationChoice by_states(double most) {
        RecomputationChoice result;
        std::vector<State> states{{0, 0, no_step, 0}};
        bytes_.assign(moments_.size(), {});
        steps_.clear();
        for (std::size_t i = 0; i < alike_of_.size(); ++i) {
            states = advanced(states, alike_[alike_of_[i]], rests_[i + 1], most);
            if (result.is_exact) {
                result.bound = most;
                for (auto const& state : states) result.bound = std::min(result.bound, state.promise);
            }
            if (states.size() <= problem_->most_states) continue;
            result.is_exact = false;
            std::nth_element(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(problem_->most_states),
                             states.end(), [](State const& a, State const& b) { return a.promise < b.promise; });
            states.resize(problem_->most_states);
        }
        if (states.empty()) return result;
        auto const best = std::min_element(states.begin(), states.end(),
                                           [](State const& a, State const& b) { return a.work < b.work; });
        auto choice = choice_of(chosen_by(steps_, best->step));
        choice.bound = result.is_exact ? choice.work : result.bound;
        choice.is_exact = result.is_exact;
        return choice;
    }
    /// All states with one more part, without those that are no better than others or cannot have less work than
    /// `most`.
    [[nodiscard]] std::vector<State> advanced(std::vector<State> const& states, Alike const& alike, Rest const& rest,
                                              double most) {
        std::size_t const moments = moments_.size();
        std::vector<HeldBytes> bytes;
        std::vector<State> next;
        for (auto const& state : states)
            for (std::size_t k = 0; k < alike.candidates.size(); ++k) {
                auto const& candidate = alike.candidates[k];
                State one{state.work + candidate.work, 0, parents_.size(), bytes.size()};
                double least = 0;
                for (std::size_t m = 0; m < moments && one.work + least < most; ++m) {
                    auto const& held = bytes.emplace_back(with(bytes_[state.at + m], candidate.in[m], rest.gap[m]));
                    double const room = moments_[m]->room - held.most;
                    least = room < 0 ? std::numeric_limits<double>::infinity()
                                     : std::max(least, rest.relaxed[m].within(room));
                }
                one.promise = one.work + least;
                if (!(one.promise < most)) {
                    bytes.resize(one.at);
                    continue;
                }
                parents_.push_back({state.step, k});
                next.push_back(one);
            }
        auto const lexical = [&](State const& a, State const& b) {
            for (std::size_t m = 0; m < moments; ++m) {
                auto const &x = bytes[a.at + m], &y = bytes[b.at + m];
                if (x.most != y.most) return x.most < y.most;
                if (x.base != y.base) return x.base < y.base;
            }
            return false;
        };
        std::stable_sort(next.begin(), next.end(), [&](State const& a, State const& b) {
            return a.work != b.work ? a.work < b.work : lexical(a, b);
        });
        auto const no_worse = [moments](HeldBytes const* a, HeldBytes const* b) {
            for (std::size_t m = 0; m < moments; ++m)
                if (a[m].most > b[m].most || a[m].base > b[m].base) return false;
            return true;
        };
        std::vector<State> kept;
        std::vector<std::size_t> front; // the Pareto front of the bytes of kept states: where each begins in bytes_
        bytes_.clear();
        for (auto state : next) {
            auto const* const own = bytes.data() + state.at;
            auto const found = std::find_if(front.begin(), front.end(),
                                            [&](std::size_t at) { return no_worse(bytes_.data() + at, own); });
            if (found != front.end()) { // it is likely to be no worse than the next state, too: it moves forward
                std::iter_swap(found, front.begin() + (found - front.begin()) / 2);
                continue;
            }
            std::erase_if(front, [&](std::size_t at) { return no_worse(own, bytes_.data() + at); });
            steps_.push_back(parents_[state.step]);
            state.step = steps_.size() - 1;
            state.at = bytes_.size();
            bytes_.insert(bytes_.end(), own, own + moments);
            front.push_back(state.at);
            kept.push_back(state);
        }
        parents_.clear();
        return kept;
    }

    RecomputationProblem const* problem_;
    std::vector<HeldMoment const*> moments_; ///< those that decide
    std::vector<Alike> alike_;
    std::vector<std::size_t> alike_of_; ///< of each part, the last first
    std::vector<Rest> rests_;
    bool cannot_fit_ = false;
    std::vector<Step> steps_, parents_;
    std::vector<HeldBytes> bytes_; ///< of the states, at each moment
};

} // namespace pentad::planner::detail

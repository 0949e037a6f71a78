// The search for the best configurations of a model on a machine: all meshes, orders of
// their axes, micro-batches, schedules, shardings of ZeRO, recomputation, sequence parallelism and strategies of
// attention over cp. Branch and bound: a configuration is timed only where bounds of its time and memory leave it a
// chance, so that what is found is what timing all of them would find.
#pragma once

#include <pentad/planner/detail/bounds.hpp>
#include <pentad/planner/estimate.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace pentad::planner {

/// What is asked for. What is given here is kept; the rest is searched.
struct Request {
    Model model;
    Hardware hardware; ///< with all its devices
    std::int64_t seq = 0;
    std::int64_t global_batch = 0;
    Element element = Element::bf16;
    std::vector<std::string> schedules{"1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe"};
    std::int64_t most_micro_batch = 8;
    std::int64_t most_chunks = 4;
    std::optional<std::int64_t> dp{}, pp{}, ep{}, cp{}, tp{}, micro_batch{}, micro_batches{}, chunks{};
    bool zigzag = true; ///< where cp shares out the sequence
    pentad::model::AttentionOutput attention_output = pentad::model::AttentionOutput::reduce_scatter;
    pentad::model::ExpertSharding expert_sharding = pentad::model::ExpertSharding::width;
    std::optional<int> zero{};
    std::optional<std::int64_t> zero_ranks{}; ///< of hybrid ZeRO; 0: all
    std::optional<bool> zero_keep{}, zero_accumulate{};
    bool gradient_release = false;
    pentad::model::Optimizer optimizer{};
    pentad::model::Precision precision{};
    pentad::model::Offload offload{};
    std::optional<model::Recomputation> recompute{}; ///< none: none, selective, full and automatic are tried
    pentad::model::TensorKind tensor_kind = pentad::model::TensorKind::one_d;
    std::optional<bool> sequence_parallel{};
    pentad::model::ContextChoice context{.kind = pentad::model::ContextChoice::Kind::automatic}; ///< attention over cp
    bool wants_front = true; ///< costs time: slower configurations are looked at for their memory
};

struct Candidate {
    Configuration configuration;
    Estimate estimate;
};

struct Findings {
    std::vector<Candidate> best;        ///< those that fit, the fastest first
    std::vector<Candidate> near_misses; ///< faster than the best, but they do not fit: those that lack least first
    std::vector<Candidate> front;       ///< each takes less memory than any that is as fast, the fastest first
    std::int64_t considered = 0;        ///< configurations that were not ruled out with others, all at once
    std::int64_t timed = 0;             ///< of them, those not ruled out by their own bounds
};

namespace detail {

/// What decides between configurations that are as fast: less memory, then the simpler one.
inline auto rank_of(Candidate const& x) {
    auto const& c = x.configuration;
    return std::tuple(x.estimate.step_s, x.estimate.memory_peak, c.sharding.stage, static_cast<int>(c.recompute.kind),
                      c.tp, c.cp, c.pp, c.ep, c.chunks, c.micro_batch, c.sharding.ranks, c.sharding.keeps_parameters,
                      c.sharding.accumulates_gradients, c.sequence_parallel, c.context, c.inner_cp);
}

/// Calls f(configuration) for every mesh of all devices, cut into micro-batches, that can run.
template <class F>
void for_each_mesh(Request const& request, F&& f) {
    auto const divisors = [](std::int64_t n) {
        std::vector<std::int64_t> found;
        for (std::int64_t d = 1; d * d <= n; ++d)
            if (n % d == 0) {
                found.push_back(d);
                if (d * d != n) found.push_back(n / d);
            }
        std::sort(found.begin(), found.end());
        return found;
    };
    auto const wanted = [](std::optional<std::int64_t> const& fixed, std::int64_t n) { return !fixed || *fixed == n; };
    Configuration c;
    c.seq = request.seq;
    c.global_batch = request.global_batch;
    c.element = request.element;
    c.optimizer = request.optimizer;
    c.precision = request.precision;
    c.offload = request.offload;
    c.zigzag = request.zigzag;
    c.tensor_kind = request.tensor_kind;
    c.attention_output = request.attention_output;
    c.expert_sharding = request.expert_sharding;
    auto const n = request.hardware.devices;
    for (auto const tp : divisors(n)) {
        for (auto const cp : divisors(n / tp)) {
            for (auto const ep : divisors(n / tp / cp)) {
                for (auto const pp : divisors(n / tp / cp / ep)) {
                    c.tp = tp, c.cp = cp, c.ep = ep, c.pp = pp, c.dp = n / tp / cp / ep / pp;
                    if (!wanted(request.tp, tp) || !wanted(request.cp, cp) || !wanted(request.ep, ep) ||
                        !wanted(request.pp, pp) || !wanted(request.dp, c.dp) || pp > request.model.layers() ||
                        request.global_batch % (c.dp * ep) != 0)
                        continue;
                    auto const share = request.global_batch / (c.dp * ep);
                    for (c.micro_batch = 1; c.micro_batch <= std::min(share, request.most_micro_batch); ++c.micro_batch)
                        if (share % c.micro_batch == 0 && wanted(request.micro_batch, c.micro_batch) &&
                            wanted(request.micro_batches, share / c.micro_batch))
                            f(c);
                }
            }
        }
    }
}

/// The orders of the axes that differ in what is near: which tier of links joins each axis.
inline std::vector<Configuration> orders_of(Configuration const& mesh, Hardware const& hardware) {
    std::vector<Configuration> found;
    std::vector<Rates::Tiers> seen;
    std::vector<std::string_view> moved;
    for (auto const axis : axis_order)
        if (mesh.extent(axis) > 1) moved.push_back(axis);
    std::sort(moved.begin(), moved.end());
    do {
        auto c = mesh;
        std::size_t next = 0;
        for (auto const axis : axis_order)
            if (mesh.extent(axis) == 1) c.order[next++] = axis;
        for (auto const axis : moved) c.order[next++] = axis;
        auto const tiers = Rates(hardware, c).tiers();
        if (std::find(seen.begin(), seen.end(), tiers) != seen.end()) continue;
        seen.push_back(tiers);
        found.push_back(c);
    } while (std::next_permutation(moved.begin(), moved.end()));
    return found;
}

/// The mesh with each way of attention over cp that is open and can run. Where cp is open, it is not so large that half
/// of what ranks hold is padding.
inline std::vector<Configuration> context_ways(Request const& request, Configuration c) {
    std::vector<Configuration> ways;
    for (auto const& split : context_splits(request.context, request.model, c, request.hardware.devices_per_node)) {
        c.use(split);
        bool const pays = c.cp == 1 || request.cp || c.padded_seq() < 2 * c.seq;
        if (pays && misfit(request.model, c).empty()) ways.push_back(c);
    }
    return ways;
}
/// A way of attention over cp, and the orders of the axes in which it is tried; none: all.
struct ContextWay {
    Configuration mesh;
    std::vector<Configuration> orders;
};
/// In each order of the axes the fastest of the ways, and the one that keeps least: the others would have the same
/// schedules, shardings and recomputation.
inline std::vector<ContextWay> worthwhile(std::vector<Configuration> const& ways, Request const& request) {
    if (ways.size() == 1) return {{ways.front(), {}}};
    std::vector<Account> accounts;
    std::vector<double> kept;
    auto const whole = stage_shapes(request.model, 1).front();
    for (auto const& way : ways) {
        accounts.emplace_back(request.model, way);
        kept.push_back(0);
        accounts.back().for_each_kind(
            whole, [&](MeshPart const& part, double count) { kept.back() += count * part.memory.saved; });
    }
    std::map<std::array<std::string_view, 5>, std::vector<double>> seconds; // of each way, by the order of the axes
    auto const seconds_in = [&](Configuration const& order) -> std::vector<double> const& {
        auto const [at, is_new] = seconds.try_emplace(order.order);
        for (std::size_t i = 0; is_new && i < ways.size(); ++i) {
            auto way = ways[i];
            way.order = order.order;
            at->second.push_back(StageTimes(accounts[i], Rates(request.hardware, way)).of(whole).seconds());
        }
        return at->second;
    };
    auto const is_least = [](std::vector<double> const& values, std::size_t i) {
        return static_cast<std::size_t>(std::min_element(values.begin(), values.end()) - values.begin()) == i;
    };
    std::vector<ContextWay> found;
    for (std::size_t i = 0; i < ways.size(); ++i) {
        auto orders = orders_of(ways[i], request.hardware);
        if (!is_least(kept, i))
            std::erase_if(orders, [&](auto const& order) { return !is_least(seconds_in(order), i); });
        if (!orders.empty()) found.push_back({ways[i], std::move(orders)});
    }
    return found;
}

/// The schedules to try on a mesh, with their chunks.
inline std::vector<std::pair<std::string, std::int64_t>> schedules_for(Request const& request, Configuration const& c) {
    if (c.pp == 1) return {{"1f1b", 1}};
    std::vector<std::pair<std::string, std::int64_t>> found;
    for (auto const& name : request.schedules) {
        auto const* generator = pipeline::find_generator(name);
        if (generator == nullptr) continue;
        for (std::int64_t chunks = 1; chunks <= std::max(request.most_chunks, request.chunks.value_or(1)); ++chunks) {
            if ((request.chunks && *request.chunks != chunks) || chunks * c.pp > request.model.layers() ||
                !generator->takes_chunks(static_cast<int>(chunks)))
                continue;
            if (name == "interleaved-1f1b" && chunks == 1 && !request.chunks) continue; // is 1F1B
            auto tried = c;
            tried.schedule = name;
            tried.chunks = chunks;
            tried.sharding.releases_gradients = request.gradient_release;
            if (misfit(request.model, tried).empty()) found.emplace_back(name, chunks);
        }
    }
    return found;
}

/// The ways to shard over all ranks that differ on a mesh.
inline std::vector<ZeroSharding> shardings_for(Request const& request, Configuration const& c) {
    std::vector<ZeroSharding> found;
    for (int stage = 0; stage <= 3; ++stage) {
        if (request.zero ? *request.zero != stage : stage > 0 && c.dp * c.ep * c.cp == 1) continue;
        for (bool const keeps : {false, true})
            for (bool const accumulates : {false, true}) {
                // Of a single micro-batch there is nothing to accumulate. Stage 2 that accumulates is stage 1, and
                // stage 3 that keeps and accumulates sends as much and holds more.
                bool const is_tried = !accumulates || request.zero_accumulate ||
                                      (c.micro_batches() > 1 && (request.zero == stage || (stage == 3 && !keeps)));
                ZeroSharding const sharding{.stage = stage,
                                            .keeps_parameters = keeps,
                                            .accumulates_gradients = accumulates,
                                            .releases_gradients = request.gradient_release};
                if (is_tried && request.zero_keep.value_or(keeps) == keeps &&
                    request.zero_accumulate.value_or(accumulates) == accumulates && sharding.refusal().empty())
                    found.push_back(sharding);
            }
    }
    return found;
}

/// Calls f(configuration, bounds) for every configuration with the mesh and the way of attention.
template <class May, class F>
void for_each_on(ContextWay const& way, Request const& request, Pipelines& pipelines, May&& may, F&& f) {
    auto orders = way.orders;
    using Kind = model::Recomputation::Kind;
    for (auto const kind : {Kind::none, Kind::selective, Kind::automatic, Kind::full}) {
        if (request.recompute && kind != Kind::none) continue;
        auto c = way.mesh;
        if (!request.recompute) c.recompute.kind = kind;
        Bounds bounds(request.model, request.hardware, c);
        for (auto const& [schedule, chunks] : schedules_for(request, c)) {
            c.schedule = schedule;
            c.chunks = chunks;
            bounds.arrange(c, pipelines);
            bounds.place_anyhow(c);
            std::vector<ZeroSharding> shardings;
            for (auto const& sharding : shardings_for(request, c)) {
                c.sharding = sharding;
                bounds.shard(c);
                // Hybrid sharding keeps more, and sends no less than what is left out here.
                if (may(c.sharding.stage > 0 ? bounds.unsynchronised() : bounds.seconds(), bounds.bytes()))
                    shardings.push_back(sharding);
            }
            if (shardings.empty()) continue;
            if (orders.empty()) orders = orders_of(way.mesh, request.hardware);
            for (auto const& order : orders) {
                c.order = order.order;
                bounds.place(c);
                // Hybrid: sharded where links are fast, copies beyond.
                auto const near = request.zero_ranks.value_or(bounds.near_ranks());
                bool const is_hybrid =
                    request.zero_ranks ? near > 0 && c.dp % near == 0 : near > 1 && near < c.dp && c.dp % near == 0;
                for (auto const& sharding : shardings) {
                    c.sharding = sharding;
                    if (request.zero_ranks.value_or(0) == 0) {
                        bounds.shard(c);
                        f(c, bounds);
                    }
                    if (sharding.stage == 0 || !is_hybrid) continue;
                    c.sharding.ranks = static_cast<int>(near);
                    bounds.shard(c);
                    f(c, bounds);
                }
            }
        }
    }
}

/// The best so far, what is nearly as good, and the front of memory against time.
class Record {
  public:
    Record(std::size_t count, double limit, bool wants_front)
        : count_(count), limit_(limit), wants_front_(wants_front) {}

    /// Whether a configuration that takes at least so long and so much may have a place, or be a near miss.
    [[nodiscard]] bool may_enter(double seconds, double bytes) const {
        if (best_.size() < count_ || seconds <= best_.back().estimate.step_s) return true;
        return wants_front_ && bytes <= limit_ && !is_dominated(seconds, bytes);
    }
    void add(Candidate candidate) {
        auto const& e = candidate.estimate;
        if (!e.fits) return;
        if (wants_front_ && !is_dominated(e.step_s, e.memory_peak)) {
            std::erase_if(front_, [&](Candidate const& other) {
                return other.estimate.step_s >= e.step_s && other.estimate.memory_peak >= e.memory_peak;
            });
            front_.push_back(candidate);
        }
        auto const before = [](Candidate const& a, Candidate const& b) { return rank_of(a) < rank_of(b); };
        best_.insert(std::upper_bound(best_.begin(), best_.end(), candidate, before), candidate);
        if (best_.size() > count_) best_.pop_back();
    }
    /// One that cannot fit, by its bounds.
    void add_miss(Configuration const& c, double seconds, double lacking) {
        if (!best_.empty() && seconds >= best_.front().estimate.step_s) return;
        if (misses_.size() == most_misses && lacking >= misses_.front().lacking) return;
        misses_.push_back({c, seconds, lacking});
        std::push_heap(misses_.begin(), misses_.end());
        if (misses_.size() <= most_misses) return;
        std::pop_heap(misses_.begin(), misses_.end());
        misses_.pop_back();
    }
    [[nodiscard]] std::vector<Candidate> const& best() const { return best_; }
    [[nodiscard]] std::vector<Candidate> front() const {
        auto front = front_;
        std::sort(front.begin(), front.end(), [](auto const& a, auto const& b) { return rank_of(a) < rank_of(b); });
        return front;
    }
    [[nodiscard]] std::vector<Configuration> misses() const {
        std::vector<Configuration> found;
        for (auto const& miss : misses_) found.push_back(miss.configuration);
        return found;
    }

  private:
    static constexpr std::size_t most_misses = 64;
    struct Miss {
        Configuration configuration;
        double seconds, lacking;
        bool operator<(Miss const& other) const { return lacking < other.lacking; }
    };

    [[nodiscard]] bool is_dominated(double seconds, double bytes) const {
        return std::any_of(front_.begin(), front_.end(), [&](Candidate const& x) {
            return x.estimate.step_s <= seconds && x.estimate.memory_peak <= bytes;
        });
    }

    std::size_t count_;
    double limit_;
    bool wants_front_;
    std::vector<Candidate> best_, front_;
    std::vector<Miss> misses_;
};

} // namespace detail

/// Calls f(configuration, bounds) for every configuration of the space, those first whose meshes promise most.
/// @param may may(seconds, bytes): whether configurations that take at least so much are wanted; where not, they are
/// left out all at once
template <class May, class F>
void for_each_configuration(Request const& request, Pipelines& pipelines, May&& may, F&& f) {
    struct Start {
        double seconds;
        std::vector<Configuration> ways;
    };
    std::vector<Start> starts;
    auto const& machine = request.hardware;
    detail::for_each_mesh(request, [&](Configuration const& mesh) {
        for (bool const sequence_parallel : {true, false}) {
            auto c = mesh;
            c.sequence_parallel = sequence_parallel;
            c.recompute = request.recompute.value_or(model::Recomputation{});
            bool const wanted = mesh.tp == 1 || mesh.tensor_kind != model::TensorKind::one_d
                                    ? !sequence_parallel
                                    : request.sequence_parallel.value_or(sequence_parallel) == sequence_parallel;
            if (!wanted) continue;
            Start start{std::numeric_limits<double>::infinity(), detail::context_ways(request, c)};
            for (auto const& way : start.ways)
                start.seconds = std::min(start.seconds, Bounds(request.model, machine, way).least_seconds(way));
            if (!start.ways.empty()) starts.push_back(std::move(start));
        }
    });
    std::stable_sort(starts.begin(), starts.end(), [](auto const& a, auto const& b) { return a.seconds < b.seconds; });
    for (auto const& start : starts) {
        if (!may(start.seconds, 0.0)) continue; // what is computed again only adds
        for (auto const& way : detail::worthwhile(start.ways, request))
            detail::for_each_on(way, request, pipelines, may, f);
    }
}

/// Whether automatic recomputation came to what is tried by itself.
[[nodiscard]] inline bool is_tried_twice(Request const& request, Candidate const& candidate) {
    using Kind = model::Recomputation::Kind;
    if (request.recompute || candidate.configuration.recompute.kind != Kind::automatic) return false;
    auto const& found = candidate.estimate.recompute;
    return found.kind == Kind::none || found.kind == Kind::full ||
           found == model::Recomputation{.kind = Kind::selective};
}

/// The `count` fastest configurations that fit, exact within the model of estimate().
inline Findings search(Request const& request, std::size_t count) {
    Findings findings;
    Pipelines pipelines;
    double const limit = request.hardware.memory_bytes;
    detail::Record record(count, limit, request.wants_front);
    auto const time = [&](Configuration const& c) {
        ++findings.timed;
        return Candidate{c, estimate(request.model, request.hardware, c, pipelines)};
    };
    for_each_configuration(
        request, pipelines, [&](double seconds, double bytes) { return record.may_enter(seconds, bytes); },
        [&](Configuration const& c, Bounds const& bounds) {
            ++findings.considered;
            bool const is_automatic = c.recompute.kind == model::Recomputation::Kind::automatic;
            if (bounds.bytes() > limit) {
                if (!is_automatic || request.recompute) record.add_miss(c, bounds.seconds(), bounds.bytes() - limit);
            } else if (record.may_enter(bounds.seconds(), bounds.bytes())) {
                auto const candidate = time(c);
                if (is_tried_twice(request, candidate)) return;
                if (candidate.estimate.fits)
                    record.add(candidate);
                else
                    record.add_miss(c, candidate.estimate.step_s, candidate.estimate.memory_peak - limit);
            }
        });
    findings.best = record.best();
    findings.front = record.front();
    for (auto const& c : record.misses()) {
        auto const candidate = time(c);
        if (findings.best.empty() || candidate.estimate.step_s < findings.best.front().estimate.step_s)
            findings.near_misses.push_back(candidate);
    }
    std::sort(findings.near_misses.begin(), findings.near_misses.end(),
              [](Candidate const& a, Candidate const& b) { return a.estimate.memory_peak < b.estimate.memory_peak; });
    return findings;
}

} // namespace pentad::planner

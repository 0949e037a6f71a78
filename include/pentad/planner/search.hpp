// The search for the best configurations of a model on a machine: all meshes, foldings of experts, orders of
// their axes, micro-batches, schedules, shardings of ZeRO, recomputation, sequence parallelism and strategies of
// attention over cp. Branch and bound: a configuration is timed only where bounds of its time and memory leave it a
// chance, so that what is found is what timing all of them would find.
#pragma once

#include <pentad/planner/detail/bounds.hpp>
#include <pentad/planner/detail/comparable.hpp>
#include <pentad/planner/detail/least_times.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/strategy/field_set.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace pentad::planner {

/// The fields of a strategy that a search can choose, beside the order of the axes and the strategy of attention over
/// cp.
inline constexpr StrategyFields searched_fields{&Strategy::dp,
                                                &Strategy::pp,
                                                &Strategy::ep,
                                                &Strategy::cp,
                                                &Strategy::tp,
                                                &Strategy::experts,
                                                &Strategy::micro_batches,
                                                &Strategy::schedule,
                                                &Strategy::chunks,
                                                &Strategy::pairs,
                                                &Strategy::balances_stages,
                                                &model::BlockStrategy::sequence_parallel,
                                                &model::BlockStrategy::zigzag,
                                                &model::BlockStrategy::attention_output,
                                                &Strategy::recompute,
                                                &ZeroSharding::stage,
                                                &ZeroSharding::ranks,
                                                &ZeroSharding::keeps_parameters,
                                                &ZeroSharding::accumulates_gradients};

/// A search varies the open fields of a strategy and keeps the others as given.
struct Request {
    Model model;
    Hardware hardware; ///< with all its devices
    Strategy given{};
    /// Some of searched_fields; stage layers that are given are kept. Open pairs are on where tokens travel to experts.
    StrategyFields open = searched_fields;
    std::vector<std::string> schedules{"1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe"}; ///< where it is open
    std::int64_t least_micro_batch = 1, most_micro_batch = 8; ///< sequences, where the number of micro-batches is open
    std::int64_t most_chunks = 4;                             ///< if chunks are open
    model::ContextChoice context{.kind = model::ContextChoice::Kind::automatic}; ///< attention over cp
    bool wants_front = true; ///< costs time: slower configurations are looked at for their memory

    /// A field is given.
    template <class Of, class Member, class Value>
    void keep(Member Of::* field, Value const& value) {
        part_of<Of>(given).*field = value;
        open.remove(field);
    }
    /// Whether a value of a field is to be looked at.
    template <class Of, class Member>
    [[nodiscard]] bool wants(Member Of::* field, Member const& value) const {
        return open.contains(field) || part_of<Of>(given).*field == value;
    }
};

/// How much less memory makes a slower configuration worth a place on the front (epsilon-dominance: Laumanns et al.
/// 2002), and how much slower than the fastest it may be.
inline constexpr double memory_resolution = 0.99, slowest_of_front = 2;

struct Candidate {
    Strategy strategy;
    Estimate estimate;
};

struct Findings {
    std::vector<Candidate> best;        ///< those that fit, the fastest first; no two of them are_variants()
    std::vector<Candidate> near_misses; ///< faster than the best, but they do not fit: those that lack least first
    /// Memory against time, the fastest first: each takes less memory than any other that is as fast. A configuration
    /// that is not slower than slowest_of_front times the fastest finds one here that is as fast and takes no more than
    /// its memory / memory_resolution. With automatic recomputation, which takes what memory there is, the best alone.
    std::vector<Candidate> front;
    std::int64_t considered = 0; ///< configurations that were not ruled out with others, all at once
    std::int64_t timed = 0;      ///< of them, those not ruled out by their own bounds
};

namespace detail {

/// What decides between configurations that are as fast: less memory, then the simpler one.
inline auto rank_of(Candidate const& x) {
    auto const& c = x.strategy;
    return std::tuple(comparable(x.estimate.step_s), comparable(x.estimate.memory_peak), c.sharding.stage,
                      static_cast<int>(c.recompute.kind), c.tp, c.cp, c.pp, c.expert_mesh().ep, c.experts.has_value(),
                      c.chunks, c.micro_batch(), c.sharding.ranks, c.sharding.keeps_parameters,
                      c.sharding.accumulates_gradients, !c.block.zigzag, c.block);
}

inline std::vector<std::int64_t> divisors(std::int64_t n) {
    std::vector<std::int64_t> found;
    for (std::int64_t d = 1; d * d <= n; ++d)
        if (n % d == 0) {
            found.push_back(d);
            if (d * d != n) found.push_back(n / d);
        }
    std::sort(found.begin(), found.end());
    return found;
}

/// Calls f(configuration) for the ways to fold whole experts over the ranks of a stage that those of ep are not.
template <class F>
void for_each_folding(Request const& request, Strategy c, F&& f) {
    auto const* const experts = request.model.experts();
    bool const is_open = request.open.contains(&Strategy::experts) && request.open.contains(&Strategy::ep);
    if (experts == nullptr || !is_open || c.ep > 1 || c.cp * c.tp == 1) return;
    c.order = {"pp", "dp", "ep", "cp", "tp"};
    for (auto const ep : divisors(c.dp * c.cp * c.tp)) {
        if (static_cast<std::int64_t>(experts->count) % ep != 0 || (c.tp == 1 && c.dp % ep == 0)) continue;
        c.experts = model::ExpertMesh{static_cast<int>(ep), 1};
        f(c);
    }
}

/// Calls f(configuration) for every mesh of all devices, cut into micro-batches, that can run.
template <class F>
void for_each_mesh(Request const& request, F&& f) {
    auto c = request.given; // schedule, stages and sharding are set later
    c.schedule = Strategy{}.schedule;
    c.chunks = 0;
    c.stage_layers = {};
    c.balances_stages = false;
    c.sharding = {};
    if (request.open.contains(&Strategy::experts)) c.experts.reset();
    c.order = axis_order;
    if (c.experts) c.order = {"pp", "dp", "ep", "cp", "tp"};
    auto const n = request.hardware.devices;
    bool const has_experts = request.model.experts() != nullptr;
    for (auto const tp : divisors(n)) {
        for (auto const cp : divisors(n / tp)) {
            for (auto const ep : divisors(n / tp / cp)) {
                for (auto const pp : divisors(n / tp / cp / ep)) {
                    c.tp = tp, c.cp = cp, c.ep = ep, c.pp = pp, c.dp = n / tp / cp / ep / pp;
                    if (!request.wants(&Strategy::tp, tp) || !request.wants(&Strategy::cp, cp) ||
                        !request.wants(&Strategy::ep, ep) || !request.wants(&Strategy::pp, pp) ||
                        !request.wants(&Strategy::dp, c.dp) || pp > request.model.layers() ||
                        (ep > 1 && !has_experts && request.open.contains(&Strategy::ep)) || // dp does the same
                        c.batch % (c.dp * ep) != 0)
                        continue;
                    if (c.local.is_on() && !c.averages_groups()) continue; // there is none to average with
                    auto const share = c.batch / (c.dp * ep);
                    bool const is_open = request.open.contains(&Strategy::micro_batches);
                    auto const most = is_open ? std::min(share, request.most_micro_batch) : share;
                    for (auto sequences = is_open ? request.least_micro_batch : 1; sequences <= most; ++sequences)
                        if (share % sequences == 0 && request.wants(&Strategy::micro_batches, share / sequences)) {
                            c.micro_batches = share / sequences;
                            f(c);
                            for_each_folding(request, c, f);
                        }
                }
            }
        }
    }
}

/// The mesh with each layout of the residual stream that is open: sequence parallelism, the order of a sequence over cp
/// and the output of attention.
std::vector<Strategy> streams_on(Request const& request, Strategy const& mesh);

/// The orders of the axes that differ in what is near: which tier of links joins each axis.
std::vector<Strategy> orders_of(Strategy const& mesh, Hardware const& hardware);

/// The mesh with each layout of the stream and each way of attention over cp that are open and that no rule forbids.
/// Where cp is open, it is not so large that half of the tokens that ranks hold are padding.
/// @param can_run experts can run on the mesh in these ways, too
std::vector<Strategy> ways_on(Request const& request, Strategy const& mesh, bool can_run = true);
/// A way to lay a mesh's layers out, and the orders of the axes in which it is tried.
struct Way {
    struct InOrder {
        std::array<std::string_view, axis_order.size()> axes;
        double seconds; ///< of a step, at the least
    };
    Strategy mesh;
    std::vector<InOrder> orders;
};
/// In each order of the axes the fastest of the ways, alone and where its passes are paired, and the one that keeps
/// least: the others would have the same schedules, shardings and recomputation.
std::vector<Way> worthwhile(std::vector<Strategy> ways, Request const& request, LeastTimes& times);

/// Whether one of the schedules to try on a mesh may have pairs.
bool may_pair(Request const& request, Strategy const& c);
/// The schedules to try on a mesh, with their chunks.
std::vector<std::pair<std::string, std::int64_t>> schedules_for(Request const& request, Strategy const& c);

/// The layers of each stage to try with a schedule, as of Strategy::stage_layers: as asked, or evenly and
/// balanced.
std::vector<std::vector<std::int64_t>> stage_deals(Request const& request, Strategy const& c, std::int64_t stages,
                                                   Bounds& bounds);

/// The ways to shard over all ranks that differ on a mesh.
std::vector<ZeroSharding> shardings_for(Request const& request, Strategy const& c);

/// Calls f(configuration, bounds) for every configuration with the mesh and its layouts.
template <class May, class F>
void for_each_on(Way const& way, Request const& request, Pipelines& pipelines, May&& may, F&& f) {
    using Kind = model::Recomputation::Kind;
    for (auto const kind : {Kind::none, Kind::selective, Kind::automatic, Kind::full}) {
        bool const is_open = request.open.contains(&Strategy::recompute);
        if (!is_open && kind != Kind::none) continue;
        // Recomputation only adds to these bounds.
        auto const may_in = [&](Way::InOrder const& order) { return may(order.seconds, 0.0); };
        if (std::none_of(way.orders.begin(), way.orders.end(), may_in)) return;
        auto c = way.mesh;
        if (is_open) c.recompute.kind = kind;
        Bounds bounds(request.model, request.hardware, c);
        for (auto const& [schedule, chunks] : schedules_for(request, c)) {
            c.schedule = schedule;
            c.chunks = chunks;
            for (auto const& layers : stage_deals(request, c, pipelines.schedule(c).stages(), bounds)) {
                c.stage_layers = layers;
                bounds.arrange(c, pipelines);
                bounds.place_anyhow(c);
                std::vector<ZeroSharding> shardings;
                for (auto const& sharding : shardings_for(request, c)) {
                    c.sharding = sharding;
                    bounds.shard(c);
                    // Hybrid sharding keeps more, and sends no less than what is left out here.
                    if (may(c.sharding.stage > 0 ? bounds.unsynchronised() : bounds.seconds(), bounds.weighed_bytes()))
                        shardings.push_back(sharding);
                }
                if (shardings.empty()) continue;
                for (auto const& order : way.orders) {
                    if (!may_in(order)) continue;
                    c.order = order.axes;
                    // Which ranks are neighbours along dp is a matter of the order.
                    if (c.local.is_on() && !misfit(request.model, c).empty()) continue;
                    bounds.place(c);
                    if (!may(bounds.unsynchronised(), 0.0)) continue;
                    // Hybrid: sharded where links are fast, copies beyond.
                    bool const any_ranks = request.open.contains(&ZeroSharding::ranks);
                    auto const near = any_ranks ? bounds.near_ranks() : request.given.sharding.ranks;
                    bool const is_hybrid = near > 0 && (!any_ranks || (near > 1 && near < c.data_ranks())) &&
                                           !c.local.is_on() && c.views().can_split<ml::dp>(static_cast<int>(near));
                    for (auto const& sharding : shardings) {
                        c.sharding = sharding;
                        if (request.wants(&ZeroSharding::ranks, 0)) {
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
}

/// Whether plans differ only in how many stages each rank has, in the order of the axes, and in the layers of stages.
[[nodiscard]] bool are_variants(Strategy const& a, Strategy const& b);

/// The best so far, each the fastest of its variants; what is nearly as good, and the front of memory against time.
class Record {
  public:
    Record(std::size_t count, double limit, bool wants_front)
        : count_(count), limit_(limit), wants_front_(wants_front) {}

    /// Whether a configuration that takes at least so long and so much may have a place, or be a near miss.
    [[nodiscard]] bool may_enter(double seconds, double bytes) const {
        if (best_.size() < count_ || comparable(seconds) <= comparable(best_.back().estimate.step_s)) return true;
        return wants_front_ && bytes <= limit_ && seconds <= slowest_of_front * best_.front().estimate.step_s &&
               !is_dominated(seconds, bytes);
    }
    void add(Candidate candidate);
    /// One that cannot fit, by its bounds.
    void add_miss(Strategy const& c, double seconds, double lacking);
    [[nodiscard]] std::vector<Candidate> const& best() const { return best_; }
    [[nodiscard]] std::vector<Candidate> front() const {
        auto front = front_;
        std::erase_if(front, [&](Candidate const& x) {
            return x.estimate.step_s > slowest_of_front * best_.front().estimate.step_s;
        });
        std::sort(front.begin(), front.end(), [](auto const& a, auto const& b) { return rank_of(a) < rank_of(b); });
        return front;
    }
    [[nodiscard]] std::vector<Strategy> misses() const {
        std::vector<Strategy> found;
        for (auto const& miss : misses_) found.push_back(miss.strategy);
        return found;
    }

  private:
    static constexpr std::size_t most_misses = 64;
    struct Miss {
        Strategy strategy;
        float lacking; ///< bytes
        bool operator<(Miss const& other) const { return lacking < other.lacking; }
    };

    [[nodiscard]] bool is_dominated(double seconds, double bytes) const {
        return std::any_of(front_.begin(), front_.end(), [&](Candidate const& x) {
            return comparable(x.estimate.step_s) <= comparable(seconds) &&
                   comparable(memory_resolution * x.estimate.memory_peak) <= comparable(bytes);
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
        float seconds;     ///< of a step, at the least
        std::int64_t made; ///< before it: the first of equals comes first
        bool is_known;     ///< what experts take on the mesh is in it
        Strategy mesh;
        bool operator<(Start const& other) const { // the fastest is on top
            return std::tie(seconds, made) > std::tie(other.seconds, other.made);
        }
    };
    std::priority_queue<Start> starts;
    std::int64_t made = 0;
    detail::LeastTimes times(request.model, request.hardware);
    auto const push = [&](bool is_known, Strategy const& mesh) {
        double least = std::numeric_limits<double>::infinity();
        auto const ways = detail::ways_on(request, mesh, is_known);
        for (auto const& way : ways) {
            bool const pairs = detail::may_pair(request, way);
            least = std::min(least, is_known ? times.step(way, pairs) : times.step_beside_experts(way, pairs));
        }
        if (!ways.empty()) starts.push({detail::comparable(least), made++, is_known, mesh});
    };
    bool const has_experts = request.model.experts() != nullptr;
    detail::for_each_mesh(request, [&](Strategy const& mesh) { push(!has_experts, mesh); });
    while (!starts.empty()) {
        auto const [seconds, number, is_known, mesh] = starts.top();
        starts.pop();
        if (!may(seconds, 0.0)) continue; // recomputation only adds to it
        if (!is_known)
            push(true, mesh);
        else
            for (auto const& way : detail::worthwhile(detail::ways_on(request, mesh), request, times))
                detail::for_each_on(way, request, pipelines, may, f);
    }
}

/// Whether automatic recomputation came to what is tried by itself.
[[nodiscard]] bool is_tried_twice(Request const& request, Candidate const& candidate);

/// The `count` fastest configurations that fit, of each with its variants (detail::are_variants()) the fastest. Exact
/// within the model of estimate().
Findings search(Request const& request, std::size_t count);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/search.hpp>
#endif

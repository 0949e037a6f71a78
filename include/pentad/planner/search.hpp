// The search for the best configurations of a model on a machine: all meshes, foldings of experts, orders of
// their axes, micro-batches, schedules, shardings of ZeRO, recomputation, sequence parallelism and strategies of
// attention over cp. Branch and bound: a configuration is timed only where bounds of its time and memory leave it a
// chance, so that what is found is what timing all of them would find.
#pragma once

#include <pentad/planner/detail/bounds.hpp>
#include <pentad/planner/estimate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pentad::planner {

/// What is asked for. What is given here is kept; the rest is searched.
struct Request {
    Model model;
    Hardware hardware; ///< with all its devices
    std::int64_t seq = 0;
    std::int64_t batch = 0; ///< sequences in a step
    Element element = Element::bf16;
    bool fp8_products = false; ///< as of a Strategy
    std::vector<std::string> schedules{"1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe"};
    std::int64_t most_micro_batch = 8;
    std::int64_t most_chunks = 4;
    std::optional<std::int64_t> dp{}, pp{}, ep{}, cp{}, tp{}, micro_batch{}, micro_batches{}, chunks{};
    bool zigzag = true; ///< where cp shares out the sequence
    pentad::model::AttentionOutput attention_output = pentad::model::AttentionOutput::reduce_scatter;
    std::optional<pentad::model::ExpertMesh> experts{}; ///< as of a Strategy, instead of ep
    std::optional<int> zero{};
    std::optional<std::int64_t> zero_ranks{}; ///< of hybrid ZeRO; 0: all
    std::optional<bool> zero_keep{}, zero_accumulate{};
    bool gradient_release = false;
    pentad::model::Optimizer optimizer{};
    pentad::model::Precision precision{};
    pentad::model::Offload offload{};
    LocalSteps local{};
    std::int64_t bucket_elements = Strategy{}.bucket_elements;
    std::optional<model::Recomputation> recompute{}; ///< none: none, selective, full and automatic are tried
    pentad::model::TensorKind tensor_kind = pentad::model::TensorKind::one_d;
    std::optional<bool> sequence_parallel{};
    std::optional<bool> pairs{};              ///< of schedules that have them; none: where tokens travel to experts
    std::vector<std::int64_t> stage_layers{}; ///< of each stage; none: dealt evenly, or balanced
    std::optional<bool> balances_stages{};    ///< as of a Strategy; none: both are tried
    pentad::model::ContextChoice context{.kind = pentad::model::ContextChoice::Kind::automatic}; ///< attention over cp
    bool wants_front = true; ///< costs time: slower configurations are looked at for their memory
};

struct Candidate {
    Strategy strategy;
    Estimate estimate;
};

struct Findings {
    std::vector<Candidate> best;        ///< those that fit, the fastest first; no two of them are_variants()
    std::vector<Candidate> near_misses; ///< faster than the best, but they do not fit: those that lack least first
    std::vector<Candidate> front;       ///< each takes less memory than any that is as fast, the fastest first
    std::int64_t considered = 0;        ///< configurations that were not ruled out with others, all at once
    std::int64_t timed = 0;             ///< of them, those not ruled out by their own bounds
};

namespace detail {

/// What decides between configurations that are as fast: less memory, then the simpler one.
inline auto rank_of(Candidate const& x) {
    auto const& c = x.strategy;
    return std::tuple(x.estimate.step_s, x.estimate.memory_peak, c.sharding.stage, static_cast<int>(c.recompute.kind),
                      c.tp, c.cp, c.pp, c.expert_mesh().ep, c.experts.has_value(), c.chunks, c.micro_batch(),
                      c.sharding.ranks, c.sharding.keeps_parameters, c.sharding.accumulates_gradients,
                      c.sequence_parallel, c.context, c.inner_cp);
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
    if (experts == nullptr || request.experts || request.ep || c.ep > 1 || c.cp * c.tp == 1) return;
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
    auto const wanted = [](std::optional<std::int64_t> const& fixed, std::int64_t n) { return !fixed || *fixed == n; };
    Strategy c;
    c.seq = request.seq;
    c.batch = request.batch;
    c.element = request.element;
    c.fp8_products = request.fp8_products;
    c.optimizer = request.optimizer;
    c.precision = request.precision;
    c.offload = request.offload;
    c.local = request.local;
    c.bucket_elements = request.bucket_elements;
    c.zigzag = request.zigzag;
    c.tensor_kind = request.tensor_kind;
    c.attention_output = request.attention_output;
    c.experts = request.experts;
    if (c.experts) c.order = {"pp", "dp", "ep", "cp", "tp"};
    auto const n = request.hardware.devices;
    for (auto const tp : divisors(n)) {
        for (auto const cp : divisors(n / tp)) {
            for (auto const ep : divisors(n / tp / cp)) {
                for (auto const pp : divisors(n / tp / cp / ep)) {
                    c.tp = tp, c.cp = cp, c.ep = ep, c.pp = pp, c.dp = n / tp / cp / ep / pp;
                    if (!wanted(request.tp, tp) || !wanted(request.cp, cp) || !wanted(request.ep, ep) ||
                        !wanted(request.pp, pp) || !wanted(request.dp, c.dp) || pp > request.model.layers() ||
                        request.batch % (c.dp * ep) != 0)
                        continue;
                    if (c.local.is_on() && !c.averages_groups()) continue; // there is none to average with
                    auto const share = request.batch / (c.dp * ep);
                    for (std::int64_t sequences = 1; sequences <= std::min(share, request.most_micro_batch);
                         ++sequences)
                        if (share % sequences == 0 && wanted(request.micro_batch, sequences) &&
                            wanted(request.micro_batches, share / sequences)) {
                            c.micro_batches = share / sequences;
                            f(c);
                            for_each_folding(request, c, f);
                        }
                }
            }
        }
    }
}

/// The orders of the axes that differ in what is near: which tier of links joins each axis.
std::vector<Strategy> orders_of(Strategy const& mesh, Hardware const& hardware);

/// The mesh with each way of attention over cp that is open and can run. Where cp is open, it is not so large that half
/// of what ranks hold is padding.
std::vector<Strategy> context_ways(Request const& request, Strategy c);
/// A way of attention over cp, and the orders of the axes in which it is tried; none: all.
struct ContextWay {
    Strategy mesh;
    std::vector<Strategy> orders;
};
/// In each order of the axes the fastest of the ways, and the one that keeps least: the others would have the same
/// schedules, shardings and recomputation.
std::vector<ContextWay> worthwhile(std::vector<Strategy> const& ways, Request const& request);

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
            for (auto const& layers : stage_deals(request, c, pipelines.schedule(c).stages(), bounds)) {
                c.stage_layers = layers;
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
                    bool const can_cut = near > 0 && c.views().can_split<ml::dp>(static_cast<int>(near));
                    bool const is_hybrid = can_cut && (request.zero_ranks || (near > 1 && near < c.data_ranks()));
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
        if (best_.size() < count_ || seconds <= best_.back().estimate.step_s) return true;
        return wants_front_ && bytes <= limit_ && !is_dominated(seconds, bytes);
    }
    void add(Candidate candidate);
    /// One that cannot fit, by its bounds.
    void add_miss(Strategy const& c, double seconds, double lacking);
    [[nodiscard]] std::vector<Candidate> const& best() const { return best_; }
    [[nodiscard]] std::vector<Candidate> front() const {
        auto front = front_;
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
        std::vector<Strategy> ways;
    };
    std::vector<Start> starts;
    auto const& machine = request.hardware;
    detail::for_each_mesh(request, [&](Strategy const& mesh) {
        for (bool const sequence_parallel : {true, false}) {
            auto c = mesh;
            c.sequence_parallel = sequence_parallel;
            c.recompute = request.recompute.value_or(model::Recomputation{});
            c.pairs = request.pairs.value_or(c.sends_rows(request.model.experts() != nullptr));
            bool const wanted = mesh.tp == 1 || mesh.tensor_kind != model::TensorKind::one_d
                                    ? !sequence_parallel
                                    : request.sequence_parallel.value_or(sequence_parallel) == sequence_parallel;
            if (!wanted) continue;
            Start start{std::numeric_limits<double>::infinity(), detail::context_ways(request, c)};
            for (auto const& way : start.ways)
                start.seconds =
                    std::min(start.seconds,
                             Bounds(request.model, machine, way).least_seconds(way, detail::may_pair(request, way)));
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
[[nodiscard]] bool is_tried_twice(Request const& request, Candidate const& candidate);

/// The `count` fastest configurations that fit, of each with its variants (detail::are_variants()) the fastest. Exact
/// within the model of estimate().
Findings search(Request const& request, std::size_t count);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/search.hpp>
#endif

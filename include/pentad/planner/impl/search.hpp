// The functions of <pentad/planner/search.hpp>.
#pragma once

#include <pentad/planner/search.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/pipeline/generators.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <string_view>
#include <tuple>

namespace pentad::planner::detail {

PENTAD_INLINE std::vector<Strategy> streams_on(Request const& request, Strategy const& mesh) {
    std::vector<Strategy> found{mesh};
    using Block = model::BlockStrategy;
    auto const vary = [&]<class Member>(Member Block::* field, std::initializer_list<Member> values) {
        if (!request.open.contains(field)) return;
        std::vector<Strategy> varied;
        for (auto& c : found)
            for (auto const value : values) {
                c.block.*field = value;
                varied.push_back(c);
            }
        found = std::move(varied);
    };
    using Output = model::AttentionOutput;
    if (mesh.tp == 1 || mesh.block.tensor_kind != model::TensorKind::one_d)
        found.front().block.sequence_parallel = false;
    else
        vary(&Block::sequence_parallel, {true, false});
    if (mesh.cp == 1)
        vary(&Block::zigzag, {false});
    else
        vary(&Block::zigzag, {true, false});
    if (mesh.tp > 1) vary(&Block::attention_output, {Output::reduce_scatter, Output::all_to_all});
    return found;
}

PENTAD_INLINE std::vector<Strategy> orders_of(Strategy const& mesh, Hardware const& hardware) {
    std::vector<Strategy> found;
    std::vector<Rates::Tiers> seen;
    for_each_order(mesh, [&](Strategy const& c) {
        auto const tiers = Rates(hardware, c).tiers();
        if (std::find(seen.begin(), seen.end(), tiers) != seen.end()) return;
        seen.push_back(tiers);
        found.push_back(c);
    });
    return found;
}

PENTAD_INLINE std::vector<Strategy> ways_on(Request const& request, Strategy const& mesh, bool can_run) {
    bool const has_experts = request.model.experts() != nullptr;
    auto const splits = context_splits(request.context, request.model, mesh, request.hardware.devices_per_node);
    std::vector<Strategy> ways;
    for (auto c : streams_on(request, mesh)) {
        if (request.open.contains(&Strategy::recompute)) c.recompute = {};
        if (request.open.contains(&Strategy::pairs)) c.pairs = c.sends_rows(has_experts);
        for (auto const& split : splits) {
            c.block.use(split);
            bool const pays =
                c.cp == 1 || !request.open.contains(&Strategy::cp) || c.padded_seq(has_experts) < 2 * c.seq;
            if (pays && misfit_by_rules(request.model, c).empty() && (!can_run || request.model.has_sums(c)))
                ways.push_back(c);
        }
    }
    return ways;
}

/// Chooses among ways to lay a mesh's layers out, by sums of their work.
class WayChoice {
  public:
    WayChoice(std::vector<Strategy> ways, Request const& request, LeastTimes& times)
        : request_(&request), ways_(std::move(ways)), whole_(whole_shape(request.model, ways_.front())) {
        std::stable_sort(ways_.begin(), ways_.end(), [&](Strategy const& a, Strategy const& b) {
            return comparable(times.step(a, may_pair(request, a))) < comparable(times.step(b, may_pair(request, b)));
        });
        for (auto const& way : ways_) least_.push_back(comparable(times.step(way, may_pair(request, way))));
    }

    [[nodiscard]] std::vector<Way> found() {
        auto const keeps_least = least_kept();
        std::map<std::int64_t, std::vector<Strategy>> orders; // by what decides between them
        std::vector<Way> found;
        for (std::size_t i = 0; i < ways_.size(); ++i) {
            auto& known = orders[ways_[i].block.inner_cp];
            if (known.empty()) known = orders_of(ways_[i], request_->hardware);
            Way own{ways_[i], {}};
            for (auto const& order : known) {
                auto const& fastest = fastest_in(order);
                if (i != keeps_least && fastest[0] != i && fastest[1] != i) continue;
                auto const seconds = seconds_in(i, order);
                own.orders.push_back({order.order, passes(order) * std::min(seconds[0], seconds[1]) * (1 - 1e-6)});
            }
            if (!own.orders.empty()) found.push_back(std::move(own));
        }
        return found;
    }

  private:
    using Pair = std::array<double, 2>; ///< passes alone, and paired where a schedule may have pairs

    [[nodiscard]] Account sums(Strategy const& way, std::int64_t nodes) const {
        return Account(request_->model, way, 1, nodes, false, PartsFrom::sums);
    }
    /// Micro-batches divided by the ranks of the pipeline: a step takes at least so many passes through the whole
    /// model.
    [[nodiscard]] static double passes(Strategy const& c) {
        return static_cast<double>(c.micro_batches) / static_cast<double>(c.pp);
    }
    /// The way whose blocks keep the fewest bytes between the passes.
    [[nodiscard]] std::size_t least_kept() const {
        std::vector<float> kept;
        for (auto const& way : ways_) {
            double bytes = 0;
            sums(way, 1).for_each_kind(whole_,
                                       [&](MeshPart const& part, double count) { bytes += count * part.memory.saved; });
            kept.push_back(comparable(bytes));
        }
        return static_cast<std::size_t>(std::min_element(kept.begin(), kept.end()) - kept.begin());
    }
    /// Seconds of a pass through the whole model with the axes in an order.
    [[nodiscard]] Pair seconds_in(std::size_t i, Strategy const& order) const {
        auto way = ways_[i];
        way.order = order.order;
        auto const nodes = dispatch_nodes(request_->model, order, request_->hardware.devices_per_node);
        auto const time = StageTimes(sums(way, nodes), Rates(request_->hardware, way)).passes_of(whole_);
        return {time.seconds(), may_pair(*request_, order) ? time.paired_seconds() : time.seconds()};
    }
    /// The fastest ways in an order of the axes; a way cannot be faster than in the order that suits it best.
    [[nodiscard]] std::array<std::size_t, 2> const& fastest_in(Strategy const& order) {
        auto const [at, is_new] = fastest_.try_emplace(order.order);
        if (!is_new) return at->second;
        Pair least{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
        for (std::size_t i = 0; i < ways_.size() && least_[i] < passes(order) * std::max(least[0], least[1]); ++i) {
            auto const own = seconds_in(i, order);
            for (std::size_t k = 0; k < own.size(); ++k)
                if (comparable(own[k]) < comparable(least[k])) least[k] = own[k], at->second[k] = i;
        }
        return at->second;
    }

    Request const* request_;
    std::vector<Strategy> ways_; ///< those first that can be fastest
    std::vector<float> least_;   ///< seconds of a step of each
    StageShape whole_;           ///< all layers
    std::map<std::array<std::string_view, 5>, std::array<std::size_t, 2>> fastest_;
};

PENTAD_INLINE std::vector<Way> worthwhile(std::vector<Strategy> ways, Request const& request, LeastTimes& times) {
    while (!ways.empty()) {
        auto found = WayChoice(ways, request, times).found();
        // A dry run may refuse what sums do not.
        auto const refused = std::erase_if(found, [&](Way const& way) {
            if (request.model.why_not(way.mesh).empty()) return false;
            std::erase(ways, way.mesh);
            return true;
        });
        if (refused == 0) return found;
    }
    return {};
}

PENTAD_INLINE std::vector<std::vector<std::int64_t>> stage_deals(Request const& request, Strategy const& c,
                                                                 std::int64_t stages, Bounds& bounds) {
    if (!request.given.stage_layers.empty()) return {request.given.stage_layers};
    std::vector<std::vector<std::int64_t>> deals;
    auto even = pipeline::dealt_layers(request.model.layers(), stages);
    bool const is_even = request.model.layers() % stages == 0;
    if (request.wants(&Strategy::balances_stages, false) || c.pp == 1)
        deals.push_back(is_even ? std::vector<std::int64_t>() : even);
    if (!request.wants(&Strategy::balances_stages, true) || c.pp == 1) return deals;
    auto balanced = bounds.balanced_layers(c, stages);
    if (deals.empty() || balanced != even) deals.push_back(std::move(balanced));
    return deals;
}

PENTAD_INLINE std::vector<ZeroSharding> shardings_for(Request const& request, Strategy const& c) {
    std::vector<ZeroSharding> found;
    for (int stage = 0; stage <= 3; ++stage) {
        bool const is_given = !request.open.contains(&ZeroSharding::stage);
        if (!request.wants(&ZeroSharding::stage, stage) || (!is_given && stage > 0 && c.data_ranks() * c.cp == 1))
            continue;
        for (bool const keeps : {false, true})
            for (bool const accumulates : {false, true}) {
                // With a single micro-batch there is nothing to accumulate. Stage 2 that accumulates is stage 1, and
                // stage 3 that keeps and accumulates sends as much and holds more.
                bool const is_tried = !accumulates || !request.open.contains(&ZeroSharding::accumulates_gradients) ||
                                      (c.micro_batches > 1 && (is_given || (stage == 3 && !keeps)));
                ZeroSharding const sharding{.stage = stage,
                                            .keeps_parameters = keeps,
                                            .accumulates_gradients = accumulates,
                                            .releases_gradients = request.given.sharding.releases_gradients};
                if (is_tried && request.wants(&ZeroSharding::keeps_parameters, keeps) &&
                    request.wants(&ZeroSharding::accumulates_gradients, accumulates) && !sharding.refusal())
                    found.push_back(sharding);
            }
    }
    return found;
}

PENTAD_INLINE bool are_variants(Strategy const& a, Strategy const& b) {
    auto const choices = [](Strategy c) {
        c.order = axis_order;
        c.chunks = 0;
        c.stage_layers.clear();
        c.balances_stages = false;
        c.experts = c.expert_mesh();
        return c;
    };
    return choices(a) == choices(b);
}

PENTAD_INLINE void Record::add(Candidate candidate) {
    auto const& e = candidate.estimate;
    if (!e.fits) return;
    if (wants_front_ && !is_dominated(e.step_s, e.memory_peak)) {
        std::erase_if(front_, [&](Candidate const& other) {
            return comparable(other.estimate.step_s) >= comparable(e.step_s) &&
                   comparable(other.estimate.memory_peak) >= comparable(e.memory_peak);
        });
        front_.push_back(candidate);
    }
    auto const before = [](Candidate const& a, Candidate const& b) { return rank_of(a) < rank_of(b); };
    auto const variant = std::find_if(best_.begin(), best_.end(), [&](Candidate const& other) {
        return are_variants(other.strategy, candidate.strategy);
    });
    if (variant != best_.end()) {
        if (!before(candidate, *variant)) return;
        best_.erase(variant);
    }
    best_.insert(std::upper_bound(best_.begin(), best_.end(), candidate, before), candidate);
    if (best_.size() > count_) best_.pop_back();
}

PENTAD_INLINE void Record::add_miss(Strategy const& c, double seconds, double lacking) {
    if (!best_.empty() && comparable(seconds) >= comparable(best_.front().estimate.step_s)) return;
    if (misses_.size() == most_misses && comparable(lacking) >= misses_.front().lacking) return;
    misses_.push_back({c, comparable(lacking)});
    std::push_heap(misses_.begin(), misses_.end());
    if (misses_.size() <= most_misses) return;
    std::pop_heap(misses_.begin(), misses_.end());
    misses_.pop_back();
}

} // namespace pentad::planner::detail

namespace pentad::planner {

PENTAD_INLINE bool is_tried_twice(Request const& request, Candidate const& candidate) {
    using Kind = model::Recomputation::Kind;
    bool const is_open = request.open.contains(&Strategy::recompute);
    if (!is_open || candidate.strategy.recompute.kind != Kind::automatic) return false;
    auto const& found = candidate.estimate.recompute;
    return found.kind == Kind::none || found.kind == Kind::full ||
           found == model::Recomputation{.kind = Kind::selective};
}

PENTAD_INLINE Findings search(Request const& request, std::size_t count) {
    Findings findings;
    Pipelines pipelines;
    double const limit = request.hardware.memory_bytes;
    detail::Record record(count, limit, request.wants_front);
    auto const time = [&](Strategy const& c) {
        ++findings.timed;
        return Candidate{c, estimate(request.model, request.hardware, c, pipelines)};
    };
    // Automatic recomputation is expensive to solve: lower bounds of its time come first.
    auto const may_recompute = [&](Strategy const& c, Bounds const& bounds) {
        if (!record.may_enter(bounds.seconds_recomputing(c, pipelines), bounds.weighed_bytes())) return false;
        auto nothing = c;
        nothing.recompute = {};
        double const least = estimate(request.model, request.hardware, nothing, pipelines).step_s;
        return record.may_enter(least * (1 - 1e-6), bounds.weighed_bytes());
    };
    for_each_configuration(
        request, pipelines, [&](double seconds, double bytes) { return record.may_enter(seconds, bytes); },
        [&](Strategy const& c, Bounds const& bounds) {
            ++findings.considered;
            bool const is_automatic = c.recompute.kind == model::Recomputation::Kind::automatic;
            if (bounds.bytes() > limit) {
                if (!is_automatic || !request.open.contains(&Strategy::recompute))
                    record.add_miss(c, bounds.seconds(), bounds.bytes() - limit);
            } else if (record.may_enter(bounds.seconds(), bounds.weighed_bytes()) &&
                       (!is_automatic || may_recompute(c, bounds))) {
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
        if (findings.best.empty() ||
            detail::comparable(candidate.estimate.step_s) < detail::comparable(findings.best.front().estimate.step_s))
            findings.near_misses.push_back(candidate);
    }
    auto& misses = findings.near_misses;
    std::stable_sort(misses.begin(), misses.end(), [](Candidate const& a, Candidate const& b) {
        return detail::comparable(a.estimate.memory_peak) < detail::comparable(b.estimate.memory_peak);
    });
    for (std::size_t i = 0; i < misses.size(); ++i)
        misses.erase(std::remove_if(misses.begin() + static_cast<std::ptrdiff_t>(i) + 1, misses.end(),
                                    [&](Candidate const& other) {
                                        return detail::are_variants(other.strategy, misses[i].strategy);
                                    }),
                     misses.end());
    return findings;
}

} // namespace pentad::planner

namespace pentad::planner::detail {

PENTAD_INLINE std::vector<std::string> schedules_of(Request const& request) {
    if (request.open.contains(&Strategy::schedule)) return request.schedules;
    return {request.given.schedule};
}

PENTAD_INLINE bool may_pair(Request const& request, Strategy const& c) {
    auto const names = schedules_of(request);
    return c.pp > 1 && c.pairs && std::any_of(names.begin(), names.end(), [](auto const& name) {
               auto const* const generator = pipeline::find_generator(name);
               return generator != nullptr && generator->has_pairs;
           });
}

PENTAD_INLINE std::vector<std::pair<std::string, std::int64_t>> schedules_for(Request const& request,
                                                                              Strategy const& c) {
    if (c.pp == 1 && request.given.stage_layers.size() > 1) return {};
    if (c.pp == 1) { // without a pipeline, which more chunks than a schedule needs ask for
        auto const* const generator = pipeline::find_generator(request.given.schedule);
        bool const wants_chunks = !request.open.contains(&Strategy::chunks) && generator != nullptr &&
                                  request.given.chunks > generator->least_chunks;
        if (wants_chunks) return {};
        return {{"1f1b", 1}};
    }
    std::vector<std::pair<std::string, std::int64_t>> found;
    bool const is_open = request.open.contains(&Strategy::chunks);
    for (auto const& name : schedules_of(request)) {
        auto const* generator = pipeline::find_generator(name);
        if (generator == nullptr) continue;
        for (auto chunks = is_open ? 1 : request.given.chunks;
             chunks <= (is_open ? request.most_chunks : request.given.chunks); ++chunks) {
            if (chunks * c.pp > request.model.layers() || !generator->takes_chunks(static_cast<int>(chunks))) continue;
            if (name == "interleaved-1f1b" && chunks == 1 && is_open) continue; // is 1F1B
            auto tried = c;
            tried.schedule = name;
            tried.chunks = chunks;
            tried.stage_layers = request.given.stage_layers;
            tried.sharding.releases_gradients = request.given.sharding.releases_gradients;
            if (misfit_by_rules(request.model, tried).empty()) found.emplace_back(name, chunks);
        }
    }
    return found;
}

} // namespace pentad::planner::detail

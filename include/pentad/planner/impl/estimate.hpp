// The functions of <pentad/planner/estimate.hpp>.
#pragma once

#include <pentad/planner/estimate.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/pipeline/dealt_layers.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/planner/automatic_recomputation.hpp>
#include <pentad/planner/stage_layers.hpp>
#include <pentad/strategy/why_not.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <variant>

namespace pentad::planner::detail {

/// Products of an optimizer that works on whole matrices.
struct MatrixWork {
    double flops = 0;   ///< of a rank in the mean
    double busiest = 0; ///< of the rank that works longest
};

} // namespace pentad::planner::detail

namespace pentad::planner {

PENTAD_INLINE ModelFlops model_flops_per_token(Model model, std::int64_t seq) {
    model.imbalance = 1;
    Strategy const alone{.batch = 1, .seq = seq, .element = Element::f32}; // which every program has
    Account const account(model, alone);
    double products = 0, attention = 0; // the backward pass has two products for each of attention's and of a scan's
    account.for_each_kind(whole_shape(model), [&](MeshPart const& part, double count) {
        for (auto const* pass : part.passes()) products += count * pass->product_flops;
        products += count * 3 * part.sums->forward.scan_flops;
        attention += count * 3 * part.sums->forward.attention_flops;
    });
    double const tokens = static_cast<double>(seq), square = 2 * tokens / (tokens + 1); // of seq (seq + 1) / 2 pairs
    return {(products + attention) / tokens, (products + square * attention) / tokens};
}

} // namespace pentad::planner

namespace pentad::planner::detail {

PENTAD_INLINE double synchronise(Synchronisation const& sum, Strategy const& c, Rates const& rates) {
    double seconds = 0;
    for (std::size_t axis = 0; axis < view_axes.size(); ++axis) {
        double const rounds = static_cast<double>(rates.ranks(axis) - 1);
        if (sum.reduce.of[axis] > 0)
            seconds +=
                rates.collective(axis, sum.reduce.of[axis], reductions(c) * (c.sharding.stage == 0 ? 2 : 1) * rounds);
        if (sum.gather.of[axis] > 0) seconds += rates.collective(axis, sum.gather.of[axis], gathers(c) * rounds);
    }
    for (auto const axis : {dp::name, edp::name})
        if (double const near = sum.neighbours[axis]; sum.near[axis] > 0)
            seconds += rates.near_collective(axis, static_cast<std::int64_t>(near), sum.near[axis],
                                             (reductions(c) + gathers(c)) * (near - 1));
    return seconds * (1 - rates.hardware().overlap);
}

/// The matrix work of a bucket, whose matrices are dealt out as in zero/.
PENTAD_INLINE MatrixWork matrix_work(Bucket const& bucket, Strategy const& c) {
    MatrixWork result;
    auto const* const muon = std::get_if<model::Muon>(&c.optimizer);
    if (muon == nullptr || bucket.matrices.empty()) return result;
    std::vector<double> work;
    for (auto const* const parameter : bucket.matrices)
        work.insert(work.end(), parameter->matrices.count,
                    model::newton_schulz_flops(parameter->matrices.shape, muon->iterations));
    auto const ranks = static_cast<std::size_t>(bucket.workers);
    auto const rank_of = model::deal(work, ranks);
    std::vector<double> load(ranks, 0);
    for (std::size_t i = 0; i < work.size(); ++i) load[rank_of[i]] += work[i];
    result.busiest = *std::max_element(load.begin(), load.end());
    for (double const one : load) result.flops += one / bucket.workers;
    return result;
}

} // namespace pentad::planner::detail

namespace pentad::planner {

PENTAD_INLINE std::string misfit(Model const& model, Strategy const& c) {
    auto why = misfit_by_rules(model, c);
    return why.empty() ? model.why_not(c) : why;
}

PENTAD_INLINE std::string misfit_by_rules(Model const& model, Strategy const& c) {
    if (auto const* generator = pipeline::find_generator(c.schedule);
        c.pairs && generator != nullptr && !generator->has_pairs) { // a search asks before it chooses a schedule
        auto plain = c;
        plain.pairs = false;
        return misfit_by_rules(model, plain);
    }
    auto refused = why_not(model.description(), c);
    bool const deals = c.stage_layers.empty() && !c.balances_stages && c.pp > 0;
    if (refused && refused->field == "layers" && deals && stages(c) <= model.layers()) {
        auto dealt = c; // as evenly as can be, as the plan then says
        dealt.stage_layers = pipeline::dealt_layers(model.layers(), stages(c));
        refused = why_not(model.description(), dealt);
    }
    return refused ? refused->why : std::string();
}

} // namespace pentad::planner

namespace pentad::planner::detail {

PENTAD_INLINE pipeline::Costs costs_of(Account const& account, std::vector<StageShape> const& shapes,
                                       std::vector<StageTime> const& times, Rates const& rates, Strategy const& c) {
    pipeline::Costs costs;
    costs.message = c.pp > 1 ? nanoseconds(rates.message(pp::name, account.stream())) : 0;
    costs.stages.clear();
    for (std::size_t stage = 0; stage < shapes.size(); ++stage) {
        double saved = 0, left = 0;
        account.for_each_kind(shapes[stage], [&](MeshPart const& part, double count) {
            saved += count * part.memory.saved;
            left += count * part.memory.left;
        });
        costs.stages.push_back({.forward = nanoseconds(times[stage].forward.seconds()),
                                .backward_data = nanoseconds(times[stage].backward_data.seconds()),
                                .backward_weight = nanoseconds(times[stage].backward_weight.seconds()),
                                .forward_exchanges = nanoseconds(times[stage].forward.exchanges),
                                .backward_data_exchanges = nanoseconds(times[stage].backward_data.exchanges),
                                .backward_weight_exchanges = nanoseconds(times[stage].backward_weight.exchanges),
                                .activation = static_cast<std::int64_t>(saved),
                                .weight_part = static_cast<std::int64_t>(left),
                                .input = static_cast<std::int64_t>(account.input(shapes[stage]))});
    }
    return costs;
}

/// Bytes that a stage on a rank sends to stages on others for a micro-batch, with its copies.
PENTAD_INLINE double sent_to_stages(Account const& account, pipeline::Schedule const& schedule,
                                    std::vector<StageShape> const& shapes, int rank, int stage) {
    double bytes = 0;
    for (auto const& placement : schedule.placements)
        for (int const peer : {stage - 1, stage + 1})
            if (placement[static_cast<std::size_t>(stage)] == rank && peer >= 0 && peer < schedule.stages() &&
                placement[static_cast<std::size_t>(peer)] != rank)
                bytes += account.input(shapes[static_cast<std::size_t>(std::max(stage, peer))]);
    return bytes;
}
/// Ranks with equal keys have equal accounts: for each stage, the first stage that is alike, and sent_to_stages().
PENTAD_INLINE std::vector<std::size_t> account_key(Account const& account, pipeline::Schedule const& schedule,
                                                   std::vector<StageShape> const& shapes, int rank) {
    std::vector<std::size_t> key;
    for (int stage = 0; stage < schedule.stages(); ++stage) {
        if (!schedule.has_stage(rank, stage)) continue;
        auto const like = std::find_if(shapes.begin(), shapes.end(), [&](StageShape const& other) {
            return account.are_alike(other, shapes[static_cast<std::size_t>(stage)]);
        });
        key.push_back(static_cast<std::size_t>(like - shapes.begin()));
        key.push_back(static_cast<std::size_t>(sent_to_stages(account, schedule, shapes, rank, stage)));
    }
    return key;
}

PENTAD_INLINE RankAccount account_of(int rank, pipeline::Schedule const& schedule, Account const& account,
                                     std::vector<StageShape> const& shapes, std::vector<StageTime> const& times,
                                     Strategy const& c) {
    RankAccount sum;
    std::vector<std::vector<Bucket>> held; // of each stage here
    double const copies = static_cast<double>(schedule.placements.size());
    double const passes = static_cast<double>(c.micro_batches) / copies; // of micro-batches through a stage here
    for (int stage = 0; stage < schedule.stages(); ++stage) {
        if (!schedule.has_stage(rank, stage)) continue;
        auto const at = static_cast<std::size_t>(stage);
        sum.seconds += times[at].seconds() / copies;
        sum.shares.add(times[at].shares, passes);
        account.for_each_kind(shapes[at], [&](MeshPart const& part, double count) {
            sum.sent.add(part.sent, count * passes);
            for (auto const* pass : part.passes()) sum.flops += count * passes * pass->product_flops;
        });
        for (auto const& bucket : held.emplace_back(account.buckets(shapes[at]))) {
            add_synchronisation(sum.synchronisation, bucket, c, account.mesh_under(bucket), passes);
            auto const work = matrix_work(bucket, c);
            sum.flops += work.flops;
            sum.update_flops += work.busiest;
        }
        sum.sent[pp::name] += passes * sent_to_stages(account, schedule, shapes, rank, stage);
    }
    sum.memory = parameter_memory(held, c, schedule.weight_versions);
    sum.update_memory = update_workspace(held, c);
    sum.sent.add(sum.synchronisation.reduce);
    sum.sent.add(sum.synchronisation.gather);
    sum.sent.add(sum.synchronisation.near);
    sum.sent.add(account.numbers());
    return sum;
}

} // namespace pentad::planner::detail

namespace pentad::planner {

PENTAD_INLINE Estimate estimate(Model const& model, Hardware const& hardware, Strategy const& c, Pipelines& pipelines) {
    if (auto const why = misfit(model, c); !why.empty()) throw std::invalid_argument(why);
    if (c.balances_stages)
        return estimate(model, hardware, with_stage_layers(model, hardware, c, pipelines), pipelines);
    if (c.recompute.kind == model::Recomputation::Kind::automatic) {
        auto planned = c;
        planned.recompute = automatic_recomputation(model, hardware, c, pipelines).recompute;
        return estimate(model, hardware, planned, pipelines);
    }
    auto const& schedule = pipelines.schedule(c);
    Account const account(model, c, static_cast<int>(schedule.placements.size()),
                          dispatch_nodes(model, c, hardware.devices_per_node), pipeline::ends_meet(schedule));
    Rates const rates(hardware, c);
    auto const shapes = stage_shapes(model, c, schedule.stages());
    detail::StageTimes const stage_times(account, rates);
    std::vector<detail::StageTime> times;
    for (auto const& shape : shapes) times.push_back(stage_times.of(shape));
    auto const run = pipelines.run(c, detail::costs_of(account, shapes, times, rates, c), hardware.sharing);

    Estimate result;
    result.recompute = c.recompute;
    for (std::size_t stage = 0; stage < shapes.size(); ++stage) {
        result.stage_layers.push_back(shapes[stage].count);
        result.stage_seconds.push_back(times[stage].seconds());
    }
    double slowest = 0, mean = 0, end = 0; // seconds of a micro-batch; of what follows them
    double const part = 1 / static_cast<double>(schedule.ranks());
    std::map<std::vector<std::size_t>, detail::RankAccount> known;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        auto const [at, is_new] = known.try_emplace(detail::account_key(account, schedule, shapes, rank));
        if (is_new) at->second = detail::account_of(rank, schedule, account, shapes, times, c);
        auto sum = at->second;
        sum.memory.activations = static_cast<double>(run.simulation.ranks[static_cast<std::size_t>(rank)].peak_memory);
        sum.memory.workspace =
            workspace_of(account, schedule, shapes, rank, pipelines.held(c)[static_cast<std::size_t>(rank)],
                         sum.memory.activations, sum.update_memory, updates_between_passes(schedule, c));
        sum.memory.activations += activation_window(account, schedule, shapes, rank, c);
        double const synchronisation = detail::synchronise(sum.synchronisation, c, rates);
        double const optimizer = detail::update(sum.memory, hardware) + rates.accumulator_products(sum.update_flops);
        if (synchronisation + optimizer > end) {
            end = synchronisation + optimizer;
            result.shares.synchronisation = synchronisation;
            result.shares.optimizer = optimizer;
        }
        sum.shares.hidden = run.hidden[static_cast<std::size_t>(rank)];
        result.shares.add(sum.shares, part);
        slowest = std::max(slowest, sum.seconds);
        mean += sum.seconds * part;
        if (sum.memory.total() > result.fullest.total()) result.fullest = sum.memory;
        result.memory_mean += sum.memory.total() / schedule.ranks();
        double const alike = static_cast<double>(c.devices() / c.pp); // ranks at this place of the pipeline
        result.bytes.add(sum.sent, alike);
        result.flops += alike * sum.flops;
    }
    result.step_s = run.seconds + end;
    auto const micro_batches = static_cast<double>(c.micro_batches);
    double const waited = run.seconds - (micro_batches * mean - result.shares.hidden);
    result.shares.imbalance = std::min(micro_batches * (slowest - mean), waited);
    result.shares.bubble = waited - result.shares.imbalance;
    if (double const sent = result.shares.communication.total(); sent > 0) {
        PerAxis waited;
        waited.add(result.shares.communication, 1 - std::min(1.0, result.shares.hidden / sent));
        result.shares.communication = waited;
    }
    result.tokens_per_s = c.tokens() / result.step_s;
    result.mfu = model_flops_per_token(model, c.seq).reported * c.tokens() /
                 (result.step_s * hardware.peak(c.element) * static_cast<double>(c.devices()));
    result.memory_peak = result.fullest.total();
    result.fits = result.memory_peak <= hardware.memory_bytes;
    return result;
}

PENTAD_INLINE FastestContext fastest_context(Model const& model, Hardware const& hardware, Strategy c,
                                             std::span<model::ContextSplit const> splits) {
    FastestContext fastest;
    for (auto const& split : splits) {
        c.block.use(split);
        if (double const seconds = estimate(model, hardware, c).step_s; seconds < fastest.seconds)
            fastest = {split, seconds};
    }
    return fastest;
}

} // namespace pentad::planner

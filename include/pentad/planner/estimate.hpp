// What a configuration of a model on a machine will take: time, memory, bytes.
#pragma once

#include <pentad/pipeline/generators.hpp>
#include <pentad/planner/account.hpp>
#include <pentad/planner/pipelines.hpp>
#include <pentad/planner/rates.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::planner {

/// Where the time of the slowest rank goes, in seconds of a step.
struct Shares {
    double matrix = 0, attention = 0, vector = 0;
    PerAxis communication;      ///< of the micro-batches
    double dispatch = 0;        ///< the device waits for the host
    double bubble = 0;          ///< it waits for other stages
    double synchronisation = 0; ///< of gradients and parameters, where nothing hides it
    double optimizer = 0;

    void add(Shares const& other, double times) {
        matrix += times * other.matrix;
        attention += times * other.attention;
        vector += times * other.vector;
        communication.add(other.communication, times);
        dispatch += times * other.dispatch;
    }
};

struct Estimate {
    double step_s = 0;
    double tokens_per_s = 0;
    double mfu = 0;         ///< of the peak: model FLOPs as Chowdhery et al. 2022, appendix B, count them
    Memory fullest;         ///< of the rank that holds most
    double memory_peak = 0; ///< bytes of that rank
    double memory_mean = 0; ///< over ranks
    bool fits = false;
    PerAxis bytes; ///< sent by all ranks in a step
    Shares shares;
};

/// FLOPs that the model needs for a token, forward and backward: 6 for each weight of a product, and all of attention's
/// 12 x heads x head_dim x seq (not its causal half, as the field reports MFU).
inline double model_flops_per_token(Model model, std::int64_t seq) {
    model.experts.imbalance = 1;
    Configuration c;
    c.seq = seq;
    c.global_batch = 1;
    double flops = 0;
    auto const add = [&](Work const& work) {
        for (auto const& x : work.operations()) {
            if (x.kind == Kind::product) flops += x.flops;
            // 3 products for each forward one; what is recomputed is not counted
            if (x.kind == Kind::attention && x.direction == Direction::forward)
                flops += 3 * x.flops * (model.attention.heads > 0 ? 2 : 1);
        }
    };
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        Work work(model, c);
        work.layer(layer);
        add(work);
    }
    Work work(model, c);
    work.head();
    add(work);
    return flops / static_cast<double>(seq);
}

namespace detail {

/// Seconds of one pass of a micro-batch through a stage.
struct PassTime {
    double device = 0, dispatch = 0;
    [[nodiscard]] double seconds() const { return std::max(device, dispatch); }
    void add(PassTime const& other, double times) {
        device += times * other.device;
        dispatch += times * other.dispatch;
    }
};

struct StageTime {
    PassTime forward, backward_data, backward_weight;
    Shares shares; ///< of all three

    [[nodiscard]] double seconds() const {
        return forward.seconds() + backward_data.seconds() + backward_weight.seconds();
    }
};

/// Operations of data loading, of the automatic differentiation and of the loss that a framework starts for each
/// micro-batch besides those of the layers.
inline constexpr double dispatches_of_micro_batch = 60;

/// What a micro-batch takes in a part of the model.
inline StageTime part_time(PartAccount const& part, bool again, Rates const& rates) {
    StageTime time;
    for (auto const& x : part.operations) {
        double const seconds = rates.seconds(x), dispatch = rates.dispatch(x);
        auto const add = [&](PassTime& pass) {
            pass.device += seconds;
            pass.dispatch += dispatch;
            (x.kind == Kind::product     ? time.shares.matrix
             : x.kind == Kind::attention ? time.shares.attention
             : x.kind == Kind::vector    ? time.shares.vector
                                         : time.shares.communication[x.axis]) += seconds;
        };
        add(x.direction == Direction::forward         ? time.forward
            : x.direction == Direction::backward_data ? time.backward_data
                                                      : time.backward_weight);
        if (again && x.direction == Direction::forward) add(time.backward_data);
    }
    return time;
}

/// Times stages put together from parts.
class StageTimes {
  public:
    StageTimes(Account const& account, Rates const& rates, Configuration const& c) : account_(&account) {
        auto const parts = account.parts();
        for (std::size_t i = 0; i < parts.size(); ++i)
            parts_[i] = part_time(*parts[i], c.recompute == Recompute::full && account.is_layer(*parts[i]), rates);
        overhead_ = dispatches_of_micro_batch * rates.hardware().dispatch_s / 2;
    }
    [[nodiscard]] StageTime of(StageShape const& stage) const {
        StageTime time;
        account_->for_each_kind(stage, [&](PartAccount const& part, double count) {
            auto const& one = parts_[account_->index_of(part)];
            time.forward.add(one.forward, count);
            time.backward_data.add(one.backward_data, count);
            time.backward_weight.add(one.backward_weight, count);
            time.shares.add(one.shares, count);
        });
        time.forward.dispatch += overhead_;
        time.backward_data.dispatch += overhead_;
        time.shares.dispatch =
            time.seconds() - time.forward.device - time.backward_data.device - time.backward_weight.device;
        return time;
    }

  private:
    Account const* account_;
    std::array<StageTime, 4> parts_;
    double overhead_ = 0;
};

/// How often gradients are reduced, and parameters gathered, in a step: sharded gradients after each micro-batch,
/// sharded parameters before each pass.
inline double reductions(Configuration const& c) { return c.zero >= 2 ? static_cast<double>(c.micro_batches()) : 1; }
inline double gathers(Configuration const& c) {
    return c.zero == 0 ? 0 : c.zero < 3 ? 1 : 2 * static_cast<double>(c.micro_batches());
}

/// Seconds of a step that the synchronisation of a rank takes.
inline double synchronise(Synchronisation const& sum, Configuration const& c, Rates const& rates) {
    double seconds = 0;
    for (auto const axis : axis_order) {
        double const rounds = static_cast<double>(c.extent(axis) - 1);
        seconds += reductions(c) * rates.collective(axis, sum.reduce[axis], (c.zero == 0 ? 2 : 1) * rounds) +
                   gathers(c) * rates.collective(axis, sum.gather[axis], rounds);
    }
    if (c.zero_ranks > 0)
        seconds += rates.near_collective(dp::name, c.zero_ranks,
                                         reductions(c) * sum.near_reduce + gathers(c) * sum.near_gather,
                                         (reductions(c) + gathers(c)) * static_cast<double>(c.zero_ranks - 1));
    return seconds * (1 - rates.hardware().overlap);
}
/// The norm of the gradients, then the update reads and writes everything.
inline double update(Memory const& memory, Hardware const& hardware) {
    return (2 * memory.gradients + 2 * memory.optimizer + memory.weights) / hardware.memory_bandwidth;
}

inline pipeline::Time nanoseconds(double seconds) { return static_cast<pipeline::Time>(std::llround(seconds * 1e9)); }

} // namespace detail

/// Why a configuration cannot run at all, whatever the machine; empty where it can.
inline std::string misfit(Model const& model, Configuration const& c) {
    auto const number = [](std::int64_t n) { return std::to_string(n); };
    auto const indivisible = [&](std::string const& what, std::int64_t n, std::string const& by, std::int64_t d) {
        return what + " = " + number(n) + " is not divisible by " + by + " = " + number(d);
    };
    for (auto const axis : axis_order)
        if (c.extent(axis) < 1) return std::string(axis) + " = " + number(c.extent(axis)) + " is not positive";
    if (c.seq < 1 || c.micro_batch < 1 || c.global_batch < 1)
        return "seq, global batch and micro-batch must be positive";
    if (c.global_batch % (c.dp * c.ep * c.micro_batch) != 0)
        return indivisible("the global batch", c.global_batch, "dp x ep x micro-batch", c.dp * c.ep * c.micro_batch);
    std::int64_t const pieces = c.cp * (c.zigzag && c.cp > 1 ? 2 : 1) * (c.sequence_parallel ? c.tp : 1);
    if (c.seq % pieces != 0) return indivisible("seq", c.seq, "the pieces of cp and tp", pieces);
    if (auto const& a = model.attention; a.heads > 0) {
        if (a.heads % c.tp != 0) return indivisible("heads", a.heads, "tp", c.tp);
        if (!a.is_latent() && a.kv_heads % c.tp != 0 && c.tp % a.kv_heads != 0)
            return "kv heads = " + number(a.kv_heads) + " and tp = " + number(c.tp) + ": neither divides the other";
    }
    if (model.mamba.heads % c.tp != 0) return indivisible("Mamba heads", model.mamba.heads, "tp", c.tp);
    if (model.ffn % c.tp != 0) return indivisible("the feed-forward width", model.ffn, "tp", c.tp);
    if (auto const& e = model.experts; e.count > 0) {
        if (e.count % c.ep != 0) return indivisible("experts", e.count, "ep", c.ep);
        if (e.ffn % c.tp != 0) return indivisible("the experts' width", e.ffn, "tp", c.tp);
    } else if (c.ep > 1) {
        return "ep = " + number(c.ep) + " for a model without experts: make dp larger instead";
    }
    if (c.zero_ranks > 0 && c.dp % c.zero_ranks != 0)
        return indivisible("dp", c.dp, "the ranks of hybrid ZeRO", c.zero_ranks);
    auto const* generator = pipeline::find_generator(c.schedule);
    auto const stages =
        c.pp * (c.chunks == 0 && generator != nullptr ? generator->least_chunks : std::max<std::int64_t>(c.chunks, 1));
    if (stages > model.layers)
        return number(stages) + " stages of the pipeline are more than the " + number(model.layers) + " layers";
    pipeline::GeneratorOptions const options{.ranks = static_cast<int>(c.pp),
                                             .micro_batches = static_cast<int>(c.micro_batches()),
                                             .chunks = static_cast<int>(c.chunks)};
    if (auto const why = pipeline::undefined(c.schedule, options); !why.empty()) return "schedule " + why;
    return {};
}

namespace detail {

/// What a schedule is simulated with.
inline pipeline::Costs costs_of(Account const& account, std::vector<StageShape> const& shapes,
                                std::vector<StageTime> const& times, Rates const& rates, Configuration const& c,
                                double activation) {
    pipeline::Costs costs;
    costs.message = c.pp > 1 ? nanoseconds(rates.message(pp::name, activation)) : 0;
    costs.stages.clear();
    for (std::size_t stage = 0; stage < shapes.size(); ++stage) {
        double saved = 0, left = 0;
        account.for_each_kind(shapes[stage], [&](PartAccount const& part, double count) {
            saved += count * part.saved;
            left += count * part.left;
        });
        costs.stages.push_back({.forward = nanoseconds(times[stage].forward.seconds()),
                                .backward_data = nanoseconds(times[stage].backward_data.seconds()),
                                .backward_weight = nanoseconds(times[stage].backward_weight.seconds()),
                                .activation = static_cast<std::int64_t>(saved),
                                .weight_part = static_cast<std::int64_t>(left),
                                .input = static_cast<std::int64_t>(activation)});
    }
    return costs;
}

/// What one rank of the pipeline holds, does and sends in a step.
struct RankAccount {
    double seconds = 0; ///< of a micro-batch
    Shares shares;
    Memory memory; ///< of weights, gradients and optimizer state
    Synchronisation synchronisation;
    PerAxis sent;
};

inline RankAccount account_of(int rank, pipeline::Schedule const& schedule, Account const& account,
                              std::vector<StageShape> const& shapes, std::vector<StageTime> const& times,
                              Configuration const& c, double activation) {
    RankAccount sum;
    double const copies = static_cast<double>(schedule.placements.size());
    double const passes = static_cast<double>(c.micro_batches()) / copies; // of micro-batches through a stage here
    for (int stage = 0; stage < schedule.stages(); ++stage) {
        if (!schedule.has_stage(rank, stage)) continue;
        auto const at = static_cast<std::size_t>(stage);
        sum.seconds += times[at].seconds() / copies;
        sum.shares.add(times[at].shares, passes);
        account.for_each_kind(shapes[at],
                              [&](PartAccount const& part, double count) { sum.sent.add(part.sent, count * passes); });
        for (auto const& bucket : account.buckets(shapes[at])) {
            add_bucket(sum.memory, bucket, c);
            add_synchronisation(sum.synchronisation, bucket, c, account.mesh());
        }
        for (auto const& placement : schedule.placements)
            for (int const peer : {stage - 1, stage + 1})
                if (placement[at] == rank && peer >= 0 && peer < schedule.stages() &&
                    placement[static_cast<std::size_t>(peer)] != rank)
                    sum.sent[pp::name] += activation * passes;
    }
    sum.sent.add(sum.synchronisation.reduce, reductions(c));
    sum.sent.add(sum.synchronisation.gather, gathers(c));
    sum.sent[dp::name] +=
        reductions(c) * sum.synchronisation.near_reduce + gathers(c) * sum.synchronisation.near_gather;
    sum.sent.add(account.numbers());
    return sum;
}

} // namespace detail

/// @throws std::invalid_argument with misfit()'s reason
inline Estimate estimate(Model const& model, Hardware const& hardware, Configuration const& c, Pipelines& pipelines) {
    if (auto const why = misfit(model, c); !why.empty()) throw std::invalid_argument(why);
    auto const& schedule = pipelines.schedule(c);
    Account const account(model, c, static_cast<int>(schedule.placements.size()),
                          dispatch_nodes(model, c, hardware.devices_per_node));
    Rates const rates(hardware, c);
    auto const shapes = stage_shapes(model, schedule.stages());
    detail::StageTimes const stage_times(account, rates, c);
    std::vector<detail::StageTime> times;
    for (auto const& shape : shapes) times.push_back(stage_times.of(shape));
    double const activation = Work(model, c).streamed() * static_cast<double>(model.hidden) * size_of(c.element);
    auto const run = pipelines.run(c, detail::costs_of(account, shapes, times, rates, c, activation), hardware.sharing);

    Estimate result;
    double slowest = -1, end = 0;
    double const workspace = workspace_of(model, c);
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
        auto sum = detail::account_of(rank, schedule, account, shapes, times, c, activation);
        sum.memory.activations = static_cast<double>(run.simulation.ranks[static_cast<std::size_t>(rank)].peak_memory);
        sum.memory.workspace = workspace;
        sum.shares.synchronisation = detail::synchronise(sum.synchronisation, c, rates);
        sum.shares.optimizer = detail::update(sum.memory, hardware);
        end = std::max(end, sum.shares.synchronisation + sum.shares.optimizer);
        if (sum.seconds > slowest) {
            slowest = sum.seconds;
            result.shares = sum.shares;
        }
        if (sum.memory.total() > result.fullest.total()) result.fullest = sum.memory;
        result.memory_mean += sum.memory.total() / schedule.ranks();
        result.bytes.add(sum.sent, static_cast<double>(c.devices() / c.pp)); // ranks at this place of the pipeline
    }
    result.step_s = run.seconds + end;
    result.shares.bubble = run.seconds - static_cast<double>(c.micro_batches()) * slowest;
    result.tokens_per_s = c.tokens() / result.step_s;
    result.mfu = model_flops_per_token(model, c.seq) * c.tokens() /
                 (result.step_s * hardware.peak(c.element) * static_cast<double>(c.devices()));
    result.memory_peak = result.fullest.total();
    result.fits = result.memory_peak <= hardware.memory_bytes;
    return result;
}

inline Estimate estimate(Model const& model, Hardware const& hardware, Configuration const& c) {
    Pipelines pipelines;
    return estimate(model, hardware, c, pipelines);
}

} // namespace pentad::planner

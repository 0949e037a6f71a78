#include "run.hpp"

#include "memory_check.hpp"
#include "training.hpp"

#include <pentad/io/checkpoint.hpp>
#include <pentad/io/line_file.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/mesh/one_line.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/report/format.hpp>
#include <pentad/report/progress.hpp>
#include <pentad/report/timeline.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/stages.hpp>

#include <nlohmann/json.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <thread>

namespace train_lm {

namespace {

using Clock = std::chrono::steady_clock;
using pentad::comm::check;

constexpr std::array<char const*, 5> axes{"dp", "pp", "ep", "cp", "tp"};

Mesh make_mesh(Options const& options, pentad::pipeline::Schedule const& schedule) {
    auto const extent = [&](char const* axis) { return static_cast<int>(options.extent(axis)); };
    Mesh const mesh(extent("dp"), extent("pp"), extent("ep"), extent("cp"), extent("tp"));
    std::array<std::string_view, 5> order;
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = options.mesh[i].name;
    // Where tp exceeds the kv heads, each is held by tp / kv_heads ranks.
    auto const split = mesh.ordered(order).split<pentad::tp>(
        static_cast<int>(std::max<std::int64_t>(1, options.extent("tp") / options.kv_heads)));
    return pentad::train::for_schedule(split, schedule);
}

/// What is said of the next rank of this machine, should it be lost.
void describe_neighbour(Options const& options, pentad::pipeline::Schedule const& schedule, Mesh const& mesh,
                        pentad::program::Ranks& ranks) {
    int const watched = ranks.watch().watched();
    std::string place = " (";
    auto const add = [&](std::string const& what, int number) {
        place += (place.size() > 2 ? ", " : "") + what + " " + std::to_string(number);
    };
    auto const add_axis = [&]<class Axis>(Axis) {
        if (options.extent(Axis::name) > 1) add(std::string(Axis::name), mesh.coordinate<Axis>(watched));
    };
    add_axis(pentad::dp());
    add_axis(pentad::pp());
    add_axis(pentad::ep());
    add_axis(pentad::cp());
    add_axis(pentad::tp());
    int const at = pentad::train::pipeline_rank(schedule, mesh.coordinate<pentad::pp>(watched));
    for (int stage = 0; schedule.ranks() > 1 && stage < schedule.stages(); ++stage)
        if (schedule.has_stage(at, stage)) add("stage", stage);
    ranks.watch().describe(place + ")", "; the job ends, nothing of --dump-weights is written: start it again");
}

constexpr std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

} // namespace

pentad::model::Model make_model(Options const& o) {
    if (o.described) return *o.described;
    return pentad::model::decoder({.layers = size(o.layers),
                                   .hidden = size(o.hidden),
                                   .heads = size(o.heads),
                                   .kv_heads = size(o.kv_heads),
                                   .ffn = size(o.ffn),
                                   .vocab = size(o.vocab),
                                   .experts = size(o.experts),
                                   .top_k = size(o.top_k),
                                   .moe_every = size(o.moe_every),
                                   .ties_embeddings = o.tie_embeddings});
}

pentad::train::RunSettings make_settings(Options const& o) {
    pentad::train::RunSettings s;
    s.model = make_model(o);
    s.batch = size(o.batch);
    s.micro_batches = size(o.micro_batches);
    s.seq = size(o.seq);
    s.order = o.zigzag ? pentad::Order::zigzag : pentad::Order::contiguous;
    s.context_strategy = o.cp == "ring" ? pentad::ContextStrategy::ring : pentad::ContextStrategy::all_gather;
    s.balances_stages = o.stages == "balanced";
    if (!o.stages.empty() && !s.balances_stages) s.stage_layers = stage_layers(o.stages).value();
    s.recompute = o.recompute;
    s.recomputes_activations = o.recompute_activations;
    s.sharding.stage = static_cast<int>(o.zero);
    s.bucket_elements = size(o.bucket_elements);
    if (o.ignore_token) s.ignored = static_cast<std::int32_t>(*o.ignore_token);
    s.steps = o.steps;
    s.learning_rate = o.lr;
    if (o.min_lr >= 0) s.min_learning_rate = o.min_lr;
    s.warmup = o.warmup;
    s.beta1 = o.beta1;
    s.beta2 = o.beta2;
    s.epsilon = o.epsilon;
    s.weight_decay = o.weight_decay;
    s.clip = o.clip;
    s.max_bad_steps = o.max_bad_steps;
    s.balance_coefficient = o.aux_coef;
    s.z_coefficient = o.z_coef;
    s.seed = static_cast<std::uint64_t>(o.seed);
    return s;
}

namespace {

std::unique_ptr<Training> make_training(Options const& options, TrainingSetup const& setup) {
    if (options.dtype == "f64") return make<pentad::f64>(setup);
    if (options.dtype == "f32") return make<pentad::f32>(setup);
    return make<pentad::bf16>(setup);
}

/// As JSON, which has neither NaN nor infinity.
std::string number(double value) {
    if (!std::isfinite(value)) return "null";
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%.17g", value);
    return text.data();
}

/// What rank 0 could not write ends the run on all ranks, together. They hear of it when they sum up the step's
/// traffic; neither that sum nor this is part of the ledger.
class Outcome {
  public:
    explicit Outcome(int rank) : rank_(rank) {}

    /// Rank 0 writes, unless it failed before. Nothing in `write` is collective.
    template <class F>
    void write(F&& write) {
        if (rank_ == 0 && failure_.empty()) write_together(write);
    }
    /// All ranks take part, whatever failed before.
    template <class F>
    void write_together(F&& write) {
        try {
            write();
        } catch (pentad::io::FileError const& error) {
            if (failure_.empty()) failure_ = error.what();
        }
    }
    /// Sums `values` over all ranks; false when a rank failed before. Collective.
    bool exchange(std::span<double> values = {}) {
        std::array<double, axes.size() + 1> all{};
        std::copy(values.begin(), values.end(), all.begin());
        all.back() = failure_.empty() ? 0 : 1;
        check(
            MPI_Allreduce(MPI_IN_PLACE, all.data(), static_cast<int>(all.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
            "MPI_Allreduce");
        std::copy_n(all.begin(), values.size(), values.begin());
        return all.back() == 0;
    }
    [[nodiscard]] std::string const& failure() const { return failure_; }

  private:
    int rank_;
    std::string failure_;
};

/// Bytes that this rank has sent since the last call, by axis.
class Traffic {
  public:
    std::array<double, axes.size()> since_last() {
        std::array<double, axes.size()> difference{};
        for (std::size_t i = 0; i < axes.size(); ++i) {
            double const now = pentad::observe::ledger().bytes(axes[i]);
            difference[i] = now - last_[i];
            last_[i] = now;
        }
        return difference;
    }

  private:
    std::array<double, axes.size()> last_{};
};

std::string log_line(std::int64_t step, pentad::train::StepResult const& r, std::optional<double> validation_loss,
                     double tokens_per_second, std::array<double, axes.size()> const& bytes) {
    std::string more;
    if (validation_loss) more += ",\"validation_loss\":" + number(*validation_loss);
    if (!r.not_finite.empty()) more += ",\"not_finite\":" + nlohmann::json(r.not_finite).dump();
    std::string line = "{\"step\":" + std::to_string(step) + ",\"loss\":" + number(r.loss) +
                       ",\"aux_loss\":" + number(r.balance_loss) + ",\"z_loss\":" + number(r.z_loss) +
                       ",\"grad_norm\":" + number(r.gradient_norm) + ",\"lr\":" + number(r.learning_rate) +
                       ",\"tokens_per_s\":" + number(tokens_per_second) + ",\"bytes\":{";
    for (std::size_t i = 0; i < axes.size(); ++i)
        line += (i == 0 ? "\"" : ",\"") + std::string(axes[i]) + "\":" + std::to_string(std::llround(bytes[i]));
    return line + "}" + more + "}";
}

/// Collective.
void write_timeline(std::string const& path, Outcome& outcome, int rank, int ranks) {
    auto const& trace = pentad::observe::trace();
    std::string part =
        pentad::report::timeline_part(trace.spans(), rank, "rank " + std::to_string(rank), trace.dropped());
    auto size = static_cast<std::int64_t>(part.size());
    if (rank != 0) {
        check(MPI_Send(&size, 1, MPI_INT64_T, 0, 0, MPI_COMM_WORLD), "MPI_Send");
        check(MPI_Send_c(part.data(), size, MPI_CHAR, 0, 0, MPI_COMM_WORLD), "MPI_Send");
        return;
    }
    std::vector<std::string> parts{std::move(part)};
    for (int r = 1; r < ranks; ++r) {
        check(MPI_Recv(&size, 1, MPI_INT64_T, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
        auto& text = parts.emplace_back(static_cast<std::size_t>(size), ' ');
        check(MPI_Recv_c(text.data(), size, MPI_CHAR, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
    }
    outcome.write([&] { pentad::report::write_timeline(path, parts); });
}

double peak_memory() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024;
}

/// What the steps took, over all ranks.
struct Steps {
    double seconds = 0;
    std::array<double, axes.size()> bytes{};
    std::array<double, axes.size()> waiting{}; ///< of this rank: seconds in collectives, waiting included
};

/// Seconds that this rank has spent in collectives so far, by axis.
std::array<double, axes.size()> waiting() {
    std::array<double, axes.size()> seconds{};
    for (std::size_t i = 0; i < axes.size(); ++i) seconds[i] = pentad::observe::ledger().seconds(axes[i]);
    return seconds;
}

/// Collective.
void print_summary(Options const& options, pentad::model::Model const& model, Mesh const& mesh, double gemm_speed,
                   Steps const& steps) {
    namespace report = pentad::report;
    std::array<double, axes.size() + 1> slowest{};
    std::copy(steps.waiting.begin(), steps.waiting.end(), slowest.begin());
    slowest.back() = peak_memory();
    check(MPI_Allreduce(MPI_IN_PLACE, slowest.data(), static_cast<int>(slowest.size()), MPI_DOUBLE, MPI_MAX,
                        MPI_COMM_WORLD),
          "MPI_Allreduce");
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0) return;
    double const tokens = static_cast<double>(options.steps * options.batch * options.seq);
    double const rate = tokens / steps.seconds;
    auto const planned = pentad::train::planned_model(model);
    double const flops = rate * pentad::planner::model_flops_per_token(planned, options.seq).computed;
    std::printf("%s tokens/s; model FLOPs %s, %.1f%% of the GEMM speed of %s (%s); peak memory of a rank %s\n",
                report::count(rate).c_str(), report::flop_rate(flops).c_str(), 100 * flops / gemm_speed,
                mesh.size() == 1 ? "one rank" : ("all " + std::to_string(mesh.size()) + " ranks").c_str(),
                report::flop_rate(gemm_speed).c_str(), report::bytes(slowest.back()).c_str());
    std::printf("axis  ranks  sent by all ranks  a step     time of the slowest rank, waiting included\n");
    for (std::size_t i = 0; i < axes.size(); ++i) {
        std::printf("%-4s  %5lld  %-17s  %-9s  %s\n", axes[i], static_cast<long long>(options.extent(axes[i])),
                    report::bytes(steps.bytes[i]).c_str(),
                    report::bytes(steps.bytes[i] / static_cast<double>(options.steps)).c_str(),
                    report::duration(slowest[i]).c_str());
    }
}

/// The loss on --validation after a step. Collective.
double validate(Options const& options, Training& training, pentad::io::TokenData const& held_out, int rank,
                std::int64_t step) {
    double const loss = training.validate(held_out, options.validation_batches.value_or(4)).loss;
    if (rank == 0 && !options.quiet) {
        std::printf("step %lld: validation loss %.4f\n", static_cast<long long>(step), loss);
        std::fflush(stdout);
    }
    return loss;
}

/// Collective; nothing where rank 0 could not write.
std::optional<Steps> train(Options const& options, Training& training,
                           std::optional<pentad::io::TokenData> const& held_out, int rank, Outcome& outcome,
                           std::optional<pentad::io::LineFile>& log) {
    using pentad::report::Progress;
    double const tokens = static_cast<double>(options.batch * options.seq);
    Progress progress(options.steps, tokens,
                      rank != 0 || options.quiet ? Progress::Style::quiet : Progress::style_for(stdout));
    Traffic traffic;
    (void)traffic.since_last();
    Steps steps;
    bool ok = true;
    auto const start = Clock::now();
    double validating = 0; // seconds, which no step takes
    for (std::int64_t step = 1; step <= options.steps; ++step) {
        auto const step_start = Clock::now();
        auto const result = training.step(step);
        if (rank == 0 && !result.not_finite.empty()) {
            progress.finish();
            pentad::print_error("train_lm: step " + std::to_string(step) + " is not applied: " + result.not_finite +
                                " is not finite");
        }
        std::chrono::duration<double> const seconds = Clock::now() - step_start;
        auto bytes = traffic.since_last();
        ok = outcome.exchange(bytes);
        if (!ok) break;
        for (std::size_t i = 0; i < bytes.size(); ++i) steps.bytes[i] += bytes[i];
        progress.step(step, result.loss);
        std::optional<double> validation_loss;
        if (options.validate_every > 0 && step % options.validate_every == 0 && step < options.steps) {
            progress.finish();
            auto const began = Clock::now();
            auto const waited = waiting();
            validation_loss = validate(options, training, *held_out, rank, step);
            (void)traffic.since_last();
            validating += std::chrono::duration<double>(Clock::now() - began).count();
            auto const now = waiting();
            for (std::size_t i = 0; i < now.size(); ++i) steps.waiting[i] -= now[i] - waited[i];
            progress.resume();
        }
        if (log)
            outcome.write(
                [&] { log->write(log_line(step, result, validation_loss, tokens / seconds.count(), bytes)); });
    }
    steps.seconds = std::chrono::duration<double>(Clock::now() - start).count() - validating;
    auto const waited = waiting();
    for (std::size_t i = 0; i < waited.size(); ++i) steps.waiting[i] += waited[i];
    progress.finish();
    return ok && outcome.exchange() ? std::optional(steps) : std::nullopt;
}

} // namespace

bool run(Options const& options, pentad::program::Ranks& ranks) {
    int const rank = ranks.rank();
    auto const settings = make_settings(options);
    pentad::train::ProvenSchedules const schedules(make_schedule(options));
    auto const mesh = make_mesh(options, schedules.training());
    check_memory(options, schedules.training(), mesh, ranks);
    pentad::comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    auto const data = training_data(options);
    std::optional<pentad::io::TokenData> held_out;
    if (!options.validation.empty()) held_out.emplace(validation_data(options));
    describe_neighbour(options, schedules.training(), mesh, ranks);
    std::optional<pentad::io::Checkpoint> checkpoint;
    if (!options.weights.empty())
        ranks.on_all([&] { pentad::program::with_files_of_user([&] { checkpoint.emplace(options.weights); }); });
    auto const training = make_training(options, {communicators, data, settings, schedules, options.sequence_parallel});
    if (checkpoint) ranks.on_all([&] { training->import_weights(*checkpoint); });

    Outcome outcome(rank);
    std::optional<pentad::io::LineFile> log;
    if (!options.log.empty()) outcome.write([&] { log.emplace(options.log); });
    bool const summary = !options.quiet && options.steps > 0;
    double gemm_speed = summary ? training->gemm_speed() : 0;
    if (summary)
        check(MPI_Allreduce(MPI_IN_PLACE, &gemm_speed, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
    if (!options.trace.empty()) {
        check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
        pentad::observe::trace().enable(std::size_t{1} << 18);
    }

    std::optional<Steps> steps;
    try {
        steps = train(options, *training, held_out, rank, outcome, log);
    } catch (pentad::train::NotFinite const& error) { // on all ranks
        throw pentad::program::OutsideFailure(std::string(error.what()) + ": try a smaller --lr than " +
                                              number(options.lr) + (options.clip > 0 ? "" : ", or --clip 1"));
    }
    bool ok = steps.has_value();
    if (ok) {
        auto const last = training->evaluate(options.steps + 1);
        if (!std::isfinite(last.loss))
            throw pentad::program::OutsideFailure("the loss after the last step is not finite: no weights are written");
        std::optional<double> validation_loss;
        if (held_out) validation_loss = validate(options, *training, *held_out, rank, options.steps);
        if (log)
            outcome.write([&] {
                log->write("{\"event\":\"end\",\"final_loss\":" + number(last.loss) +
                           (validation_loss ? ",\"validation_loss\":" + number(*validation_loss) : "") + "}");
                log->close();
            });
        if (summary) print_summary(options, settings.model, mesh, gemm_speed, *steps);
        ok = outcome.exchange();
    }
    if (ok) {
        if (!options.dump_weights.empty())
            outcome.write_together([&] {
                training->export_weights(options.dump_weights,
                                         pentad::io::family_config(settings.model, size(options.seq),
                                                                   options.dtype == "f64" ? "float64" : "float32",
                                                                   options.aux_coef)
                                                 .dump(2) +
                                             "\n");
            });
        if (!options.trace.empty()) write_timeline(options.trace, outcome, rank, mesh.size());
        if (options.sample > 0) {
            auto const text = training->sample(options.prompt, options.sample);
            if (rank == 0) std::printf("\n%s|%s\n", options.prompt.c_str(), text.c_str());
        }
        ok = outcome.exchange();
    }
    if (!outcome.failure().empty()) pentad::program::say("train_lm", outcome.failure());
    return ok;
}

} // namespace train_lm

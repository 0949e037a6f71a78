#include "run.hpp"

#include "auto_context.hpp"
#include "axis_order.hpp"
#include "checkpoints.hpp"
#include "flags.hpp"
#include "memory_check.hpp"
#include "model_file.hpp"
#include "offload_summary.hpp"
#include "run_log.hpp"
#include "training.hpp"

#include <pentad/io/checkpoint.hpp>
#include <pentad/io/line_file.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/one_line.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/pipeline/dealt_layers.hpp>
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
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

namespace train_lm {

namespace {

using Clock = std::chrono::steady_clock;
using pentad::comm::check;

/// What is said of the next rank of this machine, should it be lost.
void describe_neighbour(Options const& options, pentad::pipeline::Schedule const& schedule, Mesh const& mesh,
                        pentad::program::Ranks& ranks) {
    int const watched = ranks.watch().watched();
    std::string place = " (";
    auto const add = [&](std::string const& what, int number) {
        place += (place.size() > 2 ? ", " : "") + what + " " + std::to_string(number);
    };
    auto const add_axis = [&]<class Axis>(Axis) {
        if (mesh.extent<Axis>() > 1) add(std::string(Axis::name), mesh.coordinate<Axis>(watched));
    };
    add_axis(pentad::ml::dp());
    add_axis(pentad::ml::pp());
    add_axis(pentad::ml::cp());
    add_axis(pentad::ml::tp());
    if (options.experts > 0) add_axis(pentad::ml::ep());
    int const at = pentad::train::pipeline_rank(schedule, mesh.coordinate<pentad::ml::pp>(watched));
    for (int stage = 0; schedule.ranks() > 1 && stage < schedule.stages(); ++stage)
        if (schedule.has_stage(at, stage)) add("stage", stage);
    ranks.watch().describe(
        place + ")", options.save.empty() ? "; the job ends, nothing of --dump-weights is written: start it again"
                                          : "; the job ends: the same command with --resume auto goes on from its last "
                                            "checkpoint");
}

/// The text of the config.json beside dumped weights and in checkpoints.
std::string config_text(Options const& options, pentad::train::RunSettings const& settings) {
    return pentad::io::family_config(settings.model, static_cast<std::size_t>(options.strategy.seq),
                                     options.strategy.element == pentad::model::Element::f64 ? "float64" : "float32",
                                     {options.aux_coef, options.z_coef}, options.config)
               .dump(2) +
           "\n";
}

std::unique_ptr<Training> make_training(TrainingSetup const& setup) {
    return pentad::train::with_element(setup.settings.strategy.element,
                                       [&]<class T>(T) -> std::unique_ptr<Training> { return make<T>(setup); });
}

/// The settings of a dry run, which does not average, move experts or measure stages: the numbers of layers of two
/// stages differ by one at most.
pentad::train::RunSettings for_dry_run(pentad::train::RunSettings settings,
                                       pentad::pipeline::Schedule const& schedule) {
    if (settings.strategy.local.is_on()) settings.strategy.local.steps = std::numeric_limits<int>::max();
    settings.steps = std::numeric_limits<int>::max();
    settings.rebalance_every = 0;
    if (!std::exchange(settings.strategy.balances_stages, false)) return settings;
    settings.strategy.stage_layers =
        pentad::pipeline::dealt_layers(static_cast<std::int64_t>(settings.model.blocks.size()), schedule.stages());
    return settings;
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

/// How even the load of experts was, in the mean of the last steps and of all layers; the biases of the last step.
class LoadSummary {
  public:
    void add(std::vector<pentad::train::BlockLoad> const& loads, std::size_t moved) {
        moved_ += moved;
        for (auto const& load : loads) {
            count_ += 1;
            double const part = 1 / std::min(count_, memory * static_cast<double>(loads.size()));
            imbalance_ += (load.imbalance() - imbalance_) * part;
            rank_imbalance_ += (load.imbalance(load.ranks) - rank_imbalance_) * part;
            ranks_ = std::max(ranks_, load.ranks);
            dropped_ += (load.dropped_part() - dropped_) * part;
            if (!load.has_bias) continue;
            bool const is_first = &load == &loads.front() || !std::exchange(has_bias_, true);
            least_bias_ = is_first ? load.least_bias : std::min(least_bias_, load.least_bias);
            most_bias_ = is_first ? load.most_bias : std::max(most_bias_, load.most_bias);
            has_bias_ = true;
        }
    }
    void print() const {
        if (count_ == 0) return;
        std::printf("experts: largest load %.2f times the mean in the last steps", imbalance_);
        if (ranks_ > 1) std::printf(", of a rank %.2f times", rank_imbalance_);
        if (moved_ > 0) std::printf(", %zu moves of an expert", moved_);
        if (dropped_ > 0) std::printf(", %.1f%% of the choices dropped", 100 * dropped_);
        if (has_bias_) std::printf(", biases from %.3g to %.3g", least_bias_, most_bias_);
        std::printf("\n");
    }

  private:
    static constexpr double memory = 10; ///< steps
    double count_ = 0, imbalance_ = 0, rank_imbalance_ = 0, dropped_ = 0, least_bias_ = 0, most_bias_ = 0;
    std::size_t ranks_ = 1, moved_ = 0;
    bool has_bias_ = false;
};

/// What the steps took, over all ranks.
struct Steps {
    std::int64_t count = 0;
    bool are_stopped = false; ///< before the last one, by a signal
    double seconds = 0;
    std::array<double, axes.size()> bytes{};
    std::array<double, axes.size()> waiting{}; ///< of this rank: seconds in collectives, waiting included
    double offload_wait = 0;                   ///< seconds, each step's on the rank that waited longest
    LoadSummary loads;
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
    double const tokens = static_cast<double>(steps.count * options.batch * options.strategy.seq);
    double const rate = tokens / steps.seconds;
    auto const planned = pentad::train::planned_model(model);
    double const flops = rate * pentad::planner::model_flops_per_token(planned, options.strategy.seq).computed;
    std::printf("%s tokens/s; model FLOPs %s, %.1f%% of the GEMM speed of %s (%s); peak memory of a rank %s\n",
                report::count(rate).c_str(), report::flop_rate(flops).c_str(), 100 * flops / gemm_speed,
                mesh.size() == 1 ? "one rank" : ("all " + std::to_string(mesh.size()) + " ranks").c_str(),
                report::flop_rate(gemm_speed).c_str(), report::bytes(slowest.back()).c_str());
    steps.loads.print();
    std::printf("axis  ranks  sent by all ranks  a step     time of the slowest rank, waiting included\n");
    for (std::size_t i = 0; i < axes_shown(options.experts > 0); ++i) {
        std::printf("%-4s  %5d  %-17s  %-9s  %s\n", std::string(axes[i]).c_str(),
                    pentad::find_axis(mesh.axes(), axes[i]).extent, report::bytes(steps.bytes[i]).c_str(),
                    report::bytes(steps.bytes[i] / static_cast<double>(steps.count)).c_str(),
                    report::duration(slowest[i]).c_str());
    }
}

/// The loss on --validation after a step; not a number where it has no target. Collective.
double validate(Options const& options, Training& training, pentad::io::TokenData const& held_out, int rank,
                std::int64_t step) {
    auto const result = training.validate(held_out, options.validation_batches.value_or(4));
    if (rank == 0 && !options.quiet) {
        std::printf("step %lld: validation loss ", static_cast<long long>(step));
        if (result.targets > 0)
            std::printf("%.4f\n", result.loss);
        else
            std::printf("none: no target counts\n");
        std::fflush(stdout);
    }
    return loss_of(result);
}

/// Why all targets of a step may carry no loss.
std::string without_target(Options const& options) {
    std::string why;
    if (options.ignore_token) why = "--ignore-token " + std::to_string(*options.ignore_token);
    if (options.pack) why += (why.empty() ? "" : " or ") + ("--pack " + std::to_string(*options.pack));
    return "has no target that counts, by " + why + ": it has no loss, and teaches nothing";
}

/// Steps from `first` on, until the last one or until `checkpoints` say that the run stops. Collective; nothing where
/// rank 0 could not write.
std::optional<Steps> train(Options const& options, Training& training, Checkpoints& checkpoints, std::int64_t first,
                           std::optional<pentad::io::TokenData> const& held_out, int rank, Outcome& outcome,
                           std::optional<pentad::io::LineFile>& log) {
    using pentad::report::Progress;
    double const tokens = static_cast<double>(options.batch * options.strategy.seq);
    bool const reports_loads = options.experts > 0 && (!options.log.empty() || !options.quiet);
    Progress progress(options.steps, tokens,
                      rank != 0 || options.quiet ? Progress::Style::quiet : Progress::style_for(stdout));
    Traffic traffic;
    (void)traffic.since_last();
    Steps steps;
    auto const before = waiting(); // while the machine was measured
    bool ok = true, has_empty_steps = false;
    auto const start = Clock::now();
    double validating = 0; // seconds, which no step takes
    for (std::int64_t step = first; step <= options.steps && !steps.are_stopped; ++step) {
        auto const step_start = Clock::now();
        auto const result = training.step(step);
        if (rank == 0 && !result.not_finite.empty()) {
            progress.finish();
            pentad::print_error("train_lm: step " + std::to_string(step) + " is not applied: " + result.not_finite +
                                " is not finite");
        }
        std::chrono::duration<double> const seconds = Clock::now() - step_start;
        auto bytes = traffic.since_last();
        auto const loads = reports_loads ? training.take_loads() : std::vector<pentad::train::BlockLoad>();
        (void)traffic.since_last(); // of this report
        steps.loads.add(loads, result.moved_experts);
        auto const of_checkpoints = checkpoints.numbers();
        std::vector<double> sums(bytes.begin(), bytes.end());
        sums.insert(sums.end(), of_checkpoints.begin(), of_checkpoints.end());
        ok = outcome.exchange(sums);
        if (!ok) break;
        std::copy_n(sums.begin(), bytes.size(), bytes.begin());
        for (std::size_t i = 0; i < bytes.size(); ++i) steps.bytes[i] += bytes[i];
        steps.offload_wait += result.offload_wait;
        ++steps.count;
        if (result.targets == 0 && !std::exchange(has_empty_steps, true) && rank == 0) {
            progress.finish();
            pentad::program::say("train_lm", "step " + std::to_string(step) + " " + without_target(options) +
                                                 "; further such steps are not said");
        }
        progress.step(step, result.targets > 0 ? std::optional(result.loss) : std::nullopt);
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
            outcome.write([&] {
                log->write(log_line(step, result, loads, validation_loss, tokens / seconds.count(), bytes, options));
            });
        steps.are_stopped = checkpoints.after_step(training, step, std::span(sums).subspan(bytes.size()));
    }
    steps.seconds = std::chrono::duration<double>(Clock::now() - start).count() - validating;
    auto const waited = waiting();
    for (std::size_t i = 0; i < waited.size(); ++i) steps.waiting[i] += waited[i] - before[i];
    progress.finish();
    return ok && outcome.exchange() ? std::optional(steps) : std::nullopt;
}

/// Warns of settings that are valid but easily misunderstood.
void warn(Options const& options, pentad::model::Model const& model) {
    bool sees_later = false, has_constant_weights = false;
    using pentad::model::RouterChoice;
    for (auto const& block : model.blocks)
        for (auto const& branch : block.branches)
            if (auto const* experts = branch.part.as<pentad::model::Experts>()) {
                auto const& router = experts->router;
                sees_later = sees_later || router.choice == RouterChoice::expert_choice ||
                             router.choice == RouterChoice::sinkhorn ||
                             (router.capacity > 0 && router.drop == pentad::model::Drop::score);
                has_constant_weights =
                    has_constant_weights || (experts->top_k == 1 && experts->router.renormalises &&
                                             experts->router.choice == pentad::model::RouterChoice::top_k);
            }
    if (options.tokens.empty() && options.vocab > 256)
        std::printf("the tokens of the text are its 256 bytes, and %s has more: others are given with --tokens\n",
                    given(&Options::vocab, options).c_str());
    if (options.steps > 0 && options.warmup >= options.steps)
        std::printf(
            "the warm-up (%s) is no shorter than the run: the learning rate ends at %.3g of --lr, and does not decay\n",
            given(&Options::warmup, options).c_str(),
            static_cast<double>(options.steps) / static_cast<double>(options.warmup));
    if (sees_later)
        pentad::program::say("train_lm",
                             "warning: the experts of a token depend on later tokens (--router expert-choice "
                             "or sinkhorn, --drop score): the loss is not that of a causal model");
    if (has_constant_weights)
        pentad::program::say("train_lm", "warning: " + given(&Options::top_k, options) +
                                             " with renormalised weights: each weight is 1, and the loss teaches the "
                                             "router nothing (--renormalise off, or --router switch)");
}

} // namespace

bool run(Options const& asked, pentad::program::Ranks& ranks) {
    int const rank = ranks.rank();
    auto options = with_context(asked);
    auto settings = make_settings(options);
    pentad::train::ProvenSchedules const schedules(make_schedule(options));
    auto mesh = make_mesh(options, schedules.training());
    if (settings.strategy.recompute.kind == pentad::model::Recomputation::Kind::automatic)
        settings.strategy.recompute = plan_recomputation(options, schedules.training(), ranks);
    check_memory(options, settings.strategy.recompute, schedules.training(), mesh, ranks);
    std::optional<pentad::comm::Communicators> communicators(std::in_place, MPI_COMM_WORLD, mesh);
    auto const data = training_data(options);
    options.mesh = ordered_axes(options, schedules.training(), *communicators, [&](auto& dry) {
        return make_training({dry, data, for_dry_run(settings, schedules.training()), schedules});
    });
    if (auto const placed = make_mesh(options, schedules.training()); placed != mesh) {
        mesh = placed;
        check_memory(options, settings.strategy.recompute, schedules.training(), mesh, ranks);
        communicators.emplace(MPI_COMM_WORLD, mesh);
    }
    std::optional<pentad::io::TokenData> held_out;
    if (!options.validation.empty()) held_out.emplace(validation_data(options));
    describe_neighbour(options, schedules.training(), mesh, ranks);
    if (rank == 0 && !options.quiet) warn(options, settings.model);
    std::optional<pentad::io::Checkpoint> checkpoint;
    bool const reads_weights = !options.weights.empty() && !Checkpoints::will_resume(options, ranks);
    if (reads_weights)
        ranks.on_all([&] { pentad::program::with_files_of_user([&] { checkpoint.emplace(options.weights); }); });
    auto const training = make_training({*communicators, data, settings, schedules, learns(options)});
    if (checkpoint) ranks.on_all([&] { training->import_weights(*checkpoint, passed_over(options)); });
    if (rank == 0 && !options.quiet)
        for (auto const& line : lines_of_model(options, checkpoint ? &*checkpoint : nullptr)) std::puts(line.c_str());
    checkpoint.reset();

    Outcome outcome(rank);
    std::optional<pentad::io::LineFile> log;
    Checkpoints checkpoints(options, ranks, config_text(options, settings), [&](auto const& saved) {
        if (log) outcome.write([&] { log->write(checkpoint_line(saved)); });
    });
    checkpoints.require_plan(*training);
    auto const resumed_from = checkpoints.resume(*training);
    std::int64_t const done = training->position().step;
    std::int64_t const last_step = std::max(options.steps, done); // --steps 0 of a run that goes on: no more of them
    if (!options.log.empty())
        outcome.write([&] {
            if (done == 0) {
                log.emplace(options.log);
                return;
            }
            log.emplace(options.log, [done](std::string_view line) { return is_of_step_up_to(line, done); });
            log->write("{\"event\":\"resume\",\"step\":" + std::to_string(done) +
                       ",\"from\":" + nlohmann::json(resumed_from).dump() + "}");
        });
    bool const summary = !options.quiet && options.steps > done;
    double gemm_speed = summary ? training->gemm_speed() : 0;
    if (summary)
        check(MPI_Allreduce(MPI_IN_PLACE, &gemm_speed, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
    if (!options.trace.empty()) {
        check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
        pentad::observe::trace().enable(std::size_t{1} << 18);
    }

    std::optional<Steps> steps;
    try {
        steps = train(options, *training, checkpoints, done + 1, held_out, rank, outcome, log);
    } catch (pentad::train::NotFinite const& error) { // on all ranks
        throw pentad::program::OutsideFailure(std::string(error.what()) + ": try a smaller --lr than " +
                                              number(options.lr) + (options.clip > 0 ? "" : ", or --clip 1"));
    }
    bool ok = steps.has_value();
    if (ok && steps->are_stopped) {
        checkpoints.finish();
        auto const step = std::to_string(training->position().step);
        if (log)
            outcome.write([&] {
                log->write("{\"event\":\"stop\",\"step\":" + step + "}");
                log->close();
            });
        if (rank == 0)
            pentad::program::say("train_lm", "stopped by " + checkpoints.stopped_by() + " after step " + step +
                                                 ", whose checkpoint is complete: the same command with --resume auto "
                                                 "goes on from it");
        return outcome.exchange();
    }
    if (ok) {
        auto const last = training->evaluate(last_step + 1);
        if (!std::isfinite(last.loss))
            throw pentad::program::OutsideFailure("the loss after the last step is not finite: no weights are written");
        std::optional<double> validation_loss;
        if (held_out) validation_loss = validate(options, *training, *held_out, rank, last_step);
        checkpoints.wait(); // the log has its end too
        if (log)
            outcome.write([&] {
                log->write("{\"event\":\"end\",\"final_loss\":" + number(loss_of(last)) +
                           (validation_loss ? ",\"validation_loss\":" + number(*validation_loss) : "") + "}");
                log->close();
            });
        if (summary) print_summary(options, settings.model, mesh, gemm_speed, *steps);
        if (summary) print_offload(options, *training, steps->offload_wait, steps->seconds, rank);
        ok = outcome.exchange();
    }
    if (ok) {
        if (!options.dump_weights.empty())
            outcome.write_together(
                [&] { training->export_weights(options.dump_weights, config_text(options, settings)); });
        if (!options.trace.empty()) write_timeline(options.trace, outcome, rank, mesh.size());
        if (options.sample > 0) {
            auto const text = training->sample(options.prompt, options.sample);
            if (rank == 0) std::printf("\n%s|%s\n", options.prompt.c_str(), text.c_str());
        }
        ok = outcome.exchange();
    }
    if (!outcome.failure().empty()) pentad::program::say("train_lm", outcome.failure());
    checkpoints.finish();
    return ok;
}

} // namespace train_lm

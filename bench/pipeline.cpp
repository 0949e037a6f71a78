// Pipeline schedules as they really run, beside what the simulator says for the times that their computes took. On
// 2 ranks the stages of a language model; with --sleep stages that sleep, so that more ranks than cores can be shown.
// Schedules run in turn. A line of JSON for each: medians of the bubble and of the span (the longest time of a rank
// from its first compute to its last), measured and simulated.
//   bench_pipeline [--sleep] [REPEATS]
#include <pentad/comm/error.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/simulator.hpp>
#include <pentad/train/trainer.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Stream = InvariantStream<f32>;
using pipeline::Operation;
using pipeline::Schedule;

int rank = 0, ranks = 1;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}
double reduced(double own, MPI_Op operation) {
    double all = 0;
    comm::check(MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD), "MPI_Allreduce");
    return all;
}

/// Stages that take a known time each: a forward and each part of a backward pass sleep.
class SleepingModel {
  public:
    using Any = AnyTensor<f32, Exec>;
    struct Saved {};

    SleepingModel(Context<Exec> const& context, std::vector<int> stages, int all, double milliseconds)
        : context_(&context), stages_(std::move(stages)), all_(all), time_(milliseconds) {}
    [[nodiscard]] std::vector<int> const& stages() const { return stages_; }
    [[nodiscard]] std::size_t index_of(int stage) const {
        return static_cast<std::size_t>(std::find(stages_.begin(), stages_.end(), stage) - stages_.begin());
    }
    [[nodiscard]] Any make_input(int) const { return made(); }
    [[nodiscard]] Any make_output_gradient(int) const {
        return {*context_, dual_t<Stream>::value, std::array<std::size_t, 3>{1, 64, 64}};
    }
    Any forward(int stage, Pass<Exec>&, Any, Saved&) const {
        sleep(1);
        return stage + 1 == all_ ? Any() : made();
    }
    Any logits(int, Pass<Exec>&, Any, Saved&) const { return {}; }
    Any backward(int stage, Pass<Exec>& pass, Any dy, Saved& saved) const {
        sleep(1);
        return backward_data(stage, pass, std::move(dy), saved);
    }
    Any backward_data(int stage, Pass<Exec>&, Any, Saved&) const {
        sleep(1);
        return stage == 0 ? Any() : made();
    }
    void backward_weight(int, Pass<Exec>&, Saved&) const { sleep(1); }
    static void discard(Saved&) {}

  private:
    [[nodiscard]] Any made() const { return {*context_, Stream::value, std::array<std::size_t, 3>{1, 64, 64}}; }
    void sleep(double parts) const {
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(parts * time_));
    }
    Context<Exec> const* context_;
    std::vector<int> stages_;
    int all_;
    double time_;
};

/// A schedule that can be run, and what its runs took.
struct Candidate {
    Schedule schedule;
    std::function<void(std::int64_t)> run;
    std::vector<double> bubbles, spans;
    /// Of each stage, seconds of its forward, backward, backward_data and backward_weight.
    std::vector<std::array<std::vector<double>, 4>> times{};
};

/// Runs once and notes what the spans of the computes say.
void measure(Candidate& candidate, std::int64_t step) {
    comm::check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    observe::trace().enable(std::size_t{1} << 18);
    candidate.run(step);
    observe::trace().disable();
    candidate.times.resize(static_cast<std::size_t>(candidate.schedule.stages()));
    double busy = 0, first = 1e300, last = 0;
    for (auto const& span : observe::trace().spans()) {
        if (span.category != "pipeline") continue;
        for (std::size_t i = 0; i < 4; ++i) {
            if (span.name != pipeline::operation_names[i]) continue;
            double const start = 1e-9 * static_cast<double>(span.start_ns),
                         end = 1e-9 * static_cast<double>(span.end_ns);
            busy += end - start;
            first = std::min(first, start);
            last = std::max(last, end);
            candidate.times[static_cast<std::size_t>(span.detail.stage)][i].push_back(end - start);
        }
    }
    double const span = reduced(last - first, MPI_MAX);
    candidate.spans.push_back(span);
    candidate.bubbles.push_back(1 - reduced(busy, MPI_SUM) / (span * ranks));
}

/// What the simulator says for the medians of the times that the computes of each stage took.
pipeline::Simulation simulated(Candidate const& candidate) {
    pipeline::Costs costs;
    costs.stages.clear();
    for (auto const& of_stage : candidate.times) {
        std::array<pipeline::Time, 4> times{};
        for (std::size_t i = 0; i < 4; ++i) // where the stage is not, nothing
            times[i] = static_cast<pipeline::Time>(1e9 * reduced(median(of_stage[i]), MPI_MAX));
        costs.stages.push_back(
            {.forward = times[0], .backward_data = times[2], .backward_weight = times[3], .backward = times[1]});
    }
    return pipeline::simulate(candidate.schedule, costs);
}

struct Named {
    std::string_view name;
    int chunks = 0;
};

Candidate sleeping(Named const& what, int micro_batches, double milliseconds) {
    struct Run {
        comm::Communicators communicators;
        Context<Exec> context{communicators};
        SleepingModel model;
        train::Executor<SleepingModel, f32, Exec> executor;

        Run(Schedule const& schedule, std::vector<int> const& stages, double time)
            : communicators(MPI_COMM_WORLD, train::for_schedule(model::DenseMesh(1, ranks, 1, 1), schedule)),
              model(context, stages, schedule.stages(), time), executor(context, model) {}
    };
    Candidate candidate;
    candidate.schedule =
        pipeline::generate(what.name, {.ranks = ranks, .micro_batches = micro_batches, .chunks = what.chunks});
    auto const& schedule = candidate.schedule;
    std::vector<int> stages;
    for (int stage = 0; stage < schedule.stages(); ++stage)
        if (schedule.has_stage(train::pipeline_rank(schedule, rank), stage)) stages.push_back(stage);
    // A rank has the same work whatever the number of its stages.
    auto const run = std::make_shared<Run>(schedule, stages, milliseconds * ranks / schedule.stages());
    candidate.run = [run, schedule](std::int64_t) {
        std::vector<Pass<Exec>> passes;
        for (int i = 0; i < schedule.micro_batches; ++i) passes.push_back({.context = run->context});
        run->executor.run(schedule, passes);
    };
    return candidate;
}

Candidate training(Named const& what, int micro_batches, io::TokenData const& data) {
    struct Run {
        comm::Communicators communicators;
        Context<Exec> context{communicators};
        train::Trainer<f32, Exec> trainer;

        Run(train::RunSettings const& settings, pipeline::Schedule const& schedule, io::TokenData const& text)
            : communicators(MPI_COMM_WORLD, train::for_schedule(model::DenseMesh(1, ranks, 1, 1), schedule)),
              trainer(context, Stream::value, settings, train::ProvenSchedules(schedule), text) {}
    };
    Candidate candidate;
    candidate.schedule =
        pipeline::generate(what.name, {.ranks = ranks, .micro_batches = micro_batches, .chunks = what.chunks});
    train::RunSettings settings{
        .model = model::decoder({.layers = 16, .hidden = 256, .heads = 4, .kv_heads = 4, .ffn = 704, .vocab = 256}),
        .strategy = {.batch = 2 * micro_batches, .micro_batches = micro_batches, .seq = 256}};
    auto const run = std::make_shared<Run>(settings, candidate.schedule, data);
    candidate.run = [run](std::int64_t step) { (void)run->trainer.step(step); };
    return candidate;
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    bool const sleeps = argc > 1 && std::string_view(argv[1]) == "--sleep";
    int const repeats = argc > (sleeps ? 2 : 1) ? std::atoi(argv[sleeps ? 2 : 1]) : 7;
    int const micro_batches = 2 * ranks;

    std::string text;
    for (int i = 0; i < 100'000; ++i) text += static_cast<char>((i * i / 3 + 7 * i) % 250 + 1);
    io::TokenData const data(text, "the text", 256, 1);
    std::vector<Candidate> candidates;
    for (Named const& what : {Named{"1f1b"},
                              {"gpipe"},
                              {"zb-h1"},
                              {"zb-h2"},
                              {"interleaved-1f1b", 2},
                              {"zb-v"},
                              {"dualpipe-v"},
                              {"v-half"},
                              {"hanayo"},
                              {"dualpipe"}})
        candidates.push_back(sleeps ? sleeping(what, micro_batches, 10) : training(what, micro_batches, data));
    for (auto& candidate : candidates) { // warm
        candidate.run(1);
        candidate.run(2);
    }
    for (int repeat = 0; repeat < repeats; ++repeat)
        for (auto& candidate : candidates) measure(candidate, 3 + repeat);

    double base = 0, base_simulated = 0;
    for (auto const& candidate : candidates) {
        auto const expected = simulated(candidate);
        double const span = median(candidate.spans), expected_span = 1e-9 * static_cast<double>(expected.span());
        if (base == 0) {
            base = span;
            base_simulated = expected_span;
        }
        if (rank == 0)
            std::printf("{\"schedule\": \"%s\", \"ranks\": %d, \"micro_batches\": %d, \"bubble\": %.3f, "
                        "\"simulated_bubble\": %.3f, \"seconds\": %.4f, \"simulated_seconds\": %.4f, "
                        "\"of_1f1b\": %.3f, \"simulated_of_1f1b\": %.3f}\n",
                        candidate.schedule.name.c_str(), ranks, micro_batches, median(candidate.bubbles),
                        expected.bubble(), span, expected_span, span / base, expected_span / base_simulated);
    }
}

// A model whose mixer is the program's own (convolution.hpp), with the library's experts beside it, trained on a mesh
// of five axes and on one rank: the numbers are the same. A dry run of each rank says what a step sends, computes and
// holds, and the planner's estimate says it of all of them. Then the weights are written as a checkpoint and a text is
// drawn.
//
// mpiexec -n 8 own_block DP PP EP CP TP FOLDER
#include "convolution.hpp"

#include <pentad/comm.hpp>
#include <pentad/observe.hpp>
#include <pentad/pipeline.hpp>
#include <pentad/planner.hpp>
#include <pentad/program.hpp>
#include <pentad/train.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

using namespace pentad;
using namespace pentad::ml;
using HostExec = Kokkos::DefaultHostExecutionSpace;
using Stream = SequenceStream<f64>;
using Trainer = train::Trainer<f64, HostExec>;
constexpr auto sent_axes = pentad::view_axes;

train::RunSettings settings() {
    model::Model model{.hidden = 32, .vocab = 256};
    model::Branch const mixer{Convolution{.width = 48, .taps = 4}, "convolution", "input_layernorm"};
    // Every token goes to both experts: routing is even, as a dry run takes it to be.
    model::Branch const experts{model::Experts{.count = 2, .top_k = 2, .width = 24}, "experts", "experts_norm"};
    for (int block = 0; block < 4; ++block) model.blocks.push_back({{mixer, experts}});
    return {.model = model, .strategy = {.batch = 8, .micro_batches = 2, .seq = 32}};
}

/// The library's layers and the one of convolution.hpp.
struct Layers {
    template <class T, class Exec>
    static LayerRegistry<T, Exec> const& of() {
        static auto const registry = [] {
            auto all = train::decoder_layers<T, Exec>();
            all.template add<Convolution, GatedConvolution>();
            return all;
        }();
        return registry;
    }
};

/// The trainer of a rank, and the text that it reads.
struct Run {
    std::string text;
    Context<HostExec> context;
    io::TokenData data;
    Trainer trainer;

    explicit Run(comm::Communicators& communicators) : Run(communicators, settings()) {}
    Run(comm::Communicators& communicators, train::RunSettings const& how)
        : text(lines()), context(communicators),
          data(text, "the text", static_cast<std::int64_t>(how.strategy.seq), how.seed),
          trainer(context, Stream::value, how, schedules(communicators.extent("pp"), how), data,
                  Layers::of<f64, HostExec>()) {}
    static std::string lines() {
        std::string text;
        for (int i = 0; i < 200; ++i) text += std::to_string(i * i) + " is the square of " + std::to_string(i) + "\n";
        return text;
    }
    static train::ProvenSchedules schedules(int ranks, train::RunSettings const& how) {
        return train::ProvenSchedules(pipeline::generate(
            "1f1b", {.ranks = ranks, .micro_batches = static_cast<int>(how.strategy.micro_batches), .chunks = 0}));
    }
};

/// What the third step sends along each axis, computes and holds.
std::array<double, sent_axes.size() + 2> account(Trainer& trainer) {
    for (int step = 1; step <= 2; ++step) trainer.step(step);
    auto& counters = observe::counters();
    for (auto& count : counters.memory) count.peak = count.bytes;
    observe::ledger().clear();
    double const flops = counters.gemm_flops;
    trainer.step(3);
    std::array<double, sent_axes.size() + 2> numbers{};
    for (std::size_t i = 0; auto const axis : sent_axes) numbers[i++] = observe::ledger().bytes(axis);
    numbers[sent_axes.size()] = counters.gemm_flops - flops;
    for (auto const& count : counters.memory) numbers.back() += static_cast<double>(count.peak);
    return numbers;
}

/// The planner's estimate of account(): bytes of all ranks together, and memory of the fullest.
std::array<double, sent_axes.size() + 2> estimate(model::RankMesh const& mesh) {
    auto c = settings().strategy;
    c.dp = mesh.extent<dp>(), c.pp = mesh.extent<pp>(), c.ep = mesh.extent<ep>(), c.cp = mesh.extent<cp>();
    c.tp = mesh.extent<tp>();
    c.block.sequence_parallel = true;
    c.element = planner::Element::f64;
    planner::Hardware const any{.devices = mesh.size(),
                                .devices_per_node = mesh.size(),
                                .peak_f32 = 1e12,
                                .peak_bf16 = 1e12,
                                .memory_bandwidth = 1e12};
    auto const found = planner::estimate(train::planned_model<Layers, HostExec>(settings().model), any, c);
    std::array<double, sent_axes.size() + 2> numbers{};
    for (std::size_t i = 0; auto const axis : sent_axes) numbers[i++] = found.bytes[axis];
    numbers[sent_axes.size()] = found.flops;
    numbers.back() = found.memory_peak;
    return numbers;
}

int run(program::Ranks const& ranks, model::RankMesh const& mesh, std::filesystem::path const& folder) {
    bool same = true; // on this rank
    auto const views = model::with_experts(mesh);
    comm::Communicators communicators(MPI_COMM_WORLD, views);
    {
        comm::Communicators one(MPI_COMM_SELF, model::with_experts(model::RankMesh(1, 1, 1, 1, 1)));
        std::optional<Run> alone, together;
        ranks.on_all([&] { // where the model does not fit the mesh, all ranks find so
            alone.emplace(one);
            together.emplace(communicators);
        });
        for (int step = 1; step <= 4; ++step) {
            auto const a = alone->trainer.step(step), b = together->trainer.step(step);
            same = same && std::abs(a.loss - b.loss) < 1e-10 && std::abs(a.gradient_norm - b.gradient_norm) < 1e-10;
            if (ranks.is_first())
                std::printf("step %d: loss %.12f, on one rank %.12f; norm of the gradient %.12f, on one rank %.12f\n",
                            step, b.loss, a.loss, b.gradient_norm, a.gradient_norm);
        }
    }
    auto const planned = [&] {
        observe::DryRun const dry;
        comm::Communicators dry_communicators(views, ranks.rank(), mesh.size());
        Run run(dry_communicators);
        return account(run.trainer);
    }();
    auto const estimated = estimate(mesh);
    Run run(communicators);
    auto const done = account(run.trainer);
    auto all = done; // of all ranks; the bytes held by the fullest
    auto const sums = static_cast<int>(sent_axes.size()) + 1;
    MPI_Allreduce(done.data(), all.data(), sums, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&done.back(), &all.back(), 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    std::array<std::string, sent_axes.size() + 2> names{};
    for (std::size_t i = 0; i < sent_axes.size(); ++i)
        names[i] = (i == 0 ? "sent along " : "") + std::string(sent_axes[i]);
    names[sent_axes.size()] = "FLOPs of products";
    names.back() = "bytes held";
    if (ranks.is_first()) std::printf("%-18s %14s %14s %14s %14s\n", "", "dry run", "done", "estimate", "all ranks");
    for (std::size_t i = 0; i < names.size(); ++i) {
        same = same && planned[i] == done[i];
        same = same &&
               (i + 1 < names.size() ? std::round(estimated[i]) == all[i] : std::abs(estimated[i] / all[i] - 1) < 0.1);
        if (ranks.is_first())
            std::printf("%-18s %14.0f %14.0f %14.0f %14.0f\n", names[i].c_str(), planned[i], done[i], estimated[i],
                        all[i]);
    }
    train::CheckpointSink<f64> sink(folder, "{\"architectures\": [\"OwnBlockForCausalLM\"]}\n");
    train::export_weights<f64>(run.context, run.trainer.model(), run.trainer.store(), std::nullopt, sink);
    auto const drawn = train::sample(run.trainer, "12 is", 16, 1);
    if (ranks.is_first()) std::printf("12 is|%s\n", one_line(drawn).c_str());
    ranks.on_all([&] {
        if (!same) throw std::runtime_error("the mesh and one rank, or what was planned and done, differ");
    });
    return program::done;
}

int main(int argc, char** argv) {
    return program::run_on_ranks("own_block", argc, argv, [&](program::Ranks& ranks) {
        Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
        if (argc != 7) throw program::BadInput("it takes DP PP EP CP TP FOLDER, such as 1 2 2 1 2 /tmp");
        auto const extent = [&](int i) { return std::atoi(argv[i]); };
        model::RankMesh const mesh(extent(1), extent(2), extent(3), extent(4), extent(5));
        if (mesh.size() != ranks.size())
            throw program::BadInput("a mesh of " + std::to_string(mesh.size()) + " ranks on " +
                                    std::to_string(ranks.size()));
        return run(ranks, mesh, argv[6]);
    });
}

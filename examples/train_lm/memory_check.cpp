#include "memory_check.hpp"

#include "flags.hpp"

#include <pentad/comm/error.hpp>
#include <pentad/kernels/gemm_libraries.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/pipeline/validator.hpp>
#include <pentad/program/memory.hpp>
#include <pentad/report/format.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/train/machine.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/stages.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace train_lm {

namespace {

namespace planner = pentad::planner;

/// What a rank takes beside the run's tensors: the MPI library's buffers, those of collectives, of BLAS, of the data.
constexpr double overhead = 64.0 * (1 << 20);
/// The account is exact within 7 % (tests/train/planned.cpp); what it may overestimate is not refused.
constexpr double certain = 0.93;

/// The model of a run, which no flag that is tried here changes: its parts are run dry once for each shape.
planner::Model planned_model(Options const& o) { return pentad::train::planned_model(make_model(o)); }

/// Bytes of each rank of the pipeline. Layers that are going to be dealt by measurement are taken as dealt evenly.
std::vector<double> needs(planner::Model const& model, Options const& o, pentad::model::Recomputation const& recompute,
                          pentad::pipeline::Schedule const& schedule) {
    auto c = strategy_of(o);
    c.recompute = recompute;
    std::vector<double> bytes;
    auto full = pentad::train::planned_memory(model, c, schedule, c.stage_layers);
    for (auto const& memory : full) bytes.push_back(certain * (learns(o) ? memory.total() : memory.weights) + overhead);
    if (o.save.empty()) return bytes;
    // A checkpoint is written from copies of the weights and of the optimizer's state, all in accumulators. With bf16,
    // the masters in the optimizer's state stand for the weights.
    if (std::exchange(c.precision, {}) != pentad::model::Precision{})
        full = pentad::train::planned_memory(model, c, schedule, c.stage_layers);
    for (std::size_t i = 0; i < full.size(); ++i) {
        double const state = offload_of(o).optimizer ? full[i].offloaded : full[i].optimizer;
        bytes[i] += certain * (o.strategy.element == pentad::model::Element::bf16 ? state : state + full[i].weights);
    }
    return bytes;
}
/// The recomputation of --recompute auto within so many bytes of a rank.
planner::AutomaticRecomputation within(planner::Model const& model, Options const& o,
                                       pentad::pipeline::Schedule const& schedule, planner::Hardware machine,
                                       double room) {
    machine.memory_bytes = room - overhead;
    auto const c = strategy_of(o);
    return pentad::train::planned_recomputation(model, machine, c, schedule, c.stage_layers);
}
/// A machine for what does not depend on how fast it is.
planner::Hardware any_machine(int ranks) {
    return {.name = "any",
            .devices = ranks,
            .devices_per_node = ranks,
            .peak_f32 = 1e12,
            .peak_bf16 = 1e12,
            .memory_bandwidth = 1e11,
            .links = {{.devices = ranks, .latency_s = 1e-6, .bandwidth = 1e10}}};
}
/// What this process may take by its own limits and --memory-limit.
pentad::program::AvailableMemory limits_of_process(Options const& o) {
    if constexpr (pentad::memory::runs_on_host<Kokkos::DefaultExecutionSpace>) {
        [[maybe_unused]] static bool const has_buffers = (pentad::kernels::make_gemm_buffers(), true);
    }
    auto room = pentad::program::memory_of_process();
    if (auto const limit = pentad::report::bytes_in(o.memory_limit)) room.at_most(*limit, "--memory-limit");
    return room;
}
/// The limits of the process, or its part of what the host has.
pentad::program::AvailableMemory room_of_process(Options const& o, pentad::program::Ranks const& ranks) {
    auto room = limits_of_process(o);
    auto const host = pentad::program::memory_of_host();
    room.at_most(host.bytes / static_cast<double>(ranks.board().ranks().size()), host.bound);
    return room;
}

/// The run with other flags, if it can be run at all, and what its fullest rank then needs.
std::optional<double> need_with(planner::Model const& model, Options& o, int ranks, double room) {
    follow(o);
    if (!refusal(o, ranks).empty()) return std::nullopt;
    try {
        auto const schedule = pentad::pipeline::proven(make_schedule(o));
        auto recompute = recomputation_of(o);
        if (o.recompute == "auto") {
            auto const plan = within(model, o, schedule, any_machine(ranks), room);
            if (plan.lacking > 0) return room + plan.lacking;
            recompute = plan.recompute;
        }
        auto const bytes = needs(model, o, recompute, schedule);
        return *std::max_element(bytes.begin(), bytes.end());
    } catch (std::exception const&) {
        return std::nullopt;
    }
}

/// What is sharded or computed again, as flags that differ from those asked for: from what costs least time to what
/// costs most.
std::vector<Options> with_less_memory(Options const& asked) {
    std::vector<Options> found;
    // What auto needs is not known before the layers of each stage are.
    std::string const most = asked.stages == "balanced" ? "full" : "auto";
    for (bool const recomputes_more : {false, true}) {
        if (recomputes_more && asked.recompute == "auto") break;
        Options o = asked;
        if (recomputes_more) {
            o.recompute = most;
            o.strategy.recompute.every = 1;
            o.recompute_parts = Options{}.recompute_parts;
        }
        found.push_back(o);
        auto& sharding = o.strategy.sharding;
        for (auto* const choice : {&sharding.keeps_parameters, &sharding.accumulates_gradients})
            if (std::exchange(*choice, false)) found.push_back(o);
        while (++sharding.stage <= 3) found.push_back(o);
        sharding.stage = 3;
        if (std::exchange(sharding.ranks, 0) > 0) found.push_back(o);
    }
    return found;
}

/// The flags that make the run fit and change it least: what is sharded or computed again, then smaller micro-batches,
/// then another mesh; all of them give the same numbers. Empty: none do, and `least` is what the best of them needs.
std::string cheapest_that_fit(planner::Model const& model, Options const& asked, int ranks, double room,
                              double& least) {
    std::vector<std::int64_t> micro_batches;
    for (auto count = asked.strategy.micro_batches; count <= asked.batch && count <= 4096; count *= 2)
        micro_batches.push_back(count);
    std::vector<std::vector<MeshAxis>> meshes{asked.mesh};
    // The other meshes move ranks from dp to one axis that shards the model.
    auto const at = [&](std::string_view name) {
        return static_cast<std::size_t>(std::find_if(asked.mesh.begin(), asked.mesh.end(),
                                                     [&](MeshAxis const& axis) { return axis.name == name; }) -
                                        asked.mesh.begin());
    };
    for (auto const* const to : {"tp", "pp"})
        for (std::int64_t moved = 2; moved <= asked.extent("dp"); ++moved) {
            if (asked.extent("dp") % moved != 0) continue;
            auto mesh = asked.mesh;
            mesh[at("dp")].extent /= moved;
            mesh[at(to)].extent *= moved;
            meshes.push_back(std::move(mesh));
        }
    least = std::numeric_limits<double>::infinity();
    for (auto const& mesh : meshes)
        for (auto const count : micro_batches)
            for (auto o : with_less_memory(asked)) {
                o.batch_given = true;
                o.mesh = mesh;
                o.strategy.micro_batches = count;
                auto const need = need_with(model, o, ranks, room);
                if (!need) continue;
                least = std::min(least, *need);
                if (*need > room) continue;
                std::string flags;
                for (FlagGroup const& group : flag_groups())
                    for (Flag const& flag : group.flags)
                        if (auto const value = value_text(flag, o); value != value_text(flag, asked))
                            flags += " " + std::string(flag.name) + " " + value;
                return flags;
            }
    return "";
}

} // namespace

std::string flags_that_fit(Options const& options, pentad::program::Ranks const& ranks) {
    double room = room_of_process(options, ranks).bytes;
    pentad::comm::check(MPI_Allreduce(MPI_IN_PLACE, &room, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
    double least = 0;
    auto const flags = cheapest_that_fit(planned_model(options), options, ranks.size(), room, least);
    if (flags.empty() || flags.find(" --mesh ") != flags.npos) return flags;
    return " --mesh " + mesh_text(options.mesh) + flags;
}

pentad::model::Recomputation plan_recomputation(Options const& options, pentad::pipeline::Schedule const& schedule,
                                                pentad::program::Ranks const& ranks) {
    namespace report = pentad::report;
    auto const model = planned_model(options);
    auto const own = room_of_process(options, ranks);
    auto const least_of_ranks = [](double bytes) { // stages have copies on several
        pentad::comm::check(MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD),
                            "MPI_Allreduce");
        return bytes;
    };
    double room = least_of_ranks(own.bytes);
    planner::AutomaticRecomputation plan;
    ranks.on_all([&] {
        try {
            plan = within(model, options, schedule, any_machine(ranks.size()), room);
        } catch (std::invalid_argument const& error) {
            throw pentad::program::BadInput(std::string("--recompute auto: ") + error.what());
        }
        if (plan.lacking <= 0) return;
        double least = 0;
        auto const flags = cheapest_that_fit(model, options, ranks.size(), room, least);
        throw pentad::program::BadInput(
            "--recompute auto: with all that can be recomputed the run still needs " +
            report::bytes(room + plan.lacking) + " on its fullest rank, which can have " + report::bytes(room) + " (" +
            own.bound + ")" +
            (flags.empty() ? ": take more hosts, a larger limit or a smaller model" : ": try" + flags));
    });
    if (plan.recompute.kind == pentad::model::Recomputation::Kind::none) return plan.recompute;
    auto const machine = pentad::train::measured_machine(Kokkos::DefaultExecutionSpace());
    room = least_of_ranks(room_of_process(options, ranks).bytes); // the buffers of BLAS and of threads exist now
    plan = within(model, options, schedule, machine, room);
    if (ranks.is_first() && !options.quiet)
        std::printf("--recompute auto, for %s a rank (%s): %s\n", report::bytes(room).c_str(), own.bound.c_str(),
                    report::recomputed_layers(plan.recompute, static_cast<std::size_t>(options.layers)).c_str());
    return plan.recompute;
}

void check_memory(Options const& options, pentad::model::Recomputation const& recompute,
                  pentad::pipeline::Schedule const& schedule, Mesh const& mesh, pentad::program::Ranks const& ranks) {
    namespace report = pentad::report;
    auto const model = planned_model(options);
    std::vector<double> bytes;
    try {
        bytes = needs(model, options, recompute, schedule);
    } catch (std::invalid_argument const&) { // a model that the planner cannot describe: nothing is known
        return;
    }
    auto const of_rank = [&](int rank) {
        int const at = pentad::train::pipeline_rank(schedule, mesh.coordinate<pentad::ml::pp>(rank));
        return bytes[static_cast<std::size_t>(at)];
    };
    ranks.on_all([&] {
        auto const& here = ranks.board().ranks();
        double together = 0;
        for (int const rank : here) together += of_rank(rank);
        auto const host = pentad::program::memory_of_host();
        auto const own = limits_of_process(options);
        bool const process_is_short = of_rank(ranks.rank()) > own.bytes;
        if (together <= host.bytes && !process_is_short) return;

        std::string sentence =
            "the run needs " + report::bytes(*std::max_element(bytes.begin(), bytes.end())) + " on its fullest rank";
        std::string const rank = "rank " + std::to_string(ranks.rank());
        auto const bound = [](auto const& memory) { return report::bytes(memory.bytes) + " (" + memory.bound + ")"; };
        if (process_is_short)
            sentence += ", and " + rank + " can have " + bound(own);
        else
            sentence += (here.size() > 1 ? " and " + report::bytes(together) + " on the " +
                                               std::to_string(here.size()) + " ranks of a host"
                                         : "") +
                        ", and the host of " + rank + " has " + bound(host);
        double const room = std::min(own.bytes, host.bytes / static_cast<double>(here.size()));
        double least = 0;
        auto const flags = cheapest_that_fit(model, options, ranks.size(), room, least);
        throw pentad::program::BadInput(
            flags.empty()
                ? sentence + "; with --zero 3, --recompute auto, more micro-batches or more tp or pp it still needs " +
                      report::bytes(least) + " a rank: take more hosts or a smaller model"
                : sentence + ": try" + flags);
    });
}

} // namespace train_lm

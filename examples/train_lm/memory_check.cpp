#include "memory_check.hpp"

#include "flags.hpp"

#include <pentad/pipeline/validator.hpp>
#include <pentad/program/memory.hpp>
#include <pentad/report/format.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/stages.hpp>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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

/// Bytes of each rank of the pipeline.
std::vector<double> needs(Options const& o, pentad::pipeline::Schedule const& schedule) {
    auto const model = pentad::train::planned_model(make_model(o));
    planner::Configuration c{
        .dp = o.extent("dp"), .pp = o.extent("pp"), .ep = o.extent("ep"), .cp = o.extent("cp"), .tp = o.extent("tp")};
    c.sequence_parallel = o.sequence_parallel;
    c.element = o.dtype == "f64"   ? planner::Element::f64
                : o.dtype == "f32" ? planner::Element::f32
                                   : planner::Element::bf16;
    c = pentad::train::planned_configuration(make_settings(o), c);
    // Layers that are going to be dealt by measurement are taken as dealt evenly.
    bool const is_known = !o.stages.empty() && o.stages != "balanced";
    auto const layers = is_known ? stage_layers(o.stages).value() : std::vector<std::size_t>{};
    std::vector<double> bytes;
    for (auto const& memory : pentad::train::planned_memory(model, c, schedule, layers))
        bytes.push_back(certain * memory.total() + overhead);
    return bytes;
}

/// The run with other flags, if it can be run at all, and what its fullest rank then needs.
std::optional<double> need_with(Options& o, int ranks) {
    follow(o);
    if (check(o, ranks)) return std::nullopt;
    try {
        auto const bytes = needs(o, pentad::pipeline::proven(make_schedule(o)));
        return *std::max_element(bytes.begin(), bytes.end());
    } catch (std::exception const&) {
        return std::nullopt;
    }
}

/// The flags that make the run fit and change it least: what is sharded or computed again, then smaller micro-batches,
/// then another mesh; all of them give the same numbers. Empty: none do, and `least` is what the best of them needs.
std::string cheapest_that_fit(Options const& asked, int ranks, double room, double& least) {
    std::vector<std::int64_t> micro_batches;
    for (auto count = asked.micro_batches; count <= asked.batch && count <= 4096; count *= 2)
        micro_batches.push_back(count);
    std::vector<std::vector<MeshAxis>> meshes{asked.mesh};
    // Of others, those that move ranks from dp to one axis that shards the model.
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
            for (auto const& [zero, recompute] :
                 {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
                Options o = asked;
                o.batch_given = true;
                o.mesh = mesh;
                o.micro_batches = count;
                if (zero) o.zero = 1;
                if (recompute) o.recompute = true;
                auto const need = need_with(o, ranks);
                if (!need) continue;
                least = std::min(least, *need);
                if (*need > room) continue;
                std::string flags;
                auto const add = [&](std::string const& flag) { flags += " " + flag; };
                if (mesh_text(o.mesh) != mesh_text(asked.mesh)) add("--mesh " + mesh_text(o.mesh));
                if (count != asked.micro_batches) add("--micro-batches " + std::to_string(count));
                if (o.zero != asked.zero) add("--zero 1");
                if (o.recompute != asked.recompute) add("--recompute");
                return flags;
            }
    return "";
}

} // namespace

void check_memory(Options const& options, pentad::pipeline::Schedule const& schedule, Mesh const& mesh,
                  pentad::program::Ranks const& ranks) {
    namespace report = pentad::report;
    std::vector<double> bytes;
    try {
        bytes = needs(options, schedule);
    } catch (std::invalid_argument const&) { // a model that the planner cannot describe: nothing is known
        return;
    }
    auto const of_rank = [&](int rank) {
        int const at = pentad::train::pipeline_rank(schedule, mesh.coordinate<pentad::pp>(rank));
        return bytes[static_cast<std::size_t>(at)];
    };
    ranks.on_all([&] {
        auto const& here = ranks.board().ranks();
        double together = 0;
        for (int const rank : here) together += of_rank(rank);
        auto const host = pentad::program::memory_of_host(), own = pentad::program::memory_of_process();
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
        auto const flags = cheapest_that_fit(options, ranks.size(), room, least);
        throw pentad::program::BadInput(
            flags.empty()
                ? sentence + "; with --zero 1, --recompute, more micro-batches or more tp or pp it still needs " +
                      report::bytes(least) + " a rank: take more hosts or a smaller model"
                : sentence + ": try" + flags);
    });
}

} // namespace train_lm

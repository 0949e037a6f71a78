#include "auto_context.hpp"

#include "configuration.hpp"
#include "run.hpp"

#include <pentad/planner/estimate.hpp>
#include <pentad/report/format.hpp>
#include <pentad/train/machine.hpp>
#include <pentad/train/planned.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace train_lm {

namespace {

/// What --cp can be on the mesh. Of those that are planned to be as fast the first is taken.
std::vector<Options> candidates(Options const& asked) {
    std::vector<Options> found;
    auto const add = [&](std::string name, std::int64_t heads, std::int64_t inner) {
        found.push_back(asked);
        found.back().cp = std::move(name);
        found.back().cp_heads = heads;
        found.back().cp_inner = inner;
    };
    std::int64_t const cp = asked.extent("cp"), heads = asked.heads / asked.extent("tp");
    add("ring", 0, 0);
    if (cp == 1) return found;
    add("allgather", 0, 0);
    if (heads % cp == 0) add("ulysses", 0, 0);
    for (std::int64_t part = 2; part < cp; ++part)
        if (cp % part == 0) {
            if (heads % part == 0) add("two-level", part, 0);
            add("double-ring", 0, part);
        }
    return found;
}

std::string flags_of(Options const& o) {
    return "--cp " + o.cp + (o.cp_heads > 0 ? " --cp-heads " + std::to_string(o.cp_heads) : "") +
           (o.cp_inner > 0 ? " --cp-inner " + std::to_string(o.cp_inner) : "");
}

} // namespace

Options with_planned_context(Options options) {
    if (options.cp != "auto") return options;
    auto found = candidates(options);
    if (found.size() == 1) return std::move(found.front());
    auto const model = pentad::train::planned_model(make_model(options));
    auto const machine = pentad::train::measured_machine(Kokkos::DefaultExecutionSpace());
    double fastest = std::numeric_limits<double>::infinity();
    for (auto& candidate : found) {
        double const seconds = pentad::planner::estimate(model, machine, configuration_of(candidate)).step_s;
        if (seconds >= fastest) continue;
        fastest = seconds;
        options = std::move(candidate);
    }
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && !options.quiet)
        std::printf("%s is planned to be the fastest: %s a step\n", flags_of(options).c_str(),
                    pentad::report::duration(fastest).c_str());
    return options;
}

} // namespace train_lm

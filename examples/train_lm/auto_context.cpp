#include "auto_context.hpp"

#include "configuration.hpp"
#include "flags.hpp"
#include "rules.hpp"

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
std::vector<Options> candidates(Options asked) {
    std::vector<Options> found;
    auto const add = [&](char const* name, std::int64_t heads, std::int64_t inner) {
        asked.cp = name;
        asked.cp_heads = heads;
        asked.cp_inner = inner;
        if (obeys_rules(asked)) found.push_back(asked);
    };
    std::int64_t const cp = asked.extent("cp");
    add("ring", 0, 0);
    if (cp == 1) return found;
    add("allgather", 0, 0);
    add("ulysses", 0, 0);
    for (std::int64_t part = 2; part < cp; ++part) {
        add("two-level", part, 0);
        add("double-ring", 0, part);
    }
    return found;
}

std::string flags_of(Options const& o) {
    return "--cp " + o.cp + (o.cp_heads > 0 ? " " + given(&Options::cp_heads, o) : "") +
           (o.cp_inner > 0 ? " " + given(&Options::cp_inner, o) : "");
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

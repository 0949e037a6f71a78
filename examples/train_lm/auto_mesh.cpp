#include "auto_mesh.hpp"

#include "configuration.hpp"
#include "flags.hpp"
#include "memory_check.hpp"

#include <pentad/planner/search.hpp>
#include <pentad/report/format.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/train/machine.hpp>
#include <pentad/train/planned.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cstdio>
#include <stdexcept>

namespace train_lm {

namespace planner = pentad::planner;

namespace {

PlannedMesh planned(pentad::Strategy const& plan, Options const& options) {
    PlannedMesh found{pentad::report::mesh_text(plan), options.expert_mesh, options.stages};
    if (plan.experts)
        found.expert_mesh = "ep=" + std::to_string(plan.experts->ep) + ",etp=" + std::to_string(plan.experts->etp);
    auto const laid_out = with_mesh(options, found);
    if (auto const stages = laid_out.stage_count(); found.stages.empty() && options.layers % stages != 0) {
        Options dealt = laid_out;
        deal_stages(dealt, stages);
        found.stages = dealt.stages;
    }
    return found;
}

} // namespace

PlannedMesh planned_mesh(Options const& options, pentad::program::Ranks const& ranks) {
    auto request = request_of(options, {.name = "any",
                                        .devices = ranks.size(),
                                        .devices_per_node = ranks.size(),
                                        .peak_f32 = 1e12,
                                        .peak_bf16 = 1e12,
                                        .memory_bytes = 1e18,
                                        .memory_bandwidth = 1e12,
                                        .links = {{.devices = ranks.size(), .latency_s = 1e-6, .bandwidth = 1e10}}});
    // Whether there is a mesh at all is known before the machine is measured, which takes seconds.
    auto findings = planner::search(request, 1);
    if (!findings.best.empty()) {
        request.hardware = pentad::train::measured_machine(Kokkos::DefaultExecutionSpace());
        if (auto const limit = pentad::report::bytes_in(options.memory_limit)) request.hardware.memory_bytes = *limit;
        findings = planner::search(request, 1);
    }
    if (findings.best.empty()) {
        if (findings.near_misses.empty())
            throw std::invalid_argument("no mesh of " + std::to_string(request.hardware.devices) +
                                        " ranks divides this model and batch");
        auto const& nearest = findings.near_misses.front();
        auto const mesh = planned(nearest.strategy, options);
        auto flags = flags_that_fit(with_mesh(options, mesh), ranks);
        if (!flags.empty() && mesh.stages != options.stages) flags += " --stages " + mesh.stages;
        if (!flags.empty() && mesh.expert_mesh != options.expert_mesh) flags += " --expert-mesh " + mesh.expert_mesh;
        throw NoRoom("no mesh fits: the least needs " + pentad::report::bytes(nearest.estimate.memory_peak) +
                     " on a rank, which has " + pentad::report::bytes(request.hardware.memory_bytes) +
                     (flags.empty() ? ": take more hosts or a smaller model" : ": try" + flags));
    }
    auto const& [plan, estimate] = findings.best.front();
    auto found = planned(plan, options);
    if (ranks.is_first() && !options.quiet)
        std::printf("--mesh %s%s%s is planned to be the fastest: %s a step\n", found.mesh.c_str(),
                    found.expert_mesh.empty() ? "" : (" --expert-mesh " + found.expert_mesh).c_str(),
                    found.stages.empty() ? "" : (" --stages " + found.stages).c_str(),
                    pentad::report::duration(estimate.step_s).c_str());
    return found;
}

} // namespace train_lm

#include "auto_mesh.hpp"

#include "configuration.hpp"

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

PlannedMesh planned_mesh(Options const& options) {
    namespace planner = pentad::planner;
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    planner::Request request{.model = pentad::train::planned_model(make_model(options)),
                             .hardware = {.name = "any",
                                          .devices = ranks,
                                          .devices_per_node = ranks,
                                          .peak_f32 = 1e12,
                                          .peak_bf16 = 1e12,
                                          .memory_bytes = 1e18,
                                          .memory_bandwidth = 1e12,
                                          .links = {{.devices = ranks, .latency_s = 1e-6, .bandwidth = 1e10}}},
                             .seq = options.seq,
                             .global_batch = options.batch,
                             .element = element_of(options),
                             .schedules = {options.schedule},
                             .most_micro_batch = options.batch};
    request.micro_batches = options.micro_batches;
    if (options.chunks > 0) request.chunks = options.chunks;
    request.zigzag = options.zigzag;
    request.zero = static_cast<int>(options.zero);
    request.zero_ranks = options.zero_ranks;
    request.zero_keep = options.zero_keep;
    request.zero_accumulate = options.zero_accumulate;
    request.gradient_release = options.gradient_release;
    request.optimizer = make_optimizer(options);
    request.precision = precision_of(options);
    request.recompute = recomputation_of(options);
    request.tensor_kind = options.tensor_kind();
    request.sequence_parallel = options.sequence_parallel;
    request.attention_output = attention_output_of(options);
    request.experts = options.folded_experts();
    request.context = options.context();
    request.wants_front = false;
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
        throw std::invalid_argument("no mesh fits: the least needs " +
                                    pentad::report::bytes(findings.near_misses.front().estimate.memory_peak) +
                                    " on a rank, which has " + pentad::report::bytes(request.hardware.memory_bytes));
    }
    auto const& [plan, estimate] = findings.best.front();
    PlannedMesh planned{pentad::report::mesh_text(plan), options.expert_mesh};
    if (plan.experts)
        planned.expert_mesh = "ep=" + std::to_string(plan.experts->ep) + ",etp=" + std::to_string(plan.experts->etp);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && !options.quiet)
        std::printf("--mesh %s%s is planned to be the fastest: %s a step\n", planned.mesh.c_str(),
                    planned.expert_mesh.empty() ? "" : (" --expert-mesh " + planned.expert_mesh).c_str(),
                    pentad::report::duration(estimate.step_s).c_str());
    return planned;
}

} // namespace train_lm

// Planning as a library: the fastest meshes for a model on a machine, and what one of them sends and holds. Nothing
// runs.
//
// ranks: 1
#include <pentad/planner.hpp>
#include <pentad/report.hpp>
#include <pentad/train.hpp>

#include <Kokkos_Core.hpp>

#include <cstdio>

using namespace pentad;

int main() {
    Kokkos::ScopeGuard const kokkos;
    planner::Request request{.model = train::planned_preset("llama-3-8b"),
                             .hardware = planner::find_hardware("h100"),
                             .given = {.batch = 256, .seq = 4096}};
    request.hardware.devices = 16;
    auto const findings = planner::search(request, 3);
    for (auto const& [plan, estimate] : findings.best)
        std::printf("dp=%lld pp=%lld cp=%lld tp=%lld, %s: %s a step, %s on the fullest rank\n",
                    static_cast<long long>(plan.dp), static_cast<long long>(plan.pp), static_cast<long long>(plan.cp),
                    static_cast<long long>(plan.tp), plan.schedule.c_str(), report::duration(estimate.step_s).c_str(),
                    report::bytes(estimate.memory_peak).c_str());
    std::printf("%zu plans were considered, %zu of them timed\n", static_cast<std::size_t>(findings.considered),
                static_cast<std::size_t>(findings.timed));
    return findings.best.size() == 3 ? 0 : 1;
}

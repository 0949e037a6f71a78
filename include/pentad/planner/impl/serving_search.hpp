// The functions of <pentad/planner/serving_search.hpp>.
#pragma once

#include <pentad/planner/serving_search.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/planner/detail/comparable.hpp>

#include <algorithm>

namespace pentad::planner {

PENTAD_INLINE ServingPlan serving_plan(ServingRequest const& request, Service const& service) {
    Serving const serving(request.model, request.hardware, service);
    ServingPlan plan{.service = service, .estimate = {}};
    auto const limit = request.first_token_p95_s;
    plan.most_requests_per_s = limit ? serving.requests_within(0.95, *limit) : serving.most_requests_per_s();
    bool const is_latency = request.objective == ServingObjective::latency;
    plan.estimate = serving.at(request.requests_per_s.value_or(is_latency ? 0 : plan.most_requests_per_s));
    plan.holds = plan.estimate.fits && plan.estimate.queue.is_stable() &&
                 (!limit || plan.estimate.first_token_quantile(0.95) <= *limit * (1 + 1e-9));
    return plan;
}

PENTAD_INLINE std::vector<ServingPlan> search_serving(ServingRequest const& request) {
    std::vector<ServingPlan> plans;
    std::int64_t const devices = request.hardware.devices;
    auto const wanted = [](std::optional<std::int64_t> given, std::int64_t n) { return !given || *given == n; };
    for (std::int64_t tp = 1; tp <= devices; ++tp) {
        if (devices % tp != 0 || !wanted(request.tp, tp)) continue;
        for (std::int64_t pp = 1; pp <= std::min(devices / tp, request.model.layers()); ++pp) {
            if (devices % (tp * pp) != 0 || !wanted(request.pp, pp)) continue;
            auto const* experts = request.model.experts();
            for (std::int64_t ep = 1; ep <= (experts == nullptr ? 1 : static_cast<std::int64_t>(experts->count));
                 ++ep) {
                std::int64_t const dp = devices / (tp * pp * ep);
                if (devices % (tp * pp * ep) != 0 || !wanted(request.ep, ep) || !wanted(request.dp, dp)) continue;
                Service const service{.dp = dp,
                                      .pp = pp,
                                      .ep = ep,
                                      .tp = tp,
                                      .prompt = request.prompt,
                                      .output = request.output,
                                      .element = request.element};
                if (misfit(request.model, service.pass(1, service.prompt)).empty())
                    plans.push_back(serving_plan(request, service));
            }
        }
    }
    auto const is_better = [&](ServingPlan const& a, ServingPlan const& b) {
        if (a.holds != b.holds) return a.holds;
        using detail::comparable;
        if (!a.estimate.fits || !b.estimate.fits)
            return comparable(a.estimate.memory_peak) < comparable(b.estimate.memory_peak);
        if (a.holds && request.objective == ServingObjective::latency)
            return comparable(a.answer_s()) < comparable(b.answer_s());
        return comparable(a.most_requests_per_s) > comparable(b.most_requests_per_s);
    };
    std::stable_sort(plans.begin(), plans.end(), is_better);
    return plans;
}

} // namespace pentad::planner

// Which mesh serves best: every one that the model and the devices take is tried.
#pragma once

#include <pentad/planner/serving.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace pentad::planner {

enum class ServingObjective {
    throughput, ///< the most requests a second
    latency,    ///< the shortest time from a request to the end of its answer
};

/// What is asked for. What is given here is kept; the rest is searched.
struct ServingRequest {
    Model model;
    Hardware hardware; ///< with all its devices
    std::int64_t prompt = 1, output = 1;
    Element element = Element::bf16;
    ServingObjective objective = ServingObjective::throughput;
    std::optional<double> requests_per_s{};    ///< that come; none: as many as the objective wants
    std::optional<double> first_token_p95_s{}; ///< a service level: 95 % of the requests have their first token by then
    std::optional<std::int64_t> dp{}, pp{}, ep{}, tp{};
};

struct ServingPlan {
    Service service;
    ServingEstimate estimate;       ///< at the rate that comes, or at the one that the objective wants
    double most_requests_per_s = 0; ///< within the service level, where one is asked for
    bool holds = false;             ///< it fits, takes the rate that comes and keeps the service level

    /// From a prompt that does not wait to the end of its answer.
    [[nodiscard]] double answer_s() const {
        return estimate.first_token_s + static_cast<double>(service.output - 1) * estimate.token_s;
    }
};

ServingPlan serving_plan(ServingRequest const& request, Service const& service);

/// All plans: those that hold first, each kind with the best first, or with those that fit and take most.
std::vector<ServingPlan> search_serving(ServingRequest const& request);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/serving_search.hpp>
#endif

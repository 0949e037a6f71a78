#include "options.hpp"

#include <pentad/report/format.hpp>
#include <pentad/report/plan_table.hpp>
#include <pentad/report/plan_text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

namespace pentad_plan {

namespace {

using planner::ServingPlan;

planner::ServingRequest request_of(Options const& o) {
    planner::ServingRequest request{
        .model = o.request.model, .hardware = o.request.hardware, .prompt = o.prompt, .output = o.output};
    request.element = o.request.given.element;
    request.objective = o.objective;
    request.requests_per_s = o.rate;
    request.first_token_p95_s = o.first_token_p95_s;
    request.dp = o.extent("dp"), request.pp = o.extent("pp"), request.ep = o.extent("ep"), request.tp = o.extent("tp");
    return request;
}
std::string mesh_text(ServingPlan const& plan) { return report::mesh_text(plan.service.pass(1, 1)); }
std::string rate_text(double requests_per_s) { return report::count(requests_per_s) + "/s"; }

/// No plan does what is asked for: what comes nearest, and what it lacks.
[[noreturn]] void refuse_all(Options const& o, std::vector<ServingPlan> const& plans) {
    if (plans.empty())
        refuse("no mesh of " + std::to_string(o.request.hardware.devices) +
               " devices takes this model: leave more of --mesh to the search");
    auto const& nearest = plans.front();
    if (!nearest.estimate.fits)
        refuse("no plan fits: the nearest, " + mesh_text(nearest) + ", exceeds memory by " +
               report::bytes(nearest.estimate.memory_peak - o.request.hardware.memory_bytes) + " in " +
               (nearest.estimate.weights > nearest.estimate.cache ? "weights" : "keys and values of one request") +
               ": give more --devices");
    std::string const most =
        "no plan does it: " + mesh_text(nearest) + " comes nearest, with " + rate_text(nearest.most_requests_per_s);
    if (!o.first_token_p95_s) refuse(most + ": give more --devices, or a lower --rate");
    if (nearest.most_requests_per_s > 0)
        refuse(most + " at that --ttft-p95-ms: give more --devices, or a lower --rate");
    auto const quickest = std::min_element(plans.begin(), plans.end(), [](auto const& a, auto const& b) {
        return a.estimate.first_token_s < b.estimate.first_token_s;
    });
    refuse("no plan does it: where no prompt waits the first token takes " +
           report::duration(quickest->estimate.first_token_s) + " with " + mesh_text(*quickest) +
           ": give a longer --ttft-p95-ms");
}

} // namespace

std::string serve(Options const& o) {
    auto plans = planner::search_serving(request_of(o));
    if (plans.empty() || !plans.front().holds) refuse_all(o, plans);
    std::erase_if(plans, [](auto const& plan) { return !plan.holds; });
    if (plans.size() > o.top) plans.resize(o.top);
    if (o.json) {
        auto json = nlohmann::ordered_json::array();
        for (auto const& plan : plans) {
            auto const& x = plan.estimate;
            nlohmann::ordered_json mesh;
            auto const c = plan.service.pass(1, 1);
            for (auto const axis : c.order) mesh[std::string(axis)] = c.extent(axis);
            json.push_back({{"mesh", mesh},
                            {"first_token_s", x.first_token_s},
                            {"first_token_p95_s", x.first_token_quantile(0.95)},
                            {"token_s", x.token_s},
                            {"requests_per_s", x.requests_per_s},
                            {"tokens_per_s", x.tokens_per_s},
                            {"most_requests_per_s", plan.most_requests_per_s},
                            {"batch", x.batch},
                            {"largest_batch", x.largest_batch},
                            {"cache_bytes", std::llround(x.cache)},
                            {"memory_peak_bytes", std::llround(x.memory_peak)}});
        }
        return nlohmann::ordered_json{{"plans", json}}.dump(2) + "\n";
    }
    std::vector<std::vector<std::string>> rows{{"", "mesh", "first token", "P95 of it", "each token", "requests",
                                                "tokens", "at most", "batch", "of", "memory"}};
    for (auto const& plan : plans) {
        auto const& x = plan.estimate;
        rows.push_back({std::to_string(rows.size()), mesh_text(plan), report::duration(x.first_token_s),
                        report::duration(x.first_token_quantile(0.95)), report::duration(x.token_s),
                        rate_text(x.requests_per_s), rate_text(x.tokens_per_s), rate_text(plan.most_requests_per_s),
                        report::count(x.batch), report::count(x.largest_batch), report::bytes(x.memory_peak)});
    }
    return o.request.model.name + " on " + std::to_string(o.request.hardware.devices) + " x " +
           o.request.hardware.name + ", prompts of " + std::to_string(o.prompt) + " tokens, answers of " +
           std::to_string(o.output) + "\n\n" + report::table_text(rows, 2) +
           "\nfirst token: of a prompt that does not wait. at most: requests that it can take" +
           (o.first_token_p95_s ? ", within the service level" : "") +
           ". batch: requests that a group of pp x tp devices decodes at once, of those whose keys and values fit.\n";
}

} // namespace pentad_plan

#include "options.hpp"

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/strategy_file.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/planner/pipelines.hpp>
#include <pentad/planner/stage_layers.hpp>
#include <pentad/report/blocks_flag.hpp>
#include <pentad/report/plan_account.hpp>
#include <pentad/report/plan_svg.hpp>
#include <pentad/report/plan_table.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/report/plan_types.hpp>
#include <pentad/report/strategy_flags.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pentad_plan {

namespace {

using Json = nlohmann::ordered_json;
using pentad::Strategy;
using planner::Candidate;

/// How attention goes over cp: as asked, or where that is automatic the way that is planned to be the fastest.
void choose_context(Options const& o, Strategy& c) {
    auto const asked = o.context.value_or(model::ContextChoice());
    if (asked.kind != model::ContextChoice::Kind::automatic) {
        auto const per_node = planner::nodes_of(c, ml::cp::name, o.request.hardware.devices_per_node).each;
        if (auto const why = asked.refused_nodes(c.cp, per_node); !why.empty()) refuse(why);
        return c.block.use(asked.on(c.cp, per_node));
    }
    auto const splits = planner::context_splits(asked, o.request.model, c, o.request.hardware.devices_per_node);
    c.block.use(planner::fastest_context(o.request.model, o.request.hardware, c, splits).split);
}

/// The given strategy, with its axes in the order of --order.
Strategy given_on(Options const& o) {
    auto c = o.request.given;
    std::size_t next = 0; // axes that --order leaves out have one rank each
    auto const is_given = [&](std::string_view axis) {
        return std::find(o.order.begin(), o.order.end(), axis) != o.order.end();
    };
    for (auto const axis : pentad::axis_order)
        if (!o.order.empty() && !is_given(axis)) c.order[next++] = axis;
    for (auto const& given : o.order)
        c.order[next++] = *std::find(pentad::axis_order.begin(), pentad::axis_order.end(), given);
    return c;
}

/// One plan, with the usual settings where none are given. @throws std::invalid_argument where it does not divide the
/// batch
Strategy strategy_of(Options const& o, Strategy c) {
    c.use_micro_batch(o.request.least_micro_batch);
    if (o.request.open.contains(&model::BlockStrategy::zigzag)) c.block.zigzag = c.cp > 1;
    if (o.request.open.contains(&Strategy::pairs)) c.pairs = c.sends_rows(o.request.model.experts() != nullptr);
    choose_context(o, c);
    c = planner::with_dealt_layers(o.request.model, std::move(c));
    return o.blocks.empty() ? c : report::with_blocks(std::move(c), o.blocks).value();
}
Strategy strategy_of(Options const& o) { return strategy_of(o, given_on(o)); }

/// Bytes are whole numbers. Those of the experts' own axes are there where any are sent.
Json bytes_json(planner::PerAxis const& bytes) {
    Json json = Json::object();
    for (auto const axis : pentad::view_axes)
        if ((axis != "edp" && axis != "etp") || bytes[axis] > 0) json[std::string(axis)] = std::llround(bytes[axis]);
    return json;
}
/// The contract's keys first.
Json estimate_json(planner::Estimate const& estimate) {
    Json json{{"step_s", estimate.step_s},
              {"tokens_per_s", estimate.tokens_per_s},
              {"mfu", estimate.mfu},
              {"memory_peak_bytes", std::llround(estimate.memory_peak)},
              {"memory_mean_bytes", std::llround(estimate.memory_mean)},
              {"fits", estimate.fits},
              {"bytes", bytes_json(estimate.bytes)}};
    if (estimate.recompute.kind == model::Recomputation::Kind::planned)
        json["recomputed"] = report::recomputed_layers(estimate.recompute, estimate.recompute.blocks.size());
    if (estimate.stage_layers.size() > 1) json["stage_layers"] = estimate.stage_layers;
    for (auto const& [what, bytes] : report::memory_kinds(estimate.fullest))
        json["memory_bytes"][std::string(what)] = std::llround(bytes);
    for (auto const& [what, seconds] : report::time_shares(estimate.shares)) json["time_s"][what] = seconds;
    return json;
}
Json plan_json(Candidate const& plan) {
    auto const& c = plan.strategy;
    Json json;
    for (auto const axis : c.order) json["mesh"][std::string(axis)] = c.extent(axis);
    json["micro_batch"] = c.micro_batch();
    for (auto const& flag : report::strategy_flags) {
        std::string key(flag.flag.substr(2));
        std::replace(key.begin(), key.end(), '-', '_');
        report::with_field(c, flag.field, [&]<class T>(T const& member) {
            if constexpr (std::is_arithmetic_v<T>)
                json[key] = member;
            else
                json[key] = report::flag_value(c, flag);
        });
    }
    json["recompute"] = model::name(c.recompute.kind);
    if (c.experts) json["expert_mesh"] = {{"ep", c.experts->ep}, {"etp", c.experts->etp}};
    if (c.cp > 1) {
        auto const choice = report::context_choice(c);
        json["cp"] = model::name(choice.kind);
        if (choice.heads > 0) json["cp_heads"] = choice.heads;
        if (choice.inner > 0) json["cp_inner"] = choice.inner;
    }
    json.update(estimate_json(plan.estimate));
    json["strategy"] = Json::parse(io::to_json(c));
    return json;
}
Json plans_json(std::vector<Candidate> const& plans) {
    Json json = Json::array();
    for (auto const& plan : plans) json.push_back(plan_json(plan));
    return json;
}

/// The train_lm command of a plan.
std::string run_command(Options const& o, Strategy const& c) {
    if (!o.model_file.empty()) return report::run_command(c, o.model_file);
    return report::run_command(c, "config.json") + " (config.json: that of " + o.request.model.name + ")";
}

std::string plan_text(Strategy const& c) { return report::mesh_text(c) + " " + report::settings_text(c); }

/// Nothing fits: what is nearest, and what it lacks; or nothing can even be laid out.
[[noreturn]] void refuse_all(Options const& o, planner::Findings const& findings) {
    if (findings.near_misses.empty()) {
        auto all = given_on(o); // dp has the devices that are left
        if (o.request.open.contains(&Strategy::dp)) all.dp = o.request.hardware.devices / (all.devices() / all.dp);
        std::string why;
        try {
            why = planner::misfit(o.request.model, strategy_of(o, all));
        } catch (std::invalid_argument const& error) {
            why = error.what();
        }
        refuse("no mesh of " + std::to_string(o.request.hardware.devices) + " devices takes this model and batch" +
               (why.empty() ? ": leave more to the search" : "; with " + report::mesh_text(all) + ", " + why));
    }
    auto const& nearest = findings.near_misses.front();
    refuse("no plan fits " + o.request.hardware.name + " x " + std::to_string(o.request.hardware.devices) +
           ": the nearest, " + plan_text(nearest.strategy) + ", " +
           report::what_is_lacking(nearest.estimate, o.request.hardware) +
           ": give more --devices, or leave more to the search");
}

} // namespace

std::string search(Options const& o) {
    auto request = o.request;
    request.wants_front = !o.svg.empty() || o.json;
    if (o.context) request.context = *o.context;
    auto findings = planner::search(request, o.top);
    if (findings.best.empty()) refuse_all(o, findings);
    if (findings.near_misses.size() > o.top) findings.near_misses.resize(o.top);
    auto const& winner = findings.best.front().strategy;
    if (!o.svg.empty()) io::write_file(o.svg, report::plan_svg(findings, o.request.hardware));
    if (o.json)
        return Json{{"plans", plans_json(findings.best)},
                    {"near_misses", plans_json(findings.near_misses)},
                    {"front", plans_json(findings.front)},
                    {"considered", findings.considered},
                    {"timed", findings.timed}}
                   .dump(2) +
               "\n";
    if (o.types) return report::plan_types(o.request.model, winner);
    return o.request.model.name + " on " + std::to_string(o.request.hardware.devices) + " x " +
           o.request.hardware.name + ", " + std::to_string(o.request.given.batch) + " sequences of " +
           std::to_string(o.request.given.seq) + " tokens in a step; " + std::to_string(findings.considered) +
           " plans were weighed, and the others ruled out\n\n" +
           report::plan_table(findings.best, findings.near_misses, o.request.hardware) +
           "\nsp: sequence parallelism; a2a: --attention-output all-to-all; by AXIS: what all ranks send in a step; -: "
           "faster, but it does not fit. A line is the fastest of the plans that differ from it in chunks, the order "
           "of the axes and the layers of stages "
           "alone.\nMore of the first: --explain " +
           plan_text(winner) + "\nTo run it: " + run_command(o, winner) + "\n";
}

std::string evaluate(Options const& o) {
    auto const c = strategy_of(o);
    Candidate const plan{c, planner::estimate(o.request.model, o.request.hardware, c)};
    if (o.types) return report::plan_types(o.request.model, c);
    if (o.json) return estimate_json(plan.estimate).dump(2) + "\n";
    std::vector<Candidate> const one{plan};
    return plan.estimate.fits ? report::plan_table(one, {}, o.request.hardware)
                              : report::plan_table({}, one, o.request.hardware);
}

std::string explain(Options const& o) {
    auto const c = strategy_of(o);
    if (o.types) return report::plan_types(o.request.model, c);
    planner::Pipelines pipelines;
    auto const planned = planner::with_stage_layers(o.request.model, o.request.hardware, c,
                                                    pipelines); // in the numbers that a run needs
    return report::plan_account(o.request.model, o.request.hardware, c) + "\nto run it: " + run_command(o, planned) +
           "\n";
}

} // namespace pentad_plan

// A plan as C++ to paste: its mesh, layouts and strategies as types, and the rest as a RunSettings.
#pragma once

#include <pentad/planner/configuration.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/report/plan_text.hpp>

#include <string>
#include <vector>

namespace pentad::report {

/// What of a plan the trainer does not do; nothing where it does all.
inline std::vector<std::string> not_in_trainer(planner::Model const& model, planner::Configuration const& c) {
    std::vector<std::string> list;
    if (c.zero > 1) list.push_back("ZeRO-" + std::to_string(c.zero) + ": it has stages 0 and 1");
    if (model.description().first<model::LatentAttention>() != nullptr) list.emplace_back("latent attention");
    if (model.description().first<model::Mamba2>() != nullptr) list.emplace_back("Mamba-2");
    if (auto const* experts = model.experts(); experts != nullptr && experts->has_balance_bias)
        list.emplace_back("routers with a bias for balance");
    return list;
}

/// A namespace `plan` of types and values that compiles with pentad/pentad.hpp.
inline std::string plan_types(planner::Model const& model, planner::Configuration const& c) {
    auto const number = [](std::int64_t n) { return std::to_string(n); };
    std::string axes, text;
    for (auto const axis : c.order)
        axes += (axes.empty() ? "" : ", ") + ("Axis<" + std::string(axis) + ", " + number(c.extent(axis)) + ">");
    auto const lacking = not_in_trainer(model, c);
    for (auto const& what : lacking) text += "// The trainer does not do this yet: " + what + ".\n";
    text += "// " + model.name + " on " + number(c.devices()) + " ranks: " + mesh_text(c) + " " + settings_text(c) +
            "\n" + "namespace plan {\nusing namespace pentad;\n\n" + "using Mesh = pentad::Mesh<" + axes + ">;\n" +
            "using Stream = " + (c.sequence_parallel ? "SequenceStream<" : "InvariantStream<") +
            std::string(name(c.element)) + ">; // the residual stream\n" +
            "using Attention = context::" + (c.context == ContextStrategy::ring ? "Ring<>" : "AllGather") + ";\n" +
            "inline constexpr char schedule[] = \"" + c.schedule + "\"; // of pipeline::generate\n" +
            "inline constexpr pipeline::GeneratorOptions schedule_options{.ranks = " + number(c.pp) +
            ", .micro_batches = " + number(c.micro_batches()) + ", .chunks = " + number(c.chunks) + "};\n" +
            "inline train::RunSettings settings(model::Model const& model) {\n    return {.model = model,\n            "
            ".batch = " +
            number(c.global_batch) + ",\n            .micro_batches = " + number(c.micro_batches()) +
            ",\n            .seq = " + number(c.seq) +
            ",\n            .order = Order::" + (c.zigzag && c.cp > 1 ? "zigzag" : "contiguous") +
            ",\n            .context_strategy = ContextStrategy::" +
            (c.context == ContextStrategy::ring ? "ring" : "all_gather") +
            ",\n            .recompute = " + (c.recompute == planner::Recompute::full ? "true" : "false") +
            ",\n            .recomputes_activations = " +
            (c.recompute == planner::Recompute::selective ? "true" : "false") +
            ",\n            .sharding = {.stage = " + number(c.zero) + "}};\n}\n\n} // namespace plan\n";
    return text;
}

} // namespace pentad::report

// The functions of <pentad/report/plan_types.hpp>.
#pragma once

#include <pentad/report/plan_types.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/planner/pairs.hpp>
#include <pentad/report/plan_text.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pentad::report::detail {

/// The template of its residual stream.
PENTAD_INLINE std::string stream_type(planner::Configuration const& c) {
    if (c.tensor_kind == model::TensorKind::three_d) return "CubeStream";
    if (c.tensor_kind != model::TensorKind::one_d) return "GridStream";
    return c.sequence_parallel ? "SequenceStream" : "InvariantStream";
}

} // namespace pentad::report::detail

namespace pentad::report::detail {

/// As an initialiser of a model::Recomputation.
PENTAD_INLINE std::string recompute_value(model::Recomputation const& recompute) {
    using Kind = model::Recomputation::Kind;
    std::string const kind = recompute.kind == Kind::automatic ? "automatic" : std::string(model::name(recompute.kind));
    auto const pieces = [](model::PieceSet set) {
        std::string list;
        for (std::size_t i = 0; i < model::piece_names.size(); ++i)
            if (set.contains(static_cast<model::Piece>(i)))
                list += (list.empty() ? "" : ", ") + ("model::Piece::" + std::string(model::piece_names[i]));
        return "{" + list + "}";
    };
    std::string text = "{.kind = model::Recomputation::Kind::" + kind;
    if (recompute.every > 1) text += ", .every = " + std::to_string(recompute.every);
    if (recompute.kind == Kind::selective) text += ", .pieces = " + pieces(recompute.pieces);
    if (recompute.kind == Kind::planned) {
        std::string blocks;
        for (auto const& block : recompute.blocks)
            blocks += (blocks.empty() ? "" : ", ") +
                      (block.whole ? std::string("{.whole = true}") : "{.pieces = " + pieces(block.pieces) + "}");
        text += ", .blocks = {" + blocks + "}";
    }
    return text + "}";
}

PENTAD_INLINE std::string_view context_type(ContextStrategy strategy) {
    switch (strategy) {
    case ContextStrategy::ring:
        return "Ring<>";
    case ContextStrategy::all_gather:
        return "AllGather<>";
    case ContextStrategy::double_ring:
        return "DoubleRing<>";
    case ContextStrategy::heads_ring:
        return "HeadsRing";
    default:
        return "RingHeads";
    }
}

/// The mesh: a type, and of a model with experts a function that makes both views.
PENTAD_INLINE std::string mesh_definition(planner::Configuration const& c, bool has_experts) {
    std::string axes, names, extents;
    auto const add = [](std::string& list, std::string const& one) { list += (list.empty() ? "" : ", ") + one; };
    for (auto const axis : c.order) {
        add(names, std::string(axis));
        if (axis != "ep") add(axes, "Axis<" + std::string(axis) + ", " + std::to_string(c.extent(axis)) + ">");
    }
    if (!has_experts) return "using Mesh = pentad::Mesh<" + axes + ">;";
    for (auto const axis : planner::axis_order) add(extents, std::to_string(c.extent(axis)));
    auto const ranks = "model::RankMesh(" + extents + ").ordered<" + names + ">()";
    return "inline model::ModelMesh mesh() {\n    return model::with_experts(" +
           (c.experts ? ranks + ".merged<dp, ep>(), {.ep = " + std::to_string(c.experts->ep) +
                            ", .etp = " + std::to_string(c.experts->etp) + "}"
                      : ranks) +
           ");\n}";
}

/// How the mesh is to be split for a grid of tp, as a comment; empty where there is none.
PENTAD_INLINE std::string grid_split(planner::Configuration const& c) {
    auto const grid = model::tensor_factors(c.tensor_kind, c.tp);
    if (!grid) return {};
    return " // to be split for " + std::string(model::name(c.tensor_kind)) + " tensor parallelism: split<tp>(" +
           std::to_string(grid->inner()) + ").split<inner<tp>>(" + std::to_string(grid->columns) + ")";
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE std::string plan_types(planner::Model const& model, planner::Configuration const& c) {
    auto const number = [](std::int64_t n) { return std::to_string(n); };
    std::string text;
    if (c.recompute.kind == model::Recomputation::Kind::automatic)
        text +=
            "// Before training, train::planned_recomputation() makes its recomputation a plan for a memory limit.\n";
    text +=
        "// " + model.name + " on " + number(c.devices()) + " ranks: " + mesh_text(c) + " " + settings_text(c) + "\n" +
        "namespace plan {\nusing namespace pentad;\nusing namespace pentad::ml;\n\n" +
        detail::mesh_definition(c, model.experts() != nullptr) +
        (c.sharding.ranks > 0
             ? " // to be split for hybrid ZeRO: model::split_data(mesh, " + number(c.sharding.ranks) + ")"
             : "") +
        (c.inner_cp > 1 ? " // to be split for two levels of attention: split<cp>(" + number(c.inner_cp) + ")" : "") +
        detail::grid_split(c) + "\n" + "using Stream = " + detail::stream_type(c) + "<" + std::string(name(c.element)) +
        ">; // the residual stream\n" + "using Attention = context::" + std::string(detail::context_type(c.context)) +
        ";\n" + "inline constexpr char schedule[] = \"" + c.schedule + "\"; // of pipeline::generate\n" +
        "inline constexpr pipeline::GeneratorOptions schedule_options{.ranks = " + number(c.pp) +
        ", .micro_batches = " + number(c.micro_batches()) + ", .chunks = " + number(c.chunks) +
        (planner::has_pairs(c) ? ", .pairs = true" : "") + "};\n" +
        "inline train::RunSettings settings(model::Model const& model) {\n    return {.model = model,\n            "
        ".batch = " +
        number(c.global_batch) + ",\n            .micro_batches = " + number(c.micro_batches()) +
        ",\n            .seq = " + number(c.seq) +
        ",\n            .order = Order::" + (c.zigzag && c.cp > 1 ? "zigzag" : "contiguous") +
        ",\n            .context_strategy = ContextStrategy::" + std::string(name(c.context)) +
        (c.attention_output == model::AttentionOutput::all_to_all
             ? ",\n            .attention_output = model::AttentionOutput::all_to_all"
             : "") +
        ",\n            .recompute = " + detail::recompute_value(c.recompute) +
        ",\n            .sharding = {.stage = " + number(c.sharding.stage) +
        (c.sharding.ranks > 0 ? ", .ranks = " + number(c.sharding.ranks) : "") +
        (c.sharding.keeps_parameters ? ", .keeps_parameters = true" : "") +
        (c.sharding.accumulates_gradients ? ", .accumulates_gradients = true" : "") +
        (c.sharding.releases_gradients ? ", .releases_gradients = true" : "") + "}" +
        (c.sharding.releases_gradients ? ",\n            .clip = 0" : "") + "};\n}\n\n} // namespace plan\n";
    return text;
}

} // namespace pentad::report

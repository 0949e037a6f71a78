// The functions of <pentad/report/plan_types.hpp>.
#pragma once

#include <pentad/report/plan_types.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/planner/pairs.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/strategy/fields.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace pentad::report::detail {

/// The template of its residual stream.
PENTAD_INLINE std::string stream_type(Strategy const& c) {
    if (c.block.tensor_kind == model::TensorKind::three_d) return "CubeStream";
    if (c.block.tensor_kind != model::TensorKind::one_d) return "GridStream";
    return c.block.sequence_parallel ? "SequenceStream" : "InvariantStream";
}

} // namespace pentad::report::detail

namespace pentad::report::detail {

inline std::string code_of(bool value) { return value ? "true" : "false"; }
inline std::string code_of(double value) { return exact(value); }
template <std::integral T>
std::string code_of(T value) {
    return std::to_string(value);
}
inline std::string code_of(std::string_view value) { return "R\"(" + std::string(value) + ")\""; }
template <HasWords T>
std::string code_of(T value) {
    return std::string(WordsOf<T>::type) + "::" + std::string(word_of(value));
}
template <HasFields T>
std::string code_of(T const& value);
template <class T>
std::string code_list(T const& values) {
    std::string text;
    for (auto const& value : values) text += (text.empty() ? "" : ", ") + code_of(value);
    return "{" + text + "}";
}
template <class T, std::size_t N>
std::string code_of(std::array<T, N> const& values) {
    return code_list(values);
}
template <class T>
std::string code_of(std::vector<T> const& values) {
    return code_list(values);
}
inline std::string code_of(model::PieceSet pieces) { return code_list(pentad::list_of(pieces)); }
template <class T>
std::string code_of(std::optional<T> const& value) {
    return value ? std::string(FieldsOf<T>::type) + code_of(*value) : "{}";
}
inline std::string code_of(model::Optimizer const& optimizer) {
    return std::visit([]<class T>(T const& value) { return std::string(FieldsOf<T>::type) + code_of(value); },
                      optimizer);
}
/// "{.a = 1, .b = true}": the fields that differ from their defaults.
template <HasFields T>
std::string code_of(T const& value, std::string const& separator) {
    std::string text;
    for_each_set_field(value, [&](auto const& field) {
        text += (text.empty() ? "." : separator + ".") + std::string(field.name) + " = " + code_of(value.*field.member);
    });
    return "{" + text + "}";
}
template <HasFields T>
std::string code_of(T const& value) {
    return code_of(value, ", ");
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
PENTAD_INLINE std::string mesh_definition(Strategy const& c, bool has_experts) {
    std::string axes, names, extents;
    auto const add = [](std::string& list, std::string const& one) { list += (list.empty() ? "" : ", ") + one; };
    for (auto const axis : c.order) {
        add(names, std::string(axis));
        if (axis != "ep") add(axes, "Axis<" + std::string(axis) + ", " + std::to_string(c.extent(axis)) + ">");
    }
    if (!has_experts) return "using Mesh = pentad::Mesh<" + axes + ">;";
    for (auto const axis : axis_order) add(extents, std::to_string(c.extent(axis)));
    auto const ranks = "model::RankMesh(" + extents + ").ordered<" + names + ">()";
    return "inline model::ModelMesh mesh() {\n    return model::with_experts(" +
           (c.experts ? ranks + ".merged<dp, ep>(), {.ep = " + std::to_string(c.experts->ep) +
                            ", .etp = " + std::to_string(c.experts->etp) + "}"
                      : ranks) +
           ");\n}";
}

/// How the mesh is to be split for a grid of tp, as a comment; empty where there is none.
PENTAD_INLINE std::string grid_split(Strategy const& c) {
    auto const grid = model::tensor_factors(c.block.tensor_kind, c.tp);
    if (!grid) return {};
    return " // to be split for " + std::string(model::name(c.block.tensor_kind)) + " tensor parallelism: split<tp>(" +
           std::to_string(grid->inner()) + ").split<inner<tp>>(" + std::to_string(grid->columns) + ")";
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE std::string plan_types(planner::Model const& model, Strategy const& c) {
    auto const number = [](std::int64_t n) { return std::to_string(n); };
    std::string text;
    if (c.recompute.kind == model::Recomputation::Kind::automatic)
        text +=
            "// Before training, train::planned_recomputation() makes its recomputation a plan for a memory limit.\n";
    text += "// " + model.name + " on " + number(c.devices()) + " ranks: " + mesh_text(c) + " " + settings_text(c) +
            "\n" + "namespace plan {\nusing namespace pentad;\nusing namespace pentad::ml;\n\n" +
            detail::mesh_definition(c, model.experts() != nullptr) +
            (c.sharding.ranks > 0
                 ? " // to be split for hybrid ZeRO: model::split_data(mesh, " + number(c.sharding.ranks) + ")"
                 : "") +
            (c.local.is_on() ? " // to be split for local steps: model::split_data(mesh, " + number(c.local.ranks) + ")"
                             : "") +
            (c.block.inner_cp > 1
                 ? " // to be split for two levels of attention: split<cp>(" + number(c.block.inner_cp) + ")"
                 : "") +
            detail::grid_split(c) + "\n" + "using Stream = " + detail::stream_type(c) + "<" +
            std::string(name(c.element)) + ">; // the residual stream\n" +
            "using Attention = context::" + std::string(detail::context_type(c.block.context)) + ";\n" +
            "inline constexpr char schedule[] = \"" + c.schedule + "\"; // of pipeline::generate\n" +
            "inline constexpr pipeline::GeneratorOptions schedule_options{.ranks = " + number(c.pp) +
            ", .micro_batches = " + number(c.micro_batches) + ", .chunks = " + number(c.chunks) +
            (planner::has_pairs(c) ? ", .pairs = true" : "") + "};\n" + "inline Strategy strategy() {\n    return " +
            detail::code_of(c, ",\n            ") + ";\n}\n" +
            "inline train::RunSettings settings(model::Model const& model) {\n    return {.model = model, .strategy = "
            "strategy()" +
            (needs_no_clipping(c) ? ", .clip = 0" : "") + "};\n}\n\n} // namespace plan\n";
    return text;
}

} // namespace pentad::report

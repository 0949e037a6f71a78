// The functions of <pentad/report/plan_text.hpp>.
#pragma once

#include <pentad/report/plan_text.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/planner/pairs.hpp>

namespace pentad::report {

PENTAD_INLINE std::string recomputed_layers(model::Recomputation const& recompute, std::size_t layers) {
    std::string text;
    for (std::size_t first = 0, next = 0; first < layers; first = next) {
        while (next < layers && recompute.of(next) == recompute.of(first)) ++next;
        text += (text.empty() ? "" : "; ") + std::string(next - first > 1 ? "layers " : "layer ") +
                std::to_string(first) + (next - first > 1 ? " to " + std::to_string(next - 1) : "") + ": " +
                model::text(recompute.of(first));
    }
    return text;
}

PENTAD_INLINE std::string recompute_flags(model::Recomputation const& recompute) {
    return "--recompute " + std::string(model::name(recompute.kind)) +
           (recompute.every > 1 ? " --recompute-every " + std::to_string(recompute.every) : "") +
           (recompute.kind == model::Recomputation::Kind::selective && recompute.pieces != model::Recomputation{}.pieces
                ? " --recompute-parts " + model::text(recompute.pieces)
                : "");
}

PENTAD_INLINE std::string mesh_text(planner::Configuration const& c) {
    std::string text;
    for (auto const axis : c.order)
        if (c.extent(axis) > 1)
            text += (text.empty() ? "" : ",") + std::string(axis) + "=" + std::to_string(c.extent(axis));
    return text.empty() ? "dp=1" : text;
}

PENTAD_INLINE std::string order_text(planner::Configuration const& c) {
    std::string order, usual;
    auto const add = [&](std::string& text, std::string_view axis) {
        if (c.extent(axis) > 1) text += (text.empty() ? "" : ",") + std::string(axis);
    };
    for (auto const axis : c.order) add(order, axis);
    for (auto const axis : planner::axis_order) add(usual, axis);
    return order == usual ? "" : order;
}

namespace detail {
/// By default forwards and backwards are pairs where tokens travel to experts.
PENTAD_INLINE std::string pair_flag(planner::Configuration const& c) {
    auto const* const generator = pipeline::find_generator(c.schedule);
    if (generator == nullptr || !generator->has_pairs) return "";
    return c.pairs ? " --pair on" : c.expert_mesh().ep > 1 ? " --pair off" : "";
}
/// The optimizer and the formats of numbers, as flags, where they are not the defaults.
PENTAD_INLINE std::string state_flags(planner::Configuration const& c) {
    std::string flags;
    auto const add = [&](std::string_view flag, std::string_view value) {
        flags += " " + std::string(flag) + " " + std::string(value);
    };
    auto const add_compact = [&](std::string_view flag, Compact compact) {
        if (compact != Compact::none) add(flag, compact_names[static_cast<std::size_t>(compact)]);
    };
    if (auto const index = c.optimizer.index(); index > 0) add("--optimizer", optimizer_names.at(index));
    if (c.element != planner::Configuration().element) add("--dtype", name(c.element));
    if (c.fp8_products) add("--product-dtype", "fp8");
    if (!c.precision.keeps_masters) add("--master-weights", "off");
    add_compact("--moment-dtype", c.precision.moments);
    add_compact("--reduce-dtype", c.precision.reduce);
    add_compact("--row-dtype", c.precision.rows);
    if (c.offload.optimizer || c.offload.activations)
        add("--offload", model::offload_names[(c.offload.optimizer ? 1u : 0u) + (c.offload.activations ? 2u : 0u)]);
    if (c.offload.window_bytes > 0) add("--offload-window", std::to_string(c.offload.window_bytes));
    return flags;
}
} // namespace detail

PENTAD_INLINE std::string settings_text(planner::Configuration const& c) {
    auto const order = order_text(c);
    return (order.empty() ? "" : "--order " + order + " ") + "--micro-batch " + std::to_string(c.micro_batch) +
           " --zero " + std::to_string(c.sharding.stage) +
           (c.sharding.ranks > 0 ? " --zero-ranks " + std::to_string(c.sharding.ranks) : "") +
           (c.sharding.keeps_parameters ? " --zero-keep on" : "") +
           (c.sharding.accumulates_gradients ? " --zero-accumulate on" : "") +
           (c.sharding.releases_gradients ? " --gradient-release" : "") +
           (c.pp > 1 ? " --schedule " + c.schedule + (c.chunks > 0 ? " --chunks " + std::to_string(c.chunks) : "")
                     : "") +
           detail::pair_flag(c) + detail::state_flags(c) + (c.cp > 1 ? " " + context_choice(c).flags() : "") + " " +
           recompute_flags(c.recompute) +
           (c.tensor_kind != model::TensorKind::one_d ? " --tp-kind " + std::string(model::name(c.tensor_kind)) : "") +
           (c.sequence_parallel ? " --sequence-parallel on" : "") +
           (c.attention_output == model::AttentionOutput::all_to_all ? " --attention-output all-to-all" : "") +
           (c.experts ? " --expert-mesh ep=" + std::to_string(c.experts->ep) + ",etp=" + std::to_string(c.experts->etp)
                      : "");
}

PENTAD_INLINE std::array<std::pair<std::string_view, double>, 5> memory_kinds(planner::Memory const& memory) {
    return {{{"weights", memory.weights},
             {"gradients", memory.gradients},
             {"optimizer state", memory.optimizer},
             {"activations", memory.activations},
             {"workspace", memory.workspace}}};
}

} // namespace pentad::report

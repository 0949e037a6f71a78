// The words of plans: how a mesh, its settings and what it lacks are written.
#pragma once

#include <pentad/model/context_choice.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/report/format.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace pentad::report {

inline constexpr std::array<std::string_view, 3> element_names{"f64", "f32", "bf16"};

/// "selective", "full /2": every second block.
inline std::string recompute_text(model::Recomputation const& recompute) {
    return std::string(model::name(recompute.kind)) +
           (recompute.every > 1 ? " /" + std::to_string(recompute.every) : "");
}
/// "layers 0 to 3: all; layers 4 to 7: norms,activations".
inline std::string recomputed_layers(model::Recomputation const& recompute, std::size_t layers) {
    std::string text;
    for (std::size_t first = 0, next = 0; first < layers; first = next) {
        while (next < layers && recompute.of(next) == recompute.of(first)) ++next;
        text += (text.empty() ? "" : "; ") + std::string(next - first > 1 ? "layers " : "layer ") +
                std::to_string(first) + (next - first > 1 ? " to " + std::to_string(next - 1) : "") + ": " +
                model::text(recompute.of(first));
    }
    return text;
}
/// As flags.
inline std::string recompute_flags(model::Recomputation const& recompute) {
    return "--recompute " + std::string(model::name(recompute.kind)) +
           (recompute.every > 1 ? " --recompute-every " + std::to_string(recompute.every) : "") +
           (recompute.kind == model::Recomputation::Kind::selective && recompute.pieces != model::Recomputation{}.pieces
                ? " --recompute-parts " + model::text(recompute.pieces)
                : "");
}
inline std::string_view name(planner::Element element) { return element_names[static_cast<std::size_t>(element)]; }

/// "12.3 %"
inline std::string percent(double part) { return detail::three_figures(100 * part) + " %"; }

/// "dp=2,tp=4"; axes of extent 1 are left out.
inline std::string mesh_text(planner::Configuration const& c) {
    std::string text;
    for (auto const axis : c.order)
        if (c.extent(axis) > 1)
            text += (text.empty() ? "" : ",") + std::string(axis) + "=" + std::to_string(c.extent(axis));
    return text.empty() ? "dp=1" : text;
}

/// The axes that join more than one rank, outermost first, where these are not as usual; or nothing.
inline std::string order_text(planner::Configuration const& c) {
    std::string order, usual;
    auto const add = [&](std::string& text, std::string_view axis) {
        if (c.extent(axis) > 1) text += (text.empty() ? "" : ",") + std::string(axis);
    };
    for (auto const axis : c.order) add(order, axis);
    for (auto const axis : planner::axis_order) add(usual, axis);
    return order == usual ? "" : order;
}

/// How attention goes over cp, as the flags that ask for it.
inline model::ContextChoice context_choice(planner::Configuration const& c) {
    return model::ContextChoice::of({c.context, c.inner_cp}, c.cp);
}

/// All else that sets a plan apart from another, as flags of pentad_plan.
inline std::string settings_text(planner::Configuration const& c) {
    auto const order = order_text(c);
    return (order.empty() ? "" : "--order " + order + " ") + "--micro-batch " + std::to_string(c.micro_batch) +
           " --zero " + std::to_string(c.sharding.stage) +
           (c.sharding.ranks > 0 ? " --zero-ranks " + std::to_string(c.sharding.ranks) : "") +
           (c.sharding.keeps_parameters ? " --zero-keep on" : "") +
           (c.sharding.accumulates_gradients ? " --zero-accumulate on" : "") +
           (c.sharding.releases_gradients ? " --gradient-release" : "") +
           (c.pp > 1 ? " --schedule " + c.schedule + (c.chunks > 0 ? " --chunks " + std::to_string(c.chunks) : "")
                     : "") +
           (c.cp > 1 ? " " + context_choice(c).flags() : "") + " " + recompute_flags(c.recompute) +
           (c.tensor_kind != model::TensorKind::one_d ? " --tp-kind " + std::string(model::name(c.tensor_kind)) : "") +
           (c.sequence_parallel ? " --sequence-parallel on" : "") +
           (c.attention_output == model::AttentionOutput::all_to_all ? " --attention-output all-to-all" : "") +
           (c.expert_sharding == model::ExpertSharding::whole ? " --expert-sharding whole" : "");
}

/// The kinds of memory, as the words for them and bytes.
inline std::array<std::pair<std::string_view, double>, 5> memory_kinds(planner::Memory const& memory) {
    return {{{"weights", memory.weights},
             {"gradients", memory.gradients},
             {"optimizer state", memory.optimizer},
             {"activations", memory.activations},
             {"workspace", memory.workspace}}};
}
/// The largest of them.
inline std::pair<std::string_view, double> largest_kind(planner::Memory const& memory) {
    auto const kinds = memory_kinds(memory);
    return *std::max_element(kinds.begin(), kinds.end(),
                             [](auto const& a, auto const& b) { return a.second < b.second; });
}
/// "exceeds memory by 3.1 GiB in optimizer state": the kind that takes most.
inline std::string what_is_lacking(planner::Estimate const& estimate, planner::Hardware const& hardware) {
    return "exceeds memory by " + bytes(estimate.memory_peak - hardware.memory_bytes) + " in " +
           std::string(largest_kind(estimate.fullest).first);
}

} // namespace pentad::report

// The functions of <pentad/report/plan_text.hpp>.
#pragma once

#include <pentad/report/plan_text.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/planner/pairs.hpp>
#include <pentad/report/blocks_flag.hpp>
#include <pentad/report/strategy_flags.hpp>
#include <pentad/strategy/why_not.hpp>

#include <array>
#include <string>
#include <string_view>
#include <variant>

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

namespace detail {
PENTAD_INLINE std::string recompute_flags(model::Recomputation const& recompute) {
    if (recompute.kind == model::Recomputation::Kind::none) return "";
    return " --recompute " + std::string(model::name(recompute.kind)) +
           (recompute.kind == model::Recomputation::Kind::selective && recompute.pieces != model::Recomputation{}.pieces
                ? " --recompute-parts " + model::text(recompute.pieces)
                : "");
}
} // namespace detail

PENTAD_INLINE std::string mesh_text(Strategy const& c) {
    std::string text;
    for (auto const axis : c.order)
        if (c.extent(axis) > 1)
            text += (text.empty() ? "" : ",") + std::string(axis) + "=" + std::to_string(c.extent(axis));
    return text.empty() ? "dp=1" : text;
}

PENTAD_INLINE std::string order_text(Strategy const& c) {
    std::string order, usual;
    auto const add = [&](std::string& text, std::string_view axis) {
        if (c.extent(axis) > 1) text += (text.empty() ? "" : ",") + std::string(axis);
    };
    for (auto const axis : c.order) add(order, axis);
    for (auto const axis : axis_order) add(usual, axis);
    return order == usual ? "" : order;
}

namespace detail {
/// By default forwards and backwards are pairs where tokens travel to experts.
PENTAD_INLINE std::string pair_flag(Strategy const& c) {
    auto const* const generator = pipeline::find_generator(c.schedule);
    if (generator == nullptr || !generator->has_pairs) return "";
    return c.pairs ? " --pair on" : c.expert_mesh().ep > 1 ? " --pair off" : "";
}
/// Where states are, and the optimizer, as flags.
PENTAD_INLINE std::string state_flags(Strategy const& c) {
    std::string flags;
    if (auto const index = c.optimizer.index(); index > 0)
        flags += " --optimizer " + std::string(optimizer_names.at(index));
    if (c.offload.optimizer || c.offload.activations)
        flags += " --offload " +
                 std::string(model::offload_names[(c.offload.optimizer ? 1u : 0u) + (c.offload.activations ? 2u : 0u)]);
    if (c.offload.window_bytes > 0) flags += " --offload-window " + std::to_string(c.offload.window_bytes);
    return flags;
}
/// " --stages 3,3,2", or balanced; nothing where layers are dealt evenly.
PENTAD_INLINE std::string stages_flag(Strategy const& c) {
    if (c.pp == 1 || (c.stage_layers.empty() && !c.balances_stages)) return "";
    return " --stages " + (c.balances_stages ? "balanced" : stages_text(c.stage_layers));
}
PENTAD_INLINE std::string blocks_flag(Strategy const& c) {
    auto const text = blocks_text(c);
    return text.empty() ? "" : " --blocks " + text;
}
/// What train_lm and pentad_plan say with the same flags, but for those of the batch and of --dtype.
/// @param of_plan without what changes no plan
PENTAD_INLINE std::string shared_flags(Strategy const& c, bool of_plan) {
    return flags_text(c, Strategy(),
                      [&](StrategyFlag const& flag) {
                          bool const is_of_pipeline = flag.field == "schedule" || flag.field == "chunks";
                          bool const is_apart =
                              flag.field == "seq" || flag.field == "micro_batches" || flag.field == "element";
                          return !is_apart && (!is_of_pipeline || c.pp > 1) && (flag.is_planned || !of_plan);
                      }) +
           blocks_flag(c) + stages_flag(c) + pair_flag(c) + state_flags(c) +
           (c.cp > 1 ? " " + context_choice(c).flags() : "") + recompute_flags(c.recompute) +
           (c.experts ? " --expert-mesh ep=" + std::to_string(c.experts->ep) + ",etp=" + std::to_string(c.experts->etp)
                      : "");
}
} // namespace detail

PENTAD_INLINE std::string stages_text(std::vector<std::int64_t> const& layers) {
    std::string text;
    for (auto const count : layers) text += (text.empty() ? "" : ",") + std::to_string(count);
    return text;
}

PENTAD_INLINE std::string stages_account(planner::Estimate const& estimate) {
    auto const& seconds = estimate.stage_seconds;
    auto const slowest = static_cast<std::size_t>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
    double sum = 0;
    for (double const one : seconds) sum += one;
    auto const layers = estimate.stage_layers[slowest];
    return "stage " + std::to_string(slowest) + " of 0 to " + std::to_string(seconds.size() - 1) + ", with " +
           std::to_string(layers) + (layers == 1 ? " layer" : " layers") +
           (slowest + 1 == seconds.size() ? " and the head"
            : slowest == 0                ? " and the embedding"
                                          : "") +
           ", takes " + duration(seconds[slowest]) + " for a micro-batch, and the mean of all stages is " +
           duration(sum / static_cast<double>(seconds.size()));
}

PENTAD_INLINE std::string settings_text(Strategy const& c) {
    auto const order = order_text(c);
    return (order.empty() ? "" : "--order " + order + " ") + "--micro-batch " + std::to_string(c.micro_batch()) +
           (c.element != Strategy().element ? " --dtype " + std::string(name(c.element)) : "") +
           (c.fp8_products ? " --product-dtype fp8" : "") + detail::shared_flags(c, true) +
           (c.cp > 1 && !c.block.zigzag ? " --zigzag off" : "");
}

namespace detail {
/// " --beta1 0.8"
PENTAD_INLINE std::string number_flag(std::string_view flag, double value) {
    return " " + std::string(flag) + " " + exact(value);
}
/// The numbers of an optimizer, whose defaults differ from one to the other; nothing for the usual one.
PENTAD_INLINE std::string optimizer_flags(model::Optimizer const& optimizer) {
    if (optimizer == model::Optimizer()) return "";
    auto const on_off = [](bool value) { return value ? "on" : "off"; };
    if (auto const* const x = std::get_if<model::AdamW>(&optimizer))
        return number_flag("--beta1", x->beta1) + number_flag("--beta2", x->beta2) +
               number_flag("--epsilon", x->epsilon) + number_flag("--weight-decay", x->weight_decay);
    if (auto const* const x = std::get_if<model::Sgd>(&optimizer))
        return number_flag("--momentum", x->momentum) + " --nesterov " + on_off(x->nesterov) +
               number_flag("--weight-decay", x->weight_decay);
    if (auto const* const x = std::get_if<model::Lion>(&optimizer))
        return number_flag("--beta1", x->beta1) + number_flag("--beta2", x->beta2) +
               number_flag("--weight-decay", x->weight_decay);
    auto const& x = std::get<model::Muon>(optimizer);
    return number_flag("--momentum", x.momentum) + " --nesterov " + on_off(x.nesterov) +
           (x.rate == model::MuonRate::original ? "" : " --muon-rate match-rms-adamw") +
           number_flag("--beta1", x.others.beta1) + number_flag("--beta2", x.others.beta2) +
           number_flag("--epsilon", x.others.epsilon) + number_flag("--weight-decay", x.weight_decay);
}
} // namespace detail

PENTAD_INLINE bool needs_no_clipping(Strategy const& c) {
    if (c.sharding.releases_gradients) return true;
    return c.pp > 1 && pipeline::traits(c.schedule, generator_options(c)).updates > 1;
}

PENTAD_INLINE std::string run_flags(Strategy const& c) {
    return "--mesh " + mesh_text(c) + " --seq " + std::to_string(c.seq) + " --batch " + std::to_string(c.batch) +
           " --micro-batches " + std::to_string(c.micro_batches) + " --dtype " + std::string(name(c.element)) +
           detail::shared_flags(c, false) + detail::optimizer_flags(c.optimizer) +
           (c.cp > 1 && c.block.zigzag ? " --zigzag" : "") + (needs_no_clipping(c) ? " --clip 0" : "") +
           (c.offload.optimizer || c.offload.activations
                ? " --offload-folder " + (c.offload.folder.empty() ? std::string("FOLDER") : c.offload.folder)
                : "");
}

PENTAD_INLINE std::string run_command(Strategy const& c, std::string const& model) {
    return "mpiexec -n " + std::to_string(c.devices()) + " train_lm --model " + model + " " + run_flags(c);
}

PENTAD_INLINE std::array<std::pair<std::string_view, double>, 5> memory_kinds(planner::Memory const& memory) {
    return {{{"weights", memory.weights},
             {"gradients", memory.gradients},
             {"optimizer state", memory.optimizer},
             {"activations", memory.activations},
             {"workspace", memory.workspace}}};
}

} // namespace pentad::report

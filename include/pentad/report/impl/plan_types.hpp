// The functions of <pentad/report/plan_types.hpp>.
#pragma once

#include <pentad/report/plan_types.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/planner/pairs.hpp>
#include <pentad/report/plan_text.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

namespace pentad::report::detail {

/// The template of its residual stream.
PENTAD_INLINE std::string stream_type(planner::Configuration const& c) {
    if (c.tensor_kind == model::TensorKind::three_d) return "CubeStream";
    if (c.tensor_kind != model::TensorKind::one_d) return "GridStream";
    return c.sequence_parallel ? "SequenceStream" : "InvariantStream";
}

} // namespace pentad::report::detail

namespace pentad::report::detail {

/// A number of which nothing is lost.
PENTAD_INLINE std::string real_value(double value) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// "{.a = 1, .b = true}"
class Initialiser {
  public:
    void add(std::string_view member, std::string const& value) {
        text_ += (text_.empty() ? "." : ", .") + std::string(member) + " = " + value;
    }
    void add(std::string_view member, double value) { add(member, real_value(value)); }
    void add(std::string_view member, bool value) { add(member, std::string(value ? "true" : "false")); }
    [[nodiscard]] bool empty() const { return text_.empty(); }
    [[nodiscard]] std::string text() const { return "{" + text_ + "}"; }

  private:
    std::string text_;
};

/// As a value of a model::Optimizer.
PENTAD_INLINE std::string optimizer_value(model::Optimizer const& optimizer) {
    Initialiser text;
    if (auto const* adamw = std::get_if<model::AdamW>(&optimizer)) {
        text.add("beta1", adamw->beta1);
        text.add("beta2", adamw->beta2);
        text.add("epsilon", adamw->epsilon);
        text.add("weight_decay", adamw->weight_decay);
        return "model::AdamW" + text.text();
    }
    if (auto const* sgd = std::get_if<model::Sgd>(&optimizer)) {
        text.add("momentum", sgd->momentum);
        text.add("nesterov", sgd->nesterov);
        text.add("weight_decay", sgd->weight_decay);
        return "model::Sgd" + text.text();
    }
    if (auto const* lion = std::get_if<model::Lion>(&optimizer)) {
        text.add("beta1", lion->beta1);
        text.add("beta2", lion->beta2);
        text.add("weight_decay", lion->weight_decay);
        return "model::Lion" + text.text();
    }
    auto const& muon = std::get<model::Muon>(optimizer);
    text.add("momentum", muon.momentum);
    text.add("nesterov", muon.nesterov);
    text.add("weight_decay", muon.weight_decay);
    text.add("epsilon", muon.epsilon);
    text.add("iterations", std::to_string(muon.iterations));
    text.add("rate", std::string("model::MuonRate::") +
                         (muon.rate == model::MuonRate::original ? "original" : "match_rms_adamw"));
    text.add("others", optimizer_value(muon.others));
    return "model::Muon" + text.text();
}

/// As an initialiser of a model::Precision; empty where all is full.
PENTAD_INLINE std::string precision_value(model::Precision const& precision) {
    auto const name = [](Compact compact) { // of the enumerator
        return "Compact::" +
               std::string(compact == Compact::none ? "none" : compact_names[static_cast<std::size_t>(compact)]);
    };
    Initialiser text;
    if (precision.reduce != Compact::none) text.add("reduce", name(precision.reduce));
    if (precision.rows != Compact::none) text.add("rows", name(precision.rows));
    if (precision.moments != Compact::none) text.add("moments", name(precision.moments));
    if (!precision.keeps_masters) text.add("keeps_masters", false);
    return text.empty() ? "" : text.text();
}

/// As an initialiser of a model::Offload; empty where nothing is in files.
PENTAD_INLINE std::string offload_value(model::Offload const& offload) {
    Initialiser text;
    if (offload.optimizer) text.add("optimizer", true);
    if (offload.activations) text.add("activations", true);
    if (!offload.folder.empty()) text.add("folder", "R\"(" + offload.folder + ")\"");
    if (offload.window_bytes > 0) text.add("window_bytes", std::to_string(offload.window_bytes));
    return text.empty() ? "" : text.text();
}

/// As an initialiser of LocalSteps; empty where there are none.
PENTAD_INLINE std::string local_value(LocalSteps const& local) {
    if (!local.is_on()) return "";
    Initialiser text;
    text.add("steps", std::to_string(local.steps));
    text.add("ranks", std::to_string(local.ranks));
    text.add("outer_learning_rate", local.outer_learning_rate);
    text.add("outer_momentum", local.outer_momentum);
    return text.text();
}

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
    auto const field = [](std::string_view member, std::string const& value) {
        return value.empty() ? "" : ",\n            ." + std::string(member) + " = " + value;
    };
    planner::Configuration const usual;
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
        (c.local.is_on() ? " // to be split for local steps: model::split_data(mesh, " + number(c.local.ranks) + ")"
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
        field("stage_layers", c.stage_layers.empty() ? "" : "{" + stages_text(c.stage_layers) + "}") +
        (c.balances_stages ? ",\n            .balances_stages = true" : "") +
        ",\n            .recompute = " + detail::recompute_value(c.recompute) +
        ",\n            .sharding = {.stage = " + number(c.sharding.stage) +
        (c.sharding.ranks > 0 ? ", .ranks = " + number(c.sharding.ranks) : "") +
        (c.sharding.keeps_parameters ? ", .keeps_parameters = true" : "") +
        (c.sharding.accumulates_gradients ? ", .accumulates_gradients = true" : "") +
        (c.sharding.releases_gradients ? ", .releases_gradients = true" : "") + "}" +
        field("local", detail::local_value(c.local)) +
        field("bucket_elements", c.bucket_elements == usual.bucket_elements ? "" : number(c.bucket_elements)) +
        field("optimizer", c.optimizer == usual.optimizer ? "" : detail::optimizer_value(c.optimizer)) +
        field("precision", detail::precision_value(c.precision)) + field("offload", detail::offload_value(c.offload)) +
        (c.sharding.releases_gradients ? ",\n            .clip = 0" : "") + "};\n}\n\n} // namespace plan\n";
    return text;
}

} // namespace pentad::report

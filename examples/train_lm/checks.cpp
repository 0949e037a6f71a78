// Validates the numeric options as a whole and suggests flags that repair them.
#include "flags.hpp"
#include "options.hpp"
#include "rules.hpp"
#include "settings.hpp"

#include <pentad/model/mixers.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/report/blocks_flag.hpp>
#include <pentad/train/elements.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

namespace train_lm {

namespace {

using O = Options;

std::optional<std::string> mesh_fault(O const& o, int ranks) {
    std::int64_t size = 1;
    for (auto const& [name, extent] : o.mesh) {
        if (extent < 1) return "--mesh " + mesh_text(o.mesh) + " has an extent that is not positive";
        size = product({size, extent});
    }
    if (size == ranks) return std::nullopt;
    return "--mesh " + mesh_text(o.mesh) + " is a mesh of " + text(size) + " ranks, and the run has " + text(ranks);
}

/// Calls `visit` with every way to write `ranks` as a product of the axes from `axis` on.
template <class Visit>
void for_each_mesh(O& o, std::size_t axis, std::int64_t ranks, Visit const& visit) {
    if (axis + 1 == o.mesh.size()) {
        o.mesh[axis].extent = ranks;
        follow(o);
        visit(o);
        return;
    }
    for (std::int64_t extent = 1; extent <= ranks; ++extent)
        if (ranks % extent == 0) {
            o.mesh[axis].extent = extent;
            for_each_mesh(o, axis + 1, ranks / extent, visit);
        }
}

/// The mesh of this many ranks that is nearest to the one asked for, among those with which most of the rest works.
/// Distance is counted in doublings and halvings: dp, which changes no size of the model, is the cheapest to change, an
/// axis that was not asked for the dearest.
O nearest_mesh(O const& asked, int ranks) {
    struct Best {
        std::size_t faults = std::numeric_limits<std::size_t>::max();
        double distance = std::numeric_limits<double>::infinity();
        O options;
    } best;
    O candidate = asked;
    for_each_mesh(candidate, 0, ranks, [&](O const& o) {
        double distance = 0;
        for (std::size_t i = 0; i < o.mesh.size(); ++i) {
            auto const old = static_cast<double>(std::max<std::int64_t>(asked.mesh[i].extent, 1));
            double const weight = o.mesh[i].name == "dp" ? 0.5 : old > 1 ? 1 : 2;
            distance += weight * std::abs(std::log2(static_cast<double>(o.mesh[i].extent) / old));
        }
        auto const faults = fault_count(o);
        if (std::pair(faults, distance) < std::pair(best.faults, best.distance - 1e-9)) best = {faults, distance, o};
    });
    return best.options;
}

/// A value as a shell takes it.
std::string as_argument(std::string const& value) {
    constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
    if (!value.empty() && value.find_first_not_of(plain) == value.npos) return value;
    std::string quoted = "'";
    for (char const c : value) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

/// Checks --mixers, and refuses flags of a kind of mixer that the model does not have.
void repair_mixers(Options& o, Complaint& complaint) {
    if (!pentad::model::mixers_of(o.mixers)) {
        complaint.add("--mixers " + o.mixers + " is not a list of a, m and l, such as m,m,a", "--mixers");
        o.mixers = "a";
    }
    Options const defaults;
    auto const refuse_without = [&](std::string const& letters, std::string_view flag, bool is_given) {
        bool const has = letters == "a" ? has_attention(o) : o.mixers.find_first_of(letters) != o.mixers.npos;
        if (!is_given || has) return;
        std::string const kind = letters == "a"   ? "attention"
                                 : letters == "m" ? "Mamba-2"
                                                  : "Mamba-2 or linear attention";
        complaint.leave_out(std::string(flag) + " is of " + kind + ", and no layer has any: leave it out", flag);
    };
    refuse_without("a", "--latent-attention", !o.latent_attention.empty());
    refuse_without("a", "--window", o.window > 0);
    refuse_without("a", "--soft-cap", o.soft_cap > 0);
    refuse_without("a", "--positions", o.positions != defaults.positions);
    refuse_without("a", "--attention-sinks", o.attention_sinks);
    refuse_without("m", "--state", o.state != defaults.state);
    refuse_without("m", "--groups", o.groups != defaults.groups);
    refuse_without("m", "--expand", o.expand != defaults.expand);
    refuse_without("m", "--conv", o.conv != defaults.conv);
    refuse_without("ml", "--chunk", o.chunk != defaults.chunk);
}

/// Whether a weight of a loss is given, and not 0, which says that there is none.
bool weighs(double coefficient, double usual) { return coefficient != usual && coefficient != 0; }

/// Whether the routers of the model's experts have a loss that --aux-coef weighs.
bool has_balance_loss(Options const& o) {
    auto router = o.described ? o.described->first<pentad::model::Experts>()->router : router_of(o);
    if (o.described && !o.balance.empty()) router.set_balance(o.balance);
    return router.balance_loss != pentad::model::BalanceLoss::none;
}

/// Refuses flags of experts in a model without experts, and flags of routers that exclude each other.
void repair_router(Options& o, Complaint& complaint) {
    Options const defaults;
    auto const leave_out = [&](std::string_view flag, std::string const& why) {
        complaint.leave_out(std::string(flag) + " " + why + ": leave it out", flag);
    };
    for (auto const& [flag, is_given] :
         {std::pair("--top-k", o.top_k != defaults.top_k),
          std::pair("--moe-every", o.moe_every != defaults.moe_every),
          std::pair("--aux-coef", weighs(o.aux_coef, o.usual_aux_coef)),
          std::pair("--z-coef", weighs(o.z_coef, o.usual_z_coef)),
          std::pair("--row-dtype", o.strategy.precision.rows != defaults.strategy.precision.rows),
          std::pair("--router", o.router != defaults.router),
          std::pair("--renormalise", !o.renormalise.empty()),
          std::pair("--route-scale", o.route_scale != defaults.route_scale),
          std::pair("--expert-groups", o.expert_groups != defaults.expert_groups),
          std::pair("--top-groups", o.top_groups != defaults.top_groups),
          std::pair("--expert-ffn", o.expert_ffn != defaults.expert_ffn),
          std::pair("--shared-experts", o.shared_experts != defaults.shared_experts),
          std::pair("--dense-layers", o.dense_layers != defaults.dense_layers),
          std::pair("--balance", !o.balance.empty()),
          std::pair("--capacity", o.capacity != defaults.capacity),
          std::pair("--bias-rate", o.bias_rate != defaults.bias_rate),
          std::pair("--bias-step", o.bias_step != defaults.bias_step),
          std::pair("--drop", o.drop != defaults.drop),
          std::pair("--rebalance-experts", o.rebalance_experts > 0),
          std::pair("--row-parts", o.strategy.block.row_parts != defaults.strategy.block.row_parts)})
        if (is_given && o.experts < 1) leave_out(flag, "is of experts, and the model has none");
    if (o.experts < 1) return;
    if (o.rebalance_experts > 0 && o.strategy.local.steps > 0)
        leave_out("--rebalance-experts", "does not go with --local-steps: optimizer states of groups differ");
    bool has_bias = o.balance.starts_with("bias");
    if (weighs(o.aux_coef, o.usual_aux_coef) && !has_balance_loss(o))
        leave_out("--aux-coef", "is the weight of a balance loss, and the router has none");
    if (o.described) { // whose parameters a choice of balance must not change
        bool const is_described = o.described->first<pentad::model::Experts>()->router.has_bias;
        if (!o.balance.empty() && has_bias != is_described)
            leave_out("--balance", o.balance + (has_bias ? " gives experts biases, which the model of --model lacks"
                                                         : " takes away the biases of the experts of --model"));
        has_bias = is_described;
    }
    if (o.drop != defaults.drop && o.capacity == 0) leave_out("--drop", "says nothing without --capacity");
    if (o.bias_step != defaults.bias_step && !has_bias) leave_out("--bias-step", "says nothing without --balance bias");
    if (o.bias_rate != defaults.bias_rate && !has_bias) leave_out("--bias-rate", "says nothing without --balance bias");
    if (o.slices > 1 && router_of(o).needs_whole_sequences()) {
        complaint.add("--slices " + text(o.slices) +
                          ": a capacity, --router expert-choice and sinkhorn see whole sequences",
                      "--slices");
        o.slices = 1;
    }
    if (o.described) return;
    bool const tokens_choose = o.router == "softmax" || o.router == "sigmoid" || o.router == "switch";
    if (tokens_choose) return;
    if (!o.balance.empty() && o.balance != "none")
        leave_out("--balance", o.balance + " is for tokens that choose their experts, not for --router " + o.router);
    if (o.expert_groups > 1) leave_out("--expert-groups", "is for tokens that choose their experts");
    if (o.router == "expert-choice" && o.drop != defaults.drop)
        leave_out("--drop", "is for tokens that choose their experts");
}

/// Checks --latent-attention, and refuses flags that only other kinds of attention have.
void repair_latent_attention(Options& o, Complaint& complaint) {
    if (o.latent_attention.empty()) return;
    if (auto const choice = latent_of(o); !choice.refusal.empty()) {
        complaint.add(choice.refusal, "--latent-attention");
        o.latent_attention = choice.instead;
    }
    Options const defaults;
    for (auto const& [is_given, flag] :
         {std::pair(o.kv_heads_given, "--kv-heads"), std::pair(o.positions != defaults.positions, "--positions"),
          std::pair(o.soft_cap > 0, "--soft-cap"), std::pair(o.attention_sinks, "--attention-sinks"),
          std::pair(o.strategy.block.tensor_kind != defaults.strategy.block.tensor_kind, "--tp-kind")})
        if (is_given)
            complaint.leave_out(std::string(flag) + " is of attention that is not latent: leave it out", flag);
}

/// Refuses a list of blocks that is none.
void repair_blocks(O& o, Complaint& complaint) {
    if (o.blocks.empty() || pentad::report::with_blocks(o.strategy, o.blocks)) return;
    complaint.leave_out(pentad::report::no_list_of_blocks(o.blocks), "--blocks");
    o.blocks.clear();
}

/// Documents are packed in one dimension of tensor parallelism alone.
void repair_tensor_kind(O& o, Complaint& complaint) {
    if (o.strategy.block.tensor_kind != pentad::model::TensorKind::one_d && o.pack)
        complaint.leave_out("--pack and --tp-kind " + std::string(name(o.strategy.block.tensor_kind)) +
                                ": documents are packed with --tp-kind 1d alone",
                            "--pack");
}

/// Refuses text of another vocabulary, tokens that are none, an element that was not built, and learning rates that
/// rise.
void repair_numbers(O& o, Complaint& complaint) {
    if (o.sample > 0 && o.tokens.empty() && !o.described && o.vocab > bytes_of_text)
        complaint.leave_out("--sample " + text(o.sample) + " writes text, whose tokens are its " + text(bytes_of_text) +
                                " bytes, and " + given(&O::vocab, o) + " has others: leave out one of the two",
                            "--sample");
    for (auto const [member, flag, does] : {std::tuple(&O::ignore_token, "--ignore-token", "carries no loss"),
                                            std::tuple(&O::pack, "--pack", "ends documents")}) {
        auto& token = o.*member;
        if (!token || *token < o.vocab) continue;
        std::string const reason = std::string(flag) + " " + text(*token) + " is not in the vocabulary, which has " +
                                   text(o.vocab) + " tokens, from 0 to " + text(o.vocab - 1);
        bool const is_changed =
            std::find(complaint.changed.begin(), complaint.changed.end(), flag) != complaint.changed.end();
        if (is_changed)
            token = o.vocab - 1; // what was asked for is none of ours to guess
        else
            complaint.leave_out(reason + ": name the one that " + does + ", or leave it out", flag);
    }
    if (auto const lacking = pentad::train::element_refusal(o.strategy.element); !lacking.empty()) {
        complaint.add("--dtype " + std::string(pentad::word_of(o.strategy.element)) + ": " + lacking, "--dtype");
        o.strategy.element = Options().strategy.element;
    }
    if (o.min_lr > o.lr) {
        complaint.add("--min-lr " + number_text(o.min_lr) + " is more than --lr " + number_text(o.lr) +
                          ", and the learning rate falls from that to this",
                      "--min-lr");
        o.min_lr = o.lr;
    }
}

/// Whether the layers cannot be dealt evenly to the stages, but unevenly.
bool wants_stages(O const& o, Fault const& fault) {
    return fault.flag == "--layers" && o.stages.empty() && o.schedule_file.empty() && o.stage_count() <= o.layers &&
           !divides(o.stage_count(), o.layers);
}

} // namespace

Conclusion conclude(Options options, Complaint complaint, int ranks, bool suggests) {
    if (auto const fault = mesh_fault(options, ranks)) {
        complaint.add(*fault, "--mesh");
        if (suggests) options = nearest_mesh(options, ranks);
    }
    repair_mixers(options, complaint);
    repair_latent_attention(options, complaint);
    repair_tensor_kind(options, complaint);
    repair_blocks(options, complaint);
    repair_router(options, complaint);
    repair_expert_mesh(options, complaint);
    repair_schedule(options, complaint);
    repair_checkpoints(options, complaint);
    repair_recomputation(options, complaint);
    if (O const defaults; options.mtp == 0 && options.mtp_coef != defaults.mtp_coef) {
        complaint.add("--mtp-coef " + number_text(options.mtp_coef) + " says nothing without --mtp", "--mtp-coef");
        options.mtp_coef = defaults.mtp_coef;
    }
    for (auto const name : {"--outer-lr", "--outer-momentum"}) {
        auto const& row = pentad::report::strategy_flag(name);
        auto const value = pentad::report::flag_value(options.strategy, row),
                   usual = pentad::report::flag_value({}, row);
        if (options.strategy.local.steps > 0 || value == usual) continue;
        complaint.add(std::string(name) + " " + value + " says nothing without --local-steps", name);
        pentad::report::set_flag(options.strategy, row, usual);
    }
    repair_offload(options, complaint);
    repair_numbers(options, complaint);
    // Each round repairs one fault and may cause one in a flag that is checked later.
    auto fault = first_fault(options);
    if (fault && !suggests) complaint.add(fault->reason, fault->flag);
    if (!suggests) fault.reset();
    for (int round = 0; fault && round < 32; ++round, fault = first_fault(options)) {
        if (wants_stages(options, *fault)) { // the model is what was asked for
            complaint.add((options.described ? "--model " + options.model + ": " : "") + fault->reason, "--stages");
            deal_stages(options, options.stage_count());
            continue;
        }
        if (fault->flag == "--stages") {
            repair_stages(options, options.stage_count(), complaint);
            continue;
        }
        bool const is_of_file = options.described && is_of_model(fault->flag);
        complaint.add((is_of_file ? "--model " + options.model + ": " : "") + fault->reason,
                      is_of_file ? "--mesh" : fault->flag);
        if (is_of_file || fault->flag == "--mesh") { // another mesh, if any
            options = nearest_mesh(options, ranks);
            fault = first_fault(options);
            break;
        }
        if (repair(options, *fault)) continue;
        Flag const& flag = *find_flag(fault->flag); // a flag that is not a number takes its default
        auto const before = value_text(flag, options);
        set_value(options, flag, "");
        if (flag.is_switch()) complaint.must_leave_out = true;
        if (value_text(flag, options) == before && !complaint.must_leave_out) break;
    }
    if (options.schedule_file.empty() && !fault) repair_stages(options, options.stage_count(), complaint);
    Conclusion const without{complaint.reason, {}, {}};
    if (complaint.reason.empty() || fault || complaint.must_leave_out) return without;
    if (check_schedule_file(options)) return without; // it would refuse any suggestion
    std::string suggestion;
    for (auto const name : complaint.changed) {
        Flag const& flag = *find_flag(name);
        auto const value = value_text(flag, options);
        auto const* const real = std::get_if<RealValue>(&flag.value);
        if (real != nullptr && !(options.*real->member >= real->least)) return without; // it has no default
        if (flag.shown.empty())
            suggestion += " " + std::string(name);
        else if (!value.empty())
            suggestion += " " + std::string(name) + " " + as_argument(value);
        else // of a file, no name of ours would be right
            return without;
    }
    return {complaint.reason, std::move(suggestion), std::move(options)};
}

namespace {
/// With all axes of the mesh, and with the values that follow from others.
Options completed(Options options, int ranks) {
    for (auto const name : axis_names)
        if (std::none_of(options.mesh.begin(), options.mesh.end(),
                         [&](MeshAxis const& known) { return known.name == name; }))
            options.mesh.push_back({std::string(name), options.mesh.empty() ? ranks : 1});
    follow(options);
    return options;
}
} // namespace

std::optional<std::string> check(Options const& options, int ranks) {
    auto const conclusion = conclude(completed(options, ranks), {}, ranks);
    if (conclusion.reason.empty()) return std::nullopt;
    return conclusion.reason + (conclusion.suggestion.empty() ? "" : ": try" + conclusion.suggestion);
}

std::string refusal(Options const& options, int ranks) {
    return conclude(completed(options, ranks), {}, ranks, false).reason;
}

} // namespace train_lm

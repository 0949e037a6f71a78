// The functions of <pentad/report/plan_account.hpp>.
#pragma once

#include <pentad/report/plan_account.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/report/plan_remarks.hpp>
#include <pentad/report/plan_table.hpp>
#include <pentad/report/plan_text.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace pentad::report::detail {

/// "attention: gemm", for a product that is part of "attention forward".
PENTAD_INLINE std::string operation_name(observe::Work const& x) {
    std::string scope(x.scope), name(x.name);
    for (auto const* const pass : {" forward", " backward", " weights"})
        if (scope.ends_with(pass)) scope.resize(scope.size() - std::string_view(pass).size());
    for (auto const* const pass : {"_forward", "_backward_data", "_backward_weight", "_backward"})
        if (name.ends_with(pass)) {
            name.resize(name.size() - std::string_view(pass).size());
            break;
        }
    if (name.starts_with("pentad::")) name.erase(0, std::string_view("pentad::").size());
    std::replace(name.begin(), name.end(), '_', ' ');
    if (name.starts_with(scope + " ")) name.erase(0, scope.size() + 1);
    return scope.empty() || scope == name ? name : scope + ": " + name;
}

PENTAD_INLINE std::vector<OperationTime> operation_times(planner::Model const& model, planner::Hardware const& hardware,
                                                         Strategy const& c) {
    auto const nodes = planner::dispatch_nodes(model, c, hardware.devices_per_node);
    planner::Account const account(model, c, 1, nodes);
    auto const ends = model.shape(c, nodes);
    auto const accounts = model.accounts(ends);
    planner::OwnMesh const of_model{c, c.block, planner::mesh_of(c, model, 1, nodes)};
    std::vector<OperationTime> list;
    auto const add_part = [&](planner::PartAccount const& part, double times, bool is_block,
                              planner::OwnMesh const& lies) {
        planner::Rates const rates(hardware, lies.strategy);
        for (auto const* pass : {&part.forward, &part.backward_data, &part.backward_weight})
            for (auto const& x : pass->work) {
                auto const [seconds, bound] = rates.of(x, lies.mesh, is_block);
                if (seconds == 0) continue;
                auto const name = operation_name(x);
                bool const sends = x.kind == observe::WorkKind::exchange;
                auto found = std::find_if(list.begin(), list.end(), [&](auto const& known) {
                    return known.name == name && known.sends == sends;
                });
                if (found == list.end()) found = list.insert(found, {.name = name, .sends = sends});
                (pass == &part.forward ? found->forward : found->backward) += times * seconds;
                if (seconds > found->longest) found->longest = seconds, found->bound = bound;
            }
    };
    add_part(accounts.embedding(), 1, false, of_model);
    planner::AlikeLayers const layers(model, c);
    std::vector<double> count(layers.alike.size());
    for (auto const at : layers.of_layer) ++count[at];
    for (std::size_t i = 0; i < count.size(); ++i) {
        auto const& [kind, recompute, block, before] = layers.alike[i];
        auto shape = account.shape_of(block, before);
        shape.recompute = recompute;
        auto const own = account.own_mesh(block);
        add_part(shape == ends ? accounts.block(kind) : model.accounts(shape).block(kind), count[i], true,
                 own ? *own : of_model);
    }
    auto const head = account.shape_of(c.block, c.before_block(layers.of_layer.size()));
    add_part(head == ends ? accounts.head() : model.accounts(head).head(), 1, false, of_model);
    std::sort(list.begin(), list.end(), [](auto const& a, auto const& b) { return a.seconds() > b.seconds(); });
    return list;
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE std::string plan_account(planner::Model const& model, planner::Hardware const& hardware,
                                       Strategy const& c) {
    auto const estimate = planner::estimate(model, hardware, c);
    using Cells = std::vector<std::vector<std::string>>;
    std::string text = model.name + " on " + std::to_string(c.devices()) + " x " + hardware.name + ": " + mesh_text(c) +
                       " " + settings_text(c) + "\n\nstep " + duration(estimate.step_s) + ", " +
                       count(estimate.tokens_per_s) + " tokens/s, MFU " + percent(estimate.mfu) + ", memory " +
                       bytes(estimate.memory_peak) + " of " + bytes(hardware.memory_bytes) +
                       (estimate.fits ? "" : ": " + what_is_lacking(estimate, hardware)) + "\n";
    auto const section = [&](std::string const& heading, Cells const& rows) {
        text += "\n" + heading + "\n" + table_text(rows, 1);
    };
    Cells rows;
    for (auto const& [what, seconds] : time_shares(estimate.shares))
        rows.push_back({"  " + what, duration(seconds), percent(seconds / estimate.step_s)});
    section(c.pp > 1 ? "a step, on average over the ranks of the pipeline" : "a step", rows);
    if (c.pp > 1)
        text +=
            "\nlayers of the stages: " + stages_text(estimate.stage_layers) + "; " + stages_account(estimate) + "\n";
    rows.clear();
    for (auto const& [what, held] : memory_kinds(estimate.fullest))
        rows.push_back({"  " + std::string(what), bytes(held)});
    section("memory of the fullest rank (the mean is " + bytes(estimate.memory_mean) + ")", rows);
    rows.clear();
    for (auto const axis : view_axes)
        if (estimate.bytes[axis] > 0)
            rows.push_back({"  " + std::string(axis), bytes(estimate.bytes[axis]),
                            bytes(estimate.bytes[axis] / static_cast<double>(c.devices())) + " a rank"});
    if (!rows.empty()) section("sent in a step, by axis", rows);

    auto planned = c;
    planned.recompute = estimate.recompute;
    if (c.recompute.kind == model::Recomputation::Kind::automatic)
        text +=
            "\nrecomputed: " + recomputed_layers(estimate.recompute, static_cast<std::size_t>(model.layers())) + "\n";
    if (estimate.shares.hidden > 0)
        text += "\npairs hide " + duration(estimate.shares.hidden) +
                " of communication: a forward and a backward each compute while the other waits\n";
    auto const times = detail::operation_times(model, hardware, planned);
    double all = 0;
    for (auto const& x : times) all += x.seconds();
    rows = {{"  ", "forward", "backward", "share", "bound by"}};
    for (auto const& x : times)
        rows.push_back({"  " + x.name + (x.sends ? " (sent)" : ""), duration(x.forward), duration(x.backward),
                        percent(x.seconds() / all),
                        std::string(planner::bound_names[static_cast<std::size_t>(x.bound)])});
    section("operations of a micro-batch in all stages: " + duration(all), rows);

    text += "\nguidelines (+ followed, - not)\n";
    for (auto const& remark : plan_remarks(model, hardware, c))
        text += std::string(remark.follows ? "+ " : "- ") + remark.text + "\n";
    return text;
}

PENTAD_INLINE std::vector<std::pair<std::string, double>> time_shares(planner::Shares const& shares) {
    std::vector<std::pair<std::string, double>> list{
        {"matrix products", shares.matrix}, {"attention", shares.attention}, {"passes over memory", shares.vector}};
    for (auto const axis : view_axes)
        if (shares.communication[axis] > 0)
            list.emplace_back("communication, " + std::string(axis), shares.communication[axis]);
    list.insert(list.end(), {{"waits for the host", shares.launches},
                             {"waits for the slowest stage", shares.imbalance},
                             {"waits for other stages", shares.bubble},
                             {"gradients and parameters", shares.synchronisation},
                             {"optimizer", shares.optimizer}});
    for (auto& [what, seconds] : list) seconds = std::max(seconds, 0.0); // a difference of sums may be rounded below
    return list;
}

} // namespace pentad::report

// The strategy and the settings of the run that the options describe.
#include "options.hpp"

#include <pentad/model/optimizer.hpp>
#include <pentad/report/blocks_flag.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace train_lm {

namespace {

pentad::model::Optimizer make_optimizer(Options const& o) {
    namespace model = pentad::model;
    model::AdamW const adamw{.beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay};
    if (o.optimizer == "sgd")
        return model::Sgd{.momentum = o.momentum < 0 ? model::Sgd().momentum : o.momentum,
                          .nesterov = o.nesterov == "on",
                          .weight_decay = o.weight_decay};
    if (o.optimizer == "lion") return model::Lion{.beta1 = o.beta1, .beta2 = o.beta2, .weight_decay = o.weight_decay};
    if (o.optimizer == "muon")
        return model::Muon{.momentum = o.momentum < 0 ? model::Muon().momentum : o.momentum,
                           .nesterov = o.nesterov != "off",
                           .weight_decay = o.weight_decay,
                           .rate =
                               o.muon_rate == "original" ? model::MuonRate::original : model::MuonRate::match_rms_adamw,
                           .others = adamw};
    return adamw;
}

} // namespace

pentad::train::RunSettings make_settings(Options const& o) {
    pentad::train::RunSettings s;
    s.model = make_model(o);
    s.strategy = strategy_of(o);
    if (o.ignore_token) s.ignored = static_cast<std::int32_t>(*o.ignore_token);
    if (o.pack) s.packing = {.last = static_cast<std::int32_t>(*o.pack), .deals_by_work = !o.zigzag};
    s.steps = o.steps;
    s.learning_rate = o.lr;
    if (o.min_lr >= 0) s.min_learning_rate = o.min_lr;
    s.warmup = o.warmup;
    s.rebalance_every = o.rebalance_experts;
    s.clip = o.clip;
    s.max_bad_steps = o.max_bad_steps;
    s.balance_coefficient = o.aux_coef;
    s.z_coefficient = o.z_coef;
    s.prediction_coefficient = o.mtp_coef;
    s.seed = static_cast<std::uint64_t>(o.seed);
    return s;
}

pentad::Strategy strategy_of(Options const& o) {
    auto s = o.strategy;
    s.dp = o.extent("dp"), s.pp = o.extent("pp"), s.ep = o.extent("ep"), s.cp = o.extent("cp"), s.tp = o.extent("tp");
    for (std::size_t i = 0; i < o.mesh.size(); ++i) // none of --mesh auto, before it is planned
        s.order[i] = *std::find(pentad::axis_order.begin(), pentad::axis_order.end(), o.mesh[i].name);
    s.experts = o.folded_experts();
    s.batch = o.batch;
    if (!o.schedule_file.empty()) s.schedule = pentad::Strategy().schedule;
    s.pairs = o.pairs();
    s.balances_stages = o.stages == "balanced";
    if (!o.stages.empty() && !s.balances_stages)
        s.stage_layers = stage_layers(o.stages).value_or(std::vector<std::int64_t>{}); // conclude() refuses it
    s.block.use(o.context_split());
    s.block.zigzag = o.zigzag;
    if (!o.blocks.empty()) s = pentad::report::with_blocks(s, o.blocks).value_or(s); // conclude() refuses it
    s.recompute = recomputation_of(o);
    s.optimizer = make_optimizer(o);
    s.offload = offload_of(o);
    return s;
}

} // namespace train_lm

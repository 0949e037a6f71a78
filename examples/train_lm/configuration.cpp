#include "configuration.hpp"

#include <pentad/layout/ml.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/stages.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace train_lm {

namespace {

constexpr std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

} // namespace

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

pentad::train::RunSettings make_settings(Options const& o) {
    pentad::train::RunSettings s;
    s.model = make_model(o);
    s.batch = size(o.batch);
    s.micro_batches = size(o.micro_batches);
    s.seq = size(o.seq);
    s.order = o.zigzag ? pentad::Order::zigzag : pentad::Order::contiguous;
    s.context_strategy = o.context_split().strategy;
    s.attention_output = attention_output_of(o);
    s.balances_stages = o.stages == "balanced";
    if (!o.stages.empty() && !s.balances_stages) s.stage_layers = stage_layers(o.stages).value();
    s.recompute = recomputation_of(o);
    s.sharding = {.stage = static_cast<int>(o.zero),
                  .ranks = static_cast<int>(o.zero_ranks),
                  .keeps_parameters = o.zero_keep,
                  .accumulates_gradients = o.zero_accumulate,
                  .releases_gradients = o.gradient_release};
    s.bucket_elements = size(o.bucket_elements);
    if (o.ignore_token) s.ignored = static_cast<std::int32_t>(*o.ignore_token);
    if (o.pack) s.packing = {.last = static_cast<std::int32_t>(*o.pack), .deals_by_work = !o.zigzag};
    s.steps = o.steps;
    s.learning_rate = o.lr;
    if (o.min_lr >= 0) s.min_learning_rate = o.min_lr;
    s.warmup = o.warmup;
    s.optimizer = make_optimizer(o);
    s.precision = precision_of(o);
    s.row_parts = size(o.row_parts);
    s.rebalance_every = o.rebalance_experts;
    s.offload = offload_of(o);
    s.clip = o.clip;
    s.max_bad_steps = o.max_bad_steps;
    s.local = {.steps = static_cast<int>(o.local_steps),
               .ranks = static_cast<int>(o.local_ranks),
               .outer_learning_rate = o.outer_lr,
               .outer_momentum = o.outer_momentum};
    s.balance_coefficient = o.aux_coef;
    s.z_coefficient = o.z_coef;
    s.prediction_coefficient = o.mtp_coef;
    s.seed = static_cast<std::uint64_t>(o.seed);
    return s;
}

Mesh make_mesh(Options const& options, pentad::pipeline::Schedule const& schedule) {
    auto const views = configuration_of(options).views();
    auto const split =
        pentad::model::split_tensor_axis(views, pentad::ml::tp(), make_model(options), options.tensor_kind());
    // Hybrid ZeRO shards over inner(dp), and groups that train apart share every step along it.
    auto const neighbours =
        options.local_steps > 0 ? options.local_ranks : std::max<std::int64_t>(1, options.zero_ranks);
    return pentad::train::for_schedule(pentad::model::split_data(split, static_cast<int>(neighbours))
                                           .split<pentad::ml::cp>(static_cast<int>(options.context_split().inner)),
                                       schedule);
}

pentad::model::AttentionOutput attention_output_of(Options const& options) {
    return options.attention_output == "all-to-all" ? pentad::model::AttentionOutput::all_to_all
                                                    : pentad::model::AttentionOutput::reduce_scatter;
}

pentad::planner::Element element_of(Options const& options) {
    using pentad::planner::Element;
    return options.dtype == "f64" ? Element::f64 : options.dtype == "f32" ? Element::f32 : Element::bf16;
}

pentad::planner::Configuration configuration_of(Options const& options) {
    namespace planner = pentad::planner;
    auto const extent = [&](std::string_view axis) { return options.extent(axis); };
    planner::Configuration c{
        .dp = extent("dp"), .pp = extent("pp"), .ep = extent("ep"), .cp = extent("cp"), .tp = extent("tp")};
    for (std::size_t i = 0; i < c.order.size(); ++i)
        c.order[i] = *std::find(planner::axis_order.begin(), planner::axis_order.end(), options.mesh[i].name);
    c.experts = options.folded_experts();
    c.inner_cp = options.context_split().inner;
    c.tensor_kind = options.tensor_kind();
    c.sequence_parallel = options.sequence_parallel;
    c.element = element_of(options);
    if (options.schedule_file.empty()) c.schedule = options.schedule;
    c.chunks = options.chunks;
    c.pairs = options.pairs();
    return pentad::train::planned_configuration(make_settings(options), c);
}

pentad::planner::Request request_of(Options const& options, pentad::planner::Hardware hardware) {
    auto const settings = make_settings(options);
    pentad::planner::Request request{.model = pentad::train::planned_model(settings.model),
                                     .hardware = std::move(hardware),
                                     .seq = options.seq,
                                     .global_batch = options.batch,
                                     .element = element_of(options),
                                     .schedules = {options.schedule},
                                     .most_micro_batch = options.batch};
    request.micro_batches = options.micro_batches;
    request.chunks = options.stage_count() / options.extent("pp"); // of --chunks 0 as few as there can be
    request.zigzag = options.zigzag;
    // The run balances its stages by measured times; the planner balances them by its own.
    request.balances_stages = settings.balances_stages;
    for (auto const layers : settings.stage_layers) request.stage_layers.push_back(static_cast<std::int64_t>(layers));
    request.zero = settings.sharding.stage;
    request.zero_ranks = settings.sharding.ranks;
    request.zero_keep = settings.sharding.keeps_parameters;
    request.zero_accumulate = settings.sharding.accumulates_gradients;
    request.gradient_release = settings.sharding.releases_gradients;
    request.optimizer = settings.optimizer;
    request.precision = settings.precision;
    request.offload = settings.offload;
    request.local = settings.local;
    request.bucket_elements = options.bucket_elements;
    request.recompute = settings.recompute;
    request.tensor_kind = options.tensor_kind();
    request.sequence_parallel = options.sequence_parallel;
    request.attention_output = settings.attention_output;
    request.experts = options.folded_experts();
    if (options.pair != "auto" || settings.offload.activations) request.pairs = options.pair == "on";
    request.context = options.context();
    request.wants_front = false;
    return request;
}

} // namespace train_lm

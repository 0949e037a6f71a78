// The model that the options describe.
#include "options.hpp"

#include <pentad/model/decoder.hpp>
#include <pentad/model/mixers.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace train_lm {

namespace {

namespace model = pentad::model;

constexpr std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// What the flags say of all attention.
model::Model with_attention(model::Model described, Options const& o) {
    for (auto& block : described.blocks)
        for (auto& branch : block.branches)
            if (auto const* found = branch.part.as<model::Attention>()) {
                if (!o.latent_attention.empty()) {
                    branch.part = latent_of(o).part;
                    continue;
                }
                auto attention = *found;
                if (o.window > 0) attention.sight.window = size(o.window);
                if (o.soft_cap > 0) attention.scores.soft_cap = o.soft_cap;
                if (o.attention_sinks) attention.scores.sinks = true;
                if (o.positions != "rope") {
                    attention.rotates = false;
                    attention.scores.alibi = o.positions == "alibi";
                }
                branch.part = attention;
            }
    return described;
}

/// What the flags say of all experts.
model::Model with_experts(model::Model described, Options const& o) {
    std::size_t layer = 0;
    for (auto& block : described.blocks) {
        for (auto& branch : block.branches)
            if (auto const* found = branch.part.as<model::Experts>()) {
                auto experts = *found;
                experts.router = router_of(o);
                if (o.described) {
                    experts.router = found->router;
                    if (!o.balance.empty()) experts.router.set_balance(o.balance);
                    experts.router.bias_rate = o.bias_rate;
                    experts.router.bias_step = router_of(o).bias_step;
                    experts.router.capacity = o.capacity;
                    experts.router.drop = router_of(o).drop;
                    branch.part = experts;
                    continue;
                }
                experts.shared = size(o.shared_experts);
                if (o.expert_ffn > 0) experts.width = size(o.expert_ffn);
                if (layer < size(o.dense_layers))
                    branch = {model::GatedMlp{size(o.ffn)}, "mlp", branch.norm};
                else
                    branch.part = experts;
            }
        ++layer;
    }
    return described;
}

} // namespace

model::Router router_of(Options const& o) {
    auto router = model::named_router(o.router);
    router.scale = o.route_scale;
    router.groups = size(o.expert_groups);
    router.top_groups = size(o.top_groups == 0 ? o.expert_groups : o.top_groups);
    router.bias_rate = o.bias_rate;
    router.bias_step = o.bias_step == "sign" ? model::BiasStep::sign : model::BiasStep::proportional;
    router.capacity = o.capacity;
    router.drop = o.drop == "score" ? model::Drop::score : model::Drop::position;
    if (!o.renormalise.empty()) router.renormalises = o.renormalise == "on";
    if (!o.balance.empty()) router.set_balance(o.balance);
    return router;
}

model::Mamba2 mamba_of(Options const& o) {
    std::size_t const heads = size(std::max<std::int64_t>(o.heads, 1));
    return {.heads = size(o.expand) * heads,
            .head_dim = size(o.hidden) / heads,
            .state = size(o.state),
            .groups = size(o.groups),
            .norm_groups = size(o.groups),
            .convolution = size(o.conv),
            .chunk = size(o.chunk)};
}

LatentChoice latent_of(Options const& o) {
    struct Size {
        std::string_view name;
        std::int64_t value, least;
        bool is_given = false;
    };
    constexpr std::int64_t most = 1 << 20;
    std::array<Size, 5> sizes{{{"q", 0, 0}, {"kv", 64, 1}, {"rope", 16, 2}, {"nope", 32, 1}, {"v", 32, 1}}};
    std::string refusal;
    auto const complain = [&](std::string const& why) {
        if (refusal.empty()) refusal = "--latent-attention " + o.latent_attention + why;
    };
    bool is_list = true;
    std::istringstream items(o.latent_attention + ",");
    for (std::string item; std::getline(items, item, ',');) {
        auto const equals = std::min(item.find('='), item.size());
        auto* const size =
            std::find_if(sizes.begin(), sizes.end(), [&](Size const& s) { return s.name == item.substr(0, equals); });
        char const* const end = item.data() + item.size();
        std::int64_t value = 0;
        bool const is_number = equals < item.size() && std::from_chars(item.data() + equals + 1, end, value) ==
                                                           std::from_chars_result{end, std::errc()};
        if (size == sizes.end() || size->is_given || !is_number) {
            is_list = false;
            continue;
        }
        size->is_given = true;
        size->value = value;
    }
    for (auto const& size : sizes) is_list = is_list && size.is_given;
    if (!is_list) complain(" is not q=N,kv=N,rope=N,nope=N,v=N, each once");
    for (auto& size : sizes) {
        if (size.value >= size.least && size.value <= most) continue;
        complain(": " + std::string(size.name) + " = " + std::to_string(size.value) + " is not between " +
                 std::to_string(size.least) + " and " + std::to_string(most));
        size.value = std::clamp(size.value, size.least, most);
    }
    if (auto& rope = sizes[2].value; rope % 2 != 0) {
        complain(": rope = " + std::to_string(rope) + " is odd, and rotary embedding turns pairs");
        ++rope;
    }
    LatentChoice choice{.part = {.heads = size(o.heads),
                                 .head_dim = size(sizes[3].value),
                                 .rope_dim = size(sizes[2].value),
                                 .value_dim = size(sizes[4].value),
                                 .query_rank = size(sizes[0].value),
                                 .kv_rank = size(sizes[1].value),
                                 .sight = {.window = size(std::max<std::int64_t>(o.window, 0))}},
                        .refusal = std::move(refusal)};
    for (auto const& size : sizes)
        choice.instead +=
            (choice.instead.empty() ? "" : ",") + std::string(size.name) + "=" + std::to_string(size.value);
    return choice;
}

namespace {
/// Each predictor has a block as the last one.
model::Model with_predictors(model::Model described, Options const& o) {
    if (o.mtp > 0) described.predictors.assign(size(o.mtp), described.blocks.back());
    return described;
}
} // namespace

model::Model make_model(Options const& o) {
    if (o.described) return with_predictors(with_experts(with_attention(*o.described, o), o), o);
    auto const decoder = model::decoder({.layers = size(o.layers),
                                         .hidden = size(o.hidden),
                                         .heads = size(o.heads),
                                         .kv_heads = size(o.kv_heads),
                                         .ffn = size(o.ffn),
                                         .vocab = size(o.vocab),
                                         .experts = size(o.experts),
                                         .top_k = size(o.top_k),
                                         .moe_every = size(o.moe_every),
                                         .ties_embeddings = o.tie_embeddings});
    model::LinearAttention const linear{
        .heads = size(o.heads), .head_dim = size(o.hidden / o.heads), .chunk = size(o.chunk)};
    auto const mixed = model::with_mixers(decoder, model::mixers_of(o.mixers).value(), mamba_of(o), linear);
    return with_predictors(with_experts(with_attention(mixed, o), o), o);
}

} // namespace train_lm
